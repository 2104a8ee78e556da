//! The connection breaks, or the server forgets a watch's version.

use std::time::{Duration, Instant};

use node_pressure_apiserver::{Fault, Record, What};
use serde_json::json;

use super::{Scene, is_pod_watch, names};

#[tokio::test]
async fn a_cut_watch_resumes_at_its_version() {
    let scene = Scene::with_pods(&["a"]).await;
    scene.stage.server.cut_connections();
    scene.pod("b").await;
    scene.delete("a").await;
    let view = scene.until_known(&["b"]).await;
    assert_eq!(view.counts.lists, 1, "resumed");
    scene.end().await;
}

#[tokio::test]
async fn a_watch_event_cut_in_the_middle_is_read_whole_later() {
    let scene = Scene::new().await;
    scene.until_known(&[]).await;
    for (number, bytes) in [1_usize, 40, 400].into_iter().enumerate() {
        let cut = Fault::cut_in_body(bytes).at("/pods?").at("watch=true").once();
        let cut = scene.stage.server.faults().add(cut);
        scene.stage.server.cut_connections();
        scene.until_struck(cut, 1).await;
        scene.pod(&format!("p{number}")).await;
        scene.until("one more", |view| names(view).len() == number + 1).await;
    }
    assert_eq!(scene.cluster.view().counts.lists, 1);
    scene.end().await;
}

#[tokio::test]
async fn an_incomplete_list_changes_nothing() {
    let scene = Scene::with_pods(&["a", "b", "c"]).await;
    let fault = Fault::cut_in_body(1500).at("/pods?").at("resourceVersionMatch").times(2);
    let fault = scene.stage.server.faults().add(fault);
    let gone = Fault::answer(410).at("/pods?").at("watch=true").once();
    let second = Fault::cut_in_body(1500).at("/pods?fieldSelector").times(2);
    let second = scene.stage.server.faults().add(second);
    scene.stage.server.faults().add(gone);
    scene.stage.server.cut_connections();
    let struck = || scene.stage.server.faults().struck(fault) + scene.stage.server.faults().struck(second);
    let begun = Instant::now();
    while struck() < 2 && begun.elapsed() < super::LATE {
        assert_eq!(names(&scene.cluster.view()), ["a", "b", "c"], "an incomplete list removes no pod");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    scene.stage.server.faults().clear();
    scene.delete("b").await;
    scene.until_known(&["a", "c"]).await;
    scene.end().await;
}

#[tokio::test]
async fn a_410_status_causes_a_list() {
    let scene = Scene::with_pods(&["a"]).await;
    scene.stage.server.faults().add(Fault::answer(410).at("/pods?").at("watch=true").once());
    scene.stage.server.cut_connections();
    scene.delete("a").await;
    scene.pod("b").await;
    let view = scene.until_known(&["b"]).await;
    assert_eq!(view.counts.lists, 2);
    let requests = scene.stage.server.log().all();
    let is_list = |it: &&Record| it.method == "GET" && it.path.ends_with("/pods") && !is_pod_watch(it);
    let lists: Vec<&str> = requests.iter().filter(is_list).map(|it| it.query.as_str()).collect();
    let [first, second] = lists[..] else { panic!("{lists:?}") };
    let of_cache = |query: &str| query.contains("resourceVersionMatch=NotOlderThan");
    assert!(of_cache(first) && of_cache(second), "both lists are of the cache: {lists:?}");
    assert!(!second.contains("resourceVersion=0&"), "the cache must not be older than what is known: {second}");
    scene.end().await;
}

#[tokio::test]
async fn a_410_in_the_stream_causes_a_list() {
    let scene = Scene::new().await;
    let Some(api) = scene.stage.server.memory().cloned() else {
        assert!(scene.stage.skips("expiring a watch under way"));
        return scene.end().await;
    };
    scene.pod("a").await;
    scene.until_known(&["a"]).await;
    scene.until_watched().await;
    api.expire_watches();
    scene.until("listed anew", |view| view.counts.lists == 2).await;
    scene.pod("b").await;
    scene.until_known(&["a", "b"]).await;
    // The same holds if the history was compacted between two watches.
    let watches = scene.pod_watches();
    scene.stage.server.close().await;
    scene.delete("a").await;
    api.compact();
    scene.stage.server.open().await.unwrap();
    scene.until_known(&["b"]).await;
    assert!(scene.pod_watches() > watches);
    scene.end().await;
}

#[tokio::test]
async fn bookmarks_spare_a_quiet_node_a_list() {
    let scene = Scene::new().await;
    let Some(api) = scene.stage.server.memory().cloned() else {
        assert!(scene.stage.skips("compacting"));
        return scene.end().await;
    };
    scene.pod("a").await;
    scene.until_known(&["a"]).await;
    // Other nodes change many times meanwhile.
    for number in 0..20 {
        scene.patch_node(json!({"metadata": {"labels": {"n": number.to_string()}}})).await;
    }
    scene.until_watched().await;
    let compacted = api.revision();
    // The first sign of life may be the answer to the watch instead.
    for _ in 0..2 {
        let before = scene.cluster.view().pods_as_of;
        api.bookmark();
        scene.until("the bookmark", |view| view.pods_as_of > before).await;
    }
    api.compact_to(compacted);
    scene.stage.server.cut_connections();
    scene.pod("b").await;
    let view = scene.until_known(&["a", "b"]).await;
    assert_eq!(view.counts.lists, 1, "the bookmark's version is newer than the compaction");
    scene.end().await;
}

#[tokio::test]
async fn a_silent_watch_counts_as_dead() {
    let scene = Scene::with_pods(&["a"]).await;
    let stall = Fault::stall_in_body(0).at("/pods?").at("watch=true").once();
    let stall = scene.stage.server.faults().add(stall);
    scene.stage.server.cut_connections();
    scene.until_struck(stall, 1).await;
    scene.pod("b").await;
    let view = scene.until_known(&["a", "b"]).await;
    assert_eq!(view.counts.lists, 1);
    scene.end().await;
}

#[tokio::test]
async fn a_server_that_never_answers_is_down() {
    let scene = Scene::with_pods(&["a"]).await;
    let fault = scene.stage.server.faults().add(Fault::new(What::NeverAnswer));
    scene.stage.server.cut_connections();
    scene.until_down_for(&["no answer within 2 s"]).await;
    assert_eq!(names(&scene.cluster.view()), ["a"], "the last known pods stay");
    scene.stage.server.faults().remove(fault);
    scene.until_up().await;
    scene.end().await;
}

#[tokio::test]
async fn a_slow_server_is_waited_for() {
    let scene = Scene::new().await;
    scene.until_up().await;
    scene.stage.server.faults().add(Fault::delay(Duration::from_millis(700)));
    scene.stage.server.cut_connections();
    scene.pod("a").await;
    scene.until_known(&["a"]).await;
    assert_eq!(scene.cluster.view().state, node_pressure_monitor::cluster::State::Up);
    scene.end().await;
}

#[tokio::test]
async fn retry_after_of_an_overloaded_server_is_obeyed() {
    let scene = Scene::with_pods(&["a"]).await;
    let busy = What::Answer { code: 429, reason: "TooManyRequests", message: "slow down", retry_after: Some(2) };
    let fault = scene.stage.server.faults().add(Fault::new(busy).at("/pods?").at("watch=true"));
    scene.stage.server.cut_connections();
    scene.until_down_for(&["429", "slow down"]).await;
    assert_eq!(scene.stage.server.faults().struck(fault), 2, "one refusal is no outage");
    scene.until_struck(fault, 3).await;
    let refused = scene.stage.server.log().all().into_iter().filter(|it| is_pod_watch(it) && it.status != Some(200));
    let at: Vec<Instant> = refused.map(|it| it.at).collect();
    let [first, second, third, ..] = at.as_slice() else { panic!("{at:?}") };
    let asked = Duration::from_secs(2);
    assert!(*second - *first >= asked && *third - *second >= asked, "not before two seconds are over: {at:?}");
    scene.stage.server.faults().remove(fault);
    scene.until_up().await;
    scene.end().await;
}

#[tokio::test]
async fn a_missing_permission_is_reported_with_the_fix() {
    let scene = Scene::with_pods(&["a"]).await;
    let fault = scene.stage.server.faults().add(Fault::answer(403).at("/pods?"));
    scene.stage.server.cut_connections();
    scene.until_down_for(&["403 Forbidden", "ClusterRole"]).await;
    scene.stage.server.faults().remove(fault);
    scene.until_up().await;
    scene.until_known(&["a"]).await;
    scene.end().await;
}
