//! The requests and bytes of a phase, and their table.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use node_pressure_apiserver::{Log, Record, Traffic};

/// A phase under way.
#[derive(Debug)]
pub struct Phase<'l> {
    name: &'static str,
    log: &'l Log,
    begun: Instant,
    before: Traffic,
}

impl<'l> Phase<'l> {
    pub fn begin(name: &'static str, log: &'l Log) -> Self {
        log.clear();
        Self { name, log, begun: Instant::now(), before: log.traffic() }
    }

    pub fn end(self) -> Result<Row> {
        let Self { name, log, begun, before } = self;
        let (after, span) = (log.traffic(), begun.elapsed());
        let records = log.all().into_iter().filter(|record| (before.requests..after.requests).contains(&record.number));
        let (mut requests, mut kinds, mut seconds) = (0, BTreeMap::new(), BTreeMap::new());
        for record in records {
            requests += 1;
            *kinds.entry(kind(&record)).or_default() += 1;
            *seconds.entry(record.at.saturating_duration_since(begun).as_secs()).or_default() += 1;
        }
        ensure!(
            requests == after.requests - before.requests,
            "the log cannot hold the requests of a phase; use fewer nodes"
        );
        let received = after.bytes_received - before.bytes_received;
        Ok(Row { name, span, requests, kinds, seconds, received, sent: after.bytes_sent - before.bytes_sent })
    }
}

/// The shortest time for which an agent asks a watch to last.
const WATCH_LASTS: Duration = Duration::from_secs(300);

/// The traffic of a phase.
#[derive(Debug)]
pub struct Row {
    name: &'static str,
    span: Duration,
    requests: u64,
    kinds: BTreeMap<String, u64>,
    /// Requests by second of the phase.
    seconds: BTreeMap<u64, u64>,
    received: u64,
    sent: u64,
}

impl Row {
    pub fn busiest_second(&self) -> u64 {
        self.seconds.values().copied().max().unwrap_or_default()
    }

    pub fn lists(&self) -> u64 {
        self.kinds.iter().filter(|(kind, _)| kind.starts_with("LIST")).map(|(_, count)| count).sum()
    }

    /// Returns the requests a second other than those that so many agents need to renew their two watches: one request for each, at most
    /// every 5 minutes.
    pub fn per_second_without_renewals(&self, nodes: u32) -> f64 {
        let is_of_watch = |kind: &str| kind.starts_with("LIST") || kind.starts_with("WATCH");
        let of_watches = self.kinds.iter().filter(|(kind, _)| is_of_watch(kind)).map(|(_, count)| count).sum();
        let renewals = f64::from(nodes) * 2.0 / WATCH_LASTS.as_secs_f64();
        self.per_second(self.requests - of_watches) + (self.per_second(of_watches) - renewals).max(0.0)
    }

    #[expect(clippy::cast_precision_loss, reason = "shown with one digit behind the point")]
    fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.span.as_secs_f64()
    }

    pub fn print(&self) {
        let mut kinds: Vec<_> = self.kinds.iter().collect();
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let kinds: Vec<String> = kinds.into_iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let [received, sent] =
            [self.received, self.sent].map(|bytes| format!("{:.1}", self.per_second(bytes) / 1000.0));
        let name = format!("{}, {:.0} s", self.name, self.span.as_secs_f64());
        let (rate, busiest) = (self.per_second(self.requests), self.busiest_second().to_string());
        print_row(&name, &format!("{rate:.1}"), &busiest, &received, &sent, &kinds.join(", "));
    }
}

pub fn print_head() {
    print_row("phase", "requests/s", "busiest second", "kB/s to it", "kB/s from it", "requests of the phase");
}

/// Prints what kubelets send at rest, by their defaults. Their watches, as those of idle agents, are left out.
pub fn print_kubelets(nodes: u32, rate: f64) {
    let kinds = format!(
        "{} PUT leases, {:.1} GET nodes, {:.1} PATCH nodes/status a second",
        f64::from(nodes) / 10.0,
        f64::from(nodes) / 300.0,
        f64::from(nodes) / 300.0
    );
    print_row("kubelets, computed", &format!("{rate:.1}"), "-", "-", "-", &kinds);
}

fn print_row(name: &str, rate: &str, busiest: &str, received: &str, sent: &str, kinds: &str) {
    println!("{name:<28} {rate:>10} {busiest:>15} {received:>10} {sent:>12}  {kinds}");
}

/// Returns the verb and the collection of a request: `LIST pods`, `PATCH nodes/status`.
fn kind(record: &Record) -> String {
    let words: Vec<&str> = record.path.split('/').filter(|word| !word.is_empty()).collect();
    let plural = ["pods", "nodes", "leases", "events"].into_iter().find(|plural| words.contains(plural));
    let Some(plural) = plural else { return format!("{} {}", record.method, record.path) };
    let verb = match record.method.as_str() {
        _ if record.is_watch() => "WATCH",
        "GET" if words.last() == Some(&plural) => "LIST",
        method => method,
    };
    let subresource = if words.last() == Some(&"status") { "/status" } else { "" };
    format!("{verb} {plural}{subresource}")
}

/// Returns `place / count`.
#[expect(clippy::cast_precision_loss, reason = "a count of nodes")]
pub fn share(place: usize, count: usize) -> f64 {
    place as f64 / count as f64
}
