//! Where a key's counters are: in a slot of an array, found without a call; or, when that is another key's, in a hash map.
//!
//! A call of the hash map's lookup costs more than all else that a counting program does, above all when its lines are not in the
//! cache. Claiming takes no compare-and-exchange, which BPF has since 5.12 only.

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    maps::{Array, HashMap},
};
use monitor_ebpf::{COUNTER_SLOTS, Slot};

/// The three maps of one kind of counters.
pub struct Counters<K: 'static, V: 'static> {
    pub slots: &'static Array<Slot<K, V>>,
    pub owners: &'static HashMap<u32, K>,
    pub others: &'static HashMap<K, V>,
}

impl<K: PartialEq + Copy, V> Counters<K, V> {
    /// The key's counters; none when all maps are full. `distinct` tells keys apart.
    #[inline(always)]
    pub fn of(&self, key: &K, distinct: u64, zero: &V) -> Option<*mut V> {
        // By the golden ratio (Knuth 6.4): ids of cgroups are as far apart as a cgroup has files, so their low bits repeat.
        let spread = distinct.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let index = (spread & u64::from(COUNTER_SLOTS - 1)) as u32;
        let slot = self.slots.get_ptr_mut(index)?;
        // SAFETY: the lookup gave a valid element. A key that is being written is not taken yet, and one that is taken stays.
        unsafe {
            if (*slot).taken != 0 && (*slot).key == *key {
                return Some(&raw mut (*slot).value);
            }
            self.elsewhere(slot, index, key, zero)
        }
    }

    /// The way of a key's first time, and of one whose slot is another's.
    ///
    /// # Safety
    /// `slot` is a valid element.
    #[inline(always)]
    unsafe fn elsewhere(&self, slot: *mut Slot<K, V>, index: u32, key: &K, zero: &V) -> Option<*mut V> {
        if let Some(value) = self.others.get_ptr_mut(key) {
            return Some(value);
        }
        // One CPU at most gets the slot. Another that has the same key at the same time counts elsewhere: sums are made of both.
        if self.owners.insert(index, key, u64::from(BPF_NOEXIST)).is_ok() {
            // SAFETY: the caller's promise, and the slot is this program's to fill.
            unsafe {
                (*slot).key = *key;
                core::ptr::write_volatile(&raw mut (*slot).taken, 1);
                return Some(&raw mut (*slot).value);
            }
        }
        // Another CPU may have been first: then this insertion fails and the lookup finds its element.
        let _inserted = self.others.insert(key, zero, u64::from(BPF_NOEXIST));
        self.others.get_ptr_mut(key)
    }
}
