//! Tells an eviction that the kubelet has written over the status Failed. Its next look may be a second away, and in that second the kubelet may
//! restart a container.

use std::sync::Arc;

use tokio::sync::broadcast;

/// UIDs that wait for an eviction's task; with more the task looks at its pod in any case.
const WAITING: usize = 64;

/// The end of the pods' watch.
#[derive(Debug, Clone)]
pub(in crate::cluster) struct Overwritten(broadcast::Sender<Arc<str>>);

impl Default for Overwritten {
    fn default() -> Self {
        Self(broadcast::Sender::new(WAITING))
    }
}

impl Overwritten {
    /// Notes the phase of a pod as it was just written.
    pub(in crate::cluster) fn note(&self, uid: &str, phase: &str) {
        let has_ended = matches!(phase, "Failed" | "Succeeded");
        if !has_ended && self.0.receiver_count() > 0 {
            let _no_eviction = self.0.send(uid.into());
        }
    }

    /// Returns an eviction's end, which learns of phases noted from now on.
    pub(super) fn of(&self, uid: &str) -> OverwrittenPod {
        OverwrittenPod { uid: uid.into(), phases: self.0.subscribe() }
    }
}

/// The end of an eviction.
#[derive(Debug)]
pub(super) struct OverwrittenPod {
    uid: Arc<str>,
    phases: broadcast::Receiver<Arc<str>>,
}

impl OverwrittenPod {
    /// Forgets what was noted until now: a look that begins now finds it.
    pub(super) fn forget(&mut self) {
        self.phases = self.phases.resubscribe();
    }

    /// Returns when the pod was seen in another phase than that of an ended pod. Cancel-safe.
    pub(super) async fn seen(&mut self) {
        loop {
            match self.phases.recv().await {
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
        overwritten.note("u", "Running");
        let mut pod = overwritten.of("u");
        for (uid, phase, is_seen) in
            [("u", "Failed", false), ("v", "Running", false), ("u", "Succeeded", false), ("u", "Running", true)]
        {
            overwritten.note(uid, phase);
            assert_eq!(pod.seen().now_or_never().is_some(), is_seen, "{uid} {phase}");
        }
        overwritten.note("u", "Pending");
        pod.forget();
        assert!(pod.seen().now_or_never().is_none(), "before the look");
        (0..=WAITING).for_each(|_| overwritten.note("v", "Running"));
        assert!(pod.seen().now_or_never().is_some(), "its own may be among those that were lost");
    }
}
