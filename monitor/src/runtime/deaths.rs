//! Since when something is dead. A runtime tells it of containers, by the wall's clock, and of nothing else.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use super::runtime_snapshot::{Container, ContainerState, Sandbox, UnixNanos};
use crate::units::Monotonic;

/// What is dead, remembered for as long as it is there.
#[derive(Debug, Default)]
pub(super) struct Deaths {
    since: HashMap<String, Monotonic>,
    /// The look before; there was none at the first.
    looked: Option<Monotonic>,
}

impl Deaths {
    /// Notes on each that is dead since when, as of `at` by one clock and `wall` by the other.
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
        self.looked = Some(at);
    }

    /// What was not dead at the look before has died since, whatever the wall's clock says. When the agent was started says nothing: at its
    /// first look the runtime's word counts, or else when the thing was made, as the kubelet has it.
    fn first(&self, ended: Option<UnixNanos>, created: Option<UnixNanos>, at: Monotonic, wall: UnixNanos) -> Monotonic {
        let told = |then: UnixNanos| {
            let ago = u64::try_from(wall.0.saturating_sub(then.0)).unwrap_or(0);
            Monotonic(at.0.saturating_sub(ago))
        };
        match self.looked {
            Some(looked) => ended.map_or(at, |ended| told(ended).max(looked)),
            None => ended.or(created).map_or(at, told),
        }
    }
}

/// The wall's clock.
pub(super) fn wall_clock() -> UnixNanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixNanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::cri;
    use super::super::runtime_snapshot::{Details, sandbox};
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    /// An hour since boot, and two since 1970.
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
    fn at_the_first_look_the_runtimes_word_counts_and_then_what_was_seen_does() {
        let hundred_ago = WALL.0 - 100_000_000_000;
        let mut deaths = Deaths::default();
        let mut sandboxes = [dead("old", hundred_ago), dead("unknown", 0)];
        let mut containers =
            [exited("a", Some(hundred_ago)), exited("ahead", Some(WALL.0 + 5)), exited("ages", Some(1))];
        deaths.note(&mut sandboxes, &mut containers, AT, WALL);
        let ago = |seconds: u64| Some(Monotonic(AT.0 - seconds * SECOND));
        assert_eq!(sandboxes.map(|sandbox| sandbox.dead_since), [ago(100), ago(0)]);
        assert_eq!(containers.map(|container| container.dead_since), [ago(100), ago(0), Some(Monotonic(0))]);
        // A minute on, of which the wall's clock knows nothing: it was set.
        let later = AT.after(std::time::Duration::from_secs(60));
        let mut sandboxes = [dead("old", hundred_ago), dead("new", hundred_ago)];
        let mut containers = [exited("new", Some(hundred_ago)), exited("untold", None)];
        deaths.note(&mut sandboxes, &mut containers, later, WALL);
        assert_eq!(sandboxes.map(|sandbox| sandbox.dead_since), [ago(100), Some(later)]);
        assert_eq!(containers.map(|container| container.dead_since), [ago(0), Some(later)]);
    }
}
