//! The measuring thread's interface to the agent.

use std::sync::Arc;

use tokio::sync::watch;

use super::host_files::Roots;
use super::measured_usage::Usages;
use super::measuring_orders::{Orders, Shared};
use super::measuring_thread::Thread;
use super::workload_places::WorkloadPlaces;
use crate::config::DiskUsageOptions;
use crate::units::Monotonic;

/// Limit of prioritized workloads. A node cannot have more.
const MAX_PRIORITIZED: usize = 4096;
/// The stack suffices for a few small frames; buffers are on the heap. The agent locks the used part in memory.
const STACK: usize = 256 * 1024;

/// Measures the disk usage of workloads in its own thread, which exits when this is dropped. No call waits for a disk.
#[derive(Debug)]
pub struct Walker {
    shared: Arc<Shared>,
    usages: watch::Receiver<Arc<Usages>>,
}

impl Walker {
    /// Starts the thread. It measures nothing before [`Self::set_workloads`].
    pub fn start(options: &DiskUsageOptions, roots: Roots) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (publish, usages) = watch::channel(Arc::default());
        let (of_thread, options) = (Arc::clone(&shared), *options);
        let run = move || Thread::new(options, roots, of_thread, publish).run();
        std::thread::Builder::new().name("disk-usage".to_owned()).stack_size(STACK).spawn(run)?;
        Ok(Self { shared, usages })
    }

    pub fn set_workloads(&self, workloads: Vec<WorkloadPlaces>) {
        self.order(|orders| orders.workloads = Some(workloads));
    }

    /// Prioritizes a workload whose inode counters rose. The thread measures it before the others, unless its last measurement is
    /// too recent.
    pub fn prioritize(&self, workload: &str) {
        self.order(|orders| {
            if orders.prioritized.len() < MAX_PRIORITIZED && !orders.prioritized.contains(workload) {
                orders.prioritized.insert(workload.to_owned());
            }
        });
    }

    /// Has every workload measured again whose measurement began before `since`, because a victim is to be chosen by disk usage.
    /// Growing files generate no event, except under quotas.
    pub fn remeasure(&self, since: Monotonic) {
        self.order(|orders| orders.remeasure_since = Some(since));
    }

    /// Sets whether a filesystem is running full. Meanwhile all workloads are measured repeatedly within a larger budget.
    pub fn set_pressure(&self, is_pressed: bool) {
        self.order(|orders| orders.is_pressed = is_pressed);
    }

    /// Returns a degradation while the thread is blocked by a filesystem.
    pub fn stall_reason(&self, now: Monotonic) -> Option<String> {
        self.shared.watchdog.stall_reason(now)
    }

    pub fn usages(&self) -> Arc<Usages> {
        Arc::clone(&self.usages.borrow())
    }

    /// Waits for results that are newer than those returned last. Cancel-safe.
    pub async fn changed(&mut self) {
        if self.usages.changed().await.is_err() {
            // The thread has exited, so no results will follow.
            std::future::pending::<()>().await;
        }
    }

    fn order(&self, change: impl FnOnce(&mut Orders)) {
        let is_awaited = {
            let mut orders = self.shared.lock();
            change(&mut orders);
            orders.is_idle || orders.is_stopping
        };
        if is_awaited {
            self.shared.changed.notify_one();
        }
    }
}

impl Drop for Walker {
    fn drop(&mut self) {
        // The thread is not joined: it may be blocked by a disk.
        self.order(|orders| orders.is_stopping = true);
    }
}

#[cfg(test)]
#[path = "disk_walker_tests.rs"]
mod tests;
