//! The answer as text: the facts, then the findings with their fixes, worst first.

use std::time::Duration;

use crate::incidents::text::text_page::Page;
use crate::node::other_killers::{OtherKillerFact, SetUpFact};
use crate::units::{Bytes, format_go_duration};
use crate::workloads::PatternReach;

use super::Report;
use super::decision_facts::{BudgetLeft, Decisions, WaitingThreshold};
use super::facts::{Facts, Filesystem, Needed, NodeThreshold, UnobservedThreshold};
use super::findings::{Finding, Severity};

/// More protected workloads are only counted.
const MOST_NEEDED: usize = 20;
/// Column of the text after a label.
const INDENT: usize = 14;

/// Renders the answer, ending with a line break.
pub fn render(report: &Report<'_>) -> String {
    let mut page = Page::default();
    page.line(&format!("node-pressure-monitor {} doctor\n", report.version));
    found(&mut page, report.facts);
    for (severity, heading) in [
        (Severity::Unsafe, "ENFORCING WOULD BE UNSAFE"),
        (Severity::Degraded, "WILL NOT WORK"),
        (Severity::Note, "GOOD TO KNOW"),
    ] {
        let of_kind = || report.findings.iter().filter(|finding| finding.severity == severity);
        if of_kind().next().is_some() {
            page.section(heading);
        }
        of_kind().for_each(|finding| add_finding(&mut page, finding));
    }
    page.section("VERDICT");
    item(&mut page, "", &verdict(report));
    page.finish()
}

fn verdict(report: &Report<'_>) -> String {
    if report.enforcing != "safe" {
        return "enforcing would be unsafe: fix the findings above first; mode observe changes nothing".to_owned();
    }
    let degraded = report.findings.iter().filter(|finding| finding.severity == Severity::Degraded).count();
    let works = match degraded {
        0 => "everything works".to_owned(),
        1 => "1 degradation".to_owned(),
        degraded => format!("{degraded} degradations"),
    };
    let Facts { thresholds, unobserved, .. } = report.facts;
    let only = thresholds.iter().filter(|it| it.reported_only.is_some()).count() + unobserved.len();
    let what = if unobserved.is_empty() { "reported only" } else { "reported only, or not observed" };
    match (only, thresholds.len() + unobserved.len()) {
        (0, _) => format!("{works}; enforcing would be safe"),
        (only, all) if only == all => format!("{works}; enforcing would evict nothing: each threshold is {what}"),
        (only, all) => format!("{works}; enforcing would be safe; {only} of {all} thresholds are {what}"),
    }
}

fn found(page: &mut Page, facts: &Facts) {
    item(page, "mode", facts.mode);
    if let Some(pool) = &facts.pool {
        item(page, "pool", pool);
    }
    item(page, "kernel", &facts.kernel.release);
    let having = |present| -> String {
        let names = facts.kernel.features.iter().filter(|feature| feature.present == present).map(|it| it.name);
        names.collect::<Vec<_>>().join(", ")
    };
    listed(page, "has ", &having(true));
    listed(page, "has no ", &having(false));
    match &facts.cgroup {
        None => item(page, "cgroup", "no usable hierarchy"),
        Some(cgroup) => {
            let hybrid = if cgroup.hybrid { ", hybrid: v2 is mounted without the memory controller" } else { "" };
            item(page, "cgroup", &format!("{} at {}{hybrid}", cgroup.version, cgroup.memory.display()));
            listed(page, "controllers ", &cgroup.controllers.join(" "));
            let kill = if cgroup.kill { "at once (cgroup.kill)" } else { "process by process" };
            let freezer = if cgroup.freezer { ", frozen meanwhile if they fork" } else { "" };
            item(page, "", &format!("workloads are killed {kill}{}", if cgroup.kill { "" } else { freezer }));
        }
    }
    let (attached, missing) = (facts.probes.would_attach.len(), facts.probes.missing.len());
    item(page, "probes", &format!("{attached} of {} would attach", attached + missing));
    item(
        page,
        "",
        &format!("cgroup ids: {}; OOM kills reported by {}", facts.probes.cgroup_ids, facts.oom_kills_told_by),
    );
    let yes_no = |yes| if yes { "yes" } else { "no" };
    item(page, "PSI", yes_no(facts.pressure_stall_information));
    item(page, "kernel's log", yes_no(facts.kernel_log));
    let swap = if facts.swap_bytes == 0 { "off".to_owned() } else { Bytes(facts.swap_bytes).to_string() };
    item(page, "swap", &swap);
    let lacking: Vec<&str> = facts.capabilities.iter().filter(|it| !it.present).map(|it| it.name).collect();
    let capabilities =
        if lacking.is_empty() { "all needed ones".to_owned() } else { format!("no {}", lacking.join(", no ")) };
    item(page, "capabilities", &capabilities);
    let namespaces = match facts.private_namespaces[..] {
        [] => "the machine's own".to_owned(),
        _ => format!("own {}", facts.private_namespaces.join(" and ")),
    };
    item(page, "namespaces", &namespaces);
    facts.filesystems.iter().for_each(|filesystem| item(page, filesystem.role, &describe(filesystem)));
    item(page, "layout", layout(facts));
    for NodeThreshold { threshold, kind, is_bytes, available, capacity, reported_only, evicts, .. } in &facts.thresholds
    {
        let amount = |units: i64| match (*is_bytes, u64::try_from(units)) {
            (true, Ok(bytes)) => Bytes(bytes).to_string(),
            _ => units.to_string(),
        };
        let left = format!("{} of {} left", amount(*available), amount(*capacity));
        let whom = match (reported_only, evicts) {
            (Some(why), _) => format!("; reported only: {why}"),
            (None, Some(evicts)) => format!("; may evict {evicts}"),
            (None, None) => String::new(),
        };
        item(page, "threshold", &format!("{kind} {threshold}: {left}{whom}"));
    }
    for UnobservedThreshold { threshold, kind, reason } in &facts.unobserved {
        item(page, "threshold", &format!("{kind} {threshold}: not observed, and cannot be met: {reason}"));
    }
    if let Some(decisions) = facts.decisions.as_ref().filter(|decisions| decisions.unused.is_none()) {
        add_decisions(page, decisions);
    }
    match &facts.runtimes[..] {
        [] => item(page, "runtime", "none found"),
        runtimes => runtimes.iter().for_each(|runtime| {
            let state = if runtime.trouble.is_none() { "answers" } else { "does not answer" };
            let version = runtime.version.iter().map(|version| format!(" {version}"));
            let api = runtime.api_version.iter().map(|version| format!(", CRI {version},"));
            let name: String = [runtime.name.clone()].into_iter().chain(version).chain(api).collect();
            item(page, "runtime", &format!("{name} at {}: {state}", runtime.socket.display()));
        }),
    }
    item(page, "kubelet", if facts.kubelet { "has its files here" } else { "none here" });
    let candidates = if facts.candidates == "pods" { "only pods" } else { "pods, and workloads outside pods" };
    item(page, "candidates", candidates);
    for Needed { workload, protection, by, process } in facts.needed.iter().take(MOST_NEEDED) {
        let process = process.map(|pid| format!(", process {pid}")).unwrap_or_default();
        item(page, "protected", &format!("{workload}: {protection} ({by}{process})"));
    }
    if let Some(more) = facts.needed.len().checked_sub(MOST_NEEDED).filter(|more| *more > 0) {
        item(page, "", &format!("and {more} more (--output json)"));
    }
    for reach in &facts.patterns {
        let PatternReach { field, pattern, .. } = reach;
        item(page, "pattern", &format!("{field}: \"{pattern}\" {}", reach.sentence()));
    }
    for OtherKillerFact { name, pid, thresholds, .. } in &facts.other_killers {
        let at = thresholds.as_ref().map_or_else(String::new, |at| format!(": {}", at.join(", ")));
        item(page, "other killer", &format!("{name}, process {pid}{at}"));
    }
    if let Some(SetUpFact { name, because }) = &facts.set_up {
        item(page, "set-up", &format!("{name}: {because}"));
    }
    if let Some(pid) = facts.other_instance {
        item(page, "agent", &format!("running, process {pid}"));
    }
}

/// Adds what an agent of this boot has left.
fn add_decisions(page: &mut Page, Decisions { file, armed, waiting, budgets, .. }: &Decisions) {
    item(page, "decisions", &format!("of an agent in this boot, in {}", file.display()));
    for threshold in armed {
        item(page, "", &format!("armed: {threshold}"));
    }
    for WaitingThreshold { threshold, since_seconds } in waiting {
        let since = format_go_duration(Duration::from_secs(*since_seconds));
        item(page, "", &format!("not armed: {threshold}, met at its arrival {since} ago"));
    }
    for BudgetLeft { cause, spent, allowed } in budgets {
        let left = allowed.saturating_sub(*spent);
        item(page, "", &format!("evictions left in this minute for {cause}: {left} of {allowed}"));
    }
}

fn layout(facts: &Facts) -> &'static str {
    let has_images = facts.filesystems.iter().any(|filesystem| filesystem.role == "imagefs");
    match facts.filesystem_layout {
        "dedicatedImageFs" => "images and writable layers have a filesystem of their own (imagefs is not nodefs)",
        "splitImageFs" => "images have a filesystem of their own, writable layers are on nodefs",
        _ if has_images => "images, writable layers and pods share one filesystem (imagefs is nodefs)",
        _ => "no store of images: everything is on nodefs",
    }
}

fn describe(filesystem: &Filesystem) -> String {
    let Filesystem { path, device, mount_point, kind, available_bytes, capacity_bytes, inodes, project_quotas, .. } =
        filesystem;
    let quotas = match project_quotas {
        Some(true) => "; project quotas on",
        Some(false) => "; project quotas off",
        None => "",
    };
    let inodes = inodes.map_or("inodes without limit".to_owned(), |it| format!("{} of {} inodes", it.free, it.total));
    format!(
        "{} on {kind} {device} at {}: {} of {} and {inodes} left{quotas}",
        path.display(),
        mount_point.display(),
        Bytes(*available_bytes),
        Bytes(*capacity_bytes),
    )
}

/// Adds a label and its text, broken between words.
fn item(page: &mut Page, label: &str, text: &str) {
    page.wrapped(&format!("{label:<INDENT$}"), &" ".repeat(INDENT), text);
}

fn listed(page: &mut Page, verb: &str, list: &str) {
    if !list.is_empty() {
        item(page, "", &format!("{verb}{list}"));
    }
}

fn add_finding(page: &mut Page, finding: &Finding) {
    page.wrapped("- ", "  ", &finding.sentence);
    if let Some(mend) = &finding.mend {
        page.wrapped("  > ", "    ", mend);
    }
}

#[cfg(test)]
mod tests {
    use super::super::findings::{self, tests::capable};
    use super::*;

    fn rendered(facts: &Facts) -> String {
        let findings = findings::findings(facts);
        let is_unsafe = findings.iter().any(Finding::is_unsafe);
        let enforcing = if is_unsafe { "unsafe" } else { "safe" };
        render(&Report { version: "1.2.3", enforcing, findings: &findings, facts })
    }

    const RUNTIME: &str = "runtime       containerd 1.6.20, CRI v1, at /run/c.sock: answers";
    const NODEFS: &str = "nodefs        /var/lib/kubelet on ext4 8:1 at /var: 1.0 GiB of 4.0 GiB and 5 of 10 inodes left;\n\
        \x20             project quotas on";
    const LAYOUT: &str = "layout        images, writable layers and pods share one filesystem (imagefs is nodefs)";

    #[test]
    fn a_capable_machine_is_rendered() {
        let mut facts = capable();
        facts.needed.push(Needed {
            workload: "runtime.slice/c.service".to_owned(),
            protection: "runs containers",
            by: "listens on /run/c.sock".to_owned(),
            process: Some(7),
        });
        let page = rendered(&facts);
        let protected =
            "\nprotected     runtime.slice/c.service: runs containers (listens on /run/c.sock, process 7)\n";
        assert!(page.contains("\ncandidates    only pods\n") && page.contains(protected), "{page}");
        assert!(page.ends_with("\nVERDICT\n              everything works; enforcing would be safe\n"), "{page}");
        for line in
            ["kernel        6.12.0", "swap          off", "namespaces    the machine's own", RUNTIME, NODEFS, LAYOUT]
        {
            assert!(page.contains(&format!("\n{line}\n")), "{line}\n{page}");
        }
        assert!(page.lines().all(|line| line.chars().count() <= 100), "{page}");
    }

    #[test]
    fn a_finding_stands_under_its_heading_with_its_fix() {
        let mut facts = capable();
        facts.private_namespaces = vec!["pid"];
        facts.swap_bytes = 1 << 30;
        let page = rendered(&facts);
        let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} is not in\n{page}"));
        assert!(place("ENFORCING WOULD BE UNSAFE") < place("- the agent runs in a pid namespace"));
        assert!(place("WILL NOT WORK") < place("- swap is on") && place("- swap is on") < place("> switch swap off"));
        assert!(place("swap          1.0 GiB") < place("WILL NOT WORK"));
        assert!(page.lines().all(|line| line.chars().count() <= 100), "{page}");
    }

    #[test]
    fn a_threshold_that_can_evict_nothing_is_reported_only() {
        let threshold = |reported_only| NodeThreshold { reported_only, ..findings::tests::threshold(None, false) };
        let only = threshold(Some("no pods on this host"));
        let page = rendered(&Facts { thresholds: vec![only.clone()], ..capable() });
        let unwrapped = |page: &str| page.replace("\n              ", " ");
        assert!(unwrapped(&page).contains("2000000 of 3000000 left; reported only: no pods on this host\n"), "{page}");
        let nothing = "everything works; enforcing would evict nothing: each threshold is reported only\n";
        assert!(unwrapped(&page).ends_with(nothing), "{page}");
        let page = rendered(&Facts { thresholds: vec![only, threshold(None)], ..capable() });
        assert!(unwrapped(&page).ends_with("enforcing would be safe; 1 of 2 thresholds are reported only\n"), "{page}");
    }

    #[test]
    fn a_threshold_without_a_signal_is_named() {
        let unobserved = vec![UnobservedThreshold {
            threshold: "imagefs.available<15%".to_owned(),
            kind: "hard",
            reason: "there is no store of images".to_owned(),
        }];
        let page = rendered(&Facts { unobserved, ..capable() }).replace("\n              ", " ");
        let line = "hard imagefs.available<15%: not observed, and cannot be met: there is no store of images\n";
        assert!(page.contains(line), "{page}");
        let nothing = "enforcing would evict nothing: each threshold is reported only, or not observed\n";
        assert!(page.ends_with(nothing), "{page}");
    }

    #[test]
    fn the_set_up_beside_the_kubelet_is_rendered() {
        let set_up =
            SetUpFact { name: "watch", because: "the agent observes; the kubelet evicts as before".to_owned() };
        let page = rendered(&Facts { set_up: Some(set_up), ..capable() });
        let line = "\nset-up        watch: the agent observes; the kubelet evicts as before\n";
        assert!(page.contains(line), "{page}");
        assert!(!rendered(&capable()).contains("set-up"), "no kubelet runs");
    }

    #[test]
    fn names_cannot_control_a_terminal() {
        let mut facts = capable();
        facts.kernel.release = "6\u{1b}[31m".to_owned();
        assert!(!rendered(&facts).contains('\u{1b}'));
    }
}
