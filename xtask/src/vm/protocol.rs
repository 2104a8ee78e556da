//! The guest's protocol on its console: one `@@` line for each fact.

use crate::outcome::{Counts, Outcome};

/// Prefix of the guest's lines.
const MARK: &str = "@@ ";

/// A parsed line of the guest.
#[derive(Debug, Clone, PartialEq)]
pub enum Line<'a> {
    Start {
        name: &'a str,
    },
    Note {
        name: &'a str,
        text: &'a str,
    },
    /// A line of a text that xtask prints unchanged.
    Page {
        text: &'a str,
    },
    /// The same, and it is kept with the results.
    Screen {
        text: &'a str,
    },
    Figure {
        name: &'a str,
        text: &'a str,
    },
    Timeline {
        name: &'a str,
        ms: f64,
        what: &'a str,
    },
    /// The versions of what runs in the guest beside the kernel.
    Versions {
        text: &'a str,
    },
    Outcome {
        name: &'a str,
        outcome: Outcome,
        reason: &'a str,
    },
    End(Counts),
    /// A line with the mark that cannot be parsed. It fails the boot.
    Malformed(&'a str),
}

/// Splits a console line into the guest's part and the kernel's part. The kernel may write into an unfinished line of the guest,
/// and begins with its time stamp.
fn split_console(line: &str) -> (Option<&str>, &str) {
    let line = line.trim_end();
    let Some(start) = line.find(MARK) else {
        return (None, line);
    };
    let ours = &line[start + MARK.len()..];
    let kernels = ours.match_indices('[').map(|(index, _)| index).find(|&index| is_time_stamp(&ours[index..]));
    match kernels {
        Some(index) => (Some(&ours[..index]), &ours[index..]),
        None => (Some(ours), &line[..start]),
    }
}

/// Returns whether this is `[    4.575314] `: seconds padded to five places, and microseconds.
fn is_time_stamp(text: &str) -> bool {
    let Some((stamp, _)) = text.strip_prefix('[').and_then(|text| text.split_once("] ")) else {
        return false;
    };
    let Some((seconds, micros)) = stamp.split_once('.') else {
        return false;
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    stamp.len() >= 12 && micros.len() == 6 && digits(micros) && digits(seconds.trim_start())
}

/// Parses one console line; `None` for a line that the guest's programs did not write.
pub fn parse(line: &str) -> Option<Line<'_>> {
    let body = split_console(line).0?;
    Some(parse_body(body.trim_end()).unwrap_or(Line::Malformed(body)))
}

fn parse_body(body: &str) -> Option<Line<'_>> {
    let (keyword, rest) = split_word(body);
    if keyword == "end" {
        return parse_counts(rest).map(Line::End);
    }
    let (name, rest) = split_word(rest);
    if name.is_empty() {
        return None;
    }
    match keyword {
        "scenario" => (rest == "start").then_some(Line::Start { name }),
        "note" => Some(Line::Note { name, text: rest }),
        "page" => Some(Line::Page { text: rest.strip_prefix('|')? }),
        "screen" => Some(Line::Screen { text: rest.strip_prefix('|')? }),
        "figure" => Some(Line::Figure { name, text: rest }),
        "timeline" => {
            let (ms, what) = split_word(rest);
            Some(Line::Timeline { name, ms: ms.strip_prefix("ms=")?.parse().ok()?, what })
        }
        "versions" => Some(Line::Versions { text: rest }),
        "outcome" => {
            let (word, reason) = split_word(rest);
            let outcome = match word {
                "pass" => Outcome::Pass,
                "fail" => Outcome::Fail,
                "skip" => Outcome::Skip,
                _ => return None,
            };
            Some(Line::Outcome { name, outcome, reason })
        }
        _ => None,
    }
}

fn split_word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    text.split_once(' ').map_or((text, ""), |(word, rest)| (word, rest.trim_start()))
}

fn parse_counts(text: &str) -> Option<Counts> {
    let mut words = text.split_whitespace();
    let mut count = |key: &str| words.next()?.strip_prefix(key)?.strip_prefix('=')?.parse().ok();
    let counts = Counts { passed: count("passed")?, failed: count("failed")?, skipped: count("skipped")? };
    words.next().is_none().then_some(counts)
}

/// The texts that show a fault on the kernel's console.
const OOPS_MARKERS: &[&str] =
    &["Oops: ", "BUG: ", "kernel BUG at", "general protection fault", "invalid opcode:", "int3: 0000"];
const PANIC_MARKER: &str = "Kernel panic - not syncing";

/// The kind of a kernel crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// The kernel itself faulted.
    Oops,
    /// The kernel gave up because of the guest's programs: init died, or no process was left to kill.
    Panic,
}

/// The text of a lockup. A slow emulator on a busy machine reports lockups, too; a guest that really hangs exceeds a time limit.
const LOCKUP_MARKER: &str = "lockup";

/// Returns the kind of crash that a console line shows. Lines of the guest that quote the kernel do not count.
pub fn crash(line: &str) -> Option<Crash> {
    let (_, kernels) = split_console(line);
    if kernels.contains(LOCKUP_MARKER) {
        None
    } else if kernels.contains(PANIC_MARKER) {
        Some(Crash::Panic)
    } else {
        OOPS_MARKERS.iter().any(|marker| kernels.contains(marker)).then_some(Crash::Oops)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_line_is_parsed() {
        assert_eq!(parse("@@ scenario ramp start\r\n"), Some(Line::Start { name: "ramp" }));
        assert_eq!(parse("@@ note ramp two words"), Some(Line::Note { name: "ramp", text: "two words" }));
        assert_eq!(parse("@@ page gallery |  indented"), Some(Line::Page { text: "  indented" }));
        assert_eq!(parse("@@ screen ramp |NAME  READY"), Some(Line::Screen { text: "NAME  READY" }));
        assert_eq!(
            parse("@@ figure ramp rate=12.5 MiB/s"),
            Some(Line::Figure { name: "ramp", text: "rate=12.5 MiB/s" })
        );
        assert_eq!(
            parse("@@ timeline ramp ms=12.3 kill signal sent"),
            Some(Line::Timeline { name: "ramp", ms: 12.3, what: "kill signal sent" })
        );
        assert_eq!(
            parse("@@ versions ramp Kubernetes 1.36.2, containerd 1.6.20"),
            Some(Line::Versions { text: "Kubernetes 1.36.2, containerd 1.6.20" })
        );
        assert_eq!(
            parse("@@ outcome ramp fail oom_kill rose by 1"),
            Some(Line::Outcome { name: "ramp", outcome: Outcome::Fail, reason: "oom_kill rose by 1" })
        );
        assert_eq!(
            parse("@@ outcome ramp pass"),
            Some(Line::Outcome { name: "ramp", outcome: Outcome::Pass, reason: "" })
        );
        assert_eq!(
            parse("@@ end passed=3 failed=0 skipped=1"),
            Some(Line::End(Counts { passed: 3, failed: 0, skipped: 1 }))
        );
    }

    #[test]
    fn a_line_that_the_kernel_began_is_parsed() {
        assert_eq!(parse("[    1.2] random: @@ scenario ramp start"), Some(Line::Start { name: "ramp" }));
        assert_eq!(parse("[    1.2] Linux version 6.12"), None);
        assert_eq!(parse("mail@@example"), None);
    }

    #[test]
    fn a_line_that_the_kernel_interrupts_is_parsed() {
        let line = "@@ scenario ramp start[    4.575314] Oops: int3: 0000 [#1]";
        assert_eq!(parse(line), Some(Line::Start { name: "ramp" }));
        assert_eq!(crash(line), Some(Crash::Oops));
        let line = "[    4.575314] BUG: bad @@ scenario ramp start";
        assert_eq!(parse(line), Some(Line::Start { name: "ramp" }));
        assert_eq!(crash(line), Some(Crash::Oops));
        // A bracket of the guest's own is no time stamp.
        assert_eq!(
            parse("@@ note ramp victims [1] and [2.5] "),
            Some(Line::Note { name: "ramp", text: "victims [1] and [2.5]" })
        );
    }

    #[test]
    fn garbled_lines_are_malformed() {
        for line in [
            "@@ outcome ramp maybe",
            "@@ outcome",
            "@@ scenario ramp begin",
            "@@ timeline ramp 12 ms",
            "@@ end passed=1 failed=0",
            "@@ end passed=1 failed=0 skipped=0 extra",
            "@@ surprise ramp",
        ] {
            assert!(matches!(parse(line), Some(Line::Malformed(_))), "{line}");
        }
    }

    #[test]
    fn crashes_are_classified() {
        assert_eq!(crash("[    9.1] Oops: int3: 0000 [#1] PREEMPT SMP"), Some(Crash::Oops));
        assert_eq!(crash("[    9.1] BUG: kernel NULL pointer dereference"), Some(Crash::Oops));
        assert_eq!(crash("[    9.1] Kernel panic - not syncing: Attempted to kill init!"), Some(Crash::Panic));
        assert_eq!(crash("[    9.1] watchdog: BUG: soft lockup - CPU#1 stuck for 22s!"), None);
        assert_eq!(crash("@@ note ramp dmesg says BUG: nothing"), None);
        assert_eq!(crash("[    9.1] Out of memory: Killed process 7"), None);
    }
}
