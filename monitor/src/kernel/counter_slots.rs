//! Counters in slots of an array, with a hash map for the keys whose slot is taken. The programs' module `counters` says why.

use aya::{
    Ebpf, Pod,
    maps::{Array, HashMap, MapData, MapError},
};
use monitor_ebpf::Slot;

use super::{
    map_batch::Reader,
    shared_map::{Shared, take},
};

/// The three maps of one kind of counters.
pub(super) struct Counters<K, V>
where
    Shared<K>: Pod,
    Shared<V>: Pod,
    Shared<Slot<K, V>>: Pod,
{
    slots: Array<MapData, Shared<Slot<K, V>>>,
    owners: HashMap<MapData, u32, Shared<K>>,
    others: HashMap<MapData, Shared<K>, Shared<V>>,
    slot_reader: Reader<u32, Shared<Slot<K, V>>>,
    owner_reader: Reader<u32, Shared<K>>,
    other_reader: Reader<Shared<K>, Shared<V>>,
    /// Indices of the owned slots; kept for its allocation.
    owned: Vec<u32>,
}

/// Up to this many slots are read one by one, a call for each. Beyond that, reading the whole array, mostly empty, is cheaper.
const FEW: usize = 256;

impl<K: Copy + 'static, V: Copy + 'static> Counters<K, V>
where
    Shared<K>: Pod,
    Shared<V>: Pod,
    Shared<Slot<K, V>>: Pod,
{
    pub fn take(
        ebpf: &mut Ebpf,
        slots: &'static str,
        owners: &'static str,
        others: &'static str,
    ) -> Result<Self, String> {
        Ok(Self {
            slots: take(ebpf, slots)?,
            owners: take(ebpf, owners)?,
            others: take(ebpf, others)?,
            slot_reader: Reader::new(),
            owner_reader: Reader::new(),
            other_reader: Reader::new(),
            owned: Vec::new(),
        })
    }

    /// Passes all counters to `visit`. A key may be passed twice; its value is the sum of both.
    pub fn read(&mut self, mut visit: impl FnMut(K, V)) -> Result<(), MapError> {
        let mut visit_slot = |Shared(slot): Shared<Slot<K, V>>| {
            if slot.taken != 0 {
                visit(slot.key, slot.value);
            }
        };
        let owned = &mut self.owned;
        owned.clear();
        self.owner_reader.read(&self.owners, |index, _| owned.push(index))?;
        if owned.len() <= FEW {
            owned.iter().try_for_each(|index| self.slots.get(index, 0).map(&mut visit_slot))?;
        } else {
            self.slot_reader.read_array(&self.slots, |_, slot| visit_slot(slot))?;
        }
        self.other_reader.read(&self.others, |Shared(key), Shared(value)| visit(key, value))
    }

    /// Removes keys, to make room for new ones.
    pub fn forget(&mut self, is_gone: impl Fn(&K) -> bool, nothing: Slot<K, V>) -> Result<(), MapError> {
        let mut owned = Vec::new();
        self.owner_reader.read(&self.owners, |index, Shared(key)| owned.extend(is_gone(&key).then_some(index)))?;
        for index in owned {
            // In this order: the next owner of the slot must find it empty.
            self.slots.set(index, Shared(nothing), 0)?;
            self.owners.remove(&index)?;
        }
        let mut gone = Vec::new();
        self.other_reader.read(&self.others, |Shared(key), _| gone.extend(is_gone(&key).then_some(key)))?;
        gone.into_iter().try_for_each(|key| self.others.remove(&Shared(key)))
    }
}
