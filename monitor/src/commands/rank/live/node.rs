//! The node's available resources, in the form of the kubelet's Summary API.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use crate::config::{MonitorConfig, Semantics};
use crate::eviction::Layout;
use crate::node::available_memory::MiscountedReader;
use crate::node::filesystem_roles::{Choice, FilesystemHints, Role};
use crate::node::pinned_file::FileError;
use crate::node::pods_memory::PodsMemory;
use crate::node::statfs::{FsSample, Statfs};
use crate::node::{Hierarchy, MemoryReader, PidReader, name};
use crate::sensors::allocatable_signal;
use crate::units::{Bytes, Moment, Resource, Signal, signed};
use crate::workloads::kubelet_summary::{
    FsStats, MemoryStats, NodeStats, RlimitStats, RuntimeStats, SwapStats, SystemContainerStats, Timestamp,
};

/// A filesystem that does not answer within this time hangs.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Returns the filesystems that answer, and the errors of the others. A separate thread asks, because a disk may hang.
pub fn filesystems(config: &MonitorConfig, hints: &FilesystemHints) -> (Vec<FsSample>, Vec<(Role, String)>) {
    let (mut samples, mut missing) = (Vec::new(), Vec::new());
    let mut statfs = Statfs::new(&config.proc_root);
    let choices = Role::ALL.map(|role| (role, Choice::of(role, &config.filesystems, hints)));
    let (sender, answers) = channel();
    let ask = move || {
        for (role, choice) in choices {
            // The receiver may have stopped waiting.
            let _sent = sender.send(statfs.sample(role, &choice));
        }
    };
    if let Err(error) = std::thread::Builder::new().name("filesystems".to_owned()).spawn(ask) {
        return (samples, vec![(Role::Node, format!("no thread can be started to ask it: {error}"))]);
    }
    for role in Role::ALL {
        match answers.recv_timeout(ANSWER_LIMIT) {
            Ok(Ok(sample)) => samples.push(sample),
            Ok(Err(reason)) => missing.push((role, reason.to_string())),
            Err(RecvTimeoutError::Timeout) => {
                missing.push((role, format!("has not answered within {} s: the disk hangs", ANSWER_LIMIT.as_secs())));
                break;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    (samples, missing)
}

/// Returns how these filesystems share devices.
pub fn layout(samples: &[FsSample]) -> Layout {
    let device = |role| samples.iter().find(|sample| sample.role == role).map(|sample| &sample.place.device);
    Layout::of_known(device(Role::Node), device(Role::Image), device(Role::Container))
}

/// Returns all known statistics of the node. An unreadable value is left out, and noted if the signal needs it.
pub fn statistics(
    config: &MonitorConfig,
    hierarchy: &Hierarchy,
    samples: &[FsSample],
    signal: Signal,
) -> (NodeStats, Option<String>) {
    // The kubelet writes times to the second.
    let time = Some(Timestamp(Moment(i128::from(jiff::Timestamp::now().as_second()) * 1_000_000_000)));
    let fs = |role| samples.iter().find(|sample| sample.role == role).map(|sample| of_filesystem(sample, time));
    let mut stats = NodeStats {
        node_name: name::of(config.kubernetes.node_name.as_deref()),
        fs: fs(Role::Node),
        runtime: Some(RuntimeStats { image_fs: fs(Role::Image), container_fs: fs(Role::Container) }),
        ..NodeStats::default()
    };
    let failed = match signal.resource() {
        Resource::Memory => memory(config, hierarchy, time).map(|(memory, swap)| {
            (stats.memory, stats.swap) = (Some(memory), Some(swap));
            stats.system_containers = pods_memory(config, hierarchy, time).into_iter().collect();
        }),
        Resource::Pids => pids(config, time).map(|pids| stats.rlimit = Some(pids)),
        Resource::EphemeralStorage | Resource::Inodes => Ok(()),
    };
    (stats, failed.err().map(|error| format!("{signal}: {error}")))
}

fn of_filesystem(sample: &FsSample, time: Option<Timestamp>) -> FsStats {
    let FsSample { space, inodes, .. } = sample;
    FsStats {
        time,
        available_bytes: space.map(|space| space.available.0),
        capacity_bytes: space.map(|space| space.capacity.0),
        inodes_free: inodes.map(|inodes| inodes.free),
        inodes: inodes.map(|inodes| inodes.total),
    }
}

/// Returns the node's memory. Available memory follows the policy's definition; the working set is the rest.
fn memory(
    config: &MonitorConfig,
    hierarchy: &Hierarchy,
    time: Option<Timestamp>,
) -> Result<(MemoryStats, SwapStats), FileError> {
    let mut reader = MemoryReader::open(&config.proc_root, hierarchy)?;
    let (meminfo, details) = (reader.sample()?.meminfo, reader.details()?);
    let available = match config.policy.semantics {
        Semantics::Corrected => {
            MiscountedReader::read_once(&config.proc_root, hierarchy).last().available(&meminfo, config.policy.quirks)
        }
        Semantics::Kubelet => reader.root_usage()?.available(meminfo.total),
    };
    let memory = MemoryStats {
        time,
        available_bytes: Some(available.0),
        working_set_bytes: Some(meminfo.total.saturating_sub(available).0),
    };
    let (total, free) = (details.swap_total.unwrap_or(Bytes::ZERO), details.swap_free.unwrap_or(Bytes::ZERO));
    let used = total.saturating_sub(free);
    Ok((memory, SwapStats { swap_available_bytes: Some(free.0), swap_usage_bytes: Some(used.0) }))
}

/// Returns the memory of all pods, if the node has their cgroup.
fn pods_memory(config: &MonitorConfig, hierarchy: &Hierarchy, time: Option<Timestamp>) -> Option<SystemContainerStats> {
    let sample = PodsMemory::new(hierarchy.clone()).sample().ok()?;
    let value = allocatable_signal::value(sample, &config.policy);
    // The capacity is what is available plus the working set.
    let used =
        value.map_or(sample.working_set().0, |value| value.capacity.wrapping_sub(value.available).cast_unsigned());
    let available_bytes = value.map(|value| value.available.cast_unsigned());
    let memory = MemoryStats { time, available_bytes, working_set_bytes: Some(used) };
    Some(SystemContainerStats { name: "pods".to_owned(), memory: Some(memory) })
}

fn pids(config: &MonitorConfig, time: Option<Timestamp>) -> Result<RlimitStats, FileError> {
    let sample = PidReader::open(&config.proc_root)?.sample()?;
    Ok(RlimitStats { time, max_pid: Some(signed(sample.most)), running: Some(signed(sample.tasks)) })
}
