//! The agent is killed at each step, and a new agent resumes from the ledger.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use node_pressure_apiserver::stage::uid;
use node_pressure_apiserver::{Fault, Record, What};
use node_pressure_monitor::cluster::{Intent, Verdict};
use serde_json::Value;

use super::scene::{ASKED, PATIENCE, POD, Scene, Way, agent, begin, has};

/// The environment variable of the process to kill: kubeconfig, node, lock, when to end, and the intent.
const TOLD: &str = "EVICT_AND_DIE";
const SEPARATOR: char = '\u{1f}';

/// The agent that the other tests kill. It is no test of its own.
#[test]
fn an_agent_that_is_killed() {
    let Ok(told) = std::env::var(TOLD) else { return };
    let told: Vec<&str> = told.split(SEPARATOR).collect();
    let [kubeconfig, node, lock, when, intent] = told.as_slice() else { panic!("{told:?}") };
    let intent: Intent = serde_json::from_str(intent).unwrap();
    if *when == "noted" {
        // The loop does the same before it kills.
        node_pressure_monitor::cluster::Ledger::beside(lock.as_ref()).begin(&intent).unwrap();
        std::process::abort();
    }
    let cluster = agent(PathBuf::from(kubeconfig), node, lock.as_ref());
    begin(&cluster, &intent);
    loop {
        std::thread::park();
    }
}

fn start(scene: &Scene, intent: &Intent, when: &str) -> Child {
    let lock = scene.lock();
    let intent = serde_json::to_string(intent).unwrap();
    let (kubeconfig, lock) = (scene.kubeconfig.to_str().unwrap(), lock.to_str().unwrap());
    let told = [kubeconfig, &scene.stage.node, lock, when, &intent].join(&SEPARATOR.to_string());
    Command::new(std::env::current_exe().unwrap())
        .args(["killed::an_agent_that_is_killed", "--exact", "--nocapture"])
        .env(TOLD, told)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Kills the agent while it waits for the answer to this request.
async fn killed_at(scene: &Scene, intent: &Intent, what: What, method: &str, end: &str) {
    let is_carried_out = what == What::NeverAnswerAfter;
    scene.stage.server.faults().add(Fault::new(what).of(method).ending(end).once());
    let mut child = start(scene, intent, "asked");
    let hangs = |record: &Record| record.fault.is_some() && (!is_carried_out || record.carried_out.is_some());
    let hung = scene.stage.server.log().wait_for(PATIENCE, hangs).await;
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(hung.is_some(), "{method} {end}: {:?}", scene.steps());
    scene.stage.server.faults().clear();
}

#[tokio::test]
async fn killed_between_the_intent_and_the_first_request() {
    let scene = Scene::new().await;
    let intent = scene.certain();
    assert!(!start(&scene, &intent, "noted").wait().unwrap().success());
    let heard = scene.resume().await;
    assert_eq!(heard, [Verdict::Accepted, Verdict::Done(None)], "the remaining requests follow");
    scene.is_evicted_once(&intent).await;
    scene.end().await;

    let scene = Scene::new().await;
    assert!(!start(&scene, &scene.asked(), "noted").wait().unwrap().success());
    scene.resume().await;
    assert_eq!(scene.steps(), [""; 0], "an asked eviction is not resumed");
    scene.is_untouched().await;
    scene.end().await;
}

#[tokio::test]
async fn killed_before_the_removal_from_the_disk() {
    let scene = Scene::new().await;
    let intent = Intent { frees_disk: true, ..scene.failed() };
    assert!(!start(&scene, &intent, "noted").wait().unwrap().success());
    let mut cluster = scene.cluster();
    let updates = scene.updates(&mut cluster).await;
    let leaves_rest = updates.iter().any(|update| update.verdict == Verdict::Done(None) && update.leaves_rest);
    assert!(leaves_rest, "the loop has to order the removal");
    scene.is_evicted_once(&intent).await;
    cluster.stop(PATIENCE);
    scene.end().await;
}

#[tokio::test]
async fn killed_while_writing_the_intent() {
    let scene = Scene::new().await;
    assert!(!start(&scene, &scene.certain(), "noted").wait().unwrap().success());
    let ledger = scene.stage.directory.path().join("lock.evictions");
    let text = std::fs::read(&ledger).unwrap();
    std::fs::write(&ledger, &text[..text.len() / 2]).unwrap();
    // The ledger is written before the pod is killed, so a partial entry means that nothing was done.
    scene.resume().await;
    scene.is_untouched().await;
    scene.end().await;
}

/// Kills the agent at each request of a certain eviction, and asserts that the next agent finishes it.
async fn killed_at_each(what: What) {
    let ways = [Way::Certain, Way::Failed].into_iter().flat_map(|way| way.steps().iter().map(move |step| (way, *step)));
    for (way, (method, end)) in ways {
        let scene = Scene::new().await;
        let intent = scene.intent(way);
        killed_at(&scene, &intent, what.clone(), method, end).await;
        scene.resume().await;
        scene.is_evicted_once(&intent).await;
        scene.end().await;
    }
}

#[tokio::test]
async fn killed_before_each_request_is_carried_out() {
    killed_at_each(What::NeverAnswer).await;
}

#[tokio::test]
async fn killed_after_each_request_was_carried_out() {
    killed_at_each(What::NeverAnswerAfter).await;
}

#[tokio::test]
async fn killed_at_each_step_of_an_asked_eviction() {
    for what in [What::NeverAnswer, What::NeverAnswerAfter] {
        for (method, end) in ASKED.iter().copied() {
            let scene = Scene::new().await;
            let intent = scene.asked();
            killed_at(&scene, &intent, what.clone(), method, end).await;
            let asked = scene.stage.server.log().of("POST", "/eviction").len();
            scene.resume().await;
            assert_eq!(
                scene.stage.server.log().of("POST", "/eviction").len(),
                asked,
                "the eviction is not requested again"
            );
            if end.ends_with("/eviction") && what == What::NeverAnswer {
                // The request was not carried out, and the next agent forgets an asked eviction.
                scene.is_untouched().await;
            } else {
                scene.is_evicted_once(&intent).await;
            }
            scene.end().await;
        }
    }
}

#[tokio::test]
async fn killed_twice_and_the_server_restarted_in_between() {
    let scene = Scene::new().await;
    let intent = scene.certain();
    killed_at(&scene, &intent, What::NeverAnswerAfter, "DELETE", "/pods/web").await;
    scene.stage.server.restart(Duration::from_millis(200)).await.unwrap();
    scene.stage.server.log().clear();
    killed_at(&scene, &intent, What::NeverAnswerAfter, "POST", "/events").await;
    let heard = scene.resume().await;
    assert!(has(&heard, |it| *it == Verdict::Done(None)), "{heard:?}");
    scene.is_evicted_once(&intent).await;
    scene.end().await;
}

#[tokio::test]
async fn killed_and_meanwhile_another_pod_has_the_name() {
    let scene = Scene::new().await;
    let intent = scene.certain();
    killed_at(&scene, &intent, What::NeverAnswer, "DELETE", "/pods/web").await;
    scene.stage.delete_pod(POD, 0).await.unwrap();
    let another = scene.stage.running_pod(POD, Value::Null, Value::Null).await.unwrap();
    scene.resume().await;
    scene.stays(&uid(&another)).await;
    scene.has_one_event().await;
    scene.end().await;
}
