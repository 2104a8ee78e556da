//! Tests orders to collect garbage, and to stop and remove pods.

use super::*;

#[test]
fn garbage_is_removed_in_order() {
    let place = Place::new();
    let log = place.logs().join("ns_job_job/work/0.log");
    std::fs::create_dir_all(log.parent().unwrap()).unwrap();
    std::fs::write(&log, [b'x'; 9000]).unwrap();
    let mut has = node();
    has.statuses.get_mut("job-work-0").unwrap().log_path = log.display().to_string();
    let fake = Fake::start(&place.socket(), has);
    let collected = collected(&mut place.start(), everything(|| false));
    assert_eq!(
        fake.done(),
        [
            "RemoveContainer job-work-0",
            "RemoveContainer web-app-0",
            "RemoveContainer web-app-1",
            "StopPodSandbox sandbox-job",
            "RemovePodSandbox sandbox-job",
            "RemoveImage sha256:large",
            "RemoveImage sha256:small",
        ]
    );
    assert_eq!(collected.end, CollectEnd::Exhausted);
    assert_eq!(collected.counts, Counts { containers: 3, sandboxes: 1, images: 2 });
    assert!(collected.frees.0 >= 3 * 1000 + 9000 + 1010, "{}", collected.frees.0);
    assert_eq!(collected.steps[0].name, "ns/job/work#0");
    assert!(!log.exists() && place.logs().exists(), "a log is removed with its container");
}

/// Space is free only after containerd's own garbage collection, and the next step depends on the free space.
#[test]
fn containerd_frees_removed_containers_at_once() {
    let place = Place::new();
    // A killed agent has left its lease.
    let has = Has { is_containerd: true, leases: vec!["node-pressure-monitor".to_owned()], ..node() };
    let fake = Fake::start(&place.socket(), has);
    let having = Arc::clone(&fake.has);
    let deletions = move || having.lock().unwrap().done.iter().filter(|it| it.starts_with("Delete")).count();
    let collected = collected(&mut place.start(), everything(move || deletions() == 2));
    assert_eq!(collected.end, CollectEnd::Enough);
    let lease = |call: &str, sync: bool| format!("{call} node-pressure-monitor {sync}");
    let expected = [
        "RemoveContainer job-work-0".to_owned(),
        lease("Delete", true),
        "RemoveContainer web-app-0".to_owned(),
        lease("Create", false),
        lease("Delete", true),
    ];
    assert_eq!(fake.done(), expected);
}

/// kubernetes/kubernetes#130663: containerd 2.0 answers before it has freed an image, so a measurement at once finds nothing free, and all
/// images go.
#[test]
fn containerd_frees_a_removed_image_before_the_next_measurement() {
    for (awaits_space, removed) in [(true, 1), (false, 2)] {
        let place = Place::new();
        let fake = Fake::start(&place.socket(), Has { is_containerd: true, ..node() });
        let having = Arc::clone(&fake.has);
        // The space of an image is free only after containerd's own collection.
        let is_enough = move || {
            let done = &having.lock().unwrap().done;
            let image = done.iter().position(|it| it.starts_with("RemoveImage"));
            image.is_some_and(|image| done[image..].iter().any(|it| it.starts_with("Delete")))
        };
        let order = CollectOrder { awaits_space, what: vec![Garbage::Images], ..everything(is_enough) };
        let collected = collected(&mut place.start(), order);
        assert_eq!(collected.counts.images, removed, "{awaits_space}");
        assert_eq!(collected.end, if awaits_space { CollectEnd::Enough } else { CollectEnd::Exhausted });
    }
}

#[test]
fn a_collection_stops_when_enough_is_free() {
    let place = Place::new();
    let fake = Fake::start(&place.socket(), node());
    let mut runtime = place.start();
    let has = Arc::clone(&fake.has);
    // The order measures by the remaining images, as on a filesystem.
    let order = everything(move || has.lock().unwrap().images.iter().map(|image| image.size).sum::<u64>() <= 611);
    let first = collected(&mut runtime, order);
    assert_eq!((first.end, first.counts.images), (CollectEnd::Enough, 1));
    assert_eq!(fake.done().last().map(String::as_str), Some("RemoveImage sha256:large"));
    let changes = fake.done().len();
    let second = collected(&mut runtime, everything(|| true));
    assert_eq!((second.end, second.counts), (CollectEnd::Enough, Counts::default()));
    assert_eq!(fake.done().len(), changes);
}

#[test]
fn a_dry_run_only_lists() {
    let place = Place::new();
    let fake = Fake::start(&place.socket(), node());
    let order = CollectOrder { dry_run: true, ..everything(|| false) };
    let collected = collected(&mut place.start(), order);
    assert_eq!(collected.end, CollectEnd::Listed);
    let names: Vec<_> = collected.steps.iter().map(|step| (step.target.kind(), step.name.as_str())).collect();
    assert_eq!(
        names,
        [
            ("container", "ns/job/work#0"),
            ("container", "ns/web/app#0"),
            ("container", "ns/web/app#1"),
            ("sandbox", "ns/job#0"),
            ("image", "registry/old:2"),
            ("image", "registry/old:1"),
        ]
    );
    assert_eq!(collected.frees.0, 3 * 1000 + 1010);
    assert_eq!(fake.done(), [""; 0]);
}

#[test]
fn a_refused_removal_does_not_stop_the_others() {
    let place = Place::new();
    let mut has = node();
    has.refusals.insert("web-app-0", Status::unknown("device or resource busy"));
    has.refusals.insert("sha256:large", Status::not_found("no such image"));
    let fake = Fake::start(&place.socket(), has);
    let collected = collected(&mut place.start(), everything(|| false));
    let refused: Vec<_> = collected.refused.iter().map(|(step, why)| (step.target.id(), why.as_str())).collect();
    assert_eq!(refused, [("web-app-0", "RemoveContainer was refused: device or resource busy")]);
    assert_eq!(collected.counts, Counts { containers: 2, sandboxes: 1, images: 1 });
    assert_eq!(fake.done().last().map(String::as_str), Some("RemoveImage sha256:small"));
}

#[test]
fn each_object_is_checked_before_its_removal() {
    let place = Place::new();
    let mut has = node();
    // The list is outdated: the answers about single objects show that one container runs and one image is in use again.
    has.statuses.get_mut("web-app-0").unwrap().state = cri::CONTAINER_RUNNING;
    let fake = Fake::start(&place.socket(), has);
    let having = Arc::clone(&fake.has);
    let order = everything(move || {
        let mut has = having.lock().unwrap();
        if !has.containers.iter().any(|container| container.id == "web-late-0") {
            has.container("web", "late", 0, cri::CONTAINER_CREATED, 60).image_ref = "sha256:small".to_owned();
        }
        false
    });
    collected(&mut place.start(), order);
    let done = fake.done();
    assert!(!done.iter().any(|call| call.ends_with("web-app-0") || call.ends_with("sha256:small")), "{done:?}");
    assert!(done.iter().any(|call| call.ends_with("sha256:large")), "{done:?}");
}

#[test]
fn an_image_mounted_meanwhile_stays() {
    let place = Place::new();
    let fake = Fake::start(&place.socket(), node());
    let having = Arc::clone(&fake.has);
    let order = everything(move || {
        let mut has = having.lock().unwrap();
        let is_at_images = has.done.iter().any(|call| call.starts_with("RemoveImage"));
        if is_at_images && !has.statuses.contains_key("web-late-0") {
            has.container("web", "late", 0, cri::CONTAINER_RUNNING, 60);
            let image = Some("registry/old:1".to_owned());
            has.statuses.get_mut("web-late-0").unwrap().mounts.push(cri::Mount { image });
        }
        false
    });
    collected(&mut place.start(), order);
    assert_eq!(fake.done().last().map(String::as_str), Some("RemoveImage sha256:large"));
}

#[test]
fn a_runtime_that_dies_halfway_ends_the_collection() {
    let place = Place::new();
    let mut has = node();
    has.dies_after = Some(1);
    let fake = Fake::start(&place.socket(), has);
    let mut runtime = place.start();
    let first = collected(&mut runtime, everything(|| false));
    assert!(matches!(&first.end, CollectEnd::Interrupted(why) if why.contains("0.5 s")), "{:?}", first.end);
    assert_eq!(first.counts.containers, 1);
    down(&runtime);
    runtime.collect(everything(|| false)).unwrap();
    let second = until("an answer", || match runtime.try_event() {
        Some(Event::Collected(collected)) => Some(collected),
        _ => None,
    });
    assert!(matches!(second.end, CollectEnd::Interrupted(_)), "{:?}", second.end);
    fake.has().dies_after = None;
    up(&runtime);
    assert_eq!(collected(&mut runtime, everything(|| false)).end, CollectEnd::Exhausted);
}

#[test]
fn a_pod_is_stopped_with_its_grace_period_and_removed_after_it() {
    let place = Place::new();
    let mut has = node();
    has.container("web", "side", 0, cri::CONTAINER_RUNNING, 45);
    has.pod("static", true).annotations.insert("kubernetes.io/config.source".to_owned(), "file".to_owned());
    has.container("static", "etcd", 0, cri::CONTAINER_RUNNING, 45);
    let log = place.logs().join("ns_web_web/app/2.log");
    std::fs::create_dir_all(log.parent().unwrap()).unwrap();
    std::fs::write(&log, "x").unwrap();
    has.statuses.get_mut("web-app-2").unwrap().log_path = log.display().to_string();
    let fake = Fake::start(&place.socket(), has);
    let mut runtime = place.start();
    assert!(matches!(stopped(&mut runtime, order("nobody", 7, false)).result, Err(StopError::Unknown)));
    assert!(matches!(stopped(&mut runtime, order("static", 0, true)).result, Err(StopError::Static)));
    assert_eq!(fake.done(), [""; 0]);
    let web = stopped(&mut runtime, order("web", 7, false));
    assert_eq!((web.uid.0.as_str(), web.remove, web.result.unwrap()), ("web", false, 2));
    let mut done = fake.done();
    assert_eq!(done.pop().as_deref(), Some("StopPodSandbox sandbox-web"));
    done.sort();
    assert_eq!(done, ["StopContainer web-app-2 7", "StopContainer web-side-0 7"]);
    assert!(log.exists());
    let web = stopped(&mut runtime, order("web", 0, true));
    assert_eq!((web.remove, web.result.unwrap()), (true, 0));
    assert_eq!(fake.done().last().map(String::as_str), Some("RemovePodSandbox sandbox-web"));
    assert!(!log.exists(), "its log is removed");
}

/// In this test the kubelet restarts the pod before the removal.
#[test]
fn a_new_sandbox_of_the_kubelet_is_not_removed() {
    let place = Place::new();
    let fake = Fake::start(&place.socket(), node());
    let mut runtime = place.start();
    stopped(&mut runtime, order("web", 0, false)).result.unwrap();
    {
        let mut has = fake.has();
        again(&mut has, "web", "web-again", true);
        has.container("web-again", "app", 3, cri::CONTAINER_RUNNING, 70);
    }
    stopped(&mut runtime, order("web", 0, true)).result.unwrap();
    let left: Vec<String> = fake.has().sandboxes.iter().map(|sandbox| sandbox.id.clone()).collect();
    assert_eq!(left, ["sandbox-job", "sandbox-job-again", "sandbox-web-again"]);
    assert!(!fake.done().iter().any(|call| call.contains("web-again")), "{:?}", fake.done());
}

/// Makes a node on which the pod "web" has been killed, with an order to remove what the kubelet leaves of it. The pod's cgroup is there.
fn killed(place: &Place) -> (Has, StopOrder) {
    let mut has = node();
    has.containers.iter_mut().for_each(|container| container.state = cri::CONTAINER_EXITED);
    let cgroup = place.0.path().join("cgroup");
    std::fs::create_dir(&cgroup).unwrap();
    let wait = Some(KubeletWait { cgroup, at_most: PATIENCE });
    (has, StopOrder { by: TearDown::Kubelet, wait, ..order("web", 0, true) })
}

#[test]
fn what_the_kubelet_has_left_is_removed_once_it_is_through() {
    let place = Place::new();
    let (has, order) = killed(&place);
    let fake = Fake::start(&place.socket(), has);
    let mut runtime = place.start();
    snapshot(&runtime);
    let cgroup = order.wait.clone().unwrap().cgroup;
    runtime.stop_pod(order).unwrap();
    let is_web = |sandbox: &&mut cri::PodSandbox| sandbox.id == "sandbox-web";
    fake.has().sandboxes.iter_mut().filter(is_web).for_each(|sandbox| sandbox.state = cri::SANDBOX_READY + 1);
    // The kubelet may still be stopping containers two seconds after the sandbox's end (`cluster-disk`, 1.36).
    std::thread::sleep(Duration::from_secs(3));
    assert!(fake.done().is_empty(), "the kubelet has not seen the containers' end: {:?}", fake.done());
    std::fs::remove_dir(cgroup).unwrap();
    let web = next_stopped(&mut runtime);
    assert!(web.took < PATIENCE, "{:?}", web.took);
    assert_eq!(fake.done(), ["RemovePodSandbox sandbox-web"]);
}

#[test]
fn what_a_late_kubelet_has_started_again_is_spared() {
    let place = Place::new();
    let (mut has, order) = killed(&place);
    has.container("web", "app", 3, cri::CONTAINER_RUNNING, 60);
    let fake = Fake::start(&place.socket(), has);
    let mut runtime = place.start();
    let wait = order.wait.map(|wait| KubeletWait { at_most: Duration::from_secs(3), ..wait });
    let order = StopOrder { wait, ..order };
    let web = stopped(&mut runtime, order);
    assert!(web.took >= Duration::from_secs(3), "{:?}", web.took);
    assert_eq!(fake.done(), ["app-0", "app-1", "init-0", "app-2"].map(|name| format!("RemoveContainer web-{name}")));
}

#[test]
fn a_sandbox_with_killed_processes_is_removed() {
    let place = Place::new();
    let mut has = node();
    has.refusals.insert("web-app-2", Status::unknown("it is stuck"));
    let fake = Fake::start(&place.socket(), has);
    let mut runtime = place.start();
    assert!(stopped(&mut runtime, order("web", 0, false)).result.is_err());
    // Its processes were killed, which the runtime has not noticed. The runtime cannot stop them, but can remove the sandbox.
    stopped(&mut runtime, order("web", 0, true)).result.unwrap();
    assert_eq!(fake.done().last().map(String::as_str), Some("RemovePodSandbox sandbox-web"));
}

#[test]
fn a_removal_while_the_runtime_is_down_is_done_later() {
    let place = Place::new();
    let fake = Fake::start(&place.socket(), node());
    let mut runtime = place.start();
    snapshot(&runtime);
    let has = Arc::clone(&fake.has);
    drop(fake);
    runtime.observe().unwrap();
    down(&runtime);
    runtime.stop_pod(order("web", 0, false)).unwrap();
    runtime.stop_pod(order("web", 0, true)).unwrap();
    let mut next = || {
        until("an answer", || match runtime.try_event() {
            Some(Event::Stopped(stopped)) => Some(stopped),
            _ => None,
        })
    };
    assert!(matches!(next().result, Err(StopError::Down(_))));
    let Err(StopError::Down(reason)) = next().result else { panic!("it is down") };
    assert!(reason.ends_with("removed once it answers"), "{reason}");
    let fake = Fake::start_again(&place.socket(), has);
    let made_good = next();
    assert_eq!((made_good.uid.0.as_str(), made_good.remove, made_good.result.is_ok()), ("web", true, true));
    assert!(fake.has().sandboxes.iter().all(|sandbox| sandbox.id != "sandbox-web"));
}

#[test]
fn all_refusals_are_counted() {
    let place = Place::new();
    let mut has = node();
    has.refusals.insert("RemoveContainer", Status::unknown("device or resource busy"));
    for attempt in 3..80 {
        has.container("web", "app", attempt, cri::CONTAINER_EXITED, i64::from(attempt) + 50);
    }
    let _fake = Fake::start(&place.socket(), has);
    let collected = collected(&mut place.start(), everything(|| false));
    assert_eq!((collected.refused.len(), collected.refusals), (64, 79));
}

#[test]
fn a_collection_does_not_wait_for_estimates() {
    let place = Place::new();
    let mut has = node();
    has.delays.insert("ListContainerStats", Duration::from_secs(60));
    let _fake = Fake::start(&place.socket(), has);
    let options = RuntimeOptions { timeout: PATIENCE, ..place.options() };
    let collected = collected(&mut place.start_with(options), everything(|| false));
    assert_eq!((collected.end, collected.counts.containers), (CollectEnd::Exhausted, 3));
}

#[test]
fn images_stay_while_the_sandbox_image_is_unknown() {
    for pinned in [false, true] {
        let place = Place::new();
        let mut has = node();
        has.info.clear();
        has.images.iter_mut().find(|image| image.id == "sha256:pause").unwrap().pinned = pinned;
        let _fake = Fake::start(&place.socket(), has);
        let collected = collected(&mut place.start(), everything(|| false));
        assert_eq!(collected.counts.images, if pinned { 2 } else { 0 });
    }
}

#[test]
fn a_disk_that_hangs_ends_the_collection() {
    let place = Place::new();
    let fake = Fake::start(&place.socket(), node());
    let mut runtime = place.start();
    let order = everything(|| {
        std::thread::sleep(PATIENCE);
        true
    });
    let collected = collected(&mut runtime, order);
    assert!(
        matches!(&collected.end, CollectEnd::Interrupted(why) if why.contains("free space")),
        "{:?}",
        collected.end
    );
    assert_eq!(fake.done(), [""; 0]);
}

#[test]
fn observations_continue_while_a_pod_is_stopped() {
    let place = Place::new();
    let mut has = node();
    has.delays.insert("StopContainer", Duration::from_secs(3));
    let fake = Fake::start(&place.socket(), has);
    let runtime = place.start();
    snapshot(&runtime);
    runtime.stop_pod(order("web", 1, false)).unwrap();
    let begun = Instant::now();
    fake.has().pod("new", true);
    until("the new pod", || {
        runtime.observe().unwrap();
        runtime.view().snapshot.filter(|snapshot| snapshot.sandboxes.len() == 4)
    });
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[test]
fn orders_beyond_the_queue_are_refused() {
    let place = Place::new();
    let mut has = node();
    has.delays.insert("ListPodSandbox", Duration::from_secs(3));
    let _fake = Fake::start(&place.socket(), has);
    let mut runtime = place.start();
    runtime.collect(everything(|| false)).unwrap();
    let early = until("an answer", || match runtime.try_event() {
        Some(Event::Collected(collected)) => Some(collected.end),
        _ => None,
    });
    assert!(matches!(early, CollectEnd::Interrupted(_)), "{early:?}");
}
