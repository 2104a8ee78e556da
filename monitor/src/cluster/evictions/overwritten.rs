//! Tells an eviction that its pod's status Failed was written over. The timed looks find that, too, but up to seconds later, and within a second
//! the kubelet may restart a container.

use std::sync::Arc;

use tokio::sync::broadcast;

/// UIDs that wait for the evictions' tasks.
const WAITING: usize = 64;

/// The side of the pods' watch.
#[derive(Debug, Clone)]
pub(in crate::cluster) struct Overwritten(broadcast::Sender<Arc<str>>);

impl Default for Overwritten {
    fn default() -> Self {
        Self(broadcast::Sender::new(WAITING))
    }
}

impl Overwritten {
    /// Notes that a pod that had ended is in another phase again.
    pub(in crate::cluster) fn note(&self, uid: &str) {
        if self.is_awaited() {
            let _no_eviction = self.0.send(uid.into());
        }
    }

    /// Returns whether an eviction watches over its pod's status.
    pub(in crate::cluster) fn is_awaited(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// Returns an eviction's side, which learns of what is noted from now on.
    pub(super) fn of(&self, uid: &str) -> OverwrittenPod {
        OverwrittenPod { uid: uid.into(), noted: self.0.subscribe() }
    }
}

/// The side of an eviction.
#[derive(Debug)]
pub(super) struct OverwrittenPod {
    uid: Arc<str>,
    noted: broadcast::Receiver<Arc<str>>,
}

impl OverwrittenPod {
    /// Returns when the pod was noted, or may have been. Cancel-safe.
    pub(super) async fn seen(&mut self) {
        loop {
            match self.noted.recv().await {
                Ok(uid) if uid == self.uid => return,
                Ok(_) => {}
                Err(broadcast::error::RecvError::Lagged(_)) => return,
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn an_eviction_learns_of_its_own_pod_only() {
        let overwritten = Overwritten::default();
        overwritten.note("u");
        let mut pod = overwritten.of("u");
        let is_seen = |pod: &mut OverwrittenPod| pod.seen().now_or_never().is_some();
        assert!(!is_seen(&mut pod), "noted before");
        overwritten.note("v");
        assert!(!is_seen(&mut pod), "another pod");
        overwritten.note("u");
        assert!(is_seen(&mut pod));
        (0..=WAITING).for_each(|_| overwritten.note("v"));
        assert!(is_seen(&mut pod), "its own may be among those that were lost");
        drop(pod);
        assert!(!overwritten.is_awaited());
    }
}
