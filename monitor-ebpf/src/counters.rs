//! Finds the counters of a key: in a slot of an array, without a helper call, or in a hash map if another key owns the slot.
//!
//! A hash map lookup costs more than everything else in a counting program, above all when its lines are not in the CPU cache. A slot is
//! claimed without compare-and-exchange, which BPF has only since 5.12.

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    maps::{Array, HashMap},
};
use monitor_ebpf::{COUNTER_SLOTS, Slot};

pub struct Counters<K: 'static, V: 'static> {
    pub slots: &'static Array<Slot<K, V>>,
    pub owners: &'static HashMap<u32, K>,
    pub others: &'static HashMap<K, V>,
}

impl<K: PartialEq + Copy, V> Counters<K, V> {
    /// Returns the key's counters; `None` when all maps are full. `distinct` is the input of the hash.
    #[inline(always)]
    pub fn of(&self, key: &K, distinct: u64, zero: &V) -> Option<*mut V> {
        // Hashes by the golden ratio (Knuth 6.4): the low bits of cgroup ids repeat, because consecutive ids differ by the number of a
        // cgroup's files.
        let spread = distinct.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let index = (spread & u64::from(COUNTER_SLOTS - 1)) as u32;
        let slot = self.slots.get_ptr_mut(index)?;
        // SAFETY: the lookup returned a valid element. A key under construction is not taken yet, and a taken key never changes.
        unsafe {
            if (*slot).taken != 0 && (*slot).key == *key {
                return Some(&raw mut (*slot).value);
            }
            self.elsewhere(slot, index, key, zero)
        }
    }

    /// Handles a key's first event, and a key whose slot is owned by another.
    ///
    /// # Safety
    /// `slot` is a valid element.
    #[inline(always)]
    unsafe fn elsewhere(&self, slot: *mut Slot<K, V>, index: u32, key: &K, zero: &V) -> Option<*mut V> {
        if let Some(value) = self.others.get_ptr_mut(key) {
            return Some(value);
        }
        // At most one CPU gets the slot. Another CPU with the same key at the same time counts elsewhere; readers add both.
        if self.owners.insert(index, key, u64::from(BPF_NOEXIST)).is_ok() {
            // SAFETY: the caller's promise, and this program owns the slot.
            unsafe {
                (*slot).key = *key;
                core::ptr::write_volatile(&raw mut (*slot).taken, 1);
                return Some(&raw mut (*slot).value);
            }
        }
        // If another CPU was first, this insertion fails and the lookup finds that CPU's element.
        let _inserted = self.others.insert(key, zero, u64::from(BPF_NOEXIST));
        self.others.get_ptr_mut(key)
    }
}
