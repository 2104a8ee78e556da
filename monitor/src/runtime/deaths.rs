//! Determines since when sandboxes and containers are dead. Runtimes report this only for containers, by the wall clock.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use super::runtime_snapshot::{Container, ContainerState, Sandbox, UnixNanos};
use crate::units::{Monotonic, signed};

#[derive(Debug, Default)]
pub(super) struct Deaths {
    since: HashMap<String, Monotonic>,
    observed: Option<Monotonic>,
}

impl Deaths {
    /// Sets `dead_since` of all dead objects. `at` and `wall` are the same moment on two clocks.
    pub(super) fn note(
        &mut self,
        sandboxes: &mut [Sandbox],
        containers: &mut [Container],
        at: Monotonic,
        wall: UnixNanos,
    ) {
        let mut still = HashMap::new();
        let mut since = |id: &str, ended: Option<UnixNanos>, created: Option<UnixNanos>| {
            let since = self.since.get(id).copied().unwrap_or_else(|| self.first(ended, created, at, wall));
            still.insert(id.to_owned(), since);
            since
        };
        for sandbox in sandboxes.iter_mut().filter(|sandbox| !sandbox.is_ready) {
            sandbox.dead_since = Some(since(&sandbox.id, None, sandbox.created));
        }
        for container in containers.iter_mut().filter(|container| container.state == ContainerState::Exited) {
            let ended = container.details.as_ref().and_then(|details| details.finished);
            container.dead_since = Some(since(&container.id, ended, container.created));
        }
        self.since = still;
        self.observed = Some(at);
    }

    /// Returns since when an object is dead. If it was alive at the last observation, it has died since, whatever the wall clock
    /// shows. At the first observation the reported time counts, or else the time of creation, as in the kubelet.
    fn first(&self, ended: Option<UnixNanos>, created: Option<UnixNanos>, at: Monotonic, wall: UnixNanos) -> Monotonic {
        let monotonic = |then: UnixNanos| {
            let ago = u64::try_from(wall.0.saturating_sub(then.0)).unwrap_or(0);
            Monotonic(at.0.saturating_sub(ago))
        };
        match self.observed {
            Some(observed) => ended.map_or(at, |ended| monotonic(ended).max(observed)),
            None => ended.or(created).map_or(at, monotonic),
        }
    }
}

pub(super) fn wall_clock() -> UnixNanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixNanos(signed(since.as_nanos()))
}

#[cfg(test)]
mod tests {
    use super::super::cri;
    use super::super::runtime_snapshot::{Details, sandbox};
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    /// The time of both clocks: an hour since boot, and two hours since 1970.
    const AT: Monotonic = Monotonic(3600 * SECOND);
    const WALL: UnixNanos = UnixNanos(7200 * 1_000_000_000);

    fn dead(id: &str, created_at: i64) -> Sandbox {
        let metadata = cri::PodSandboxMetadata { uid: id.to_owned(), ..Default::default() };
        let message = cri::PodSandbox {
            id: id.to_owned(),
            metadata: Some(metadata),
            state: 1,
            created_at,
            labels: cri::Texts::new(),
            annotations: cri::Texts::new(),
        };
        sandbox(message).unwrap()
    }

    fn exited(id: &str, finished: Option<i64>) -> Container {
        let message = cri::Container { id: id.to_owned(), state: cri::CONTAINER_EXITED, ..Default::default() };
        let details = Details { finished: finished.map(UnixNanos), ..Details::default() };
        Container { details: Some(details), ..super::super::runtime_snapshot::container(message, &[]).unwrap() }
    }

    #[test]
    fn first_the_reported_time_counts_then_the_observed() {
        let hundred_ago = WALL.0 - 100_000_000_000;
        let mut deaths = Deaths::default();
        let mut sandboxes = [dead("old", hundred_ago), dead("unknown", 0)];
        let mut containers =
            [exited("a", Some(hundred_ago)), exited("ahead", Some(WALL.0 + 5)), exited("ages", Some(1))];
        deaths.note(&mut sandboxes, &mut containers, AT, WALL);
        let ago = |seconds: u64| Some(Monotonic(AT.0 - seconds * SECOND));
        assert_eq!(sandboxes.map(|sandbox| sandbox.dead_since), [ago(100), ago(0)]);
        assert_eq!(containers.map(|container| container.dead_since), [ago(100), ago(0), Some(Monotonic(0))]);
        // A minute later; the wall clock was set back.
        let later = AT.after(std::time::Duration::from_secs(60));
        let mut sandboxes = [dead("old", hundred_ago), dead("new", hundred_ago)];
        let mut containers = [exited("new", Some(hundred_ago)), exited("untimed", None)];
        deaths.note(&mut sandboxes, &mut containers, later, WALL);
        assert_eq!(sandboxes.map(|sandbox| sandbox.dead_since), [ago(100), Some(later)]);
        assert_eq!(containers.map(|container| container.dead_since), [ago(0), Some(later)]);
    }
}
