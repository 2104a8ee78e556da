//! Pods that the runtime stops, or the agent when the runtime is late, down or gone.
//! The cgroups are real; the test answers for the runtime.
#![expect(clippy::unwrap_used, reason = "a fixture that cannot be made fails its test")]

use std::collections::VecDeque;
use std::fs;
use std::time::Duration;

use node_pressure_monitor::actions::stop::{NotDone, Order, OrderKind, OrderQueue, question};
use node_pressure_monitor::actions::{Ended, Evictor, Outcome, StoppedPod};
use node_pressure_monitor::config::EvictionLimits;
use node_pressure_monitor::eviction::decider::{EvictionEnd, blocks};
use node_pressure_monitor::eviction::evicted::Cause;
use node_pressure_monitor::runtime::TearDown;
use node_pressure_monitor::units::Monotonic;
use node_pressure_monitor::units::Signal;
use node_pressure_monitor::workloads::PodUid;

#[macro_use]
#[path = "support/sleepers.rs"]
mod sleepers;

use sleepers::{Cgroups, PROC, wait_until};

const FULL: Signal = Signal::NodeFsAvailable;

/// One pod under eviction, and the queue of orders for its runtime.
struct Stage {
    cgroups: Cgroups,
    evictor: Evictor,
    queue: OrderQueue,
    orders: VecDeque<Order>,
    limits: EvictionLimits,
    started: Monotonic,
}

impl Stage {
    /// Sets up the pod. Its two processes run `command`.
    fn set(test: &str, command: &[&str], urgent: bool, grace: Duration) -> Option<Self> {
        let mut cgroups = Cgroups::make(test)?;
        let uid = format!("0000{}", std::process::id());
        let pod = cgroups.workload_of(&format!("kubepods-besteffort-pod{uid}.slice"), 2, command);
        let is_ready = |pid: u32| fs::read_to_string(format!("{PROC}/{pid}/comm")).unwrap() == "sleep\n";
        wait_until("the pod to sleep", || cgroups.children.iter().all(|child| is_ready(child.id())));
        let tree = cgroups.tree(Vec::new());
        let workload = tree.workloads().find(|workload| workload.name == pod).unwrap();
        assert_eq!(workload.kind.pod_uid().unwrap().0, uid);
        let target = cgroups.target(&pod);
        let queue = OrderQueue::default();
        let mut evictor = Evictor::start().unwrap().with_stopper(Box::new(queue.clone()));
        let started = Monotonic::now();
        let processes = evictor
            .stop_pod(target, StoppedPod { uid: PodUid(uid), by: TearDown::Runtime, urgent }, FULL, grace, started)
            .unwrap();
        assert_eq!(processes, 2);
        let limits = EvictionLimits { cool_down: Duration::ZERO, ..EvictionLimits::default() };
        Some(Self { cgroups, evictor, queue, orders: VecDeque::new(), limits, started })
    }

    /// Waits for the next order to the runtime.
    fn order(&mut self) -> Order {
        wait_until("an order", || {
            self.orders.extend(self.queue.take());
            if self.orders.is_empty() {
                self.cgroups.ended();
                assert_eq!(self.evictor.poll(&self.limits, Monotonic::now()), []);
            }
            !self.orders.is_empty()
        });
        self.orders.pop_front().unwrap()
    }

    fn ended(&mut self) -> Ended {
        self.cgroups.end_of_eviction(&mut self.evictor, &self.limits)
    }

    fn may_start(&self, signal: Signal, hard: bool) -> bool {
        !blocks(self.evictor.under_way(), signal.resource().is_on_disk(), hard)
    }

    /// Kills the pod's processes, as the runtime would.
    fn kill_by_the_runtime(&mut self) {
        for child in &mut self.cgroups.children {
            child.kill().unwrap();
        }
    }
}

fn failed(why: &str) -> Result<(), NotDone> {
    Err(NotDone::Failed(why.to_owned()))
}

const SLEEP: [&str; 2] = ["sleep", "600"];
/// A command that ignores SIGTERM. An ignored signal stays ignored across exec.
const DEAF: [&str; 3] = ["sh", "-c", "trap '' TERM; exec sleep 600"];

#[test]
fn the_runtime_stops_a_pod_and_frees_its_disk() {
    let grace = Duration::from_secs(60);
    let Some(mut stage) = Stage::set("stop", &SLEEP, true, grace) else { return };
    let stop = stage.order();
    assert_eq!(stop.what, OrderKind::Stop { grace });
    assert_eq!(stage.cgroups.ended(), 0, "the agent sends no signal");
    assert!(stage.may_start(Signal::MemoryAvailable, true), "an eviction for memory does not wait for one for a disk");
    assert!(!stage.may_start(FULL, true) && !stage.may_start(FULL, false), "a disk has one eviction at a time");
    stage.kill_by_the_runtime();
    stop.answer.give(Ok(()));
    let remove = stage.order();
    assert_eq!(remove.what, OrderKind::Remove { by: TearDown::Runtime });
    assert!(!stage.may_start(FULL, true), "the disk space is not free yet");
    assert!(stage.may_start(Signal::PidAvailable, true));
    remove.answer.give(Ok(()));
    let ended = stage.ended();
    assert_eq!(
        (ended.outcome, ended.cause, ended.note, ended.killed),
        (Outcome::Gone, Cause::Signal(FULL), None, None)
    );
    assert!(stage.may_start(FULL, true));
}

#[test]
fn a_soft_eviction_does_not_delay_a_hard_one() {
    let Some(mut stage) = Stage::set("patience", &SLEEP, false, Duration::from_secs(60)) else { return };
    assert!(stage.may_start(FULL, true));
    assert!(!stage.may_start(FULL, false));
    stage.kill_by_the_runtime();
    stage.order().answer.give(Ok(()));
    // The order before was to stop. This one, to remove, fails.
    stage.order().answer.give(failed("no space left"));
    let ended = stage.ended();
    assert_eq!(ended.outcome, Outcome::Gone);
    assert!(ended.note.unwrap().contains("is not removed: no space left"));
}

#[test]
fn when_the_runtime_is_down_the_agent_keeps_the_grace_period() {
    let Some(mut stage) = Stage::set("down", &SLEEP, true, Duration::from_secs(60)) else { return };
    stage.order().answer.give(failed("connection refused"));
    // SIGTERM ends these processes.
    wait_until("the end of the pod", || {
        let _running = stage.evictor.poll(&stage.limits, Monotonic::now());
        stage.cgroups.ended() == 2
    });
    let ended = {
        // The real runtime removes the pod after it is back. The test answers at once.
        let order = stage.order();
        assert_eq!(order.what, OrderKind::Remove { by: TearDown::Runtime });
        order.answer.give(Ok(()));
        stage.ended()
    };
    assert_eq!((ended.outcome, ended.killed), (Outcome::Gone, None));
    assert!(ended.note.unwrap().contains("connection refused"));
}

#[test]
fn a_runtime_that_vanishes_is_not_waited_for() {
    let Some(mut stage) = Stage::set("vanished", &DEAF, true, Duration::from_millis(50)) else { return };
    drop(stage.order());
    let remove = stage.order();
    assert_eq!(stage.cgroups.ended(), 2);
    drop(remove);
    let ended = stage.ended();
    assert_eq!(ended.outcome, Outcome::Gone);
    assert!(ended.killed.unwrap().since(stage.started) >= Duration::from_millis(50), "SIGTERM first, then SIGKILL");
}

#[test]
fn when_the_runtime_is_late_the_cgroup_is_killed() {
    let grace = Duration::from_millis(100);
    let Some(mut stage) = Stage::set("late", &DEAF, true, grace) else { return };
    // The test takes the order and never answers it.
    let stop = stage.order();
    let remove = stage.order();
    assert_eq!(remove.what, OrderKind::Remove { by: TearDown::Runtime });
    drop(stop);
    remove.answer.give(Ok(()));
    let ended = stage.ended();
    let killed_after = ended.killed.unwrap().since(stage.started);
    assert!(
        killed_after >= grace + Duration::from_secs(2) && killed_after < Duration::from_secs(30),
        "{killed_after:?}"
    );
    assert!(ended.note.unwrap().contains("had not stopped it"));
    assert_eq!(stage.cgroups.ended(), 2);
}

#[test]
fn a_pod_that_survives_its_reported_stop_is_killed() {
    let Some(mut stage) = Stage::set("undead", &SLEEP, true, Duration::from_secs(60)) else { return };
    stage.order().answer.give(Ok(()));
    stage.order().answer.give(Ok(()));
    let ended = stage.ended();
    let killed_after = ended.killed.unwrap().since(stage.started);
    assert!(killed_after >= Duration::from_secs(2) && killed_after < Duration::from_secs(30), "{killed_after:?}");
    assert_eq!((ended.outcome, ended.note), (Outcome::Gone, None));
}

#[test]
fn a_pod_that_the_runtime_calls_static_is_not_touched() {
    let Some(mut stage) = Stage::set("static", &SLEEP, true, Duration::ZERO) else { return };
    stage.order().answer.give(Err(NotDone::Critical));
    let ended = stage.ended();
    assert!(matches!(&ended.outcome, Outcome::Failed(reason) if reason.contains("static")), "{ended:?}");
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(stage.cgroups.ended(), 0);
    assert_eq!(ended.end, EvictionEnd::Failed, "the agent does not retry the pod for a while");
}

#[test]
fn a_kubelet_that_knows_of_the_eviction_tears_the_pod_down() {
    let Some(mut cgroups) = Cgroups::make("kubelet") else { return };
    let pod = cgroups.workload("kubepods-pod00002222.slice", 2);
    let (target, queue) = (cgroups.target(&pod), OrderQueue::default());
    let mut evictor = Evictor::start().unwrap().with_stopper(Box::new(queue.clone()));
    let stopped = StoppedPod { uid: PodUid("00002222".to_owned()), by: TearDown::Kubelet, urgent: true };
    let (answer, asked) = question();
    let count = evictor.tell_first(target, stopped, asked, FULL, Duration::from_secs(60), Monotonic::now());
    assert_eq!(count, 2);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(evictor.poll(&EvictionLimits::default(), Monotonic::now()), []);
    assert_eq!(cgroups.ended(), 0, "the kubelet may not know of the eviction yet");
    answer.give(Ok(()));
    assert_eq!(evictor.poll(&EvictionLimits::default(), Monotonic::now()), []);
    wait_until("its end", || cgroups.ended() == 2);
    let mut orders = Vec::new();
    wait_until("an order", || {
        assert_eq!(evictor.poll(&EvictionLimits::default(), Monotonic::now()), []);
        orders.extend(queue.take());
        !orders.is_empty()
    });
    assert_eq!(orders[0].what, OrderKind::Remove { by: TearDown::Kubelet });
    orders.pop().unwrap().answer.give(Ok(()));
    assert_eq!(evictor.poll(&EvictionLimits::default(), Monotonic::now())[0].outcome, Outcome::Gone);
}

#[test]
fn a_late_api_server_delays_the_signals_of_a_disk_for_two_seconds() {
    let Some(mut cgroups) = Cgroups::make("late") else { return };
    let pod = cgroups.workload("kubepods-pod00003333.slice", 2);
    let target = cgroups.target(&pod);
    let mut evictor = Evictor::start().unwrap();
    let stopped = StoppedPod { uid: PodUid("00003333".to_owned()), by: TearDown::Kubelet, urgent: true };
    let (_never_answers, asked) = question();
    let now = Monotonic::now();
    evictor.tell_first(target, stopped, asked, FULL, Duration::from_secs(60), now);
    assert_eq!(evictor.poll(&EvictionLimits::default(), now.after(Duration::from_millis(1_990))), []);
    assert_eq!(cgroups.ended(), 0);
    assert_eq!(evictor.poll(&EvictionLimits::default(), now.after(Duration::from_secs(2))), []);
    wait_until("its end", || cgroups.ended() == 2);
    let ended = evictor.poll(&EvictionLimits::default(), Monotonic::now());
    assert_eq!(ended[0].outcome, Outcome::Gone);
    assert!(ended[0].note.as_ref().is_some_and(|note| note.contains("did not answer within 2 s")), "{ended:?}");
}

#[test]
fn without_a_runtime_a_pod_is_sent_sigterm() {
    let Some(mut cgroups) = Cgroups::make("none") else { return };
    let pod = cgroups.workload("kubepods-pod00001111.slice", 2);
    let target = cgroups.target(&pod);
    let mut evictor = Evictor::start().unwrap();
    let uid = PodUid("00001111".to_owned());
    let signalled = evictor
        .stop_pod(
            target,
            StoppedPod { uid, by: TearDown::Runtime, urgent: true },
            FULL,
            Duration::from_secs(60),
            Monotonic::now(),
        )
        .unwrap();
    assert_eq!(signalled, 2);
    wait_until("its end", || cgroups.ended() == 2);
    let ended = evictor.poll(&EvictionLimits::default(), Monotonic::now());
    assert_eq!(ended.len(), 1);
    assert_eq!((&ended[0].outcome, &ended[0].note), (&Outcome::Gone, &None));
}
