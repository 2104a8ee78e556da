//! Hands over from the initramfs to systemd, on the root filesystem that has containerd.

use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::mount::mount_move;

use super::setup::mount_at;

const NEW: &str = "/newroot";
/// The paths of this program, the agent and the simulated node on the new root filesystem.
const PROGRAMS: [(&str, &str); 3] = [
    ("/init", "/bin/vm-guest"),
    ("/bin/node-pressure-monitor", "/bin/node-pressure-monitor"),
    ("/bin/worlds", "/bin/worlds"),
];
/// Debian's earlyoom, to compare with.
pub const EARLYOOM: &str = "/bin/earlyoom";
/// The directory of container images, as archives.
pub const ARCHIVES: &str = "/archives";
/// The directory of the agent's manifests.
pub const MANIFESTS: &str = "/manifests";
/// The Helm chart.
pub const CHART: &str = "/chart";
/// The example of a lifecycle hook for OpenShift.
pub const JOURNAL_HOOK: &str = "/journal-hook";
/// The directory of the agent's packages, if a scenario needs them.
pub const PACKAGES: &str = "/packages";
/// The directories of the initramfs, which are removed because they occupy memory.
const USED_UP: [&str; 10] =
    [ARCHIVES, "/bin", CHART, JOURNAL_HOOK, "/lib", "/lib64", MANIFESTS, "/modules", PACKAGES, "/usr"];

/// The systemd unit that plays the scenarios. Its streams are the serial console. No sandbox restricts its use of cgroups and mounts.
const UNIT: &str = "\
[Unit]
Description=Scenarios of the test VM
After=dbus.socket

[Service]
ExecStart=/bin/vm-guest serve
StandardInput=null
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
OOMScoreAdjust=-1000
LimitMEMLOCK=infinity
";

/// Files that systemd or runtimes read. Runtimes copy some into every container, and the machine id prevents systemd's first-boot
/// work. Without a setting, systemd limits each container to 15 % of the process ids, which would stop a fork bomb.
const FILES: [(&str, &str); 6] = [
    ("/etc/systemd/system.conf", "[Manager]\nDefaultTasksMax=infinity\n"),
    ("/etc/systemd/system/vm-guest.service", UNIT),
    ("/etc/hostname", "guest\n"),
    ("/etc/hosts", "127.0.0.1 localhost guest\n"),
    ("/etc/resolv.conf", ""),
    ("/etc/machine-id", "0123456789abcdef0123456789abcdef\n"),
];

/// Units that their packages enable. containerd starts after its disks are mounted; the others are not needed.
const NOT_AT_BOOT: [&str; 11] = [
    "getty.target.wants/getty@tty1.service",
    "multi-user.target.wants/containerd.service",
    "multi-user.target.wants/e2scrub_reap.service",
    "multi-user.target.wants/etcd.service",
    "etcd2.service",
    "timers.target.wants/apt-daily.timer",
    "timers.target.wants/apt-daily-upgrade.timer",
    "timers.target.wants/dpkg-db-backup.timer",
    "timers.target.wants/e2scrub_all.timer",
    "timers.target.wants/fstrim.timer",
    "timers.target.wants/xfs_scrub_all.timer",
];

/// Replaces this process with systemd. It returns only after an error.
pub fn to_systemd(device: &str) -> Result<Infallible> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !Path::new(device).exists() && Instant::now() < deadline {
        sleep(Duration::from_millis(20));
    }
    mount_at(device, NEW, "ext4", "")?;
    // earlyoom is there on the host's own architecture only.
    let rival = Some((EARLYOOM, EARLYOOM)).filter(|_| Path::new(EARLYOOM).exists());
    for (from, to) in PROGRAMS.into_iter().chain(rival) {
        let to = format!("{NEW}{to}");
        fs::copy(from, &to).with_context(|| format!("copy {from} to {to}"))?;
    }
    for directory in [ARCHIVES, CHART, MANIFESTS, JOURNAL_HOOK] {
        copy_tree(Path::new(directory), Path::new(&format!("{NEW}{directory}")))?;
    }
    if Path::new(PACKAGES).exists() {
        copy_tree(Path::new(PACKAGES), Path::new(&format!("{NEW}{PACKAGES}")))?;
    }
    configure()?;
    for directory in USED_UP {
        // Some of these directories are links to others.
        let _ = fs::remove_dir_all(directory);
    }
    for directory in ["/dev", "/proc", "/sys"] {
        let to = format!("{NEW}{directory}");
        mount_move(directory, to.as_str()).with_context(|| format!("move {directory} to {to}"))?;
    }
    rustix::process::chdir(NEW).with_context(|| format!("change to {NEW}"))?;
    mount_move(".", "/").context("make the new root the root")?;
    rustix::process::chroot(".").context("chroot")?;
    let error = Command::new("/sbin/init").exec();
    Err(error).context("start systemd")
}

/// Copies a directory with everything below it.
pub fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to).with_context(|| format!("create {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("read {}", from.display()))? {
        let entry = entry.with_context(|| format!("read {}", from.display()))?.path();
        let to = to.join(entry.file_name().unwrap_or_default());
        if entry.is_dir() {
            copy_tree(&entry, &to)?;
        } else {
            fs::copy(&entry, &to).with_context(|| format!("copy to {}", to.display()))?;
        }
    }
    Ok(())
}

fn configure() -> Result<()> {
    for (file, text) in FILES {
        let path = format!("{NEW}{file}");
        // resolv.conf may be a link into a missing directory.
        let _ = fs::remove_file(&path);
        fs::write(&path, text).with_context(|| format!("write {path}"))?;
    }
    let units = format!("{NEW}/etc/systemd/system");
    for name in NOT_AT_BOOT {
        // This Debian release may not enable the unit.
        let _ = fs::remove_file(format!("{units}/{name}"));
    }
    let wanted = format!("{units}/multi-user.target.wants");
    fs::create_dir_all(&wanted).with_context(|| format!("create {wanted}"))?;
    let link = format!("{wanted}/vm-guest.service");
    symlink("/etc/systemd/system/vm-guest.service", &link).with_context(|| format!("create {link}"))
}
