//! Compares the usage of volumes by project quota with a walk of the test's own. The agent does not walk these volumes.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::ioctl::{Opcode, Setter, opcode};
use rustix::mount::{UnmountFlags, mount_bind, unmount};

use super::cache::mounted;
use crate::agent::Agent;
use crate::cgroups::{Pod, PodSpec, pod_uid};
use crate::config::AgentConfig;
use crate::http::Metrics;
use crate::init::{PROJECTS, XFS};
use crate::stage::Stage;
use crate::units::{MIB, monotonic_ns};

const KUBELET: &str = "/var/lib/kubelet";
const LOGS: &str = "/var/log/pods";
/// `FS_XFLAG_PROJINHERIT` of `<linux/fs.h>`.
const INHERITS: u32 = 0x200;
const LIMIT: Duration = Duration::from_secs(10);

/// `struct fsxattr` of `<linux/fs.h>`.
#[repr(C)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copy_extent_size: u32,
    padding: [u8; 8],
}

/// Assigns a directory to a project, as the kubelet does. Files made in it later belong to the project.
fn set_project(directory: &Path, project: u32) -> Result<()> {
    const SET: Opcode = opcode::write::<Attributes>(b'X', 32);
    let attributes =
        Attributes { flags: INHERITS, extent_size: 0, extents: 0, project, copy_extent_size: 0, padding: [0; 8] };
    let file = File::open(directory).with_context(|| format!("open {}", directory.display()))?;
    // SAFETY: the request takes one `fsxattr`, whose layout `Attributes` has.
    let setter = unsafe { Setter::<SET, Attributes>::new(attributes) };
    // SAFETY: see above.
    unsafe { rustix::ioctl::ioctl(file, setter) }.with_context(|| format!("set the project of {}", directory.display()))
}

/// A pod on a file system.
#[derive(Debug)]
struct Subject {
    pod: Pod,
    kind: &'static str,
    volumes: PathBuf,
}

impl Subject {
    /// Makes two volumes with a project each and files in them, two volumes that share a project, and one without.
    fn make(stage: &mut Stage<'_>, kind: &'static str, mount: &str, first_project: u32) -> Result<Self> {
        let number = stage.next_pod();
        let pod = Pod::create(stage.layout(), kind, &pod_uid(number), PodSpec::best_effort())?;
        stage.work(&pod, "hold --name pause --mib 1")?;
        // The pods' directories may be on different disks.
        let below = Path::new(mount).join("pods").join(pod_uid(number));
        let seen = Path::new(KUBELET).join("pods").join(pod_uid(number));
        for directory in [&below, &seen] {
            fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
        }
        mount_bind(&below, &seen).with_context(|| format!("bind {} to {}", below.display(), seen.display()))?;
        let subject = Self { pod, kind, volumes: seen.join("volumes/kubernetes.io~empty-dir") };
        for (index, (name, project, mib)) in
            (1_u64..).zip([("one", 1, 3), ("two", 2, 2), ("shared", 3, 1), ("sharing", 3, 1), ("none", 0, 1)])
        {
            let volume = subject.volumes.join(name);
            fs::create_dir_all(volume.join("below")).with_context(|| format!("create {}", volume.display()))?;
            if project > 0 {
                set_project(&volume, first_project + project)?;
                // This directory was made before its parent had a project, so it has inherited none.
                set_project(&volume.join("below"), first_project + project)?;
            }
            fs::write(volume.join("below/file"), vec![1; usize::try_from(mib * MIB)?]).context("write a file")?;
            for small in 0..index {
                fs::write(volume.join(format!("small{small}")), "x").context("write a file")?;
            }
        }
        Ok(subject)
    }

    /// Returns the bytes and inodes of volumes, from the metadata of their files.
    fn truth(&self, volumes: &[&str]) -> Result<(u64, u64)> {
        let mut sum = (0, 0);
        for volume in volumes {
            add(&self.volumes.join(volume), &mut sum)?;
        }
        Ok(sum)
    }

    fn exported(&self, metrics: &Metrics, source: &str) -> (u64, u64) {
        let of = |name: &str| metrics.sum(name, &[("workload", self.pod.workload()), ("source", source)]);
        let whole = |name: &str| format!("{:.0}", of(name).unwrap_or(0.0)).parse().unwrap_or(0);
        (whole("workload_disk_bytes"), whole("workload_disk_inodes"))
    }
}

/// Adds a file's usage. Blocks have 512 bytes, independent of the filesystem's own block size (`man 3 stat`).
fn add(path: &Path, sum: &mut (u64, u64)) -> Result<()> {
    let status = fs::symlink_metadata(path).with_context(|| format!("stat {}", path.display()))?;
    sum.0 += status.blocks() * 512;
    sum.1 += 1;
    if status.is_dir() {
        for entry in fs::read_dir(path).with_context(|| format!("read {}", path.display()))? {
            add(&entry.with_context(|| format!("read {}", path.display()))?.path(), sum)?;
        }
    }
    Ok(())
}

const COUNTED: [&str; 2] = ["one", "two"];
const WALKED: [&str; 3] = ["shared", "sharing", "none"];

pub fn project_quota(stage: &mut Stage<'_>) -> Result<()> {
    let disks: Vec<_> = [("ext4", PROJECTS), ("xfs", XFS)].into_iter().filter(|(_, mount)| mounted(mount)).collect();
    if disks.is_empty() {
        stage.skip("no disks in this guest");
        return Ok(());
    }
    fs::create_dir_all(LOGS).with_context(|| format!("create {LOGS}"))?;
    let mut subjects = Vec::new();
    for (first_project, (kind, mount)) in [1000, 2000].into_iter().zip(disks) {
        subjects.push(Subject::make(stage, kind, mount, first_project)?);
    }
    // The agent measures disks only if a threshold needs it. This threshold is never met.
    let config = AgentConfig::observe();
    let thresholds = vec![("nodefs.available", "1Ki".to_owned())];
    let extra = format!("{}diskUsage: {{projectQuotas: trusted}}\n", config.extra);
    let agent = stage.agent(&AgentConfig { thresholds, extra, ..config })?;
    let outcome = follow(stage, &agent, &subjects);
    stage.stop(&agent);
    for subject in &subjects {
        // The disks end with the boot, so their files stay.
        let pod = subject.volumes.ancestors().nth(2).context("a volume's pod")?;
        unmount(pod, UnmountFlags::DETACH).with_context(|| format!("unmount {}", pod.display()))?;
    }
    fs::remove_dir_all(KUBELET).with_context(|| format!("remove {KUBELET}"))?;
    outcome
}

fn follow(stage: &mut Stage<'_>, agent: &Agent, subjects: &[Subject]) -> Result<()> {
    agree(stage, agent, subjects, "at first")?;
    let walked = |metrics: &Metrics| metrics.sum("disk_usage_files_walked_total", &[]);
    let before = walked(&agent.metrics()?);
    // These steps make no inode, so the eBPF programs see nothing.
    for subject in subjects {
        let path = subject.volumes.join("one/below/file");
        let mut file = OpenOptions::new().append(true).open(&path).context("open a file")?;
        file.write_all(&vec![2; usize::try_from(2 * MIB)?]).context("write to a file")?;
        fs::remove_file(subject.volumes.join("two/small0")).context("remove a file")?;
    }
    let grown = monotonic_ns();
    agree(stage, agent, subjects, "grown")?;
    let took = Duration::from_nanos(monotonic_ns() - grown);
    stage.figure("growth_seen_after", took.as_secs_f64() * 1000.0, "ms");
    let mut deleted = Vec::new();
    // A process outside the pods holds these deleted files open, so a walk would not find them.
    for subject in subjects {
        let path = subject.volumes.join("two/below/file");
        let open = File::open(&path).context("open a file")?;
        fs::remove_file(&path).context("remove a file")?;
        deleted.push((open, subject));
    }
    for (open, subject) in &deleted {
        let status = open.metadata().context("stat a file")?;
        let (bytes, inodes) = subject.truth(&COUNTED)?;
        let expected = (bytes + status.blocks() * 512, inodes + 1);
        let exported = until_exported(stage, agent, subject, "quota", expected)?;
        stage.check_equal(&format!("{}: deleted and held open, by quota", subject.kind), &exported, &expected);
    }
    drop(deleted);
    agree(stage, agent, subjects, "let go")?;
    let metrics = agent.metrics()?;
    stage.check_equal("files walked meanwhile", &walked(&metrics), &before);
    for subject in subjects {
        let age = metrics
            .sum("workload_disk_age_seconds", &[("workload", subject.pod.workload()), ("source", "quota")])
            .unwrap_or(f64::NAN);
        stage.check(age < 3.0, || format!("{}: the quota was read {age:.1} s ago", subject.kind));
        stage.note(format!("{}: bytes and inodes {:?} by quota", subject.kind, subject.exported(&metrics, "quota")));
    }
    let reads = metrics.sum("disk_usage_quota_reads_total", &[]).unwrap_or(0.0);
    let cpu = metrics.sum("disk_usage_cpu_seconds_total", &[]).unwrap_or(0.0);
    stage.note(format!("quotas read {reads} times; the thread took {:.1} ms of a CPU in all", cpu * 1000.0));
    let missing: Vec<String> = agent.events("degraded").iter().map(|record| record.text("reason").to_owned()).collect();
    stage.check(!missing.iter().any(|reason| reason.contains("quota")), || format!("{missing:?}"));
    Ok(())
}

/// Asserts that the exported figures equal the real ones.
fn agree(stage: &mut Stage<'_>, agent: &Agent, subjects: &[Subject], when: &str) -> Result<()> {
    for subject in subjects {
        for (source, volumes) in [("quota", &COUNTED[..]), ("walk", &WALKED[..])] {
            let expected = subject.truth(volumes)?;
            let exported = until_exported(stage, agent, subject, source, expected)?;
            stage.check_equal(&format!("{}, {when}, by {source}", subject.kind), &exported, &expected);
        }
    }
    Ok(())
}

fn until_exported(
    stage: &mut Stage<'_>,
    agent: &Agent,
    subject: &Subject,
    source: &str,
    expected: (u64, u64),
) -> Result<(u64, u64)> {
    let mut exported = (0, 0);
    stage.until(LIMIT, |stage| {
        exported = agent.metrics().map(|metrics| subject.exported(&metrics, source)).unwrap_or_default();
        if exported != expected {
            stage.pause(Duration::from_millis(100));
        }
        exported == expected
    });
    Ok(exported)
}
