//! Starts QEMU and reads its serial console.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::accel::Accel;
use super::scenario::{GUEST, HOST, VIEWED_PORT};
use crate::arch::Arch;
use crate::cmd;
use crate::setup::SETPRIV;

/// The nice value of a machine that yields: the other machine gets three quarters of the CPUs while both are busy. With 19 the
/// other machine gets everything, and the yielding one exceeds its own time limits: its containerd does not answer within a
/// minute.
const YIELDING: &str = "5";

#[derive(Debug)]
pub struct Machine {
    pub arch: Arch,
    pub accel: Accel,
    pub kernel: PathBuf,
    pub initramfs: PathBuf,
    pub append: String,
    pub memory_mib: u32,
    /// Raw images, in the order /dev/vda, /dev/vdb and so on.
    pub disks: Vec<Disk>,
    /// The port of the host's loopback address that leads to the agent. Without one the guest has no network.
    pub forwarded: Option<u16>,
    /// Whether another machine has priority on the CPUs.
    pub yields: bool,
}

/// The raw image of a disk.
#[derive(Debug)]
pub struct Disk {
    pub image: PathBuf,
    /// Whether other boots use the image as well. The guest's writes are then discarded.
    pub kept: bool,
}

/// Returns the name of the serial console.
pub const fn console(arch: Arch) -> &'static str {
    match arch {
        Arch::Amd64 => "ttyS0",
        Arch::Arm64 => "ttyAMA0",
    }
}

impl Machine {
    fn command(&self) -> Command {
        let qemu = format!("qemu-system-{}", self.arch.machine());
        // The flag makes the kernel kill QEMU when this program ends for any reason.
        let mut words = Vec::new();
        if SETPRIV.find().is_ok() {
            words.extend(["setpriv", "--pdeathsig", "KILL"]);
        }
        if self.yields {
            words.extend(["nice", "-n", YIELDING]);
        }
        let mut command = match words.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(qemu);
                command
            }
            None => Command::new(qemu),
        };
        command
            .args(self.accel.arguments(self.arch))
            .args(["-m", &self.memory_mib.to_string(), "-smp", "2"])
            .args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"])
            .args(["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"])
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(&self.initramfs)
            .args(["-append", &self.append]);
        for (index, disk) in self.disks.iter().enumerate() {
            // These disks are temporary, so no write needs to reach the host's storage.
            let snapshot = if disk.kept { "on" } else { "off" };
            let drive = format!(
                "file={},format=raw,if=none,cache=unsafe,snapshot={snapshot},id=disk{index}",
                disk.image.display()
            );
            command.args(["-drive", &drive, "-device", &format!("virtio-blk-pci,drive=disk{index}")]);
        }
        if let Some(port) = self.forwarded {
            let [host, guest] = [HOST, GUEST].map(Ipv4Addr::from);
            let network = format!("user,id=network,host={host},hostfwd=tcp:127.0.0.1:{port}-{guest}:{VIEWED_PORT}");
            command.args(["-netdev", &network, "-device", "virtio-net-pci,netdev=network,romfile="]);
        }
        command
    }

    pub fn start(&self, log: &Path) -> Result<Running> {
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let shown = cmd::shown(&command);
        let mut log_file = File::create(log).with_context(|| format!("creating {}", log.display()))?;
        writeln!(log_file, "# {shown}").with_context(|| format!("writing {}", log.display()))?;
        let mut child = command.spawn().with_context(|| format!("cannot run `{shown}`"))?;
        let stdout = child.stdout.take().context("QEMU's standard output")?;
        let stderr = child.stderr.take().context("QEMU's standard error")?;
        let (sender, lines) = mpsc::channel();
        let console = sender.clone();
        thread::spawn(move || {
            let mut reader = BufReader::new(stdout);
            let mut line = Vec::new();
            while matches!(reader.read_until(b'\n', &mut line), Ok(n) if n > 0) {
                // A log that cannot be written does not stop the boot, because the lines are judged anyway.
                let _ = log_file.write_all(&line);
                if console.send(Output::Console(String::from_utf8_lossy(&line).trim_end().to_owned())).is_err() {
                    break;
                }
                line.clear();
            }
        });
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if sender.send(Output::Emulator(line)).is_err() {
                    break;
                }
            }
        });
        Ok(Running { child, lines, shown })
    }
}

/// A line from a running machine.
#[derive(Debug)]
pub enum Output {
    /// A line of the guest's serial console.
    Console(String),
    /// A message of QEMU about itself.
    Emulator(String),
}

/// A started QEMU. Dropping it kills QEMU.
#[derive(Debug)]
pub struct Running {
    child: Child,
    lines: Receiver<Output>,
    pub shown: String,
}

impl Running {
    /// Returns the next line, `Ok(None)` when the time is over, or `Err(Ended)` when QEMU has closed its console.
    pub fn next(&self, wait: Duration) -> Result<Option<Output>, Ended> {
        match self.lines.recv_timeout(wait) {
            Ok(output) => Ok(Some(output)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Ended),
        }
    }

    /// Waits for QEMU to exit; `None` if the time is over.
    pub fn exit_code(&mut self, wait: Duration) -> Result<Option<i32>> {
        let deadline = Instant::now() + wait;
        loop {
            let status = self.child.try_wait().with_context(|| format!("waiting for `{}`", self.shown))?;
            match status {
                Some(status) => return Ok(Some(status.code().unwrap_or(-1))),
                None if Instant::now() >= deadline => return Ok(None),
                None => thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both calls do nothing if QEMU has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The error of a closed console.
#[derive(Debug)]
pub struct Ended;
