//! Memory that is on its way back: no second victim for the same shortage.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::fs::statvfs;
use rustix::mount::{UnmountFlags, unmount};

use super::{AFTERMATH, Crowd, LIMIT, config, note_evictions};
use crate::cgroups::{Pod, PodSpec};
use crate::containers::storage::KUBELET;
use crate::evidence::meminfo;
use crate::init::{EXT4, mount_at};
use crate::processes;
use crate::stage::Stage;
use crate::units::MIB;

/// The time from the end of a pod's processes to the removal of its volumes. A kubelet needs about this long.
const CLEAN_UP: Duration = Duration::from_secs(2);
const PACED: &str = "--fast-until 180";

/// A memory volume of a pod, where the kubelet mounts it. Dropping it unmounts it.
#[derive(Debug)]
pub struct MemoryVolume {
    place: PathBuf,
}

impl MemoryVolume {
    pub fn mount(pod: &Pod) -> Result<Self> {
        let place = PathBuf::from(format!("{KUBELET}/pods/{}/volumes/kubernetes.io~empty-dir/memory", pod.uid));
        mount_at("tmpfs", &place.to_string_lossy(), "tmpfs", "size=960m")?;
        Ok(Self { place })
    }

    pub fn file(&self) -> String {
        self.place.join("data").display().to_string()
    }

    /// Returns the memory that the volume holds.
    fn used(&self) -> Result<u64> {
        let all = statvfs(&self.place).context("statvfs")?;
        Ok((all.f_blocks - all.f_bfree) * all.f_frsize)
    }
}

impl Drop for MemoryVolume {
    fn drop(&mut self) {
        // If this fails, the guest has too little memory for the next scenario, which then fails.
        let _ = unmount(&self.place, UnmountFlags::empty());
    }
}

/// The victim's memory is a tmpfs, which outlives the processes.
pub fn late_free(stage: &mut Stage<'_>) -> Result<()> {
    let mut crowd = Crowd::with_ballast(stage, 400)?;
    crowd.hold_many(stage, "small", (3, 30), PodSpec::best_effort())?;
    let agent = stage.agent(&config())?;
    let pod = stage.pod("leaker", PodSpec::best_effort())?;
    let volume = MemoryVolume::mount(&pod)?;
    let work = format!("ramp --name leaker --rate 60 --to 900 {PACED} --file {}", volume.file());
    let leaker = crowd.pod(pod, stage, &work)?;
    stage.until(LIMIT, |stage| stage.reaper.ended(leaker.pid).is_some());
    stage.pause(CLEAN_UP);
    let before = meminfo("MemAvailable")?;
    drop(volume);
    crowd.only_these_die(stage, &agent, &[&leaker], Duration::ZERO)?;
    let back = meminfo("MemAvailable")?.saturating_sub(before) / MIB;
    // Without this the scenario would show nothing.
    stage.check(back > 100, || format!("the tmpfs held {back} MiB only"));
    stage.stop(&agent);
    Ok(())
}

/// A frozen filesystem: a thread that writes to it waits, and no signal ends it. Dropping it thaws the filesystem.
#[derive(Debug)]
pub struct Frozen {
    root: File,
}

impl Frozen {
    /// FIFREEZE and FITHAW of linux/fs.h.
    const FREEZE: libc::c_ulong = 0xC004_5877;
    const THAW: libc::c_ulong = 0xC004_5878;

    pub fn freeze(place: &str) -> Result<Self> {
        let root = File::open(place).with_context(|| format!("open {place}"))?;
        // SAFETY: FIFREEZE has no memory arguments.
        if unsafe { libc::ioctl(root.as_raw_fd(), Self::FREEZE as _, 0) } != 0 {
            return Err(io::Error::last_os_error()).with_context(|| format!("freeze {place}"));
        }
        Ok(Self { root })
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // If this fails, the victim's processes do not end, and the clean-up reports them.
        // SAFETY: FITHAW has no memory arguments.
        unsafe { libc::ioctl(self.root.as_raw_fd(), Self::THAW as _, 0) };
    }
}

/// Another process, such as a kubelet, kills a large pod that takes a while to exit.
pub fn others_victim(stage: &mut Stage<'_>) -> Result<()> {
    if !super::super::cache::mounted(EXT4) {
        stage.skip("no ext4 disk in this guest");
        return Ok(());
    }
    let mut crowd = Crowd::with_ballast(stage, 330)?;
    crowd.hold_many(stage, "small", (3, 20), PodSpec::best_effort())?;
    let agent = stage.agent(&config())?;
    let pod = stage.pod("large", PodSpec::burstable(32))?;
    let volume = MemoryVolume::mount(&pod)?;
    let frozen = Frozen::freeze(EXT4)?;
    let work = format!("ramp --name large --rate 200 --to 100 --file {} --write-to {EXT4}/large", volume.file());
    let large = crowd.pod(pod, stage, &work)?;
    // Other memory of the guest may become available meanwhile, so MemAvailable does not show the growth.
    let is_large = |_: &mut Stage<'_>| volume.used().is_ok_and(|bytes| bytes >= 99 * MIB);
    let grown = stage.until(LIMIT, is_large);
    stage.check(grown, || "the large pod did not grow".to_owned());
    processes::signal(large.pid, libc::SIGKILL);
    // This pod needs more memory once, and then no more. Half of the threshold is never half a second away: then the wait would end.
    let low = crowd.leak(stage, "low", PodSpec::burstable(32), (30, "--fast-until 160 --stop-at 88"))?;
    let met = stage.until(LIMIT, |_| meminfo("MemAvailable").is_ok_and(|bytes| bytes < 96 * MIB));
    stage.check(met, || "the guest did not come under pressure while the pod was dying".to_owned());
    stage.pause(Duration::from_millis(1500));
    stage.check(stage_lives(large.pid), || "the large pod could exit: the scenario shows nothing".to_owned());
    drop(frozen);
    stage.until(LIMIT, |stage| stage.reaper.ended(large.pid).is_some());
    drop(volume);
    crowd.only_these_die(stage, &agent, &[&large], LIMIT)?;
    stage.check_alive(&[&low]);
    stage.stop(&agent);
    Ok(())
}

/// One thread of the victim waits for a disk, and its memory is shared, which the kernel does not release before the end.
pub fn undying(stage: &mut Stage<'_>) -> Result<()> {
    if !super::super::cache::mounted(EXT4) {
        stage.skip("no ext4 disk in this guest");
        return Ok(());
    }
    let mut crowd = Crowd::with_ballast(stage, 300)?;
    crowd.hold_many(stage, "dwarf", (6, 2), PodSpec::best_effort())?;
    let middle = crowd.hold(stage, "middle", PodSpec::burstable(16), 80)?;
    let agent = stage.agent(&config())?;
    let pod = stage.pod("undying", PodSpec::best_effort())?;
    let volume = MemoryVolume::mount(&pod)?;
    let frozen = Frozen::freeze(EXT4)?;
    let work =
        format!("ramp --name undying --rate 60 --to 900 {PACED} --file {} --write-to {EXT4}/undying", volume.file());
    let undying = crowd.pod(pod, stage, &work)?;
    let hit = stage.until(LIMIT, |stage| {
        stage.signals_of(&agent).is_ok_and(|(signals, _)| {
            signals.iter().any(|signal| signal.number == libc::SIGKILL && signal.target == undying.pid)
        })
    });
    stage.check(hit, || "the agent did not kill the largest BestEffort pod".to_owned());
    // More memory is now missing than a dwarf has. At full speed this pod would be urgent, and would count as what leaks.
    let more = stage.pod("more", PodSpec::guaranteed(96))?;
    crowd.pod(more, stage, "ramp --name more --rate 25 --to 25")?;
    let second = stage.until(Duration::from_secs(12), |stage| crowd.dead(stage).is_ok_and(|dead| !dead.is_empty()));
    stage.check(second, || "no second pod went while memory was missing".to_owned());
    stage.pause(AFTERMATH);
    stage.check(stage_lives(undying.pid), || "the victim could exit: the scenario shows nothing".to_owned());
    let dead = crowd.dead(stage)?;
    stage.check_equal("killed beside the one that cannot exit", &dead, &vec![middle.label]);
    note_evictions(stage, &agent);
    stage.check_no_oom_kill()?;
    drop(frozen);
    stage.until(LIMIT, |stage| stage.reaper.ended(undying.pid).is_some());
    drop(volume);
    stage.stop(&agent);
    Ok(())
}

/// Returns whether the kernel still has the process.
fn stage_lives(pid: i32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}
