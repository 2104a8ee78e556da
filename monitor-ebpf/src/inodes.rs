//! Counts created and removed inodes per cgroup and device, in the context of the task that creates or removes them.

use aya_ebpf::{
    macros::{map, tracepoint},
    maps::{Array, HashMap},
    programs::TracePointContext,
};
use monitor_ebpf::{COUNTER_SLOTS, InodeCounters, InodeKey, OTHER_COUNTERS, Slot, Untracked, field::inode};

use crate::{counters::Counters, layout::Layout, reclaim::add, stream, task};

#[map]
static INODE_SLOTS: Array<Slot<InodeKey, InodeCounters>> = Array::with_max_entries(COUNTER_SLOTS, 0);
#[map]
static INODE_OWNERS: HashMap<u32, InodeKey> = HashMap::with_max_entries(COUNTER_SLOTS, 0);
#[map]
static INODE_OTHERS: HashMap<InodeKey, InodeCounters> = HashMap::with_max_entries(OTHER_COUNTERS, 0);

static INODES: Counters<InodeKey, InodeCounters> =
    Counters { slots: &INODE_SLOTS, owners: &INODE_OWNERS, others: &INODE_OTHERS };

/// The initial value of the counters. Building it on the stack would call memset for each event.
static ZERO: InodeCounters = InodeCounters { created: 0, removed: 0, evicted: 0 };

#[derive(Clone, Copy)]
enum Change {
    Created,
    Removed,
    Evicted,
}

macro_rules! inode_program {
    ($($program:ident, $layout:ident, $change:expr;)+) => {
        $(
            #[unsafe(no_mangle)]
            static $layout: Layout = Layout::new();

            #[tracepoint]
            pub fn $program(ctx: TracePointContext) -> u32 {
                count(&ctx, &$layout, $change);
                0
            }
        )+
    };
}

inode_program! {
    ext4_allocate_inode, EXT4_ALLOCATE_INODE, Change::Created;
    ext4_free_inode, EXT4_FREE_INODE, Change::Removed;
    ext4_evict_inode, EXT4_EVICT_INODE, Change::Evicted;
    xfs_create, XFS_CREATE, Change::Created;
    xfs_symlink, XFS_SYMLINK, Change::Created;
    xfs_iunlink, XFS_IUNLINK, Change::Removed;
    xfs_inode_set_need_inactive, XFS_INODE_SET_NEED_INACTIVE, Change::Removed;
    xfs_destroy_inode, XFS_DESTROY_INODE, Change::Evicted;
}

#[inline(always)]
fn count(ctx: &TracePointContext, layout: &'static Layout, change: Change) {
    let Some(device) = layout.read_u32(ctx, inode::DEV) else {
        return;
    };
    let key = InodeKey { cgroup: task::memory_cgroup(), device, reserved: 0 };
    let Some(counters) = INODES.of(&key, key.cgroup ^ u64::from(device) << 32, &ZERO) else {
        stream::untracked(Untracked::Inode);
        return;
    };
    // SAFETY: the lookup returned a valid element, shared with other CPUs: atomics only.
    unsafe {
        match change {
            Change::Created => add(&raw mut (*counters).created, 1),
            Change::Removed => add(&raw mut (*counters).removed, 1),
            Change::Evicted => add(&raw mut (*counters).evicted, 1),
        }
    }
}
