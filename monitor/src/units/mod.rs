//! Bytes, counts, quantities, durations, instants, ids and signals: the vocabulary of every other room. Reads the clock and the boot
//! id, and the kernel's files as text; does no other I/O.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub mod amount;
pub mod clock;
pub mod degradations;
pub mod duration;
pub mod gofloat;
pub mod kernel_text;
mod named_enum;
pub mod privileges;
pub mod quantity;
pub mod signal;

pub use amount::{Amount, Bytes, CgroupId, Moment, Pid, float, page_size, signed, signed_float};
pub use clock::{Monotonic, boot_id};
pub use degradations::{CapabilityChange, Degradations, NOTHING_TO_DO, split_degradation};
pub use duration::{format_go_duration, parse_go_duration};
pub(crate) use named_enum::named_enum;
pub use quantity::{Quantity, QuantityError};
pub use signal::{Resource, Signal, UnsupportedSignal};

/// Locks. A poisoned value counts as whole: no code of the agent panics while it holds a lock.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns an error's text with those of its causes on one line; the outermost text alone seldom names the failure.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}
