//! A tracefs instance for the tests. It records each signal with sender, target and time, and counts reclaim events.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::tracefs::Instance;

/// The event of an OOM kill. Since 6.9, and in backports of Debian and Red Hat, it has the victim's kinds of memory.
pub const MARK_VICTIM: &str = "oom/mark_victim";

/// `SI_KERNEL` as the tracepoint prints it.
const SI_KERNEL: &str = " code=128 ";

/// One generated signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignalEvent {
    pub at_ns: u64,
    pub sender_tid: i32,
    pub number: i32,
    pub target: i32,
    /// The kernel itself sent it, as its OOM killer does.
    pub is_of_kernel: bool,
}

/// The instance. It records signals from `open` on.
#[derive(Debug)]
pub struct Trace {
    instance: Instance,
}

impl Trace {
    /// Makes the instance and records SIGTERM and SIGKILL.
    pub fn open() -> Result<Self> {
        let instance = Instance::open("npm-guest", 256)?;
        instance.write("events/signal/signal_generate/filter", "sig == 9 || sig == 15")?;
        instance.write("events/signal/signal_generate/enable", "1")?;
        instance.write("tracing_on", "1")?;
        Ok(Self { instance })
    }

    /// Discards the recorded signals.
    pub fn clear(&self) -> Result<()> {
        self.instance.write("trace", "")
    }

    /// Returns all signals recorded since `clear`, in order of time.
    pub fn signals(&self) -> Result<Vec<SignalEvent>> {
        let mut signals: Vec<SignalEvent> = self.instance.read("trace")?.lines().filter_map(parse_signal).collect();
        signals.sort_by_key(|signal| signal.at_ns);
        Ok(signals)
    }

    /// Starts an exact count of an event in the kernel, such as `vmscan/mm_vmscan_memcg_reclaim_end`.
    pub fn count(&self, event: &'static str) -> Result<EventCount<'_>> {
        self.instance.write(&format!("events/{event}/trigger"), HISTOGRAM)?;
        Ok(EventCount { trace: self, event })
    }

    /// Returns whether this kernel has the event.
    pub fn has(event: &str) -> bool {
        Path::new("/sys/kernel/tracing/events").join(event).exists()
    }

    /// Returns whether this kernel's record of the event has a field whose name ends with `field`.
    pub fn says(event: &str, field: &str) -> bool {
        let format = Path::new("/sys/kernel/tracing/events").join(event).join("format");
        fs::read_to_string(format).is_ok_and(|text| text.contains(&format!("{field};")))
    }
}

const HISTOGRAM: &str = "hist:keys=common_pid:size=4096";

/// A running count, which ends with the scenario.
#[derive(Debug)]
pub struct EventCount<'a> {
    trace: &'a Trace,
    event: &'static str,
}

impl EventCount<'_> {
    /// Returns how often the event has occurred.
    pub fn hits(&self) -> Result<u64> {
        let text = self.trace.instance.read(&format!("events/{}/hist", self.event))?;
        let (hits, dropped) =
            parse_totals(&text).with_context(|| format!("no totals in the histogram of {}", self.event))?;
        Ok(hits + dropped)
    }
}

impl Drop for EventCount<'_> {
    fn drop(&mut self) {
        // A trigger that stays would only continue to count.
        let _ = self.trace.instance.write(&format!("events/{}/trigger", self.event), &format!("!{HISTOGRAM}"));
    }
}

fn parse_totals(text: &str) -> Option<(u64, u64)> {
    let number = |key: &str| {
        text.lines().find_map(|line| line.trim().strip_prefix(key)).and_then(|rest| rest.trim().parse::<u64>().ok())
    };
    Some((number("Hits:")?, number("Dropped:")?))
}

/// Parses a line such as
/// "  comm-12 [001] d..1. 12.345678: signal_generate: sig=9 errno=0 code=128 comm=x pid=34 grp=1 res=0".
fn parse_signal(line: &str) -> Option<SignalEvent> {
    let (head, tail) = line.split_once(": signal_generate: ")?;
    let (sender_tid, at) = parse_thread(head)?;
    let at_ns = parse_seconds(at)?;
    let number = tail.strip_prefix("sig=")?.split(' ').next()?.parse().ok()?;
    let target = tail.rsplit_once(" pid=")?.1.split(' ').next()?.parse().ok()?;
    let is_of_kernel = tail.contains(SI_KERNEL);
    Some(SignalEvent { at_ns, sender_tid, number, target, is_of_kernel })
}

/// Parses the head of a line: the thread, and the time as text.
pub fn parse_thread(head: &str) -> Option<(i32, &str)> {
    // A command name may contain blanks and dashes. The thread id is between the last '-' and " [cpu]".
    let (task, context) = head.rsplit_once(" [")?;
    let thread = task.trim_end().rsplit_once('-')?.1.parse().ok()?;
    Some((thread, context.split_whitespace().last()?))
}

pub fn parse_seconds(text: &str) -> Option<u64> {
    let (seconds, micros) = text.split_once('.')?;
    if micros.len() != 6 {
        return None;
    }
    Some(seconds.parse::<u64>().ok()? * 1_000_000_000 + micros.parse::<u64>().ok()? * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_line() {
        let line = "  node-pressure-m-4021    [001] d..2.    12.345678: signal_generate: sig=9 errno=0 code=128 comm=hog pid=34 grp=1 res=0";
        assert_eq!(
            parse_signal(line),
            Some(SignalEvent { at_ns: 12_345_678_000, sender_tid: 4021, number: 9, target: 34, is_of_kernel: true })
        );
    }

    #[test]
    fn comments_and_other_events_are_skipped() {
        assert_eq!(parse_signal("# tracer: nop"), None);
        assert_eq!(parse_signal(" a-1 [000] .... 1.000000: sched_switch: x"), None);
    }

    #[test]
    fn totals_of_a_histogram() {
        let text = "{ common_pid: 5 } hitcount: 3\n\nTotals:\n    Hits: 31\n    Entries: 1\n    Dropped: 2\n";
        assert_eq!(parse_totals(text), Some((31, 2)));
        assert_eq!(parse_totals(""), None);
    }
}
