//! The data that the measuring thread shares with the rest of the agent.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::watchdog::Watchdog;
use super::workload_places::WorkloadPlaces;
use crate::units::{Monotonic, lock};

#[derive(Debug, Default)]
pub struct Shared {
    orders: Mutex<Orders>,
    pub changed: Condvar,
    pub watchdog: Arc<Watchdog>,
}

/// Orders to the thread. The thread takes each `Option` and set when it carries the order out.
#[derive(Debug, Default)]
pub struct Orders {
    pub workloads: Option<Vec<WorkloadPlaces>>,
    pub prioritized: BTreeSet<String>,
    /// Measurements that began before this time must be repeated.
    pub remeasure_since: Option<Monotonic>,
    pub is_pressed: bool,
    pub is_stopping: bool,
    /// Whether the thread has no work, and carries new orders out at once. Otherwise it works, or pauses to stay within its
    /// budget, and reads them later.
    pub is_idle: bool,
}

impl Shared {
    pub fn lock(&self) -> MutexGuard<'_, Orders> {
        lock(&self.orders)
    }

    /// Sleeps. Returns early, with false, only if the thread must exit.
    pub fn sleep(&self, duration: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), duration, |orders| !orders.is_stopping);
        let (orders, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !orders.is_stopping
    }

    /// Waits at most for `duration` for an order that the thread has not taken. `is_pressed` is the pressure that the thread
    /// knows.
    pub fn wait_for_orders(&self, duration: Duration, is_pressed: bool) {
        let is_unchanged = |orders: &mut Orders| {
            let is_new = orders.workloads.is_some()
                || !orders.prioritized.is_empty()
                || orders.remeasure_since.is_some()
                || orders.is_pressed != is_pressed;
            !orders.is_stopping && !is_new
        };
        let mut orders = self.lock();
        orders.is_idle = true;
        let waited = self.changed.wait_timeout_while(orders, duration, is_unchanged);
        let (mut orders, _) = waited.unwrap_or_else(PoisonError::into_inner);
        orders.is_idle = false;
    }
}
