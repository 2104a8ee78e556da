//! Refusals of the API server.

use std::time::Duration;

use node_pressure_apiserver::{Fault, What};
use node_pressure_monitor::cluster::{Event, Intent, Verdict};
use node_pressure_monitor::config::kubernetes_options::EvictionMethod;
use serde_json::json;

use super::scene::{PATIENCE, Scene, Way, begin, has};

/// Evicts pods while each request in turn is refused twice, and asserts that every eviction is finished.
async fn answered_twice_at_every_step(code: u16) {
    let ways = [Way::Certain, Way::Failed].into_iter().flat_map(|way| way.steps().iter().map(move |step| (way, *step)));
    for (way, (method, end)) in ways {
        let scene = Scene::new().await;
        let fault = scene.stage.server.faults().add(Fault::answer(code).of(method).ending(end).times(2));
        let intent = scene.intent(way);
        scene.evict(&intent).await;
        assert!(scene.stage.server.faults().struck(fault) >= 1, "{method} {end}");
        if way == Way::Certain && method == "PATCH" && code < 429 {
            // A forbidden mark is not retried: the pod is evicted without the condition.
            scene.has_one_event().await;
            assert!(scene.pod().await.unwrap()["metadata"]["deletionTimestamp"].is_string());
        } else {
            scene.is_evicted_once(&intent).await;
        }
        scene.end().await;
    }
}

/// Returns a fault of the request that removes the pod.
fn removal_answered(code: u16, way: Way) -> Fault {
    match way {
        Way::Certain => Fault::answer(code).of("DELETE").ending("/pods/web"),
        Way::Failed => Fault::answer(code).of("PATCH").ending("/pods/web/status"),
        Way::Asked => Fault::answer(code).of("POST").ending("/pods/web/eviction"),
    }
}

#[tokio::test]
async fn a_403_is_retried() {
    answered_twice_at_every_step(403).await;
}

#[tokio::test]
async fn a_409_is_compared_and_retried() {
    for way in Way::ALL {
        let scene = Scene::new().await;
        scene.stage.server.faults().add(removal_answered(409, way).times(2));
        let intent = scene.intent(way);
        scene.evict(&intent).await;
        assert!(scene.stage.server.log().of("GET", "/pods/web").len() >= 2, "{:?}", scene.steps());
        scene.is_evicted_once(&intent).await;
        scene.end().await;
    }
}

#[tokio::test]
async fn a_lasting_conflict_is_compared_each_time() {
    let scene = Scene::new().await;
    let conflict = scene.stage.server.faults().add(removal_answered(409, Way::Certain));
    let mut cluster = scene.cluster();
    let intent = scene.certain();
    begin(&cluster, &intent);
    let reason = scene.until_delayed(&mut cluster).await;
    assert!(reason.contains("another client changed the pod"), "{reason}");
    scene.stage.until_struck(conflict, 4, PATIENCE).await.unwrap();
    let pod = scene.pod().await.unwrap();
    assert!(pod["metadata"]["deletionTimestamp"].is_null(), "{pod}");
    assert!(scene.stage.server.log().of("GET", "/pods/web").len() >= 3, "{:?}", scene.steps());
    scene.stage.server.faults().remove(conflict);
    scene.settle(&mut cluster).await;
    scene.is_evicted_once(&intent).await;
    scene.end().await;
}

#[tokio::test]
async fn a_lasting_conflict_ends_an_asked_eviction() {
    let scene = Scene::new().await;
    scene.stage.server.faults().add(removal_answered(409, Way::Asked));
    let heard = scene.evict(&scene.asked()).await;
    assert!(matches!(heard.as_slice(), [Verdict::NoAnswer(_)]), "{heard:?}");
    scene.is_untouched().await;
    scene.end().await;
}

/// A load balancer without this path says nothing about the pod, in any step.
#[tokio::test]
async fn a_404_of_a_proxy_does_not_mean_not_found() {
    for way in Way::ALL {
        let removal = removal_answered(409, way).once();
        for (method, end) in way.steps().iter().copied().chain([("GET", "/pods/web")]) {
            let scene = Scene::new().await;
            let faults = scene.stage.server.faults();
            let page = faults.add(Fault::new(What::Page { code: 404 }).of(method).ending(end).once());
            if method == "GET" {
                // The agent reads the pod only after a conflict.
                faults.add(removal.clone());
            }
            let intent = scene.intent(way);
            let heard = scene.evict(&intent).await;
            assert_eq!(faults.struck(page), 1, "{method} {end}: {:?}", scene.steps());
            assert!(!has(&heard, |it| *it == Verdict::Gone), "{method} {end}: {heard:?}");
            scene.is_evicted_once(&intent).await;
            scene.end().await;
        }
    }
}

#[tokio::test]
async fn lasting_404s_of_a_proxy_are_no_answer() {
    let scene = Scene::new().await;
    scene.stage.server.faults().add(Fault::new(What::Page { code: 404 }).ending("/eviction"));
    let heard = scene.evict(&scene.asked()).await;
    assert!(matches!(heard.as_slice(), [Verdict::NoAnswer(_), Verdict::Done(Some(_))]), "{heard:?}");
    scene.is_untouched().await;
    scene.end().await;
}

#[tokio::test]
async fn a_410_is_retried() {
    answered_twice_at_every_step(410).await;
}

#[tokio::test]
async fn retry_after_of_a_429_is_obeyed() {
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
async fn a_500_is_retried() {
    answered_twice_at_every_step(500).await;
}

#[tokio::test]
async fn a_503_is_retried() {
    answered_twice_at_every_step(503).await;
}

#[tokio::test]
async fn a_504_is_retried() {
    answered_twice_at_every_step(504).await;
}

#[tokio::test]
async fn a_refusal_ends_an_asked_eviction() {
    for code in [401, 403] {
        let scene = Scene::new().await;
        scene.stage.server.faults().add(Fault::answer(code).ending("/eviction"));
        let heard = scene.evict(&scene.asked()).await;
        assert!(matches!(heard.as_slice(), [Verdict::Refused(_)]), "{heard:?}");
        assert_eq!(scene.steps(), ["POST pods/web/eviction"], "the agent sends one request");
        scene.is_untouched().await;
        scene.end().await;
    }
}

#[tokio::test]
async fn without_the_right_to_evict_the_pod_stays() {
    let scene = Scene::new().await;
    let message = "User \"system:serviceaccount:a:b\" cannot create resource \"pods/eviction\" in API group \"\"";
    let what = What::Answer { code: 403, reason: "Forbidden", message, retry_after: None };
    let forbidden = scene.stage.server.faults().add(Fault::new(what).ending("/eviction"));
    let mut cluster = scene.cluster();
    let (mut verdicts, mut degradations) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let intent = scene.asked();
        begin(&cluster, &intent);
        while !matches!(verdicts.last(), Some(Verdict::Refused(_))) {
            match cluster.event().await {
                Event::Eviction(settled) => verdicts.push(settled.verdict),
                Event::Degradation { capability, reason } => degradations.push((capability, reason)),
                _ => {}
            }
        }
        verdicts.clear();
        scene.settle(&mut cluster).await;
    }
    assert!(
        matches!(&degradations[..], [("evictions at the API server", Some(reason))] if reason.contains("pods/eviction")),
        "it is reported once: {degradations:?}"
    );
    // An API server that has just started refuses it, too.
    assert_eq!(scene.steps(), ["POST pods/web/eviction"; 10]);
    scene.is_untouched().await;
    scene.stage.server.faults().remove(forbidden);
    scene.end().await;
}

#[tokio::test]
async fn everything_is_forbidden_for_a_while() {
    let scene = Scene::new().await;
    let all = scene.stage.server.faults().add(
        Fault::new(What::Answer { code: 403, reason: "Forbidden", message: "RBAC is being mended", retry_after: None })
            .at("/namespaces/"),
    );
    let mut cluster = scene.cluster();
    begin(&cluster, &scene.certain());
    let reason = scene.until_delayed(&mut cluster).await;
    assert!(reason.contains("mended"), "{reason}");
    scene.stage.server.faults().remove(all);
    scene.settle(&mut cluster).await;
    assert!(scene.pod().await.unwrap()["metadata"]["deletionTimestamp"].is_string());
    scene.has_one_event().await;
    scene.end().await;
}

/// Returns a scene with a pod whose disruption budget allows no disruption.
async fn with_a_budget() -> Scene {
    let scene = Scene::labelled(json!({"labels": {"team": "x"}})).await;
    let budget = scene.stage.budget("b", "x").await.unwrap();
    scene.stage.allow(&budget, 0).await.unwrap();
    scene
}

#[tokio::test]
async fn a_disruption_budget_refuses_and_the_pod_stays() {
    let scene = with_a_budget().await;
    let heard = scene.evict(&scene.asked()).await;
    assert!(
        matches!(heard.as_slice(), [Verdict::Refused(reason)] if reason.contains("disruption budget")),
        "{heard:?}"
    );
    assert_eq!(scene.steps(), ["POST pods/web/eviction"], "the agent sends one request");
    scene.is_untouched().await;
    scene.end().await;
}

#[tokio::test]
async fn a_deletion_ignores_the_budget() {
    let scene = with_a_budget().await;
    let intent = scene.certain();
    scene.evict(&intent).await;
    scene.is_evicted_once(&intent).await;
    scene.end().await;
}

#[tokio::test]
async fn a_hard_eviction_ends_at_the_budget() {
    let scene = with_a_budget().await;
    let intent = Intent { method: EvictionMethod::Evict, ..scene.certain() };
    let heard = scene.evict(&intent).await;
    assert!(matches!(heard.as_slice(), [Verdict::Refused(_)]), "{heard:?}");
    scene.is_untouched().await;
    scene.end().await;
}

/// `KubeVirt` migrates, and Strimzi's operator rolls, a pod whose eviction their webhooks deny (kubevirt/kubevirt#11532, Azure/AKS#4720).
#[tokio::test]
async fn a_webhook_that_says_later_is_asked_once_and_the_pod_stays() {
    for (code, message, is_explicit) in [
        (429, r#"admission webhook "virt" denied the request: Eviction triggered evacuation of VMI "a/b""#, true),
        (429, r#"admission webhook "evict" denied the request: the database fails over first"#, false),
        (500, r#"admission webhook "drain" denied the request: The pod will be rolled by the operator"#, false),
    ] {
        let scene = Scene::new().await;
        let answer = What::Answer { code, reason: "", message, retry_after: Some(1) };
        scene.stage.server.faults().add(Fault::new(answer).of("POST").ending("/pods/web/eviction"));
        let heard = scene.evict(&scene.asked()).await;
        assert!(matches!(heard.as_slice(), [Verdict::Begun(it)] if it.is_explicit == is_explicit), "{heard:?}");
        assert_eq!(scene.steps(), ["POST pods/web/eviction"], "the agent sends one request");
        scene.is_untouched().await;
        scene.end().await;
    }
}
