//! The server answers, but not what one would like to hear.

use std::time::Duration;

use http::Method;
use node_pressure_apiserver::{Fault, What};
use node_pressure_monitor::cluster::{Intent, Verdict};
use node_pressure_monitor::config::kubernetes::EvictionMethod;
use serde_json::json;

use super::scene::{CERTAIN, Scene, begin, has};

/// What the agent has ended is finished whatever the server says twice at each step.
async fn answered_twice_at_every_step(code: u16) {
    for (method, end) in CERTAIN {
        let scene = Scene::new().await;
        let fault = scene.stage.server.faults().add(Fault::answer(code).of(method).ending(end).times(2));
        let intent = scene.certain();
        scene.evict(&intent).await;
        assert!(scene.stage.server.faults().struck(fault) >= 1, "{method} {end}");
        if method == "PATCH" && code < 429 {
            // What is not allowed is not tried again: the pod goes without the condition.
            scene.is_told_once().await;
            assert!(scene.pod().await.unwrap()["metadata"]["deletionTimestamp"].is_string());
        } else {
            scene.is_evicted_once(&intent).await;
        }
        scene.end().await;
    }
}

#[tokio::test]
async fn answers_of_403_are_outlived() {
    answered_twice_at_every_step(403).await;
}

#[tokio::test]
async fn answers_of_409_are_compared_and_tried_again() {
    for (steps, is_certain) in [(CERTAIN, true), (super::scene::ASKED, false)] {
        let (method, end) = if is_certain { steps[1] } else { steps[0] };
        let scene = Scene::new().await;
        scene.stage.server.faults().add(Fault::answer(409).of(method).ending(end).times(2));
        let intent = if is_certain { scene.certain() } else { scene.asked() };
        scene.evict(&intent).await;
        assert_eq!(scene.stage.server.log().of("GET", "/pods/web").len(), 2, "{:?}", scene.steps());
        scene.is_evicted_once(&intent).await;
        scene.end().await;
    }
}

#[tokio::test]
async fn answers_of_410_are_outlived() {
    answered_twice_at_every_step(410).await;
}

#[tokio::test]
async fn answers_of_429_are_waited_for_as_told() {
    let scene = Scene::new().await;
    scene.stage.server.faults().add(Fault::answer(429).of("DELETE").ending("/pods/web").times(2));
    let intent = scene.certain();
    scene.evict(&intent).await;
    let at: Vec<_> = scene.stage.server.log().of("DELETE", "/pods/web").iter().map(|it| it.at).collect();
    let [first, second, third] = at.as_slice() else { panic!("{at:?}") };
    assert!(*second - *first >= Duration::from_secs(1) && *third - *second >= Duration::from_secs(1), "{at:?}");
    scene.is_evicted_once(&intent).await;
    scene.end().await;
}

#[tokio::test]
async fn answers_of_500_are_outlived() {
    answered_twice_at_every_step(500).await;
}

#[tokio::test]
async fn answers_of_503_are_outlived() {
    answered_twice_at_every_step(503).await;
}

#[tokio::test]
async fn answers_of_504_are_outlived() {
    answered_twice_at_every_step(504).await;
}

#[tokio::test]
async fn a_server_that_refuses_is_an_answer_to_who_asks() {
    for code in [401, 403] {
        let scene = Scene::new().await;
        scene.stage.server.faults().add(Fault::answer(code).ending("/eviction"));
        let heard = scene.evict(&scene.asked()).await;
        assert!(matches!(heard.as_slice(), [Verdict::Refused(_)]), "{heard:?}");
        assert_eq!(scene.steps(), ["POST pods/web/eviction"], "asked once");
        scene.is_untouched().await;
        scene.end().await;
    }
}

#[tokio::test]
async fn everything_is_forbidden_for_a_while() {
    let scene = Scene::new().await;
    let all = scene.stage.server.faults().add(
        Fault::new(What::Answer {
            code: 403,
            reason: "Forbidden",
            message: "RBAC is being mended",
            retry_after: None,
        })
        .at("/namespaces/"),
    );
    let mut cluster = scene.cluster();
    let intent = scene.certain();
    begin(&cluster, &intent);
    tokio::time::sleep(Duration::from_secs(1)).await;
    scene.stage.server.faults().remove(all);
    let heard = scene.settle(&mut cluster).await;
    assert!(has(&heard, |it| matches!(it, Verdict::Delayed(reason) if reason.contains("mended"))), "{heard:?}");
    assert!(scene.pod().await.unwrap()["metadata"]["deletionTimestamp"].is_string());
    scene.is_told_once().await;
    scene.end().await;
}

/// A budget that allows nothing, over the pods of team x.
async fn budget(scene: &Scene) -> String {
    let path = format!("/apis/policy/v1/namespaces/{}/poddisruptionbudgets", scene.stage.namespace);
    let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"team": "x"}}});
    scene.stage.create(&path, json!({"metadata": {"name": "b"}, "spec": spec})).await.unwrap();
    let status = json!({"status": {
        "observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1,
    }});
    let (code, answer) = scene.stage.ask(Method::PATCH, &format!("{path}/b/status"), status).await.unwrap();
    assert_eq!(code, 200, "{answer}");
    format!("{path}/b")
}

#[tokio::test]
async fn a_disruption_budget_refuses_and_the_pod_stays() {
    let scene = Scene::labelled(json!({"labels": {"team": "x"}})).await;
    budget(&scene).await;
    let heard = scene.evict(&scene.asked()).await;
    assert!(
        matches!(heard.as_slice(), [Verdict::Refused(reason)] if reason.contains("disruption budget")),
        "{heard:?}"
    );
    assert_eq!(scene.steps(), ["POST pods/web/eviction"], "asked once");
    scene.is_untouched().await;
    scene.end().await;
}

#[tokio::test]
async fn a_hard_threshold_that_deletes_asks_no_budget() {
    let scene = Scene::labelled(json!({"labels": {"team": "x"}})).await;
    budget(&scene).await;
    let intent = scene.certain();
    scene.evict(&intent).await;
    scene.is_evicted_once(&intent).await;
    scene.end().await;
}

#[tokio::test]
async fn a_hard_threshold_that_evicts_hears_the_budget_once() {
    let scene = Scene::labelled(json!({"labels": {"team": "x"}})).await;
    budget(&scene).await;
    let intent = Intent { method: EvictionMethod::Evict, ..scene.certain() };
    let heard = scene.evict(&intent).await;
    assert!(matches!(heard.as_slice(), [Verdict::Refused(_)]), "{heard:?}");
    scene.is_untouched().await;
    scene.end().await;
}
