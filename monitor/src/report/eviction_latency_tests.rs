use std::collections::BTreeMap;
use std::time::Duration;

use node_pressure_state::Name;

use super::super::eviction_report::{BenefitReport, StartedEviction};
use super::super::openmetrics;
use super::super::register::Registry;
use super::*;
use crate::actions::{Ended, Started};
use crate::eviction::SignalValue;
use crate::eviction::decider::{EvictionEnd, RecordedTurn};
use crate::eviction::rank::{Order, Ranked};
use crate::units::{Amount, Bytes};
use crate::workloads::{PodUid, Workload, fixtures};

struct Fixture {
    registry: Registry,
    metrics: EvictionMetrics,
    times: EvictionTimes,
}

const fn ms(millis: u64) -> Monotonic {
    Monotonic(millis * 1_000_000)
}

fn met() -> MetThreshold {
    let threshold = crate::config::Policy::default_hard_threshold();
    let value = SignalValue::now(threshold.signal, Bytes(50), Bytes(1000));
    MetThreshold { place: 0, quantity: Amount::from_units(100), value, is_fresh: true, threshold }
}

fn uid() -> PodUid {
    PodUid("u-1".to_owned())
}

impl Fixture {
    fn new() -> Self {
        let registry = Registry::new();
        let metrics = EvictionMetrics::new(&registry).unwrap();
        metrics.start_series(&met().threshold, true);
        Self { registry, metrics, times: EvictionTimes::default() }
    }

    fn turn(&mut self, is_met: bool, available: u64, woken: u64) {
        let signals = vec![SignalValue::now(met().threshold.signal, Bytes(available), Bytes(1000))];
        let met: Vec<MetThreshold> = is_met.then(met).into_iter().collect();
        self.times.note_turn(&met, &Observation { signals }, ms(woken), &self.metrics);
    }

    fn evict(&mut self, cgroup: u64, action: Action, at: u64) {
        let policy = crate::config::Policy::default();
        let workload = Workload { id: CgroupId(cgroup), ..fixtures::workload("w") };
        let victim = Ranked { candidate: fixtures::usage(workload, Bytes(900)) };
        let eviction = StartedEviction {
            met: met(),
            ranking: vec![victim.clone()],
            victim,
            benefit: BenefitReport::default(),
            reclaim: None,
            started: Started { processes: 2, action, at: ms(at) },
            wakeup: "psi",
            woken: ms(at),
            sampled: ms(at),
            ordered: ms(at),
            decided: ms(at),
            turn: RecordedTurn::default(),
        };
        let record = EvictionRecord {
            workload: "w",
            cgroup: CgroupId(cgroup),
            name: Name::default(),
            pod_uid: Some(&uid()),
            labels: BTreeMap::new(),
            action,
            processes: 2,
            trigger: Trigger::Threshold(&eviction, Order::of(&policy, eviction.met.threshold.signal.resource())),
            woken: ms(at),
            acted: ms(at),
            policy: None,
            trace: Vec::new(),
        };
        self.note(&Record::Eviction(&record), at);
    }

    fn end(&mut self, cgroup: u64, outcome: Outcome, at: u64) {
        let ended = Ended {
            name: "w".to_owned(),
            id: CgroupId(cgroup),
            cause: Cause::Signal(met().threshold.signal),
            killed: None,
            took: Duration::ZERO,
            outcome,
            end: EvictionEnd::Gone,
            note: None,
        };
        self.note(&Record::EvictionEnded { ended: &ended, at: ms(at), available: None }, at);
    }

    fn settle(&mut self, verdict: &Verdict, at: u64) {
        self.note(&Record::EvictionSettled { pod_uid: "u-1", verdict }, at);
    }

    fn note(&mut self, record: &Record<'_>, at: u64) {
        self.times.note(record, Some("incident-1"), &self.metrics, ms(at));
    }

    /// Asserts the number of observations and their sum in milliseconds.
    fn assert_sum(&self, family: &str, count: u64, millis: u64) {
        let text = self.text();
        let of_family = format!("node_pressure_monitor_eviction_{family}_latency_seconds_");
        let value = |suffix: &str| -> f64 {
            let line = text.lines().find(|line| line.starts_with(&format!("{of_family}{suffix}{{")));
            line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap()
        };
        let found = (value("count"), (value("sum") * 1e3).round());
        assert_eq!(found, (count as f64, millis as f64), "{family}");
    }

    fn text(&self) -> String {
        openmetrics::render(&self.registry.gather(), |family, metric, bucket| {
            self.metrics.exemplar(family, metric, bucket)
        })
    }
}

#[test]
fn each_stage_is_measured_from_the_crossing() {
    let mut fixture = Fixture::new();
    fixture.turn(true, 50, 100);
    fixture.turn(true, 50, 110);
    fixture.evict(7, Action::Kill, 130);
    fixture.assert_sum("kill", 1, 30);
    fixture.assert_sum("end", 0, 0);
    fixture.end(7, Outcome::Gone, 180);
    fixture.assert_sum("end", 1, 80);
    fixture.settle(&Verdict::Delayed("down".to_owned()), 200);
    fixture.assert_sum("report", 0, 0);
    fixture.settle(&Verdict::Accepted, 300);
    fixture.settle(&Verdict::Done(None), 900);
    fixture.assert_sum("report", 1, 200);
    let bucket = "eviction_kill_latency_seconds_bucket{kind=\"hard\",signal=\"memory.available\",le=\"0.04\"} 1 # {incident=\"incident-1\"} 0.03 ";
    assert!(fixture.text().contains(bucket), "{}", fixture.text());
    assert_eq!(fixture.text().matches(" # {").count(), 3);
}

/// Measuring from the crossing would blame the second eviction for the first one.
#[test]
fn a_further_eviction_is_due_when_the_previous_one_has_ended() {
    let mut fixture = Fixture::new();
    fixture.turn(true, 50, 100);
    fixture.evict(7, Action::Kill, 110);
    fixture.end(7, Outcome::Failed("EIO".to_owned()), 1110);
    fixture.turn(true, 50, 1110);
    fixture.evict(8, Action::Kill, 1130);
    fixture.assert_sum("kill", 2, 10 + 20);
    fixture.assert_sum("end", 0, 0);
    fixture.turn(false, 500, 2000);
    fixture.turn(true, 50, 3000);
    fixture.evict(9, Action::Kill, 3005);
    fixture.assert_sum("kill", 3, 10 + 20 + 5);
}

#[test]
fn a_dry_run_has_no_latency() {
    let mut fixture = Fixture::new();
    fixture.turn(true, 50, 100);
    fixture.evict(7, Action::DryRun, 110);
    fixture.assert_sum("kill", 0, 0);
}

#[test]
fn freed_bytes_count_once_for_evictions_that_end_together() {
    let mut fixture = Fixture::new();
    fixture.turn(true, 50, 100);
    fixture.evict(7, Action::Kill, 110);
    fixture.evict(8, Action::Kill, 111);
    fixture.turn(true, 70, 150);
    let freed = |fixture: &Fixture, bytes| {
        let line = format!("eviction_freed_bytes_total{{signal=\"memory.available\"}} {bytes}\n");
        assert!(fixture.text().contains(&line), "{line}{}", fixture.text());
    };
    freed(&fixture, 0);
    fixture.end(7, Outcome::Gone, 200);
    fixture.end(8, Outcome::Gone, 200);
    fixture.turn(false, 450, 200);
    fixture.turn(false, 900, 300);
    freed(&fixture, 400);
}

#[test]
fn only_the_last_evictions_are_followed() {
    let mut fixture = Fixture::new();
    for cgroup in 0..1000 {
        fixture.evict(cgroup, Action::Kill, 100);
    }
    assert_eq!(fixture.times.followed.len(), FOLLOWED);
}
