//! Whether the node swaps: thresholds on memory do not see it.

use std::path::Path;

use crate::config::Bytes;

/// How much swap is switched on; none when `/proc/meminfo` does not say.
#[must_use]
pub fn total(proc_root: &Path) -> Bytes {
    std::fs::read_to_string(proc_root.join("meminfo")).map_or(Bytes::ZERO, |text| parse(&text))
}

fn parse(meminfo: &str) -> Bytes {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("SwapTotal:"));
    let kib = line.and_then(|value| value.split_ascii_whitespace().next()).and_then(|number| number.parse().ok());
    kib.map_or(Bytes::ZERO, Bytes::from_kib)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_is_on_when_there_is_any() {
        assert_eq!(parse("MemTotal: 5 kB\nSwapCached: 7 kB\nSwapTotal:          2048 kB\n"), Bytes::from_mib(2));
        assert_eq!(parse("SwapTotal:          0 kB\n"), Bytes::ZERO);
        assert_eq!(parse("SwapTotal: many kB\n"), Bytes::ZERO);
        assert_eq!(parse(""), Bytes::ZERO);
        assert_eq!(total(Path::new("/nonexistent")), Bytes::ZERO);
    }
}
