//! `/proc/meminfo`.

use crate::units::Bytes;

/// The lines of `/proc/meminfo` that the agent uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemInfo {
    /// `MemTotal`: the memory that the kernel manages.
    pub total: Bytes,
    /// `MemAvailable` (Linux 3.14): the memory that can be allocated without swapping, watermarks and unreclaimable memory subtracted.
    pub available: Bytes,
    /// `CmaFree`: free pages of the areas for drivers, which `MemAvailable` counts. Only movable allocations may use them.
    pub cma_free: Bytes,
}

/// Further lines of `/proc/meminfo`, which no sample needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemDetails {
    /// `Active(file)`: file pages that were accessed more than once.
    pub active_file: Option<Bytes>,
    pub swap_total: Option<Bytes>,
    pub swap_free: Option<Bytes>,
    /// The pools of huge pages, used or not. Other allocations cannot use this memory.
    pub huge_pages: Option<Bytes>,
}

impl MemDetails {
    pub fn parse(text: &str) -> Self {
        let mut details = Self::default();
        let (mut pool_pages, mut pool_page_size) = (None, None);
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            let number = || value.split_ascii_whitespace().next().and_then(|number| number.parse::<u64>().ok());
            let bytes = || number().map(Bytes::from_kib);
            match key {
                "Active(file)" => details.active_file = bytes(),
                "SwapTotal" => details.swap_total = bytes(),
                "SwapFree" => details.swap_free = bytes(),
                // Huge pages of every size (Linux 4.17). The two lines below cover the default size only.
                "Hugetlb" => details.huge_pages = bytes(),
                "HugePages_Total" => pool_pages = number(),
                "Hugepagesize" => pool_page_size = bytes(),
                _ => {}
            }
        }
        let pool = pool_pages.zip(pool_page_size).map(|(pages, size)| size.saturating_mul(pages));
        details.huge_pages = details.huge_pages.or(pool);
        details
    }
}

impl MemInfo {
    /// Parses the text of `/proc/meminfo`. Fails when a needed line is missing or malformed.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut fields = [("MemTotal", None), ("MemAvailable", None)];
        let mut missing = fields.len();
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            let Some((name, field)) = fields.iter_mut().find(|(name, _)| *name == key) else { continue };
            let kib = value.split_ascii_whitespace().next().and_then(|number| number.parse().ok());
            let kib: u64 = kib.ok_or_else(|| format!("the {name} line has no number of kB"))?;
            missing -= usize::from(field.replace(Bytes::from_kib(kib)).is_none());
            if missing == 0 {
                break;
            }
        }
        let [total, available] = fields.map(|(name, value)| value.ok_or_else(|| format!("no {name} line")));
        Ok(Self { total: total?, available: available?, cma_free: cma_free(text).unwrap_or(Bytes::ZERO) })
    }
}

/// The line is near the end of the file, and absent without `CONFIG_CMA`.
fn cma_free(text: &str) -> Option<Bytes> {
    let (_, rest) = text.rsplit_once("\nCmaFree:")?;
    rest.split_ascii_whitespace().next()?.parse().ok().map(Bytes::from_kib)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "MemTotal:         995368 kB\nMemFree:          905368 kB\nMemAvailable:     890160 kB\n\
        Buffers:               0 kB\nSwapCached:            0 kB\nSwapTotal:          1024 kB\nSwapFree:            512 kB\n";

    #[test]
    fn needed_lines_are_parsed() {
        let info = MemInfo::parse(TEXT).unwrap();
        assert_eq!(info.total, Bytes(995_368 * 1024));
        assert_eq!(info.available, Bytes(890_160 * 1024));
        assert_eq!(info.cma_free, Bytes::ZERO);
    }

    /// raspberrypi/linux#5297 (512 MiB of CMA), raspberrypi/picamera2#1358, and a kernel with an empty area.
    #[test]
    fn free_cma_pages_are_parsed() {
        for (lines, expected) in [
            ("CmaTotal:         524288 kB\nCmaFree:          516604 kB\n", 516_604),
            (
                "Percpu:              720 kB\nCmaTotal:       262144 kB\nCmaFree:         82800 kB\nHugePages_Total: 0\n",
                82_800,
            ),
            ("CmaTotal:              0 kB\nCmaFree:               0 kB\n", 0),
            ("CmaFree: many kB\n", 0),
        ] {
            assert_eq!(
                MemInfo::parse(&format!("{TEXT}{lines}")).unwrap().cma_free,
                Bytes::from_kib(expected),
                "{lines}"
            );
        }
    }

    #[test]
    fn errors_name_the_line() {
        let text = TEXT.replace("MemAvailable", "MemSomething");
        assert_eq!(MemInfo::parse(&text), Err("no MemAvailable line".to_owned()));
        let text = TEXT.replace("890160", "many");
        assert_eq!(MemInfo::parse(&text), Err("the MemAvailable line has no number of kB".to_owned()));
    }

    /// `/proc/meminfo` of a 6.18 kernel with 64 huge pages reserved and a swap file, shortened to the lines around those read.
    const WHOLE: &str = "MemTotal:       24684084 kB\nMemFree:        14445068 kB\nMemAvailable:   23627888 kB\n\
        Active:          2092676 kB\nActive(anon):       1572 kB\nActive(file):    2091104 kB\nInactive(file):  7050132 kB\n\
        SwapTotal:       1048572 kB\nSwapFree:        1047548 kB\nZswap:                 0 kB\nHugePages_Total:      64\n\
        HugePages_Free:       64\nHugepagesize:       2048 kB\nHugetlb:          131072 kB\nDirectMap4k:       28672 kB\n";

    #[test]
    fn details_are_parsed_from_old_and_new_kernels() {
        let details = MemDetails::parse(WHOLE);
        let expected = MemDetails {
            active_file: Some(Bytes::from_kib(2_091_104)),
            swap_total: Some(Bytes::from_kib(1_048_572)),
            swap_free: Some(Bytes::from_kib(1_047_548)),
            huge_pages: Some(Bytes::from_mib(128)),
        };
        assert_eq!(details, expected);
        // Before Linux 4.17 only the pool of the default size is reported.
        assert_eq!(MemDetails::parse(&WHOLE.replace("Hugetlb:", "Other:")), expected);
    }

    #[test]
    fn missing_details_are_absent() {
        assert_eq!(MemDetails::parse(""), MemDetails::default());
        assert_eq!(MemDetails::parse("SwapTotal:          0 kB\n").swap_total, Some(Bytes::ZERO));
        let cached_first = "MemTotal: 5 kB\nSwapCached: 7 kB\nSwapTotal:          2048 kB\n";
        assert_eq!(MemDetails::parse(cached_first).swap_total, Some(Bytes::from_mib(2)));
        let details = MemDetails::parse("SwapTotal:  many kB\nHugePages_Total: 4\nActive(file)\n");
        assert_eq!(details, MemDetails::default());
    }
}
