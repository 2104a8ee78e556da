//! Chooses KVM where it works, and software emulation otherwise. An accessible `/dev/kvm` is not enough: nested virtualization
//! can accept a machine and then stop it with an internal error. Therefore a trial machine is started.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::accel::Accel;
use super::initramfs::Initramfs;
use super::qemu::{self, Machine, Output};
use crate::arch::Arch;
use crate::cmd;
use crate::console::Console;

const ALIVE: &str = "node-pressure-monitor: the guest is alive";
const TRIAL_LIMIT: Duration = Duration::from_secs(10);

/// Returns the result of the last trial of KVM during this uptime with this QEMU, or of a new trial.
pub fn choose(kernel: &Path, busybox: &Path, dir: &Path, console: &Console) -> Result<Accel> {
    let key = key()?;
    let cached = dir.join("accel");
    if let Ok(text) = fs::read_to_string(&cached)
        && let Some(accel) = parse_cached(&text, &key)
    {
        return Ok(accel);
    }
    let (accel, why) = if Path::new("/dev/kvm").exists() {
        console.say("/dev/kvm is there; trying whether it works");
        match try_kvm(kernel, busybox, dir) {
            Ok(()) => (Accel::Kvm, "it does".to_owned()),
            Err(error) => (Accel::Tcg, format!("it does not ({error:#})")),
        }
    } else {
        (Accel::Tcg, "/dev/kvm is not there".to_owned())
    };
    console.say(format_args!("{why}: using {}", accel.word()));
    let word = if accel == Accel::Kvm { "kvm" } else { "tcg" };
    fs::write(&cached, format!("{key}\n{word}\n")).with_context(|| format!("writing {}", cached.display()))?;
    Ok(accel)
}

/// Returns the key of a trial's result, which holds for one uptime of this machine and one version of QEMU.
fn key() -> Result<String> {
    let path = "/proc/sys/kernel/random/boot_id";
    let boot = fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    let version = cmd::output(Command::new(format!("qemu-system-{}", Arch::host().machine())).arg("--version"))?;
    Ok(format!("{} {}", boot.trim(), version.lines().next().unwrap_or_default()))
}

fn parse_cached(text: &str, key: &str) -> Option<Accel> {
    let mut lines = text.lines();
    if lines.next()? != key {
        return None;
    }
    match lines.next()? {
        "kvm" => Some(Accel::Kvm),
        "tcg" => Some(Accel::Tcg),
        _ => None,
    }
}

fn try_kvm(kernel: &Path, busybox: &Path, dir: &Path) -> Result<()> {
    let mut root = Initramfs::default();
    root.files.program("/bin/busybox", busybox)?;
    root.script("/init", &format!("#!/bin/busybox sh\necho '{ALIVE}'\n/bin/busybox reboot -f\n"));
    let initramfs = dir.join("kvm-trial.cpio");
    root.write(&initramfs)?;
    let machine = Machine {
        arch: Arch::host(),
        accel: Accel::Kvm,
        kernel: kernel.to_owned(),
        initramfs: initramfs.clone(),
        append: format!("console={} panic=-1 quiet", qemu::console(Arch::host())),
        memory_mib: 512,
        disks: Vec::new(),
        forwarded: None,
        yields: false,
    };
    let verdict = watch(&machine, &dir.join("kvm-trial.log"));
    fs::remove_file(&initramfs).with_context(|| format!("removing {}", initramfs.display()))?;
    verdict
}

fn watch(machine: &Machine, log: &Path) -> Result<()> {
    let running = machine.start(log)?;
    let deadline = Instant::now() + TRIAL_LIMIT;
    let mut complaint = None;
    while let Some(left) = deadline.checked_duration_since(Instant::now()) {
        match running.next(left) {
            Ok(Some(Output::Console(line))) if line.contains(ALIVE) => return Ok(()),
            Ok(Some(Output::Console(_))) => {}
            Ok(Some(Output::Emulator(line))) => {
                // After an internal error the machine is stopped, but QEMU goes on running.
                let fatal = line.contains("KVM internal error");
                complaint.get_or_insert(line);
                if fatal {
                    break;
                }
            }
            Ok(None) | Err(_) => break,
        }
    }
    anyhow::bail!("{}", complaint.unwrap_or_else(|| format!("no sign of life in {} s", TRIAL_LIMIT.as_secs())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_counts_only_for_its_uptime_and_version() {
        assert_eq!(parse_cached("boot-a v7\ntcg\n", "boot-a v7"), Some(Accel::Tcg));
        assert_eq!(parse_cached("boot-a v7\nkvm\n", "boot-a v7"), Some(Accel::Kvm));
        assert_eq!(parse_cached("boot-a v7\nkvm\n", "boot-b v7"), None);
        assert_eq!(parse_cached("boot-a v7\n", "boot-a v7"), None);
        assert_eq!(parse_cached("", "boot-a v7"), None);
    }
}
