//! The thread that calls statfs on every local filesystem when the loop orders it. A disk that hangs does not block the loop.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::node::mountinfo::{Filesystems, Inodes, Mounted};
use crate::units::{Monotonic, lock};

const MOUNTS_AGE: Duration = Duration::from_secs(10);
/// How long the agent waits at its start for the first round, so that the first report has its filesystems.
const FIRST_ANSWER: Duration = Duration::from_millis(500);
/// After this time a filesystem counts as hanging, and the previous round as out of date.
const STALE: Duration = Duration::from_secs(30);

/// The result of one round.
#[derive(Debug, Clone, Default)]
pub(super) struct MountedInodes {
    /// The local filesystems, with the inodes of those that count them.
    pub(super) mounted: Vec<(Mounted, Option<Inodes>)>,
    pub(super) at: Monotonic,
    pub(super) mounts_read: Monotonic,
    /// The reason why the mounts cannot be read.
    pub(super) failure: Option<String>,
}

pub(super) trait MountSource: Send + 'static {
    fn mounted(&self) -> Result<Vec<Mounted>, String>;
    fn inodes(&self, mounted: &Mounted) -> Option<Inodes>;
}

impl MountSource for Filesystems {
    fn mounted(&self) -> Result<Vec<Mounted>, String> {
        Self::mounted(self)
    }

    fn inodes(&self, mounted: &Mounted) -> Option<Inodes> {
        Self::inodes(self, mounted)
    }
}

#[derive(Debug, Default)]
struct Shared {
    inodes: Mutex<Arc<MountedInodes>>,
    /// The mount point that the thread waits for, and since when.
    asking: Mutex<Option<(PathBuf, Monotonic)>>,
}

/// The loop's handle of the thread. Dropping the handle ends the thread.
#[derive(Debug)]
pub(super) struct InodeThread {
    /// The queue of at most one order: whether to read the mounts again even if they were read recently.
    orders: Option<SyncSender<bool>>,
    shared: Arc<Shared>,
}

impl InodeThread {
    /// Starts the thread and its first round. If no thread can be started, [`MountedInodes::failure`] has the reason permanently.
    pub(super) fn start(source: impl MountSource) -> Self {
        let shared = Arc::new(Shared::default());
        let (orders, work) = sync_channel(1);
        let (answered, first_answer) = sync_channel(1);
        let of_thread = Arc::clone(&shared);
        let run = move || serve(&source, &work, &of_thread, &answered);
        let thread = std::thread::Builder::new().name("inodes".to_owned()).stack_size(128 * 1024).spawn(run);
        if let Err(error) = &thread {
            let failure = Some(format!("no thread can be started: {error}"));
            *lock(&shared.inodes) = Arc::new(MountedInodes { failure, ..MountedInodes::default() });
        } else {
            let _late = first_answer.recv_timeout(FIRST_ANSWER);
        }
        Self { orders: thread.is_ok().then_some(orders), shared }
    }

    /// Orders a round, unless one is already ordered.
    pub(super) fn order(&self, reads_mounts: bool) {
        match self.orders.as_ref().map(|orders| orders.try_send(reads_mounts)) {
            None | Some(Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) => {}
        }
    }

    /// Returns the latest round without waiting.
    pub(super) fn latest(&self) -> Arc<MountedInodes> {
        Arc::clone(&lock(&self.shared.inodes))
    }

    /// Returns the reason why the latest round is out of date: a filesystem blocks the thread.
    pub(super) fn hangs(&self, now: Monotonic) -> Option<String> {
        let asking = lock(&self.shared.asking);
        let (mount_point, since) = asking.as_ref()?;
        let waited = now.since(*since);
        (waited > STALE)
            .then(|| format!("that at {} has not answered for {} s", mount_point.display(), waited.as_secs()))
    }
}

fn serve(source: &impl MountSource, orders: &Receiver<bool>, shared: &Shared, answered: &SyncSender<()>) {
    // The loop's priority is only for decisions. Lowering the priority is always permitted.
    let _kept = rustix::process::setpriority_process(None, 0);
    let mut latest = measure(source, MountedInodes::default(), true, shared);
    *lock(&shared.inodes) = Arc::new(latest.clone());
    // At its start the agent waits only for the first round.
    let _nobody_waits = answered.try_send(());
    while let Ok(reads_mounts) = orders.recv() {
        latest = measure(source, latest, reads_mounts, shared);
        *lock(&shared.inodes) = Arc::new(latest.clone());
    }
}

fn measure(source: &impl MountSource, before: MountedInodes, reads_mounts: bool, shared: &Shared) -> MountedInodes {
    let at = Monotonic::now();
    let mut measured = MountedInodes { at, ..before };
    if reads_mounts || at.since(measured.mounts_read) >= MOUNTS_AGE {
        measured.mounts_read = at;
        (measured.mounted, measured.failure) = match source.mounted() {
            Ok(mounted) => (mounted.into_iter().map(|mounted| (mounted, None)).collect(), None),
            Err(reason) => (Vec::new(), Some(reason)),
        };
    }
    for (mounted, inodes) in &mut measured.mounted {
        *lock(&shared.asking) = Some((mounted.mount_point.clone(), Monotonic::now()));
        *inodes = source.inodes(mounted);
    }
    *lock(&shared.asking) = None;
    measured
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::Sender;

    /// Hangs at every filesystem until the test releases it.
    struct Hung {
        begun: Sender<()>,
        goes_on: Receiver<()>,
    }

    impl MountSource for Hung {
        fn mounted(&self) -> Result<Vec<Mounted>, String> {
            Ok(vec![Mounted { device: "8:1".to_owned(), mount_point: "/hung".into(), kind: "xfs".to_owned() }])
        }

        fn inodes(&self, _: &Mounted) -> Option<Inodes> {
            self.begun.send(()).ok()?;
            self.goes_on.recv().ok()?;
            Some(Inodes { total: 10, free: 3 })
        }
    }

    #[test]
    fn a_hanging_disk_blocks_no_caller_and_orders_coalesce() {
        let ((begun, has_begun), (go_on, goes_on)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
        let thread = InodeThread::start(Hung { begun, goes_on });
        has_begun.recv().unwrap();
        assert!(thread.latest().mounted.is_empty());
        assert_eq!(thread.hangs(Monotonic::now()), None, "the filesystem may only be slow");
        let reason = thread.hangs(Monotonic::now().after(STALE + Duration::from_secs(1))).unwrap();
        assert!(reason.contains("/hung"), "{reason}");
        let asked = std::time::Instant::now();
        for _ in 0..10_000 {
            thread.order(false);
        }
        assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
        // The orders that arrived meanwhile cause only one round.
        go_on.send(()).unwrap();
        has_begun.recv().unwrap();
        assert_eq!(thread.latest().mounted[0].1, Some(Inodes { total: 10, free: 3 }));
        go_on.send(()).unwrap();
        assert!(has_begun.recv_timeout(Duration::from_millis(200)).is_err());
        assert_eq!(thread.hangs(Monotonic::now().after(Duration::from_secs(100))), None);
    }
}
