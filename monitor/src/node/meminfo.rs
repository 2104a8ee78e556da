//! `/proc/meminfo`.

use crate::config::Bytes;

/// The lines of `/proc/meminfo` that the agent uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemInfo {
    /// `MemTotal`: what the kernel manages.
    pub total: Bytes,
    /// `MemAvailable` (Linux 3.14): what could be handed out without swapping, watermarks and unreclaimable memory subtracted.
    pub available: Bytes,
}

/// Why `/proc/meminfo` could not be understood.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemInfoError {
    /// A line is absent.
    #[error("no {0} line")]
    Missing(&'static str),
    /// A line has no number in it.
    #[error("the {0} line has no number of kB")]
    Malformed(&'static str),
}

impl MemInfo {
    /// Parses the text of `/proc/meminfo`.
    ///
    /// # Errors
    /// When a line it needs is missing or malformed.
    pub fn parse(text: &str) -> Result<Self, MemInfoError> {
        let mut fields = [("MemTotal", None), ("MemAvailable", None)];
        let mut missing = fields.len();
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            let Some((name, field)) = fields.iter_mut().find(|(name, _)| *name == key) else { continue };
            let kib = value.split_ascii_whitespace().next().and_then(|number| number.parse().ok());
            let kib: u64 = kib.ok_or(MemInfoError::Malformed(name))?;
            missing -= usize::from(field.replace(Bytes::from_kib(kib)).is_none());
            if missing == 0 {
                break;
            }
        }
        let [total, available] = fields.map(|(name, value)| value.ok_or(MemInfoError::Missing(name)));
        Ok(Self { total: total?, available: available? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "MemTotal:         995368 kB\nMemFree:          905368 kB\nMemAvailable:     890160 kB\n\
        Buffers:               0 kB\nSwapCached:            0 kB\nSwapTotal:          1024 kB\nSwapFree:            512 kB\n";

    #[test]
    fn reads_the_lines_it_needs() {
        let info = MemInfo::parse(TEXT).unwrap();
        assert_eq!(info.total, Bytes(995_368 * 1024));
        assert_eq!(info.available, Bytes(890_160 * 1024));
    }

    #[test]
    fn says_which_line_is_missing() {
        let text = TEXT.replace("MemAvailable", "MemSomething");
        assert_eq!(MemInfo::parse(&text), Err(MemInfoError::Missing("MemAvailable")));
        let text = TEXT.replace("890160", "many");
        assert_eq!(MemInfo::parse(&text), Err(MemInfoError::Malformed("MemAvailable")));
    }
}
