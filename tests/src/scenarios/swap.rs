//! Metrics of swap: size, free space, and pages swapped in and out.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::cache::mounted;
use crate::cgroups::PodSpec;
use crate::config::AgentConfig;
use crate::evidence::{meminfo, vmstat};
use crate::http::Metrics;
use crate::init::EXT4;
use crate::stage::Stage;
use crate::units::MIB;

const SIZE: u64 = 96 * MIB;

/// An active swap. Dropping it deactivates the swap.
#[derive(Debug)]
pub struct SwapSpace {
    path: CString,
    is_zram: bool,
}

const ZRAM: &str = "/sys/block/zram0";

impl SwapSpace {
    /// Makes a file of this size and swaps to it.
    pub fn file(path: &str, size: u64) -> Result<Self> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(path);
        let file = file.with_context(|| format!("create {path}"))?;
        // The file is allocated and not written: swapon accepts extents without data, but no holes.
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, size)
            .with_context(|| format!("fallocate {path}"))?;
        Self::on(path, false)
    }

    /// Swaps to the compressed memory of the first zram device, which holds so many bytes before their compression.
    pub fn zram(size: u64) -> Result<Self> {
        std::fs::write(format!("{ZRAM}/disksize"), size.to_string()).context("write disksize of zram0")?;
        Self::on("/dev/zram0", true)
    }

    fn on(path: &str, is_zram: bool) -> Result<Self> {
        let output = Command::new("/bin/busybox").args(["mkswap", path]).output().context("run busybox mkswap")?;
        if !output.status.success() {
            bail!("mkswap {path}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let path = CString::new(path).context("path")?;
        // SAFETY: the path is NUL-terminated and lives across the call.
        if unsafe { libc::swapon(path.as_ptr(), 0) } != 0 {
            return Err(std::io::Error::last_os_error()).context("swapon");
        }
        Ok(Self { path, is_zram })
    }
}

impl Drop for SwapSpace {
    fn drop(&mut self) {
        // SAFETY: the path is NUL-terminated and lives across the call. A swap that stays on shows in the next scenario.
        unsafe { libc::swapoff(self.path.as_ptr()) };
        // A device that keeps its size, or a file that keeps its blocks, shows in the next scenario, too.
        let _ = if self.is_zram {
            std::fs::write(format!("{ZRAM}/reset"), "1")
        } else {
            std::fs::remove_file(std::path::Path::new(std::ffi::OsStr::from_bytes(self.path.to_bytes())))
        };
    }
}

pub fn swap(stage: &mut Stage<'_>) -> Result<()> {
    if !mounted(EXT4) {
        stage.skip("no ext4 disk in this guest");
        return Ok(());
    }
    let file = SwapSpace::file(&format!("{EXT4}/swap"), SIZE)?;
    let agent = stage.agent(&AgentConfig::observe())?;
    let total = agent.metrics()?.sum("swap_bytes", &[]);
    stage.check_equal("swap_bytes", &total, &Some(bytes(meminfo("SwapTotal")?)));
    let before = [vmstat("pswpout ")?, vmstat("pswpin ")?];

    let pod = stage.pod("swapper", PodSpec::best_effort())?;
    pod.container()?.limit(32 * MIB)?;
    let worker = stage.work(&pod, "hold --name swapper --mib 56 --again")?;
    let moved = stage.until(Duration::from_secs(30), |stage| {
        stage.pause(Duration::from_millis(200));
        vmstat("pswpout ").is_ok_and(|out| out > before[0] + 4096)
            && vmstat("pswpin ").is_ok_and(|into| into > before[1] + 1024)
    });
    stage.check(moved, || "16 MiB did not go out and 4 MiB did not come back in 30 s".to_owned());
    stage.check_alive(&[&worker]);
    // The worker ends first, so that the figures do not change during the comparison.
    super::accounts::end(stage, &[worker]);
    let kernel = [vmstat("pswpout ")? * 4096, vmstat("pswpin ")? * 4096].map(bytes);
    let mut metrics = Metrics::default();
    let totals = |metrics: &Metrics| {
        ["swap_out_bytes_total", "swap_in_bytes_total"].map(|name| metrics.sum(name, &[]).unwrap_or(f64::NAN))
    };
    stage.until(Duration::from_secs(5), |stage| {
        stage.pause(Duration::from_millis(100));
        metrics = agent.metrics().unwrap_or_default();
        totals(&metrics) == kernel
    });
    stage.check_equal("swapped out and in", &totals(&metrics), &kernel);
    let free = metrics.sum("swap_free_bytes", &[]).unwrap_or(f64::NAN);
    let by_kernel = bytes(meminfo("SwapFree")?);
    stage.check((free - by_kernel).abs() < bytes(MIB), || {
        format!("swap_free_bytes is {free}, the kernel has {by_kernel}")
    });
    stage.figure("swapped_out", kernel[0] / 1_048_576.0, "MiB");
    stage.figure("swapped_in", kernel[1] / 1_048_576.0, "MiB");
    stage.check_no_oom_kill()?;
    stage.stop(&agent);
    drop(file);
    Ok(())
}

/// Converts to a float, which is exact up to 2^53. A guest swaps less.
fn bytes(number: u64) -> f64 {
    let (mebibytes, rest) = (number / MIB, number % MIB);
    let part = |value: u64| f64::from(u32::try_from(value).unwrap_or(u32::MAX));
    part(mebibytes) * 1_048_576.0 + part(rest)
}
