//! A Prometheus of the host scrapes the agent through a ramp, and answers every query of the dashboards and rules.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::accounts;
use super::viewed::Viewed;
use crate::cgroups::PodSpec;
use crate::init::EXT4;
use crate::stage::Stage;
use crate::units::MIB;
use crate::viewers::prometheus::Prometheus;

const DASHBOARDS: [(&str, &str); 3] = [
    ("fleet", include_str!("../../../config/grafana/fleet.json")),
    ("node", include_str!("../../../config/grafana/node.json")),
    ("agent", include_str!("../../../config/grafana/agent.json")),
];

/// Queries of dashboards and recording rules that return no series here, by a part of the query, with the reason.
const WITHOUT_SERIES: [(&str, &str); 6] = [
    ("container_memory_working_set_bytes", "this guest has no kubelet with cAdvisor"),
    ("node_pressure_monitor_container_runtime_up", "this guest has no container runtime"),
    ("node_pressure_monitor_capability_missing", "no capability is missing in this guest"),
    ("oom_kills_total[30m]", "the kernel kills no process"),
    ("node_pressure_monitor:oom_kills_at_limit:increase30m", "the kernel kills no process"),
    // Annotations.
    ("oom_kills_by_constraint_total{node=~\"guest\"}[1m])) > 0", "the kernel kills no process"),
];

/// The time limit of a value that the next scrapes bring.
const SOON: Duration = Duration::from_secs(30);

pub fn dashboards(stage: &mut Stage<'_>) -> Result<()> {
    let prometheus = Prometheus::of_host()?;
    let viewed = Viewed::start(stage)?;
    valued(stage, &prometheus, "up{job=\"node-pressure-monitor\"} == 1")?;
    // A pod stalls in reclaim at its own limit. Meanwhile the Prometheus sees the values from before the ramp.
    let staller = stage.pod("staller", PodSpec::best_effort())?;
    staller.container()?.limit(8 * MIB)?;
    let work = format!("memcg-stall --name staller --file {EXT4}/stall --mib 48");
    let staller = stage.work(&staller, &work)?;
    stage.pause(Duration::from_secs(6));
    accounts::end(stage, &[staller]);
    viewed.ramp(stage)?;
    valued(stage, &prometheus, "sum(node_pressure_monitor_evictions_total{outcome=\"killed\"}) == 1")?;
    valued(stage, &prometheus, "sum(node_pressure_monitor_eviction_report_latency_seconds_count) == 1")?;
    // Rates need two scrapes, and recording rules an evaluation.
    stage.pause(Duration::from_secs(5));
    let mut asked = 0;
    for (name, text) in DASHBOARDS {
        let dashboard: Value = serde_json::from_str(text).with_context(|| format!("parse {name}.json"))?;
        let mut queries = Vec::new();
        collect(&dashboard, &mut queries);
        for query in queries {
            asked += 1;
            check_query(stage, &prometheus, name, &filled(&query));
        }
    }
    stage.check(asked > 30, || format!("only {asked} queries were found in the dashboards"));
    check_rules(stage, &prometheus)?;
    stage.figure("queries_of_dashboards", f64::from(asked), "");
    viewed.stop(stage)
}

/// Collects the queries of a dashboard, however deep they are.
fn collect(value: &Value, queries: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            queries.extend(fields.get("expr").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|inner| collect(inner, queries));
        }
        Value::Array(items) => items.iter().for_each(|inner| collect(inner, queries)),
        _ => {}
    }
}

/// Replaces the variables of a dashboard as Grafana does.
fn filled(query: &str) -> String {
    query.replace("$__rate_interval", "1m").replace("$__interval", "15s").replace("$node", "guest")
}

fn check_query(stage: &mut Stage<'_>, prometheus: &Prometheus, source: &str, query: &str) {
    if let Some((_, reason)) = WITHOUT_SERIES.iter().find(|(part, _)| query.contains(part)) {
        let found = prometheus.ask(query);
        let is_empty = found.as_ref().is_ok_and(Vec::is_empty);
        return stage.check(is_empty, || format!("{source}: {query} returns {found:?}, although {reason}"));
    }
    let found = valued(stage, prometheus, query);
    stage.check(found.is_ok(), || format!("{source}: {found:?}"));
}

/// Waits until a query returns a value. A scrape that takes too long on a busy host fails, and all series of the agent end
/// until the next one.
fn valued(stage: &mut Stage<'_>, prometheus: &Prometheus, query: &str) -> Result<()> {
    let mut last = Ok(Vec::new());
    let came = stage.until(SOON, |stage| {
        last = prometheus.ask(query);
        let has_value = last.as_ref().is_ok_and(|values| values.iter().any(|value| !value.is_nan()));
        if !has_value {
            stage.pause(Duration::from_millis(500));
        }
        has_value
    });
    if came { Ok(()) } else { bail!("no series with a value after {SOON:?}: {query}: {last:?}") }
}

/// Asserts that every rule can be evaluated, recording rules have values, and the alerts that fire are those of this ramp.
fn check_rules(stage: &mut Stage<'_>, prometheus: &Prometheus) -> Result<()> {
    let rules = prometheus.rules()?;
    for rule in &rules {
        stage.check_equal(&rule.name, &rule.health.as_str(), &"ok");
        let asked = prometheus.ask(&rule.query);
        stage.check(asked.is_ok(), || format!("{}: {}: {asked:?}", rule.name, rule.query));
        if !rule.is_alert {
            for query in [&rule.query, &rule.name] {
                check_query(stage, prometheus, &rule.name, query);
            }
        }
    }
    let (alerts, recorded): (Vec<_>, Vec<_>) = rules.iter().partition(|rule| rule.is_alert);
    stage.check(alerts.len() >= 20 && recorded.len() >= 4, || {
        format!("the Prometheus has only {} alerts and {} recording rules", alerts.len(), recorded.len())
    });
    let firing = prometheus.firing()?;
    stage.note(format!("firing: {firing:?}"));
    stage.check(firing.contains("NodePressureEviction"), || format!("NodePressureEviction does not fire: {firing:?}"));
    for quiet in ["NodeOOMKill", "NodePressureEvictionFailed", "NodePressureMonitorLoopStalled"] {
        stage.check(!firing.contains(quiet), || format!("{quiet} fires"));
    }
    Ok(())
}
