//! Tests which of several runtimes the agent uses.

use super::*;

#[test]
fn the_first_that_answers_is_used() {
    let (docker, crio) = (Place::new(), Place::new());
    let mut has = Has::default();
    has.refusals.insert("Version", Status::unimplemented("unknown service"));
    let _docker = Fake::start(&docker.socket(), has);
    let _crio = Fake::start(&crio.socket(), node());
    let first_of = |sockets: &[PathBuf]| block_on(find::first_of(sockets, PATIENCE)).map(|found| found.socket);
    let nobody = PathBuf::from("/nonexistent/runtime.sock");
    assert_eq!(first_of(&[docker.socket(), crio.socket()]), Ok(crio.socket()));
    let Err(find::Missing::Unusable(reason)) = first_of(&[docker.socket(), nobody]) else {
        panic!("no runtime answers")
    };
    assert!(reason.contains("disabled_plugins"), "the reason is that of the first socket: {reason}");
    assert_eq!(first_of(&[]), Err(find::Missing::Absent));
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn the_runtime_with_pods_is_used() {
    let (docker, crio) = (Place::new(), Place::new());
    let has_docker = Fake::start(&docker.socket(), Has::default());
    let _crio = Fake::start(&crio.socket(), node());
    let link = docker.0.path().join("the-same.sock");
    std::os::unix::fs::symlink(docker.socket(), &link).unwrap();
    let sockets = [docker.socket(), link, crio.socket()];
    let first_of = || block_on(find::first_of(&sockets, PATIENCE)).map(|found| found.socket);
    assert_eq!(first_of(), Ok(crio.socket()));
    has_docker.has().pod("x", true);
    assert_eq!(first_of(), Ok(docker.socket()));
}

#[test]
fn a_runtime_that_gets_pods_later_is_used() {
    let (docker, crio) = (Place::new(), Place::new());
    let _docker = Fake::start(&docker.socket(), Has::default());
    let runtime = docker.start_auto(&[crio.socket()]);
    assert_eq!(snapshot(&runtime).sandboxes.len(), 0);
    let _crio = Fake::start(&crio.socket(), node());
    runtime.observe().unwrap();
    until("the other's pods", || runtime.view().snapshot.filter(|snapshot| !snapshot.sandboxes.is_empty()));
}

/// `systemctl stop containerd` removes the socket.
#[test]
fn a_stopped_runtime_is_down_not_absent() {
    let (place, other) = (Place::new(), Place::new());
    let runtime = place.start_auto(&[other.socket()]);
    until("nothing to be found", || (runtime.view().state == State::Absent).then_some(()));
    let fake = Fake::start(&place.socket(), node());
    runtime.observe().unwrap();
    up(&runtime);
    let has = Arc::clone(&fake.has);
    drop(fake);
    let _other = Fake::start(&other.socket(), node());
    runtime.observe().unwrap();
    let reason = down(&runtime);
    assert!(reason.contains("runtime.sock") && reason.contains("start the runtime"), "{reason}");
    assert!(runtime.view().state.degradation().is_some());
    let _fake = Fake::start_again(&place.socket(), has);
    up(&runtime);
    assert!(
        matches!(runtime.view().state, State::Up { socket, .. } if socket == place.socket()),
        "the same socket again"
    );
}

#[test]
fn a_runtime_that_never_answered_and_vanishes_is_down() {
    let place = Place::new();
    let listener = UnixListener::bind(place.socket()).unwrap();
    let runtime = place.start_auto(&[]);
    down(&runtime);
    drop(listener);
    std::fs::remove_file(place.socket()).unwrap();
    runtime.observe().unwrap();
    until("that the socket is gone", || down(&runtime).contains("its socket does not exist any more").then_some(()));
}

#[test]
fn another_runtime_replaces_one_that_stays_away() {
    let (gone, empty, other) = (Place::new(), Place::new(), Place::new());
    let _empty = Fake::start(&empty.socket(), Has::default());
    let _other = Fake::start(&other.socket(), node());
    let sockets = Sockets::AnyOf(vec![gone.socket(), empty.socket(), other.socket()]);
    let find =
        |may_move| block_on(find::find(&sockets, Some(&gone.socket()), may_move, PATIENCE)).map(|found| found.socket);
    assert!(matches!(find(false), Err(find::Missing::Unusable(_))));
    assert_eq!(find(true), Ok(other.socket()));
}
