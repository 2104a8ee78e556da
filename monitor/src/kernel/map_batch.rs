//! Reads whole maps in a few system calls by `BPF_MAP_LOOKUP_BATCH` (5.6). Reading one element takes two calls.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};

use aya::Pod;
use aya::maps::{Array, HashMap, IterableMap, MapData, MapError};
use aya::sys::SyscallError;

const BPF_MAP_LOOKUP_BATCH: libc::c_long = 24;
/// Elements per call. A bucket must fit; the buckets of a half-full map have one or two elements.
const CHUNK: usize = 256;

/// The `batch` member of `union bpf_attr`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

/// Reads one map repeatedly; keeps its buffers.
#[derive(Debug)]
pub(super) struct Reader<K, V> {
    keys: Vec<MaybeUninit<K>>,
    values: Vec<MaybeUninit<V>>,
    /// The kernel is too old, or its policy forbids batches.
    refused: bool,
}

impl<K: Pod, V: Pod> Reader<K, V> {
    pub const fn new() -> Self {
        Self { keys: Vec::new(), values: Vec::new(), refused: false }
    }

    /// Passes every element to `visit`. Elements that are added or removed meanwhile may be missing, as with any read of a map.
    pub fn read(&mut self, map: &HashMap<MapData, K, V>, mut visit: impl FnMut(K, V)) -> Result<(), MapError> {
        if self.read_whole(IterableMap::map(map), &mut visit)? {
            return Ok(());
        }
        for element in map.iter() {
            let (key, value) = element?;
            visit(key, value);
        }
        Ok(())
    }

    /// Returns false, with no element passed, when the kernel refuses batches. Every later read then goes element by element.
    fn read_whole(&mut self, map: &MapData, visit: &mut impl FnMut(K, V)) -> Result<bool, MapError> {
        if self.refused {
            return Ok(false);
        }
        match self.read_chunks(map.fd().as_fd().as_raw_fd(), visit) {
            Ok(()) => Ok(true),
            Err((false, _)) => {
                self.refused = true;
                Ok(false)
            }
            Err((true, io_error)) => Err(MapError::from(SyscallError { call: "bpf_map_lookup_batch", io_error })),
        }
    }

    /// The error says whether elements have been passed already.
    fn read_chunks(&mut self, map: RawFd, visit: &mut impl FnMut(K, V)) -> Result<(), (bool, io::Error)> {
        self.keys.resize_with(CHUNK, MaybeUninit::uninit);
        self.values.resize_with(CHUNK, MaybeUninit::uninit);
        // The position where a call stopped: a hash bucket or an array index, 32 bits wide.
        let mut position = 0_u32;
        let mut begun = false;
        loop {
            let mut next = 0_u32;
            let mut attributes = Attributes {
                in_batch: if begun { address(&raw const position) } else { 0 },
                out_batch: address(&raw mut next),
                keys: address(self.keys.as_mut_ptr()),
                values: address(self.values.as_mut_ptr()),
                count: u32::try_from(CHUNK).unwrap_or(u32::MAX),
                map_fd: map.unsigned_abs(),
                ..Attributes::default()
            };
            // SAFETY: all addresses are valid for `count` elements of the map's key and value size, which aya has checked, and the
            // kernel writes nothing else.
            let result = unsafe {
                libc::syscall(libc::SYS_bpf, BPF_MAP_LOOKUP_BATCH, &raw mut attributes, size_of::<Attributes>())
            };
            let error = (result < 0).then(io::Error::last_os_error);
            let at_end = error.as_ref().is_some_and(|error| error.raw_os_error() == Some(libc::ENOENT));
            if let Some(error) = error.filter(|_| !at_end) {
                return Err((begun, error));
            }
            for (key, value) in self.keys.iter().zip(&self.values).take(attributes.count as usize) {
                // SAFETY: the kernel has written the first `count` of each, and any bytes are a valid `Pod`.
                visit(unsafe { key.assume_init_read() }, unsafe { value.assume_init_read() });
            }
            if at_end {
                return Ok(());
            }
            (position, begun) = (next, true);
        }
    }
}

impl<V: Pod> Reader<u32, V> {
    /// Passes every element of an array to `visit`.
    pub fn read_array(&mut self, map: &Array<MapData, V>, mut visit: impl FnMut(u32, V)) -> Result<(), MapError> {
        if self.read_whole(IterableMap::map(map), &mut visit)? {
            return Ok(());
        }
        (0..map.len()).try_for_each(|index| map.get(&index, 0).map(|value| visit(index, value)))
    }
}

fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}
