//! Evictions with the API server's consent: granted, refused, not answered, and completed by the agent when the kubelet is late.
//! The cgroups are real; the test answers for the API server.
#![expect(clippy::unwrap_used, reason = "a fixture that cannot be made fails its test")]

use std::fs;
use std::time::Duration;

use node_pressure_monitor::actions::stop::{Answer, NotDone, question};
use node_pressure_monitor::actions::{Ended, Evictor, Outcome};
use node_pressure_monitor::config::EvictionLimits;
use node_pressure_monitor::eviction::decider::{EvictionEnd, blocks};
use node_pressure_monitor::units::Monotonic;
use node_pressure_monitor::units::{CgroupId, Signal};
use node_pressure_monitor::workloads::PodUid;

#[macro_use]
#[path = "support/sleepers.rs"]
mod sleepers;

use sleepers::{Cgroups, PROC, wait_until};

const LOW: Signal = Signal::MemoryAvailable;

/// One pod, for whose eviction the API server was asked.
struct Stage {
    cgroups: Cgroups,
    evictor: Evictor,
    answer: Option<Answer>,
    limits: EvictionLimits,
    pod: String,
    id: CgroupId,
}

impl Stage {
    fn set(test: &str, insists: bool, grace: Duration) -> Option<Self> {
        let mut cgroups = Cgroups::make(test)?;
        let uid = format!("0000{}", std::process::id());
        let pod = cgroups.workload(&format!("kubepods-besteffort-pod{uid}.slice"), 2);
        let is_ready = |pid: u32| fs::read_to_string(format!("{PROC}/{pid}/comm")).unwrap() == "sleep\n";
        wait_until("the pod to sleep", || cgroups.children.iter().all(|child| is_ready(child.id())));
        let id = cgroups.tree(Vec::new()).workloads().find(|workload| workload.name == pod).unwrap().id;
        let target = cgroups.target(&pod);
        let mut evictor = Evictor::start().unwrap();
        let (answer, asked) = question();
        let uid = Some(PodUid(uid));
        assert_eq!(evictor.ask(target, uid, (asked, insists), LOW, grace, Monotonic::now()), 2);
        let limits = EvictionLimits { cool_down: Duration::ZERO, ..EvictionLimits::default() };
        Some(Self { cgroups, evictor, answer: Some(answer), limits, pod, id })
    }

    fn answer(&mut self, answer: Result<(), NotDone>) {
        self.answer.take().unwrap().give(answer);
    }

    fn ended(&mut self) -> Ended {
        self.cgroups.end_of_eviction(&mut self.evictor, &self.limits)
    }

    fn poll_for(&mut self, time: Duration) {
        let begun = Monotonic::now();
        while Monotonic::now().since(begun) < time {
            assert_eq!(self.evictor.poll(&self.limits, Monotonic::now()), []);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_refused_pod_is_not_touched() {
    let Some(mut stage) = Stage::set("refused", false, Duration::from_secs(1)) else { return };
    stage.poll_for(Duration::from_millis(50));
    assert!(blocks(stage.evictor.under_way(), false, false), "one eviction at a time");
    assert!(!blocks(stage.evictor.under_way(), false, true), "a hard eviction does not wait");
    stage.answer(Err(NotDone::Refused("no budget".to_owned())));
    let ended = stage.ended();
    assert_eq!((ended.outcome, ended.killed), (Outcome::Refused("no budget".to_owned()), None));
    assert_eq!(stage.cgroups.ended(), 0);
    assert_eq!((ended.end, ended.id), (EvictionEnd::Refused, stage.id));
    assert!(!blocks(stage.evictor.under_way(), false, false), "the refusal ends the eviction at once");
}

/// A virtual machine that KubeVirt migrates: its pod runs until the machine has moved.
#[test]
fn a_pod_that_is_moved_away_holds_soft_evictions_until_it_has_left() {
    let Some(mut stage) = Stage::set("moved", false, Duration::from_secs(1)) else { return };
    stage.answer(Err(NotDone::Begun { reason: "migrates".to_owned(), is_explicit: true }));
    stage.poll_for(Duration::from_millis(50));
    assert_eq!(stage.cgroups.ended(), 0, "the agent sends no signal");
    let now = Monotonic::now();
    assert_eq!(
        stage.evictor.poll(&stage.limits, now.after(Duration::from_secs(599))),
        [],
        "after the grace period, too"
    );
    assert!(blocks(stage.evictor.under_way(), false, false), "one soft shortage starts one eviction");
    assert!(!blocks(stage.evictor.under_way(), false, true), "a hard eviction does not wait");
    for child in &mut stage.cgroups.children {
        child.kill().unwrap();
    }
    assert_eq!(stage.ended().outcome, Outcome::Gone);
    assert!(!blocks(stage.evictor.under_way(), false, false), "the pod has left");
}

#[test]
fn a_move_that_is_given_up_refuses_the_eviction() {
    let Some(mut stage) = Stage::set("stays", false, Duration::from_secs(1)) else { return };
    stage.answer(Err(NotDone::Begun { reason: "migrates".to_owned(), is_explicit: true }));
    stage.poll_for(Duration::from_millis(20));
    stage.evictor.note_moving(|workload| workload == stage.pod);
    stage.poll_for(Duration::from_millis(20));
    stage.evictor.note_moving(|_| false);
    let ended = stage.ended();
    assert!(matches!(&ended.outcome, Outcome::Refused(reason) if reason.contains("eviction-in-progress was removed")));
    assert_eq!((ended.end, stage.cgroups.ended()), (EvictionEnd::Refused, 0));
}

#[test]
fn the_kubelet_stops_a_granted_pod() {
    let Some(mut stage) = Stage::set("granted", false, Duration::from_secs(60)) else { return };
    stage.answer(Ok(()));
    stage.poll_for(Duration::from_millis(50));
    assert_eq!(stage.cgroups.ended(), 0, "the agent sends no signal");
    for child in &mut stage.cgroups.children {
        child.kill().unwrap();
    }
    let ended = stage.ended();
    assert_eq!((ended.outcome, ended.killed, ended.note), (Outcome::Gone, None, None));
}

#[test]
fn the_agent_kills_when_the_kubelet_is_late() {
    let Some(mut stage) = Stage::set("late", false, Duration::from_millis(100)) else { return };
    stage.answer(Ok(()));
    let ended = stage.ended();
    assert_eq!(ended.outcome, Outcome::Gone);
    assert!(ended.killed.is_some() && ended.took >= Duration::from_secs(2), "{ended:?}");
    assert!(ended.note.as_ref().unwrap().contains("the kubelet had not stopped it"), "{ended:?}");
}

#[test]
fn without_an_answer_only_certain_evictions_proceed() {
    let why = || Err(NotDone::Failed("connection refused".to_owned()));
    let Some(mut stage) = Stage::set("unanswered", false, Duration::from_secs(60)) else { return };
    stage.answer(why());
    let ended = stage.ended();
    assert_eq!(ended.outcome, Outcome::Failed("connection refused".to_owned()));
    assert_eq!(ended.end, EvictionEnd::Unanswered);
    assert_eq!(stage.cgroups.ended(), 0);
    drop(stage);

    let Some(mut stage) = Stage::set("insists", true, Duration::from_secs(60)) else { return };
    // After two seconds without an answer the agent sends SIGTERM, which ends the pod.
    let ended = stage.ended();
    assert_eq!((&ended.outcome, ended.killed), (&Outcome::Gone, None));
    assert!(ended.note.as_ref().unwrap().contains("did not answer within 2 s"), "{ended:?}");
}

#[test]
fn a_hard_threshold_does_not_wait_for_the_answer() {
    let Some(mut stage) = Stage::set("hard", false, Duration::from_secs(60)) else { return };
    let target = stage.cgroups.target(&stage.pod);
    stage.evictor.evict(target, LOW, Duration::ZERO, Monotonic::now()).unwrap();
    stage.answer(Err(NotDone::Refused("too late".to_owned())));
    assert_eq!(stage.ended().outcome, Outcome::Gone);
}
