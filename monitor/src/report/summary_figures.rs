//! The layout of the summary, and its part about rates: times until exhaustion, pressure, and the source of each signal.

use std::fmt::Write as _;
use std::time::Duration;

use super::{DaemonsReport, ExhaustionReport, FilesystemReport, RoleReport, SwapReport};
use super::{FiguresReport, NodeReport};
use crate::config::{PressureKind, PressureScope};
use crate::eviction::exhaustion::FORESEEABLE;
use crate::incidents::text::text_page::{self, WIDTH, clean, columns};
use crate::runtime::Names;
use crate::units::{Bytes, Signal, float, format_go_duration};

/// Maximum number of filesystems shown. The one that runs out soonest comes first.
const FILESYSTEMS_SHOWN: usize = 5;
/// A time until exhaustion beyond this many seconds (one year) counts as infinite.
const FAR: f64 = 365.0 * 86_400.0;
/// Start of the text column.
const INDENT: usize = 12;

/// A label column with wrapped text beside it.
#[derive(Default)]
pub(super) struct Page {
    page: text_page::Page,
    last: String,
}

impl Page {
    pub(super) fn finish(self) -> String {
        self.page.finish()
    }

    /// Returns the label column: blank if it would repeat the label of the previous line.
    fn label(&mut self, label: &str) -> String {
        let shown = if self.last == label { "" } else { label };
        label.clone_into(&mut self.last);
        format!("{shown:<INDENT$}")
    }

    /// Adds a line; what does not fit is cut off.
    pub(super) fn row(&mut self, label: &str, text: &str) {
        let mut line = self.label(label) + &clean(text);
        if let Some((cut, _)) = line.char_indices().nth(WIDTH - 1).filter(|_| columns(&line) > WIDTH) {
            line.truncate(cut);
            line.push('…');
        }
        self.page.line(&line);
    }

    /// Adds a row for a large workload: the amount aligned with the sums, then the name.
    pub(super) fn largest(&mut self, label: &str, bytes: Bytes, name: &str) {
        let name = shortened(name, WIDTH - INDENT - 29);
        self.row(label, &format!("{:16}{bytes:>11}  {name}", ""));
    }

    /// Adds text wrapped between words. The first line is indented by `first` columns, further lines by `hang`.
    pub(super) fn wrapped(&mut self, label: &str, text: &str, first: usize, hang: usize) {
        let head = self.label(label);
        self.page.wrapped(&format!("{head}{:first$}", ""), &" ".repeat(INDENT + hang), text);
    }
}

/// Truncates a path at the front: its end identifies the workload.
fn shortened(name: &str, room: usize) -> String {
    let length = name.chars().count();
    if length <= room {
        return name.to_owned();
    }
    let kept: String = name.chars().skip(length - (room - 1)).collect();
    format!("…{kept}")
}

/// Returns the sizes of the corrections, or `None` without any.
pub(super) fn left_out(figures: &FiguresReport) -> Option<String> {
    let name = |correction: &str| match correction {
        "hugepages" => Some("huge pages"),
        "watermarks" => Some("the kernel's reserves"),
        _ => None,
    };
    let parts: Vec<_> = figures
        .corrections
        .iter()
        .filter(|(_, bytes)| !bytes.is_zero())
        .filter_map(|(correction, bytes)| Some(format!("{} {bytes}", name(correction)?)))
        .collect();
    (!parts.is_empty()).then(|| format!("MemAvailable leaves out {}", parts.join(", ")))
}

/// Returns the state of swap and its consequence.
pub(super) fn swap(swap: &SwapReport) -> String {
    format!(
        "swap of {} is on, {} of it free, {}/s in, {}/s out: what is swapped out counts as available, so a node that \
         thrashes may meet no threshold",
        swap.total,
        swap.free,
        rate(swap.read_per_second),
        rate(swap.written_per_second)
    )
}

pub(super) fn exhaustion(page: &mut Page, node: &NodeReport) {
    // Most signals other than `memory.available` never fall: show one only if it is about to run out.
    let is_shown = |report: &&ExhaustionReport| {
        report.signal == Signal::MemoryAvailable.as_str() || report.seconds <= FAR && soonest(report) <= FORESEEABLE
    };
    for report in node.figures.exhaustion.iter().filter(is_shown) {
        page.wrapped("exhaustion", &signal(report), 0, 2);
    }
    let mut filesystems: Vec<&FilesystemReport> = node.figures.filesystems.iter().collect();
    let share_free =
        |report: &FilesystemReport| report.inodes.map_or(f64::INFINITY, |(total, free)| share(free, total));
    let soonest = |report: &FilesystemReport| report.seconds.unwrap_or(f64::INFINITY);
    filesystems.sort_by(|a, b| soonest(a).total_cmp(&soonest(b)).then_with(|| share_free(a).total_cmp(&share_free(b))));
    for report in filesystems.iter().take(FILESYSTEMS_SHOWN) {
        page.wrapped("exhaustion", &filesystem(report, &node.names), 0, 2);
    }
    let more = filesystems.len().saturating_sub(FILESYSTEMS_SHOWN);
    if more > 0 {
        page.row("exhaustion", &format!("and {more} more filesystems, further from it"));
    }
}

/// Returns the time until the first threshold is crossed or nothing is left. Thresholds that are met count as now.
fn soonest(report: &ExhaustionReport) -> f64 {
    report.thresholds.iter().map(|(_, seconds)| *seconds).fold(report.seconds, f64::min)
}

fn signal(report: &ExhaustionReport) -> String {
    let ExhaustionReport { signal, seconds, thresholds } = report;
    if *seconds > FAR {
        return format!("{signal} does not fall");
    }
    if soonest(report) > FORESEEABLE {
        return format!("{signal} hardly falls");
    }
    let mut text = format!("{signal} is gone in {} at the present rate", time(*seconds));
    for (kind, seconds) in thresholds {
        // Writing to a String does not fail.
        let _ = match *seconds {
            0.0 => write!(text, "; {kind} threshold met"),
            seconds => write!(text, "; {kind} threshold in {}", time(seconds)),
        };
    }
    text
}

fn filesystem(report: &FilesystemReport, names: &Names) -> String {
    let FilesystemReport { device, mount_point, kind, inodes, growth, seconds, makers } = report;
    let Some((total, free)) = inodes else {
        return format!("inodes on {mount_point} ({device}): {kind} has no fixed number of them");
    };
    let mut text = format!("inodes on {mount_point} ({device}): {free} of {total} left");
    if let (Some(growth), Some(seconds)) = (growth, seconds.filter(|seconds| *seconds <= FAR)) {
        let _ = write!(text, ", {growth:.1} fewer each second, none in {}", time(seconds));
        if let Some((workload, _)) = makers.first() {
            let _ = write!(text, "; most by {}", names.of(workload).display);
        }
    }
    text
}

/// Adds whether system daemons keep to what is reserved for them.
pub(super) fn daemons(page: &mut Page, node: &NodeReport) {
    let Some(report) = &node.figures.daemons else { return };
    let DaemonsReport { reserved, above, .. } = report;
    let text = if above.is_zero() {
        format!("system daemons are within the {reserved} that are reserved for them")
    } else {
        format!("system daemons exceed the {reserved} that are reserved for them by {above}: {}", report.words())
    };
    page.wrapped("reserved", &text, 0, 2);
}

/// Adds the roles of the filesystems. Roles on the same filesystem share a line.
pub(super) fn roles(page: &mut Page, node: &NodeReport) {
    let mut shown: Vec<(String, Vec<&str>)> = Vec::new();
    for RoleReport { role, device, mount_point, kind } in &node.figures.roles {
        let of = format!("{kind} at {mount_point} ({device})");
        match shown.iter_mut().find(|(known, _)| *known == of) {
            Some((_, roles)) => roles.push(role),
            None => shown.push((of, vec![role])),
        }
    }
    for (of, roles) in shown {
        page.wrapped("disks", &format!("{}: {of}", roles.join(", ")), 0, 2);
    }
}

pub(super) fn pressure(page: &mut Page, node: &NodeReport) {
    for scope in PressureScope::ALL {
        let mut resources: Vec<String> = Vec::new();
        let of_scope = node.figures.pressure.iter().filter(|report| report.scope == scope);
        for report in of_scope {
            let [share, ..] = report.averages.map(|share| share * 100.0);
            match report.kind {
                PressureKind::Some => resources.push(format!("{} some {share:.1}%", report.resource.as_str())),
                PressureKind::Full => {
                    if let Some(text) = resources.last_mut() {
                        let _ = write!(text, " full {share:.1}%");
                    }
                }
            }
        }
        if !resources.is_empty() {
            page.row("pressure", &format!("{:<8} {}", scope.as_str(), resources.join(", ")));
        }
    }
}

pub(super) fn sources(page: &mut Page, node: &NodeReport) {
    let sources: Vec<String> = node.sources.iter().map(|(signal, source)| format!("{signal} by {source}")).collect();
    if !sources.is_empty() {
        page.wrapped("sources", &sources.join(", "), 0, 2);
    }
}

/// Formats a remaining time, with fewer digits for longer times.
fn time(seconds: f64) -> String {
    let rounded = match seconds {
        ..10.0 => (seconds * 10.0).round() / 10.0,
        ..600.0 => seconds.round(),
        ..86_400.0 => (seconds / 60.0).round() * 60.0,
        ..129_600.0 => return "1 day".to_owned(),
        _ => return format!("{:.0} days", seconds / 86_400.0),
    };
    let text = format_go_duration(Duration::try_from_secs_f64(rounded).unwrap_or_default());
    // The Go format of whole minutes is `1h20m0s`.
    text.strip_suffix("m0s").map_or_else(|| text.clone(), |minutes| format!("{minutes}m"))
}

fn rate(bytes_per_second: f64) -> Bytes {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and saturating is right")]
    Bytes(bytes_per_second as u64)
}

fn share(part: u64, whole: u64) -> f64 {
    float(part) / float(whole)
}
