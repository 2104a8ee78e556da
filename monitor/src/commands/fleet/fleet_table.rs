//! The fleet as a table for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;

use crate::cluster::fleet::FleetNode;
use crate::cluster::node_digest::NearestThreshold;
use crate::commands::output::{aligned, few, printable};
use crate::units::{Bytes, Signal, format_go_duration};

use super::fleet_totals::Totals;

/// Namespaces and incidents that are shown.
const SHOWN: usize = 8;
/// Digits of a hash that are shown.
const HASH: usize = 8;
/// Columns of numbers.
const RIGHT: [usize; 4] = [4, 5, 6, 7];

pub(super) fn render(nodes: &[FleetNode], totals: &Totals, limit: usize, now: Timestamp) -> String {
    let mut text = head(nodes, totals);
    text.push('\n');
    let titles = ["NODE", "MODE", "POOL", "NEAREST THRESHOLD", "AVAILABLE", "IN", "EVICTIONS", "OOM KILLS", "SEEN"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    rows.extend(nodes.iter().take(limit).map(|node| row(node, now)));
    text += &aligned(&rows, 2, |column| RIGHT.contains(&column));
    let more = nodes.len().saturating_sub(limit);
    if more > 0 {
        // Writing to a String does not fail.
        let _ = writeln!(text, "and {more} more; --limit {} lists all", nodes.len());
    }
    text + &namespaces(totals) + &incidents(nodes)
}

fn head(nodes: &[FleetNode], totals: &Totals) -> String {
    let Totals { agents, silent, modes, versions, configurations, refused, counts, namespaces: _ } = totals;
    let mut text = format!("agents          {agents}, {}", each(modes, |mode| printable(mode)));
    if *silent > 0 {
        let names: Vec<String> = nodes.iter().filter(|node| node.is_silent).map(|node| printable(&node.node)).collect();
        let _ = write!(text, "; {silent} silent: {}", few(&names, SHOWN));
    }
    let _ = write!(text, "\nversions        {}", each(versions, |version| printable(version)));
    let _ = write!(text, "\nconfigurations  {}", each(configurations, short));
    if !refused.is_empty() {
        let names: Vec<String> = refused.iter().map(printable).collect();
        let _ = write!(text, "; a newer one was refused on {}", few(&names, SHOWN));
    }
    let _ = writeln!(text, "\ntoday (UTC)     {} evictions, {} OOM kills", counts.evictions, counts.oom_kills);
    text + &maintenance(nodes)
}

/// Returns a line with the nodes in maintenance, whose soft evictions wait by default. A silent agent's word is too old.
fn maintenance(nodes: &[FleetNode]) -> String {
    let known = nodes.iter().filter(|node| !node.is_silent);
    let named = |node: &FleetNode| {
        node.maintenance.as_ref().map(|reason| format!("{} ({})", printable(&node.node), printable(reason)))
    };
    let named: Vec<String> = known.filter_map(named).collect();
    if named.is_empty() { String::new() } else { format!("in maintenance  {}: {}\n", named.len(), few(&named, SHOWN)) }
}

/// Returns the most frequent first.
fn each(counts: &BTreeMap<String, usize>, shown: impl Fn(&String) -> String) -> String {
    let mut counts: Vec<_> = counts.iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let parts: Vec<String> = counts.into_iter().map(|(value, count)| format!("{count} {}", shown(value))).collect();
    few(&parts, SHOWN)
}

fn short(hash: &String) -> String {
    printable(hash).chars().take(HASH).collect()
}

fn row(node: &FleetNode, now: Timestamp) -> Vec<String> {
    let text = |value: &Option<String>| value.as_ref().map_or_else(|| "-".to_owned(), printable);
    let seen = node.renewed.map_or_else(|| "never".to_owned(), |at| format!("{} ago", time(age(at, now))));
    if node.is_silent {
        let mut row = vec![printable(&node.node), "silent".to_owned()];
        row.resize(8, "-".to_owned());
        row.push(seen);
        return row;
    }
    let nearest = node.nearest.as_ref();
    vec![
        printable(&node.node),
        text(&node.mode),
        text(&node.pool),
        nearest.map_or_else(|| "-".to_owned(), |nearest| printable(&nearest.threshold)),
        nearest.map_or_else(|| "-".to_owned(), available),
        nearest.and_then(|nearest| nearest.seconds).map_or_else(|| "-".to_owned(), reached),
        node.counts.evictions.to_string(),
        node.counts.oom_kills.to_string(),
        seen,
    ]
}

/// Returns the amount in the unit of the threshold's signal.
fn available(nearest: &NearestThreshold) -> String {
    let NearestThreshold { threshold, available, .. } = nearest;
    let signal = threshold.split('<').next().and_then(|signal| signal.parse::<Signal>().ok());
    match (signal, u64::try_from(*available)) {
        (Some(signal), Ok(bytes)) if signal.resource().is_bytes() => Bytes(bytes).to_string(),
        _ => available.to_string(),
    }
}

fn reached(seconds: f64) -> String {
    if seconds <= 0.0 { "met".to_owned() } else { time(seconds) }
}

fn age(at: Timestamp, now: Timestamp) -> f64 {
    now.duration_since(at).as_secs_f64().max(0.0)
}

/// Returns whole seconds as a duration.
fn time(seconds: f64) -> String {
    std::time::Duration::try_from_secs_f64(seconds.round()).map_or_else(|_| "-".to_owned(), format_go_duration)
}

fn namespaces(totals: &Totals) -> String {
    let mut sorted: Vec<_> = totals.namespaces.iter().collect();
    if sorted.is_empty() {
        return String::new();
    }
    sorted.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.evictions.saturating_add(counts.oom_kills)));
    let more = sorted.len().saturating_sub(SHOWN);
    let mut rows = vec![["NAMESPACE", "EVICTIONS", "OOM KILLS"].map(str::to_owned).to_vec()];
    rows.extend(sorted.into_iter().take(SHOWN).map(|(namespace, counts)| {
        vec![printable(namespace), counts.evictions.to_string(), counts.oom_kills.to_string()]
    }));
    let more = if more > 0 { format!("and {more} more\n") } else { String::new() };
    format!("\n{}{more}", aligned(&rows, 2, |column| column > 0))
}

/// Returns the last incidents of all nodes, the newest first.
fn incidents(nodes: &[FleetNode]) -> String {
    let mut last: Vec<(&String, &FleetNode)> =
        nodes.iter().filter_map(|node| Some((node.last_incident.as_ref()?, node))).collect();
    if last.is_empty() {
        return String::new();
    }
    // Each begins with its time.
    last.sort_by(|a, b| b.0.cmp(a.0));
    let rows: Vec<_> =
        last.into_iter().take(SHOWN).map(|(line, node)| vec![printable(&node.node), printable(line)]).collect();
    format!("\nLAST INCIDENTS\n{}", aligned(&rows, 2, |_| false))
}

#[cfg(test)]
mod tests {
    use super::super::fleet_totals::most_urgent_first;
    use super::*;
    use crate::cluster::node_digest::Counts;

    fn node(name: &str, seconds: Option<f64>, available: i64) -> FleetNode {
        FleetNode {
            node: name.to_owned(),
            version: Some("0.1.0".to_owned()),
            mode: Some("enforce".to_owned()),
            config_hash: Some("0123456789abcdef".to_owned()),
            nearest: Some(NearestThreshold {
                threshold: "memory.available<100Mi".to_owned(),
                available,
                value: 100 << 20,
                seconds,
            }),
            day: Some(jiff::civil::date(2026, 1, 1)),
            counts: Counts { evictions: 2, oom_kills: 1 },
            namespaces: [("batch".to_owned(), Counts { evictions: 2, oom_kills: 1 })].into(),
            renewed: Some(Timestamp::UNIX_EPOCH),
            ..FleetNode::default()
        }
    }

    #[test]
    fn the_fleet_is_shown_with_the_most_urgent_node_first() {
        let mut nodes = vec![
            node("calm", None, 900 << 20),
            FleetNode { is_silent: true, maintenance: Some("cordoned".to_owned()), ..node("gone", Some(0.0), 0) },
            FleetNode {
                day: Some(jiff::civil::date(2025, 12, 31)),
                config_hash: None,
                maintenance: Some("cordoned".to_owned()),
                ..node("near", None, 200 << 20)
            },
            FleetNode {
                pool: Some("batch".to_owned()),
                config_refused: true,
                ..node("soon\u{1b}[2J", Some(41.2), 300 << 20)
            },
        ];
        nodes[3].last_incident = Some("2026-01-01T00:00:00Z batch/report was evicted".to_owned());
        nodes.sort_by(most_urgent_first);
        let now = Timestamp::from_second(75).unwrap();
        assert_eq!(
            render(&nodes, &Totals::of(&nodes), 3, now),
            "\
agents          4, 3 enforce; 1 silent: gone
versions        3 0.1.0
configurations  2 01234567, 1 defaults; a newer one was refused on soon\u{fffd}[2J
today (UTC)     4 evictions, 2 OOM kills
in maintenance  1: near (cordoned)

NODE      MODE     POOL   NEAREST THRESHOLD       AVAILABLE   IN  EVICTIONS  OOM KILLS  SEEN
soon\u{fffd}[2J  enforce  batch  memory.available<100Mi  300.0 MiB  41s          2          1  1m15s ago
near      enforce  -      memory.available<100Mi  200.0 MiB    -          2          1  1m15s ago
calm      enforce  -      memory.available<100Mi  900.0 MiB    -          2          1  1m15s ago
and 1 more; --limit 4 lists all

NAMESPACE  EVICTIONS  OOM KILLS
batch              4          2

LAST INCIDENTS
soon\u{fffd}[2J  2026-01-01T00:00:00Z batch/report was evicted
"
        );
    }
}
