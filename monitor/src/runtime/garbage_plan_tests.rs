use super::super::runtime_snapshot::{Details, PodRef, Stores};
use super::*;
use crate::workloads::cgroup_path::PodUid;

const SECOND: u64 = 1_000_000_000;
const NOW: Monotonic = Monotonic(10_000 * SECOND);
const AGES: Ages = Ages { container: Duration::from_secs(60), image: Duration::from_secs(120), keep_newest: true };
const ALONE: Ages = Ages { keep_newest: false, ..AGES };

fn ago(seconds: u64) -> Monotonic {
    Monotonic(NOW.0 - seconds * SECOND)
}

fn pod(name: &str) -> PodRef {
    PodRef { namespace: "ns".to_owned(), name: name.to_owned(), uid: PodUid(name.to_owned()) }
}

/// Makes a sandbox that has been dead for this many seconds, or that is alive.
fn sandbox(name: &str, dead: Option<u64>) -> Sandbox {
    Sandbox {
        id: name.to_owned(),
        pod: pod(name),
        labels: std::sync::Arc::default(),
        attempt: 0,
        is_ready: dead.is_none(),
        created: Some(UnixNanos(1)),
        is_static: false,
        dead_since: dead.map(ago),
    }
}

fn container(id: &str, sandbox: &str, name: &str, created: i64, dead: Option<u64>) -> Container {
    Container {
        id: id.to_owned(),
        sandbox: sandbox.to_owned(),
        pod: Some(pod(sandbox)),
        name: name.to_owned(),
        attempt: 0,
        state: if dead.is_some() { ContainerState::Exited } else { ContainerState::Running },
        created: Some(UnixNanos(created)),
        grace: None,
        images: vec!["app:1".to_owned()],
        dead_since: dead.map(ago),
        details: None,
    }
}

fn image(id: &str, seen: u64, used: Option<u64>) -> Image {
    Image {
        id: format!("sha256:{id}"),
        names: vec![format!("{id}:1"), format!("{id}@sha256:d{id}")],
        size: Bytes(10),
        is_pinned: false,
        is_used: false,
        first_seen: Some(ago(seen)),
        last_used: used.map(ago),
    }
}

fn of(sandboxes: Vec<Sandbox>, containers: Vec<Container>, images: Vec<Image>) -> Snapshot {
    Snapshot { at: NOW, runtime: String::new(), sandboxes, containers, images, stores: Stores::default() }
}

fn ids(steps: &[Step]) -> Vec<&str> {
    steps.iter().map(|step| step.target.id()).collect()
}

fn all(snapshot: &Snapshot) -> Vec<String> {
    all_at(snapshot, AGES)
}

fn all_at(snapshot: &Snapshot, ages: Ages) -> Vec<String> {
    let steps = plan(snapshot, &[Garbage::Containers, Garbage::Images], ages, NOW);
    steps.iter().map(|step| step.target.id().to_owned()).collect()
}

#[test]
fn the_newest_container_of_a_name_stays() {
    // The job has completed beside a running sidecar. Without the job's container the kubelet would run the job again.
    let snapshot = of(
        vec![sandbox("a", None)],
        vec![
            container("done", "a", "job", 5, Some(9000)),
            container("old", "a", "job", 3, Some(9500)),
            container("side", "a", "side", 5, None),
        ],
        Vec::new(),
    );
    assert_eq!(all(&snapshot), ["old"]);
}

#[test]
fn superseded_containers_need_no_age() {
    let snapshot = of(
        vec![sandbox("a", Some(59)), sandbox("b", Some(60))],
        vec![
            container("a2", "a", "x", 2, Some(59)),
            container("a1", "a", "x", 1, Some(0)),
            container("b2", "b", "x", 9, Some(60)),
            container("b-late", "b", "y", 9, Some(59)),
        ],
        Vec::new(),
    );
    assert_eq!(all_at(&snapshot, ALONE), ["a1", "b2"], "b still has a container, a is too young");
    assert_eq!(all(&snapshot), ["a1"]);
}

/// After a reboot, before the kubelet has created new sandboxes, all pods look finished. The kubelet knows from the remaining
/// objects of a job that the job has completed.
#[test]
fn the_newest_sandbox_of_a_pod_stays() {
    let of_job = |sandbox: Sandbox| Sandbox { pod: pod("job"), ..sandbox };
    let work = |container: Container| Container { pod: Some(pod("job")), ..container };
    let old = Sandbox { created: Some(UnixNanos(1)), ..of_job(sandbox("old", Some(9000))) };
    let new = Sandbox { created: Some(UnixNanos(2)), ..of_job(sandbox("new", Some(9000))) };
    let containers = vec![
        work(container("work-1", "old", "work", 1, Some(9000))),
        work(container("work-2", "new", "work", 2, Some(9000))),
        work(container("init", "old", "init", 1, Some(9000))),
    ];
    let over = of(vec![old, new], containers, vec![image("app", 900, None)]);
    assert_eq!(all(&over), ["work-1"], "the old sandbox still has the newest of init");
    assert_eq!(all_at(&over, ALONE), ["init", "work-1", "work-2", "old", "new", "sha256:app"]);
    let mut restarted = over;
    restarted.containers.push(work(container("init-2", "new", "init", 3, Some(8000))));
    assert_eq!(all(&restarted), ["init", "work-1", "old"]);
}

#[test]
fn an_image_of_the_first_observation_is_old_enough() {
    let always = Image { first_seen: None, ..image("always", 0, None) };
    let snapshot = of(Vec::new(), Vec::new(), vec![always, image("young", 1, None)]);
    assert_eq!(all(&snapshot), ["sha256:always"]);
}

#[test]
fn the_container_that_ended_first_is_removed_first() {
    let ended = |id: &str, finished: Option<i64>| {
        let details = Details { finished: finished.map(UnixNanos), ..Details::default() };
        Container { details: Some(details), ..container(id, "gone", id, 100, Some(61)) }
    };
    let snapshot = of(
        Vec::new(),
        vec![ended("c", Some(30)), ended("a", Some(10)), ended("d", None), ended("b", Some(20))],
        Vec::new(),
    );
    assert_eq!(all(&snapshot), ["a", "b", "c", "d"], "without a sandbox; without an end the creation counts");
}

#[test]
fn containers_that_may_run_are_not_garbage() {
    for state in [ContainerState::Created, ContainerState::Running, ContainerState::Unknown] {
        let stuck = Container { state, ..container("x", "a", "x", 1, Some(900)) };
        let newer = container("y", "a", "x", 2, None);
        assert_eq!(all(&of(vec![sandbox("a", Some(900))], vec![stuck, newer], Vec::new())), [""; 0], "{state:?}");
    }
}

#[test]
fn containers_without_a_pod_supersede_none() {
    let nobody = |id: &str, created| Container { pod: None, ..container(id, "a", "x", created, Some(10)) };
    assert_eq!(all(&of(vec![sandbox("a", None)], vec![nobody("1", 1), nobody("2", 2)], Vec::new())), [""; 0]);
}

#[test]
fn unused_images_are_ordered_by_last_use() {
    let mut used = container("live", "a", "x", 1, None);
    used.images = vec!["by-tag:1".to_owned(), "sha256:by-id".to_owned(), "mirror/x@sha256:dby-digest".to_owned()];
    let mounts = Details { mounted_images: vec!["by-mount:1".to_owned()], ..Details::default() };
    used.details = Some(mounts);
    let mut pinned = image("pinned", 900, None);
    pinned.is_pinned = true;
    let mut large = image("large", 800, None);
    large.size = Bytes(11);
    let images = vec![
        image("used-late", 900, Some(130)),
        image("used-early", 900, Some(500)),
        image("young", 119, None),
        image("small", 800, None),
        large,
        pinned,
        image("by-tag", 900, None),
        image("by-id", 900, None),
        image("by-digest", 900, None),
        image("by-mount", 900, None),
    ];
    let snapshot = of(vec![sandbox("a", None)], vec![used], images);
    let steps = images_of(&snapshot);
    assert_eq!(ids(&steps), ["sha256:large", "sha256:small", "sha256:used-early", "sha256:used-late"]);
    assert_eq!(steps[0].name, "large:1");
}

fn images_of(snapshot: &Snapshot) -> Vec<Step> {
    plan(snapshot, &[Garbage::Images], AGES, NOW)
}

#[test]
fn an_image_is_garbage_after_its_dead_container() {
    let containers = vec![container("dead", "gone", "x", 1, Some(61))];
    let snapshot = of(vec![sandbox("gone", Some(61))], containers, vec![image("app", 900, Some(1))]);
    assert_eq!(ids(&images_of(&snapshot)), [""; 0]);
    assert_eq!(all_at(&snapshot, ALONE), ["dead", "gone", "sha256:app"]);
}
