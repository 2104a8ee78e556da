//! Prints the progress of a VM run, and a table at the end.

use std::io::{self, Write as _};
use std::time::Duration;

use super::protocol::Line;
use super::record::Record;
use super::scenario::{CATALOGUE, Guest};
use super::verdict::Verdict;
use crate::console::Console;

/// The progress of one boot. If the boot runs alone on a terminal, the last line shows how long the current scenario has been
/// running.
#[derive(Debug)]
pub struct Live<'a> {
    console: &'a Console,
    ticking: bool,
}

impl<'a> Live<'a> {
    pub const fn new(console: &'a Console) -> Self {
        Self { console, ticking: false }
    }

    pub fn show(&mut self, line: &Line<'_>, record: &Record, at: Duration) {
        self.finish();
        let console = self.console;
        let at = at.as_secs_f64();
        match line {
            Line::Start { name } => console.say(format_args!("[{at:7.1} s] {name}")),
            Line::Note { text, .. } | Line::Versions { text } => console.say(format_args!("              {text}")),
            Line::Page { text } | Line::Screen { text } => console.say(text),
            Line::Figure { text, .. } => console.say(format_args!("              figure: {text}")),
            Line::Timeline { ms, what, .. } => console.say(format_args!("              {ms:9.1} ms  {what}")),
            Line::Outcome { name, outcome, reason } => {
                let seconds = record.runs.last().map_or(0.0, |run| run.seconds);
                let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
                console.say(format_args!("[{at:7.1} s] {name} {} ({seconds:.1} s){reason}", outcome.word()));
            }
            Line::End(_) => console.say(format_args!("[{at:7.1} s] end")),
            Line::Malformed(text) => console.say(format_args!("              not understood: @@ {text}")),
        }
    }

    /// Redraws the line of the running scenario. Called about twice a second while the guest prints nothing.
    pub fn tick(&mut self, record: &Record, at: Duration) {
        if !self.console.draws() {
            return;
        }
        let (what, since) =
            record.running.as_ref().map_or(("booting", Duration::ZERO), |running| (&running.name, running.since));
        let what = if record.end.is_some() { "shutting down" } else { what };
        print!("\r\x1b[K[{:7.1} s] {what} … {} s", at.as_secs_f64(), at.saturating_sub(since).as_secs());
        // A terminal that cannot be written is about to end this program anyway.
        let _ = io::stdout().flush();
        self.ticking = true;
    }

    pub fn finish(&mut self) {
        if self.ticking {
            print!("\r\x1b[K");
            self.ticking = false;
        }
    }
}

/// Prints the table of all runs of all boots, then the other problems.
pub fn print_table(verdicts: &[Verdict]) {
    println!();
    println!("{:<17} {:<15} {:<6} {:<7} {:>7}  reason", "scenario", "kernel", "cgroup", "outcome", "seconds");
    for verdict in verdicts {
        let (kernel, cgroup) = verdict.label.rsplit_once(' ').unwrap_or((&verdict.label, ""));
        for run in &verdict.runs {
            let outcome = run.outcome.word();
            println!("{:<17} {kernel:<15} {cgroup:<6} {outcome:<7} {:>7.1}  {}", run.name, run.seconds, run.reason);
        }
        for name in &verdict.missing {
            println!("{name:<17} {kernel:<15} {cgroup:<6} {:<7} {:>7}  no outcome", "FAIL", "-");
        }
    }
    for verdict in verdicts {
        if verdict.retried {
            println!("{}: RETRIED, the first boot's kernel faulted under emulation", verdict.label);
        }
        for problem in &verdict.problems {
            println!("{}: {problem}", verdict.label);
        }
        if let Some(log) = &verdict.log {
            println!("{}: serial log in {}", verdict.label, log.display());
        }
    }
    println!();
}

pub fn print_catalogue() {
    for entry in CATALOGUE {
        let guest = match entry.guest {
            Guest::Plain => "",
            Guest::Containerd => " (needs containerd)",
            Guest::Cluster => " (needs KUBERNETES_BIN)",
        };
        println!("{:<17} {:<6} {}{guest}", entry.name, entry.cgroups.join(","), entry.about);
    }
}
