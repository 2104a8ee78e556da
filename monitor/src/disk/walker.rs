//! The thread that measures, and what others can tell it and learn from it.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::heart::Heart;
use super::host::Roots;
use super::places::WorkloadPlaces;
use super::thread::Thread;
use super::usage::Usages;
use crate::config::DiskUsageOptions;
use crate::units::Monotonic;

/// Signs of more workloads than a node can have are not kept.
const MOST_HURRIED: usize = 4096;
/// A few small frames; buffers are on the heap. The agent locks what is used of it.
const STACK: usize = 256 * 1024;

/// Measures what workloads keep on disks, in a thread of its own that ends with the value. No call waits for a disk.
#[derive(Debug)]
pub struct Walker {
    shared: Arc<Shared>,
    usages: watch::Receiver<Arc<Usages>>,
}

/// What the thread is to know.
#[derive(Debug, Default)]
pub(super) struct Shared {
    orders: Mutex<Orders>,
    pub(super) news: Condvar,
    pub(super) heart: Arc<Heart>,
}

#[derive(Debug, Default)]
pub(super) struct Orders {
    pub(super) wanted: Option<Vec<WorkloadPlaces>>,
    pub(super) hurried: BTreeSet<String>,
    pub(super) renewed: Option<Monotonic>,
    pub(super) is_pressed: bool,
    pub(super) is_over: bool,
    /// The thread waits for whatever comes; else it takes a rest that it owes, and news can wait.
    pub(super) is_idle: bool,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Orders> {
        // What is in it is whole at any time.
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Walker {
    /// Starts the thread. It measures nothing before it is told what is wanted.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(options: &DiskUsageOptions, roots: Roots) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (publish, usages) = watch::channel(Arc::default());
        let (of_thread, options) = (Arc::clone(&shared), *options);
        let run = move || Thread::new(options, roots, of_thread, publish).run();
        std::thread::Builder::new().name("disk-usage".to_owned()).stack_size(STACK).spawn(run)?;
        Ok(Self { shared, usages })
    }

    /// These workloads are to be measured from now on, and no others.
    pub fn wanted(&self, workloads: Vec<WorkloadPlaces>) {
        self.tell(|orders| orders.wanted = Some(workloads));
    }

    /// Something happens on the disks of a workload (its inode counters rose): it is measured before the others, and as soon as its last
    /// measurement is not too recent.
    pub fn hurry(&self, workload: &str) {
        self.tell(|orders| {
            if orders.hurried.len() < MOST_HURRIED && !orders.hurried.contains(workload) {
                orders.hurried.insert(workload.to_owned());
            }
        });
    }

    /// Somebody is to be chosen by what is held now: what was measured before `since` is measured anew. Nothing but a quota tells of files
    /// that grow.
    pub fn renew(&self, since: Monotonic) {
        self.tell(|orders| orders.renewed = Some(since));
    }

    /// A filesystem runs full, or does not any more: until then everybody is measured again and again, within a larger budget.
    pub fn press(&self, is_pressed: bool) {
        self.tell(|orders| orders.is_pressed = is_pressed);
    }

    /// Why nothing new is learnt, when the thread waits for a filesystem that does not answer.
    #[must_use]
    pub fn hangs(&self, now: Monotonic) -> Option<String> {
        self.shared.heart.hangs(now)
    }

    /// What is known.
    #[must_use]
    pub fn usages(&self) -> Arc<Usages> {
        Arc::clone(&self.usages.borrow())
    }

    /// Waits until more is known than when this was asked last. Cancel-safe.
    pub async fn changed(&mut self) {
        if self.usages.changed().await.is_err() {
            // The thread has ended: nothing will.
            std::future::pending::<()>().await;
        }
    }

    fn tell(&self, change: impl FnOnce(&mut Orders)) {
        let is_awaited = {
            let mut orders = self.shared.lock();
            change(&mut orders);
            orders.is_idle || orders.is_over
        };
        if is_awaited {
            self.shared.news.notify_one();
        }
    }
}

impl Drop for Walker {
    fn drop(&mut self) {
        // Not waited for: it may be waiting for a disk.
        self.tell(|orders| orders.is_over = true);
    }
}

#[cfg(test)]
#[path = "walker_tests.rs"]
mod tests;
