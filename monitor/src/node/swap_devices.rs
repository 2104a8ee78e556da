//! `/proc/swaps`: the swap that is switched on.

use crate::units::Bytes;

/// The free swap, by where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SwapDevices {
    /// Free swap in files and partitions.
    pub free: Bytes,
    /// Whether a device is zram, which keeps what is swapped out in memory.
    pub has_zram: bool,
}

impl SwapDevices {
    /// Parses the text. A malformed line is left out. A device may be shown with or without `/dev`, by the mount namespace of the reader.
    pub fn parse(text: &str) -> Self {
        let mut devices = Self::default();
        for line in text.lines().skip(1) {
            let mut fields = line.split_ascii_whitespace();
            let (Some(name), Some(_kind), Some(size), Some(used)) =
                (fields.next(), fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            if zram(name).is_some() {
                devices.has_zram = true;
            } else if let (Ok(size), Ok(used)) = (size.parse::<u64>(), used.parse::<u64>()) {
                devices.free = devices.free.saturating_add(Bytes::from_kib(size.saturating_sub(used)));
            }
        }
        devices
    }

    /// Returns the names of the zram devices, if all swap is there; `None` without swap, or with other swap.
    pub fn only_zram(text: &str) -> Option<Vec<&str>> {
        let paths = text.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().next());
        let names: Option<Vec<_>> = paths.map(zram).collect();
        names.filter(|names| !names.is_empty())
    }

    /// Returns the free swap that gives memory back. With zram beside other swap it is not known where the next pages go.
    pub fn usable(self) -> Option<Bytes> {
        (!self.has_zram && !self.free.is_zero()).then_some(self.free)
    }
}

/// Returns the name of a zram device.
fn zram(path: &str) -> Option<&str> {
    path.rsplit('/').next().filter(|name| name.starts_with("zram"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";

    #[test]
    fn zram_is_no_usable_swap() {
        for (name, lines, expected) in [
            ("no swap", "", None),
            ("a file", "/mnt/my\\040swap                        file\t\t1024\t\t24\t\t-2\n", Some(1_000)),
            ("a file and a partition", "/swap file 1024 0 -2\n/dev/sda2 partition 1000 1000 -3\n", Some(1_024)),
            ("all of it is used", "/dev/sda2 partition 1000 1000 -2\n", None),
            ("zram only", "/dev/zram0                              partition\t524284\t\t0\t\t100\n", None),
            ("zram in another mount namespace", "/zram0 partition 524284 0 100\n", None),
            ("zram before a file", "/dev/zram0 partition 524284 0 100\n/swap file 1024 0 -2\n", None),
            ("a malformed line", "/swap file many\n/swap file many 0 -2\n", None),
        ] {
            let devices = SwapDevices::parse(&format!("{HEADER}{lines}"));
            assert_eq!(devices.usable(), expected.map(Bytes::from_kib), "{name}");
        }
        assert_eq!(SwapDevices::parse("").usable(), None);
    }
}
