//! Process 1 of the guest: prepares the guest, plays the scenarios that the kernel command line names, and powers off. In the
//! guest with containerd it replaces itself with systemd, which starts this program again as a service.

mod handover;
mod network;
mod setup;

use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context, Result, bail};

use crate::catalogue::Guest;
use crate::cgroups::Layout;
use crate::{console, scenarios};

/// The mount point of the ext4 disk, if the VM has it.
pub const EXT4: &str = "/mnt/ext4";
/// The mount point of an ext4 filesystem with about two thousand inodes.
pub const SMALL: &str = "/mnt/small";
/// The mount point of an ext4 filesystem with project quotas.
pub const PROJECTS: &str = "/mnt/projects";
/// The mount point of the xfs disk, if the VM has it. It has project quotas.
pub const XFS: &str = "/mnt/xfs";

pub use handover::{ARCHIVES, CHART, EARLYOOM, JOURNAL_HOOK, MANIFESTS, PACKAGES, copy_tree};
pub use setup::mount_at;

type Options = HashMap<String, String>;
type Counts = (u32, u32, u32);

/// Runs everything and powers the machine off. Process 1 must not return.
pub fn main() -> ! {
    console::fresh_line();
    conclude(run())
}

/// Plays the scenarios as a service of systemd, then powers the machine off.
pub fn serve() -> ! {
    console::fresh_line();
    conclude(command_line().and_then(|options| play(&options, guest(&options))))
}

/// Returns which guest with systemd this is: the disk of Kubernetes' programs tells.
fn guest(options: &Options) -> Guest {
    if options.contains_key("npm.kubernetes") { Guest::Cluster } else { Guest::Containerd }
}

fn conclude(outcome: Result<Counts>) -> ! {
    let (passed, failed, skipped) = match outcome {
        Ok(counts) => counts,
        Err(error) => {
            console::note("guest", format!("set-up failed: {error:#}"));
            (0, 1, 0)
        }
    };
    finish(passed, failed, skipped)
}

/// Prints the last line of the protocol and powers off.
pub fn finish(passed: u32, failed: u32, skipped: u32) -> ! {
    console::end(passed, failed, skipped);
    // The emulated serial port must send its buffer before the power goes off.
    // SAFETY: tcdrain has no memory arguments; sync and reboot neither.
    unsafe {
        libc::tcdrain(1);
        libc::sync();
        libc::reboot(libc::RB_POWER_OFF);
    }
    loop {
        thread::sleep(Duration::from_secs(1));
    }
}

fn run() -> Result<Counts> {
    setup::mounts()?;
    let options = command_line()?;
    for problem in setup::modules(Path::new("/modules")) {
        console::note("guest", problem);
    }
    if let Some(device) = options.get("npm.root") {
        match handover::to_systemd(device)? {}
    }
    for problem in setup::disks() {
        console::note("guest", problem);
    }
    network::up().context("bring the network up")?;
    rustix::system::sethostname(b"guest").context("set the host's name")?;
    setup::mount_cgroups(layout(&options)?)?;
    play(&options, Guest::Plain)
}

fn play(options: &Options, guest: Guest) -> Result<Counts> {
    let layout = layout(options)?;
    // The dump of an OOM kill takes longer on the emulated serial line than the kill. /dev/kmsg gets it anyway.
    fs::write("/proc/sys/kernel/printk", "1").context("write /proc/sys/kernel/printk")?;
    setup::stay_alive()?;
    let release = rustix::system::uname();
    console::note(
        "guest",
        format!(
            "kernel {} cgroup {} {}",
            CStr::to_string_lossy(release.release()),
            layout.name(),
            setup::memory_line()?,
        ),
    );
    let expressions = options.get("npm.scenarios").map_or("", String::as_str);
    let pages = options.get("npm.pages").is_some_and(|value| value == "1");
    scenarios::play(layout, guest, pages, expressions)
}

/// Returns a word of the kernel command line.
pub fn option(key: &str) -> Option<String> {
    command_line().ok()?.remove(key)
}

fn layout(options: &Options) -> Result<Layout> {
    match options.get("npm.cgroup").map_or("v2", String::as_str) {
        "v1" => Ok(Layout::V1),
        "v2" => Ok(Layout::V2),
        other => bail!("npm.cgroup={other}: neither v1 nor v2"),
    }
}

fn command_line() -> Result<Options> {
    Ok(parse_command_line(&fs::read_to_string("/proc/cmdline").context("read /proc/cmdline")?))
}

/// Parses the `key=value` words of the kernel command line. The last of equal keys counts.
fn parse_command_line(text: &str) -> Options {
    text.split_whitespace()
        .filter_map(|word| word.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// Loads one kernel module from an uncompressed file.
fn load_module(path: &Path) -> Result<()> {
    let file = fs::File::open(path).with_context(|| format!("open {}", path.display()))?;
    // SAFETY: the descriptor is open for the call and the parameter string is empty and NUL-terminated.
    let outcome = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), 0) };
    if outcome == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    // The module is built in, or already loaded as a dependency.
    if error.raw_os_error() == Some(libc::EEXIST) {
        return Ok(());
    }
    Err(error).with_context(|| format!("finit_module {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_words_without_a_value_are_skipped() {
        let options = parse_command_line("console=ttyS0 quiet npm.cgroup=v1 npm.scenarios=ramp,swarm*10\n");
        assert_eq!(options.get("npm.cgroup").map(String::as_str), Some("v1"));
        assert_eq!(options.get("npm.scenarios").map(String::as_str), Some("ramp,swarm*10"));
        assert!(!options.contains_key("quiet"));
    }
}
