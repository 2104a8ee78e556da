//! The values of `oom_score_adj` that an agent has changed, restored after the agent was killed: a real agent in enforce mode, and a pod of
//! the test's own.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a fixture that cannot be made fails its test")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

#[expect(dead_code, reason = "other tests ask its pages")]
#[path = "support/agent.rs"]
mod agent;
#[macro_use]
#[path = "support/sleepers.rs"]
#[expect(dead_code, reason = "other tests evict")]
mod sleepers;

use agent::{Agent, PROGRAM};
use sleepers::{Cgroups, wait_until};

fn restore(lock: &Path) -> (Option<i32>, String) {
    let command = Command::new(PROGRAM).arg("restore").arg("--lock-file").arg(lock).output();
    let Output { status, stdout, stderr } = command.unwrap();
    (status.code(), String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr))
}

#[test]
fn a_killed_agents_scores_are_restored_by_the_command() {
    let Some(mut cgroups) = Cgroups::make("restored") else { return };
    let uid = format!("0000{}", std::process::id());
    let pod = cgroups.workload(&format!("a-kubepods.slice/a-kubepods-besteffort-pod{uid}.slice"), 3);
    let pids: Vec<u32> = cgroups.children.iter().map(std::process::Child::id).collect();
    let path = |index: usize| format!("/proc/{}/oom_score_adj", pids[index]);
    let values = || [0, 1, 2].map(|index| fs::read_to_string(path(index)).unwrap().trim().to_owned());
    fs::write(path(1), "321").unwrap();
    let before = values();
    // Only pods are candidates, and those of this machine are protected: the agent must change no others. No threshold is met.
    let tree = cgroups.tree(Vec::new());
    let others = tree.workloads().filter(|workload| workload.name != pod);
    let protected = others.fold(String::new(), |mut list, workload| {
        let _never_fails = writeln!(list, "- {:?}", workload.name);
        list
    });
    let config = format!(
        "evictions: {{candidates: pods}}\nruntime: {{endpoint: none}}\nevictionHard: {{memory.available: 1Mi}}\nprotected:\n{protected}"
    );
    let mut agent = Agent::start_by(&config, "json", |arguments| {
        let mut command = Command::new(PROGRAM);
        command.args(arguments.iter().map(|argument| if *argument == "observe" { "enforce" } else { argument }));
        command
    });
    let lock = agent.path("lock");
    wait_until("a look at the pod", || values().iter().all(|value| value == "1000"));
    let (status, told) = restore(&lock);
    assert_eq!(status, Some(3), "while the agent runs: {told}");
    // SIGKILL: the agent restores nothing itself.
    agent.child.kill().unwrap();
    agent.child.wait().unwrap();
    assert_eq!(values(), ["1000", "1000", "1000"]);
    // Another program sets a value after the agent.
    fs::write(path(2), "500").unwrap();
    let (status, told) = restore(&lock);
    assert_eq!((status, values()), (Some(0), [before[0].clone(), "321".to_owned(), "500".to_owned()]), "{told}");
    assert!(told.starts_with("2 processes have their oom_score_adj"), "{told}");
    assert!(told.contains(&format!("1 have got another value since and are left alone (process {} has 500)", pids[2])));
    let (status, told) = restore(&lock);
    assert_eq!(status, Some(1), "the record is gone: {told}");
    assert_eq!(values()[2], "500");
}

#[test]
fn without_a_record_the_command_says_where_it_looked() {
    let directory = tempfile::tempdir().unwrap();
    let lock = directory.path().join("lock");
    let (status, told) = restore(&lock);
    assert_eq!(status, Some(1), "{told}");
    assert!(told.contains(&format!("there is no record {}.oom-scores", lock.display())), "{told}");
    assert!(told.contains("--lock-file"), "{told}");
    assert!(!lock.exists(), "no file is left");
}

#[test]
fn a_record_without_processes_is_nothing_to_restore() {
    let directory = tempfile::tempdir().unwrap();
    let lock = directory.path().join("lock");
    fs::write(directory.path().join("lock.oom-scores"), "an earlier boot\n1 1 0 5\n").unwrap();
    let (status, told) = restore(&lock);
    assert_eq!(status, Some(0), "{told}");
    assert!(told.contains("lock.oom-scores has no process of this boot"), "{told}");
}
