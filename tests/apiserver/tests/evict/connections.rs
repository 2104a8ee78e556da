//! The connection breaks, or the server is away, slow, or of a later version.

use std::time::{Duration, Instant};

use node_pressure_apiserver::{Fault, Record, What};
use node_pressure_monitor::cluster::Verdict;

use super::scene::{PATIENCE, Scene, Way, begin, has};

/// Evicts pods in both ways, with the fault at each step once.
async fn struck_at_every_step(fault: &Fault) {
    for way in Way::ALL {
        for (method, end) in way.steps().iter().copied() {
            let scene = Scene::new().await;
            let fault = scene.stage.server.faults().add(fault.clone().of(method).ending(end).once());
            let intent = scene.intent(way);
            let heard = scene.evict(&intent).await;
            assert_eq!(scene.stage.server.faults().struck(fault), 1, "{method} {end}: {:?}", scene.steps());
            assert!(has(&heard, |it| *it == Verdict::Done(None)), "{method} {end}: {heard:?}");
            scene.is_evicted_once(&intent).await;
            scene.end().await;
        }
    }
}

#[tokio::test]
async fn an_eviction_without_faults_takes_few_requests() {
    for way in Way::ALL {
        let scene = Scene::new().await;
        let intent = scene.intent(way);
        let heard = scene.evict(&intent).await;
        assert_eq!(heard, [Verdict::Accepted, Verdict::Done(None)]);
        scene.is_evicted_once(&intent).await;
        let expected = match way {
            Way::Certain => &["PATCH pods/web/status", "DELETE pods/web", "POST events"][..],
            Way::Failed => &["PATCH pods/web/status", "POST events"],
            Way::Asked => &["POST pods/web/eviction", "POST events"],
        };
        assert_eq!(scene.steps(), expected);
        scene.end().await;
    }
}

#[tokio::test]
async fn the_connection_is_cut_before_each_request_is_carried_out() {
    struck_at_every_step(&Fault::cut_before()).await;
}

#[tokio::test]
async fn the_connection_is_cut_after_each_request_was_carried_out() {
    struck_at_every_step(&Fault::cut_after()).await;
}

#[tokio::test]
async fn the_connection_is_cut_in_the_middle_of_each_answer() {
    struck_at_every_step(&Fault::cut_in_body(10)).await;
}

#[tokio::test]
async fn each_answer_is_slow() {
    // The delay is longer than the agent waits for a mark, and shorter than its other limits.
    struck_at_every_step(&Fault::delay(Duration::from_millis(1500))).await;
}

#[tokio::test]
async fn each_request_is_carried_out_and_never_answered() {
    struck_at_every_step(&Fault::new(What::NeverAnswerAfter)).await;
}

#[tokio::test]
async fn answers_have_unknown_fields() {
    for way in Way::ALL {
        let scene = Scene::new().await;
        scene.stage.server.faults().set_unknown_fields(true);
        let intent = scene.intent(way);
        scene.evict(&intent).await;
        scene.is_evicted_once(&intent).await;
        scene.end().await;
    }
}

#[tokio::test]
async fn the_server_is_away_when_the_agent_has_killed_the_pod() {
    let scene = Scene::new().await;
    scene.stage.server.close().await;
    let mut cluster = scene.cluster();
    let intent = scene.certain();
    begin(&cluster, &intent);
    // The agent reports the delay.
    scene.until_delayed(&mut cluster).await;
    assert_eq!(cluster.ledger().len(), 1);
    scene.stage.server.open().await.unwrap();
    scene.settle(&mut cluster).await;
    scene.is_evicted_once(&intent).await;
    scene.end().await;
}

#[tokio::test]
async fn the_server_is_restarted_between_two_steps() {
    let ways = [Way::Certain, Way::Failed].into_iter().flat_map(|way| way.steps().iter().map(move |step| (way, *step)));
    for (way, (method, end)) in ways {
        let scene = Scene::new().await;
        let faults = scene.stage.server.faults();
        faults.add(Fault::new(What::NeverAnswerAfter).of(method).ending(end).once());
        let mut cluster = scene.cluster();
        let intent = scene.intent(way);
        begin(&cluster, &intent);
        let hangs = |it: &Record| it.fault.is_some() && it.carried_out.is_some();
        scene.stage.server.log().wait_for(PATIENCE, hangs).await.unwrap();
        scene.stage.server.restart(Duration::from_millis(300)).await.unwrap();
        scene.settle(&mut cluster).await;
        scene.is_evicted_once(&intent).await;
        scene.end().await;
    }
}

#[tokio::test]
async fn an_absent_server_ends_an_asked_eviction() {
    let scene = Scene::new().await;
    scene.stage.server.faults().add(Fault::cut_before().ending("/eviction"));
    let start = Instant::now();
    let heard = scene.evict(&scene.asked()).await;
    assert!(matches!(heard.first(), Some(Verdict::NoAnswer(_))), "{heard:?}");
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    scene.is_untouched().await;
    scene.end().await;
}

#[tokio::test]
async fn an_eviction_without_an_answer_is_found_to_be_done() {
    let scene = Scene::new().await;
    // The server carries out each request, and the answers start only after the agent has given up.
    scene.stage.server.faults().add(Fault::new(What::NeverAnswerAfter).ending("/eviction"));
    let intent = scene.asked();
    let heard = scene.evict(&intent).await;
    assert!(matches!(heard.first(), Some(Verdict::NoAnswer(_))), "{heard:?}");
    assert!(has(&heard, |it| *it == Verdict::Accepted), "{heard:?}");
    scene.is_evicted_once(&intent).await;
    scene.end().await;
}
