//! How much memory swap in zram takes. It lies in memory, in compressed form, and no cgroup counts it.

use std::path::{Path, PathBuf};

use super::swap_devices::SwapDevices;
use crate::units::{Bytes, kernel_text};

/// The memory that zram takes, in thousandths of what was swapped out to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZramShare(u64);

impl ZramShare {
    #[cfg(test)]
    pub const fn thousandths(thousandths: u64) -> Self {
        Self(thousandths)
    }

    /// Returns the memory that this much swap takes.
    pub fn of(self, swapped: Bytes) -> Bytes {
        Bytes(swapped.0 / 1000 * self.0 + swapped.0 % 1000 * self.0 / 1000)
    }

    /// Parses the files `mm_stat` of all devices: the size of the data, its compressed size, and the memory in use come first (Linux 4.1).
    /// Returns `None` while nothing is swapped out.
    fn parse<'t>(files: impl Iterator<Item = &'t str>) -> Option<Self> {
        let figures = files.map(|text| {
            let mut fields = text.split_ascii_whitespace().map(str::parse::<u64>);
            let (data, _compressed, used) = (fields.next()?.ok()?, fields.next()?, fields.next()?.ok()?);
            Some((data, used))
        });
        let sum = |(data, used): (u64, u64), (more, more_used): (u64, u64)| {
            Some((data.saturating_add(more), used.saturating_add(more_used)))
        };
        let (data, used) = figures.collect::<Option<Vec<_>>>()?.into_iter().try_fold((0, 0), sum)?;
        let share = used.saturating_mul(1000).checked_div(data)?;
        Some(Self(share.min(1000)))
    }
}

/// Reads the share where all swap is zram. With other swap beside it the kernel does not tell where a workload's pages are.
#[derive(Debug)]
pub struct Zram {
    swaps: PathBuf,
    devices: PathBuf,
}

impl Zram {
    pub fn new(proc_root: &Path) -> Self {
        Self { swaps: proc_root.join("swaps"), devices: PathBuf::from("/sys/block") }
    }

    #[cfg(test)]
    pub fn at(proc_root: &Path, devices: &Path) -> Self {
        Self { devices: devices.to_owned(), ..Self::new(proc_root) }
    }

    pub fn share(&self) -> Option<ZramShare> {
        let swaps = kernel_text::read(&self.swaps).ok()?;
        let names = SwapDevices::only_zram(&swaps)?;
        let read = |name| kernel_text::read(self.devices.join(name).join("mm_stat")).ok();
        let files: Vec<String> = names.into_iter().map(read).collect::<Option<_>>()?;
        ZramShare::parse(files.iter().map(String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_follows_from_what_all_devices_hold() {
        for (files, expected) in [
            (&["4000 900 1000 0 1000 5 0 0 0"][..], Some(250)),
            (&["4000 900 1000 0 1000", "1000 700 1000 0 1000"], Some(400)),
            // Pages that cannot be compressed, and the allocator's own loss.
            (&["1000 1000 1100"], Some(1000)),
            (&["0 0 0 0 0"], None),
            (&["4000"], None),
            (&[], None),
        ] {
            assert_eq!(ZramShare::parse(files.iter().copied()), expected.map(ZramShare), "{files:?}");
        }
        assert_eq!(ZramShare(250).of(Bytes(4_000_000_003)), Bytes(1_000_000_000));
        assert_eq!(ZramShare(1000).of(Bytes(u64::MAX)), Bytes(u64::MAX));
    }

    #[test]
    fn swap_in_a_file_beside_zram_has_no_share() {
        let root = tempfile::tempdir().unwrap();
        let zram = Zram::at(root.path(), root.path());
        let swaps = |lines: &str| {
            std::fs::write(root.path().join("swaps"), format!("Filename Type Size Used Priority\n{lines}")).unwrap();
        };
        assert_eq!(zram.share(), None);
        swaps("/dev/zram0 partition 524288 4 100\n");
        assert_eq!(zram.share(), None, "the device has no statistics");
        std::fs::create_dir(root.path().join("zram0")).unwrap();
        std::fs::write(root.path().join("zram0/mm_stat"), "4096 1000 1024 0 1024 0 0 0\n").unwrap();
        assert_eq!(zram.share(), Some(ZramShare(250)));
        swaps("/dev/zram0 partition 524288 4 100\n/swap file 1024 0 -2\n");
        assert_eq!(zram.share(), None);
        swaps("");
        assert_eq!(zram.share(), None);
    }
}
