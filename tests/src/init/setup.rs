//! Prepares mounts, modules and disks, and protects process 1.

use std::ffi::{CStr, CString};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, mount};

use super::{EXT4, PROJECTS, SMALL, XFS, load_module};
use crate::cgroups::{CONTROLLERS, Layout, ROOT};

/// Mounts a filesystem, and makes a missing mount point.
pub fn mount_at(source: &str, target: &str, kind: &str, data: &str) -> Result<()> {
    fs::create_dir_all(target).with_context(|| format!("create {target}"))?;
    let data = CString::new(data).context("mount data")?;
    let data: Option<&CStr> = if data.is_empty() { None } else { Some(&data) };
    mount(source, target, kind, MountFlags::empty(), data).with_context(|| format!("mount {kind} at {target}"))
}

pub fn mounts() -> Result<()> {
    mount_at("proc", "/proc", "proc", "")?;
    mount_at("sysfs", "/sys", "sysfs", "")?;
    // The kernel may have mounted devtmpfs already (CONFIG_DEVTMPFS_MOUNT).
    if !Path::new("/dev/kmsg").exists() {
        mount_at("devtmpfs", "/dev", "devtmpfs", "")?;
    }
    mount_at("tracefs", "/sys/kernel/tracing", "tracefs", "")?;
    mount_at("bpf", "/sys/fs/bpf", "bpf", "")?;
    for directory in ["/run", "/tmp"] {
        fs::create_dir_all(directory).with_context(|| format!("create {directory}"))?;
    }
    Ok(())
}

/// Loads `/modules/*.ko` in the order of `/modules/order`; returns the errors.
pub fn modules(directory: &Path) -> Vec<String> {
    let Ok(order) = fs::read_to_string(directory.join("order")) else {
        return vec![format!("{}/order is missing: no modules, so no disks", directory.display())];
    };
    let mut waiting: Vec<&str> = order.split_whitespace().collect();
    // A module whose dependency is not loaded fails with ENOENT. The loop retries as long as some modules load.
    loop {
        let mut problems = Vec::new();
        let before = waiting.len();
        waiting.retain(|name| match load_module(&directory.join(name)) {
            Ok(()) => false,
            Err(error) => {
                problems.push(format!("{error:#}"));
                true
            }
        });
        if waiting.is_empty() || waiting.len() == before {
            return problems;
        }
    }
}

/// Mounts the present disks; returns the errors.
pub fn disks() -> Vec<String> {
    let mut problems = Vec::new();
    for (device, target, kind, data) in [
        ("/dev/vda", EXT4, "ext4", ""),
        ("/dev/vdb", SMALL, "ext4", ""),
        ("/dev/vdc", PROJECTS, "ext4", "prjquota"),
        // xfs takes this option only at the mount.
        ("/dev/vdd", XFS, "xfs", "prjquota"),
    ] {
        if Path::new(device).exists()
            && let Err(error) = mount_at(device, target, kind, data)
        {
            problems.push(format!("{device}: {error:#}"));
        }
    }
    problems
}

pub fn mount_cgroups(layout: Layout) -> Result<()> {
    match layout {
        Layout::V2 => {
            mount_at("cgroup2", ROOT, "cgroup2", "")?;
            let wanted: Vec<String> = CONTROLLERS.iter().map(|name| format!("+{name}")).collect();
            let path = format!("{ROOT}/cgroup.subtree_control");
            fs::write(&path, wanted.join(" ")).with_context(|| format!("write {path}"))
        }
        Layout::V1 => {
            mount_at("tmpfs", ROOT, "tmpfs", "")?;
            for name in layout.hierarchies() {
                mount_at("cgroup", &format!("{ROOT}/{name}"), "cgroup", name)
                    .with_context(|| format!("this kernel may lack the v1 {name} controller"))?;
            }
            // As systemd does. Without it Linux before 5.11 counts the memory of each cgroup alone.
            let path = format!("{ROOT}/memory/memory.use_hierarchy");
            fs::write(&path, "1").with_context(|| format!("write {path}"))
        }
    }
}

/// Exempts process 1 from the OOM killer and locks its pages.
pub fn stay_alive() -> Result<()> {
    fs::write("/proc/self/oom_score_adj", "-1000").context("write /proc/self/oom_score_adj")?;
    // SAFETY: mlockall has no memory arguments.
    let outcome = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) };
    if outcome == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()).context("mlockall") }
}

/// Returns MemTotal and MemAvailable at the start of the guest.
pub fn memory_line() -> Result<String> {
    let text = fs::read_to_string("/proc/meminfo").context("read /proc/meminfo")?;
    let wanted = text.lines().filter(|line| {
        line.starts_with("MemTotal") || line.starts_with("MemAvailable") || line.starts_with("SwapTotal")
    });
    let words: Vec<String> = wanted.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    Ok(words.join(", "))
}
