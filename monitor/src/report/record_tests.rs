use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use node_pressure_state::Name;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Metadata, Subscriber};

use super::*;
use crate::actions::{Action, ReclaimAttempt, Started};
use crate::eviction::Assessment;
use crate::eviction::decider::{ArmedBy, EvictionEnd, Note, PassedOver, RecordedTurn, Stays, SwapLimit, Unarmed};
use crate::eviction::rank::{Order, Ranked};
use crate::incidents::model::{OomKill, Victim};
use crate::node::other_killers::{Acts, Killer, OtherKiller};
use crate::report::eviction_report::{BenefitReport, StartedEviction, Trigger};
use crate::report::reporter::Outlets;
use crate::report::series::SeriesLimits;
use crate::report::turn_reporting::first_acted_on;
use crate::report::{Health, Metrics, Publications, Recorder, Reporter, logging};
use crate::workloads::{Workload, WorkloadUsage, fixtures};

/// Captures the fields of every log line.
#[derive(Debug, Default, Clone)]
struct Captured(Arc<Mutex<Vec<BTreeMap<String, String>>>>);

struct Fields<'f>(&'f mut BTreeMap<String, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

impl Subscriber for Captured {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut fields = BTreeMap::new();
        event.record(&mut Fields(&mut fields));
        self.0.lock().unwrap().push(fields);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Fixture {
    reporter: Reporter,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
    captured: Captured,
    _directory: tempfile::TempDir,
}

fn fixture() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let options = crate::config::IncidentOptions { directory: directory.path().to_owned(), max_size: Bytes(1 << 20) };
    let (recorder, missing) = Recorder::start(&options, "n-1".to_owned()).unwrap();
    assert_eq!(missing, None);
    let metrics = Arc::new(Metrics::new("1", SeriesLimits::default()).unwrap());
    let health = Arc::new(Health::new(Duration::from_secs(30), std::time::Instant::now()));
    let outlets = Outlets {
        metrics: Arc::clone(&metrics),
        health: Arc::clone(&health),
        publications: Arc::new(Publications::default()),
        log: logging::Writer::discarding(),
    };
    let reporter = Reporter::new(outlets, recorder, Some("n-1".into()));
    Fixture { reporter, metrics, health, captured: Captured::default(), _directory: directory }
}

impl Fixture {
    /// Reports a record; returns the fields of its log line, without those of the incident's.
    fn report(&mut self, record: &Record<'_>) -> BTreeMap<String, String> {
        let before = self.captured.0.lock().unwrap().len();
        let captured = self.captured.clone();
        tracing::subscriber::with_default(captured, || self.reporter.report(record, Monotonic(1)));
        let lines = self.captured.0.lock().unwrap();
        let of_record = |line: &&BTreeMap<String, String>| line.get("event").is_none_or(|event| event != "incident");
        lines[before..].iter().find(of_record).cloned().unwrap_or_default()
    }

    fn counted(&self, sample: &str) -> bool {
        let text = super::super::metrics::render(&self.metrics.gather()).unwrap();
        String::from_utf8(text).unwrap().contains(&format!("node_pressure_monitor_{sample}\n"))
    }

    fn incident(&self) -> Option<serde_json::Value> {
        let index = self.reporter.recorder.index();
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        // A thread writes it.
        while index.heads(1).is_empty() && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        let body = index.find(&index.heads(1).pop()?.id)?;
        serde_json::from_slice(&index.read(&body).ok()??).ok()
    }
}

fn usage(name: &str, working_set: u64) -> WorkloadUsage {
    let workload = Workload { id: crate::units::CgroupId(7), ..fixtures::workload(name) };
    fixtures::usage(workload, Bytes(working_set))
}

fn met() -> MetThreshold {
    let threshold: Threshold = crate::config::Policy::default().thresholds.into_iter().next().unwrap();
    let value = SignalValue::now(threshold.signal, Bytes(50), Bytes(1000));
    MetThreshold { place: 0, quantity: Amount::from_units(100), value, is_fresh: true, threshold }
}

/// A record, its event, one field of its log line, and its metric.
type Case<'r> = (Record<'r>, &'static str, (&'static str, &'static str), Option<String>);

#[test]
fn log_and_metric_of_each_record_agree() {
    let (met, mut fixture) = (met(), fixture());
    let signal = met.threshold.signal;
    let attempt = ReclaimAttempt {
        workload: "w".to_owned(),
        id: crate::units::CgroupId(7),
        requested: Bytes(9),
        freed: Bytes(5),
        available_before: Bytes(1),
        available_after: Bytes(6),
        took: Duration::from_millis(500),
        outcome: crate::eviction::proactive_reclaim::ReclaimOutcome::Sufficed,
    };
    let ended = |outcome, end| Ended {
        name: "w".to_owned(),
        id: crate::units::CgroupId(7),
        cause: signal.into(),
        killed: None,
        took: Duration::from_millis(5),
        outcome,
        end,
        note: None,
    };
    let gone = ended(crate::actions::Outcome::Gone, EvictionEnd::Gone);
    let failed = ended(crate::actions::Outcome::Failed("EIO".to_owned()), EvictionEnd::Failed);
    let at = Monotonic(3);
    let text = |sample: &str| format!("evictions_total{{outcome=\"{sample}\",signal=\"{}\"}} 1", signal.as_str());
    let scores_restored = crate::actions::Restored { restored: 4, ..Default::default() };
    let daemons =
        crate::report::DaemonsReport { reserved: Bytes(7), above: Bytes(5), largest: vec![("w".to_owned(), Bytes(9))] };
    let earlyoom = OtherKiller { killer: Killer::Earlyoom, pid: 7, acts: Acts::ByOwnRules };
    let meaning = earlyoom.meaning(&crate::config::MonitorConfig::default(), &|_| None);
    let cases: Vec<Case<'_>> = vec![
        (Record::Ready, "ready", ("message", "the agent listens and samples"), None),
        (Record::ThresholdMet { met: &met, wakeup: "psi", sampled: at }, "threshold_met", ("wakeup", "psi"), None),
        (
            Record::EvictionEnded { ended: &gone, at, available: None },
            "eviction_done",
            ("gone_mono_ns", "3"),
            Some(text("killed")),
        ),
        (
            Record::EvictionEnded { ended: &failed, at, available: None },
            "eviction_failed",
            ("reason", "EIO"),
            Some(text("failed")),
        ),
        (
            Record::EvictionPutOff { signal, workload: "w", reason: "down" },
            "eviction_put_off",
            ("reason", "down"),
            Some(text("put_off")),
        ),
        (
            Record::RefaultsOnly { met: &met, correction: Bytes(7), by: Some("reader") },
            "refaults_only",
            ("correction_bytes", "7"),
            None,
        ),
        (
            Record::SwapKeepsUp { met: &met, per_second: Bytes(7), usable: Bytes(9) },
            "swap_keeps_up",
            ("swap_usable_bytes", "9"),
            None,
        ),
        (
            Record::SwapFallsShort { met: &met, waited: Duration::from_secs(3), why: SwapLimit::Stalls },
            "swap_falls_short",
            ("reason", "tasks wait for memory"),
            None,
        ),
        (
            Record::CandidatesExhausted {
                met: &met,
                left: CandidatesLeft {
                    number: 2,
                    largest: Some((
                        "web.service",
                        Stays {
                            id: crate::units::CgroupId(1),
                            why: PassedOver::NotALeaker,
                            growth: 5,
                            fall: Some(7.0),
                        },
                    )),
                    is_pods_only: false,
                },
            },
            "candidates_exhausted",
            ("growth_bytes_per_second", "5"),
            Some(text("no_candidate")),
        ),
        (
            Record::ThresholdUnarmed {
                threshold: &met.threshold,
                value: Some(met.value),
                why: Unarmed::Present { available: 1 },
            },
            "threshold_unarmed",
            ("kind", "hard"),
            None,
        ),
        (
            Record::ThresholdArmed { threshold: &met.threshold, by: ArmedBy::Fell },
            "threshold_armed",
            ("by", "signal_fell"),
            None,
        ),
        (
            Record::Reclaim(ReclaimRecord::Ended(&attempt)),
            "reclaim",
            ("outcome", "sufficed"),
            Some("proactive_reclaims_total{outcome=\"sufficed\"} 1".to_owned()),
        ),
        (
            Record::OwnOomScore { found: 0 },
            "own_oom_score_adj",
            ("found", "0"),
            Some("oom_score_adj_repaired_total 1".to_owned()),
        ),
        (
            Record::OomKillsCounted { workload: "w", kills: 3 },
            "oom_kills_counted",
            ("kills", "3"),
            Some("oom_kills_by_constraint_total{constraint=\"unknown\"} 3".to_owned()),
        ),
        (
            Record::EvictionDeferred { met: &met, reason: "cordoned" },
            "eviction_deferred",
            ("reason", "cordoned"),
            Some(format!("soft_evictions_deferred_total{{signal=\"{}\"}} 1", signal.as_str())),
        ),
        (
            Record::SourceChanged { signal: "inodes", from: "ebpf", to: "polling", reason: "r" },
            "source_changed",
            ("to", "polling"),
            None,
        ),
        (Record::OomScoresRestored(&scores_restored), "oom_scores_restored", ("restored", "4"), None),
        (
            Record::OtherKiller { other: &earlyoom, meaning: &meaning },
            "other_killer",
            ("killer", "earlyoom"),
            Some("other_killer{killer=\"earlyoom\"} 1".to_owned()),
        ),
        (Record::DaemonsAboveReservation(&daemons), "system_above_reservation", ("above_bytes", "5"), None),
        (Record::PodsRead { pods: 4, age: None }, "pods", ("pods", "4"), None),
        (Record::EvictionLeft { workload: "w" }, "shutdown", ("workload", "w"), None),
        (Record::RuntimeAbsent, "container_runtime", ("event", "container_runtime"), None),
        (Record::Maintenance { reason: None, defers: true }, "maintenance", ("event", "maintenance"), None),
        (Record::ConfigurationRefused { file: "f", reason: "r" }, "configuration_refused", ("file", "f"), None),
    ];
    for (record, event, (field, value), sample) in &cases {
        let fields = fixture.report(record);
        assert_eq!(fields.get("event").map(String::as_str), Some(*event), "{record:?}: {fields:?}");
        assert_eq!(fields.get(*field).map(String::as_str), Some(*value), "{record:?}: {fields:?}");
        assert!(sample.as_ref().is_none_or(|sample| fixture.counted(sample)), "{record:?}: {sample:?}");
    }
}

#[test]
fn log_metric_and_incident_of_an_eviction_agree() {
    for action in Action::ALL {
        let (met, mut fixture) = (met(), fixture());
        let victim = Ranked { candidate: usage("w", 900) };
        let policy = crate::config::Policy::default();
        let order = Order::of(&policy, met.threshold.signal.resource());
        let benefit =
            BenefitReport { victim: Some("leaks".to_owned()), passed_over: Some("a would buy 0.6 s".to_owned()) };
        let started = Started { processes: 2, action, at: Monotonic(5) };
        let eviction = StartedEviction {
            ranking: vec![victim.clone()],
            met,
            victim,
            benefit,
            reclaim: None,
            started,
            wakeup: "psi",
            woken: Monotonic(1),
            sampled: Monotonic(2),
            ordered: Monotonic(3),
            decided: Monotonic(4),
            turn: RecordedTurn::default(),
        };
        let met = &eviction.met;
        let record = EvictionRecord {
            workload: "w",
            cgroup: crate::units::CgroupId(7),
            name: Name {
                workload: "w".to_owned(),
                namespace: Some("ns".to_owned()),
                pod: Some("name".to_owned()),
                owner: Some("Job/name".to_owned()),
                ..Name::default()
            },
            pod_uid: None,
            labels: BTreeMap::new(),
            action,
            processes: 2,
            trigger: Trigger::Threshold(&eviction, order),
            woken: Monotonic(1),
            acted: Monotonic(5),
            policy: None,
            trace: Vec::new(),
        };
        let fields = fixture.report(&Record::Eviction(&record));
        let incident = fixture.incident().unwrap();
        let eviction = &incident["eviction"];
        for (field, of_incident) in [
            ("action", "action"),
            ("mode", "mode"),
            ("workload", "workload"),
            ("signal", "signal"),
            ("kind", "kind"),
            ("pod", "pod"),
        ] {
            assert_eq!(fields[field], eviction[of_incident].as_str().unwrap(), "{field} of {action:?}: {fields:?}");
        }
        for (field, expected) in [("namespace", "ns"), ("owner", "Job/name")] {
            assert_eq!((fields[field].as_str(), &eviction["name"][field]), (expected, &expected.into()), "{field}");
        }
        assert_eq!(fields["available_bytes"], eviction["availableBytes"].to_string());
        assert_eq!(fields["ranking"], "w");
        let observed =
            format!("evictions_total{{outcome=\"observed\",signal=\"{}\"}} 1", met.threshold.signal.as_str());
        assert_eq!(fixture.counted(&observed), action == Action::DryRun, "{action:?}");
    }
}

#[test]
fn a_capability_is_logged_once_when_lost_and_once_when_restored() {
    let mut fixture = fixture();
    let captured = fixture.captured.clone();
    tracing::subscriber::with_default(captured, || {
        for reason in [Some("EIO"), Some("EIO for 5 s"), None, None] {
            fixture.reporter.set_capability("vmstat", reason, "refaults are unknown", Monotonic(1));
        }
        fixture.reporter.set_missing(&["PSI trigger: no PSI".to_owned()], Monotonic(1));
    });
    let lines = fixture.captured.0.lock().unwrap();
    let seen: Vec<(&str, &str)> =
        lines.iter().map(|line| (line["event"].as_str(), line["capability"].as_str())).collect();
    assert_eq!(seen, [("degraded", "vmstat"), ("restored", "vmstat"), ("degraded", "PSI trigger")]);
    assert!(fixture.health.readyz().1.contains("degraded: PSI trigger: no PSI\n"));
}

#[test]
fn drift_on_a_host_without_pods_is_one_line() {
    let mut fixture = fixture();
    let captured = fixture.captured.clone();
    let drift = |id| crate::actions::oom_score::Drift {
        id: crate::units::CgroupId(id),
        workload: format!("{id}.service"),
        expected: 1000,
        example: (crate::units::Pid(7), 0),
        processes: 3,
    };
    let audit = crate::actions::oom_score::Audit {
        workloads: vec![drift(1), drift(2)],
        newly_drifted: 6,
        ..crate::actions::oom_score::Audit::default()
    };
    let reach = |has_pods| crate::workloads::Reach { has_pods, has_workloads: true, ..Default::default() };
    let mut audits = crate::actions::Audits::default();
    tracing::subscriber::with_default(captured, || {
        for has_pods in [false, false, true, true] {
            let now = Monotonic(1);
            fixture.reporter.report_audit(&audit, &mut audits, reach(has_pods), crate::config::Mode::Observe, now);
        }
    });
    let lines = fixture.captured.0.lock().unwrap();
    let workloads: Vec<Option<&str>> = lines.iter().map(|line| line.get("workload").map(String::as_str)).collect();
    assert_eq!(workloads, [None, Some("1.service"), Some("2.service")]);
    assert_eq!((&*lines[0]["workloads"], &*lines[0]["processes"]), ("2", "6"));
    assert!(fixture.counted("oom_score_adj_drifted_total 24"), "each is counted");
}

#[test]
fn daemons_above_their_reservation_are_named_in_an_event() {
    let mut fixture = fixture();
    let largest = vec![("system.slice/a.service".to_owned(), Bytes(9 << 20))];
    let daemons = crate::report::DaemonsReport { reserved: Bytes(7 << 20), above: Bytes(5 << 20), largest };
    fixture.reporter.report(&Record::DaemonsAboveReservation(&daemons), Monotonic(1));
    let events = fixture.reporter.take_events();
    let [event] = &events[..] else { panic!("{events:?}") };
    assert_eq!((event.reason, event.is_warning), ("SystemMemoryAboveReservation", true));
    let expected =
        "System daemons exceed the 7.0 MiB that are reserved for them by 5.0 MiB: system.slice/a.service 9.0 MiB";
    assert_eq!(event.message, expected);
}

#[test]
fn a_changed_condition_is_an_event_with_the_kubelets_reason() {
    let mut fixture = fixture();
    fixture.reporter.report_condition("MemoryPressure", true, Some(NodeCondition::MemoryPressure), Monotonic(1));
    fixture.reporter.report_reclaiming(Resource::Memory, false, Monotonic(1));
    fixture.reporter.report_reclaiming(Resource::Memory, false, Monotonic(2));
    let events = fixture.reporter.take_events();
    let reasons: Vec<&str> = events.iter().map(|event| event.reason).collect();
    assert_eq!(reasons, ["NodeHasInsufficientMemory", "EvictionThresholdMet"]);
    assert_eq!(events[0].message, "Node n-1 status is now: NodeHasInsufficientMemory");
}

#[test]
fn beside_a_kubelet_no_event_about_the_node_has_the_kubelets_reason() {
    let mut fixture = fixture();
    let kubelet = OtherKiller { killer: Killer::Kubelet, pid: 7, acts: Acts::ByOwnRules };
    let meaning = kubelet.meaning(&crate::config::MonitorConfig::default(), &|_| None);
    fixture.reporter.report(&Record::OtherKiller { other: &kubelet, meaning: &meaning }, Monotonic(1));
    fixture.reporter.report_condition("MemoryPressure", true, Some(NodeCondition::MemoryPressure), Monotonic(1));
    fixture.reporter.report_reclaiming(Resource::Memory, false, Monotonic(1));
    let victims = vec![Victim { pid: 7, ..Victim::default() }];
    let kill = OomKill { victims, constraint: Some("none".to_owned()), ..OomKill::default() };
    fixture.reporter.report(&Record::OomIncident(&kill), Monotonic(1));
    let reasons: Vec<&str> = fixture.reporter.take_events().iter().map(|event| event.reason).collect();
    assert_eq!(reasons, ["MonitorHasInsufficientMemory", "MonitorEvictionThresholdMet", "OOMKilling"]);
}

#[test]
fn no_reclaim_is_reported_for_a_threshold_that_evicts_nothing() {
    let assessment = Assessment { met: vec![met()], ..Assessment::default() };
    let deferred = |threshold| [Note::Deferred { threshold }];
    let is_acted_on = |unarmed: &[_], notes: &[Note]| first_acted_on(&assessment, unarmed, notes).is_some();
    assert!(is_acted_on(&[], &[]) && is_acted_on(&[], &deferred(1)));
    assert!(!is_acted_on(&[], &deferred(0)), "deferred");
    assert!(!is_acted_on(&[], &[Note::LeftToKubelet { threshold: 0 }]), "left to the kubelet");
    assert!(!is_acted_on(&[(0, met().threshold, Unarmed::Present { available: 0 })], &[]), "not armed");
}
