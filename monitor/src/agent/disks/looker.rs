//! The thread that asks every local filesystem for its inodes, when the loop says so: one that hangs must not keep the loop waiting.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::node::mountinfo::{Filesystems, Inodes, Mounted};
use crate::units::Monotonic;

/// Mounts come and go seldom.
const MOUNTS_AGE: Duration = Duration::from_secs(10);
/// How long the first answer is waited for, so that the first report has its filesystems where disks are well.
const FIRST_ANSWER: Duration = Duration::from_millis(500);
/// A filesystem that takes longer hangs, and what was found before is out of date.
const STALE: Duration = Duration::from_secs(30);

/// What the thread found.
#[derive(Debug, Clone, Default)]
pub(super) struct Looked {
    /// The local filesystems, and the inodes of those that count them.
    pub(super) mounted: Vec<(Mounted, Option<Inodes>)>,
    /// When.
    pub(super) at: Monotonic,
    /// When the mounts were read.
    pub(super) mounts_read: Monotonic,
    /// Why the mounts are not known.
    pub(super) trouble: Option<String>,
}

/// Where mounts and inodes come from.
pub(super) trait Source: Send + 'static {
    fn mounted(&self) -> Result<Vec<Mounted>, String>;
    fn inodes(&self, mounted: &Mounted) -> Option<Inodes>;
}

impl Source for Filesystems {
    fn mounted(&self) -> Result<Vec<Mounted>, String> {
        Self::mounted(self)
    }

    fn inodes(&self, mounted: &Mounted) -> Option<Inodes> {
        Self::inodes(self, mounted)
    }
}

#[derive(Debug, Default)]
struct Shared {
    looked: Mutex<Arc<Looked>>,
    /// Which is being asked, and since when.
    asking: Mutex<Option<(PathBuf, Monotonic)>>,
}

/// The thread, as the loop sees it. It ends with the value.
#[derive(Debug)]
pub(super) struct Looker {
    /// Holds the one order that is not begun yet: whether the mounts are read again in any case.
    orders: Option<SyncSender<bool>>,
    shared: Arc<Shared>,
}

impl Looker {
    /// Starts the thread, which looks at once; where there is none, nothing is ever found, and that is said.
    pub(super) fn start(source: impl Source) -> Self {
        let shared = Arc::new(Shared::default());
        let (orders, work) = sync_channel(1);
        let (answered, first_answer) = sync_channel(1);
        let of_thread = Arc::clone(&shared);
        let run = move || serve(&source, &work, &of_thread, &answered);
        let thread = std::thread::Builder::new().name("inodes".to_owned()).stack_size(128 * 1024).spawn(run);
        if let Err(error) = &thread {
            let trouble = Some(format!("no thread can be started: {error}"));
            *lock(&shared.looked) = Arc::new(Looked { trouble, ..Looked::default() });
        } else {
            // One that hangs is said when it is late.
            let _late = first_answer.recv_timeout(FIRST_ANSWER);
        }
        Self { orders: thread.is_ok().then_some(orders), shared }
    }

    /// Asks for a look, unless one is waited for already.
    pub(super) fn look(&self, reads_mounts: bool) {
        match self.orders.as_ref().map(|orders| orders.try_send(reads_mounts)) {
            None | Some(Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) => {}
        }
    }

    /// What was found last, at once.
    pub(super) fn looked(&self) -> Arc<Looked> {
        Arc::clone(&lock(&self.shared.looked))
    }

    /// Why what was found last is not to be believed.
    pub(super) fn hangs(&self, now: Monotonic) -> Option<String> {
        let asking = lock(&self.shared.asking);
        let (mount_point, since) = asking.as_ref()?;
        let waited = now.since(*since);
        (waited > STALE)
            .then(|| format!("that at {} has not answered for {} s", mount_point.display(), waited.as_secs()))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(source: &impl Source, orders: &Receiver<bool>, shared: &Shared, answered: &SyncSender<()>) {
    // The loop's precedence is for those who decide; lowering it is always allowed.
    let _kept = rustix::process::setpriority_process(None, 0);
    let mut looked = look(source, Looked::default(), true, shared);
    *lock(&shared.looked) = Arc::new(looked.clone());
    // Only the first one is waited for.
    let _nobody_waits = answered.try_send(());
    while let Ok(reads_mounts) = orders.recv() {
        looked = look(source, looked, reads_mounts, shared);
        *lock(&shared.looked) = Arc::new(looked.clone());
    }
}

fn look(source: &impl Source, before: Looked, reads_mounts: bool, shared: &Shared) -> Looked {
    let at = Monotonic::now();
    let mut looked = Looked { at, ..before };
    if reads_mounts || at.since(looked.mounts_read) >= MOUNTS_AGE {
        looked.mounts_read = at;
        (looked.mounted, looked.trouble) = match source.mounted() {
            Ok(mounted) => (mounted.into_iter().map(|mounted| (mounted, None)).collect(), None),
            Err(reason) => (Vec::new(), Some(reason)),
        };
    }
    for (mounted, inodes) in &mut looked.mounted {
        *lock(&shared.asking) = Some((mounted.mount_point.clone(), Monotonic::now()));
        *inodes = source.inodes(mounted);
    }
    *lock(&shared.asking) = None;
    looked
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::Sender;

    /// Hangs at every filesystem until it is told to go on.
    struct Hung {
        begun: Sender<()>,
        goes_on: Receiver<()>,
    }

    impl Source for Hung {
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
    fn a_disk_that_hangs_keeps_nobody_waiting_and_nothing_piles_up() {
        let ((begun, has_begun), (go_on, goes_on)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
        let looker = Looker::start(Hung { begun, goes_on });
        has_begun.recv().unwrap();
        assert!(looker.looked().mounted.is_empty());
        assert_eq!(looker.hangs(Monotonic::now()), None, "it may be slow only");
        let reason = looker.hangs(Monotonic::now().after(STALE + Duration::from_secs(1))).unwrap();
        assert!(reason.contains("/hung"), "{reason}");
        let asked = std::time::Instant::now();
        for _ in 0..10_000 {
            looker.look(false);
        }
        assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
        // What was asked for meanwhile is one look, and no more.
        go_on.send(()).unwrap();
        has_begun.recv().unwrap();
        assert_eq!(looker.looked().mounted[0].1, Some(Inodes { total: 10, free: 3 }));
        go_on.send(()).unwrap();
        assert!(has_begun.recv_timeout(Duration::from_millis(200)).is_err());
        assert_eq!(looker.hangs(Monotonic::now().after(Duration::from_secs(100))), None);
    }
}
