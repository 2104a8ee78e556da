//! Pods that go with the API server's consent: granted, refused, not answered; and helped where the kubelet is late. On this machine's real
//! cgroups, with an API server made of paper.
#![expect(clippy::unwrap_used, reason = "a fixture that cannot be made fails its test")]

use std::fs;
use std::time::Duration;

use node_pressure_monitor::actions::release::Releaser;
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

/// One pod whose eviction was asked for.
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
        let mut evictor = Evictor::new(Releaser::start().unwrap());
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
fn what_is_refused_is_not_touched_and_is_no_candidate_for_a_while() {
    let Some(mut stage) = Stage::set("refused", false, Duration::from_secs(1)) else { return };
    stage.poll_for(Duration::from_millis(50));
    assert!(blocks(stage.evictor.under_way(), false, false), "one at a time");
    assert!(!blocks(stage.evictor.under_way(), false, true), "a hard one waits for nobody");
    stage.answer(Err(NotDone::Refused("no budget".to_owned())));
    let ended = stage.ended();
    assert_eq!((ended.outcome, ended.killed), (Outcome::Refused("no budget".to_owned()), None));
    assert_eq!(stage.cgroups.ended(), 0);
    assert_eq!((ended.end, ended.id), (EvictionEnd::Refused, stage.id));
    assert!(!blocks(stage.evictor.under_way(), false, false), "at once");
}

#[test]
fn what_is_granted_is_stopped_by_the_kubelet() {
    let Some(mut stage) = Stage::set("granted", false, Duration::from_secs(60)) else { return };
    stage.answer(Ok(()));
    stage.poll_for(Duration::from_millis(50));
    assert_eq!(stage.cgroups.ended(), 0, "nobody is signalled by us");
    for child in &mut stage.cgroups.children {
        child.kill().unwrap();
    }
    let ended = stage.ended();
    assert_eq!((ended.outcome, ended.killed, ended.note), (Outcome::Gone, None, None));
}

#[test]
fn a_kubelet_that_is_late_is_helped() {
    let Some(mut stage) = Stage::set("late", false, Duration::from_millis(100)) else { return };
    stage.answer(Ok(()));
    let ended = stage.ended();
    assert_eq!(ended.outcome, Outcome::Gone);
    assert!(ended.killed.is_some() && ended.took >= Duration::from_secs(2), "{ended:?}");
    assert!(ended.note.as_ref().unwrap().contains("the kubelet had not stopped it"), "{ended:?}");
}

#[test]
fn without_an_answer_it_stays_unless_it_goes_for_sure() {
    let why = || Err(NotDone::Failed("connection refused".to_owned()));
    let Some(mut stage) = Stage::set("unanswered", false, Duration::from_secs(60)) else { return };
    stage.answer(why());
    let ended = stage.ended();
    assert_eq!(ended.outcome, Outcome::Failed("connection refused".to_owned()));
    assert_eq!(ended.end, EvictionEnd::Unanswered);
    assert_eq!(stage.cgroups.ended(), 0);
    drop(stage);

    let Some(mut stage) = Stage::set("insists", true, Duration::from_secs(60)) else { return };
    // Two seconds of silence: then it is sent SIGTERM, which ends it.
    let ended = stage.ended();
    assert_eq!((&ended.outcome, ended.killed), (&Outcome::Gone, None));
    assert!(ended.note.as_ref().unwrap().contains("did not answer within 2 s"), "{ended:?}");
}

#[test]
fn a_hard_threshold_cuts_an_answer_short() {
    let Some(mut stage) = Stage::set("hard", false, Duration::from_secs(60)) else { return };
    let target = stage.cgroups.target(&stage.pod);
    stage.evictor.start(target, LOW, Duration::ZERO, Monotonic::now()).unwrap();
    stage.answer(Err(NotDone::Refused("too late".to_owned())));
    assert_eq!(stage.ended().outcome, Outcome::Gone);
}
