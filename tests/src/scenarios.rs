//! The scenarios, and the order in which a boot plays them.

mod accounts;
mod available;
mod cache;
pub mod cluster_eyes;
mod containers;
mod culprit;
mod dashboards;
mod doctor;
mod drift;
mod earlyoom;
mod enforcing;
mod exhaustion;
mod fork_bomb;
mod full_disk;
mod gallery;
mod gallery_cases;
mod idle;
mod image;
mod inodes;
mod journal;
mod judge;
mod kubernetes;
mod ladder;
mod lifecycle;
mod omit;
mod oom;
mod oom_many;
mod outage;
mod overlay;
mod packages;
mod pools;
mod pressure;
mod probes;
mod projects;
mod protected_cache;
mod psi;
mod ramps;
mod real_kubelet;
mod reclaim;
mod reclaim_first;
mod scores;
mod soft;
mod status_page;
mod storm;
mod swap;
mod swarm;
mod tidying;
mod turnover;
mod viewed;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::catalogue::{CATALOGUE, Entry, Guest};
use crate::cgroups::Layout;
use crate::console::{self, Verdict};
use crate::init;
use crate::replay::Replays;
use crate::stage::{Boot, Report, Stage};
use crate::units::{median, monotonic_ns, nanoseconds};

type Scenario = fn(&mut Stage<'_>) -> Result<()>;

fn scenario(name: &str) -> Option<Scenario> {
    Some(match name {
        "ramp" => ramps::ramp,
        "pools" => pools::pools,
        "innocent" => ramps::innocent,
        "ramp-max" => ramps::ramp_max,
        "observe" => pressure::observe,
        "degraded" => ramps::degraded,
        "swarm" => swarm::swarm,
        "cache" => cache::cache,
        "soft" => soft::soft,
        "soft-hard" => soft::soft_hard,
        "memcg-oom" => oom::memcg,
        "global-oom" => oom::global,
        "reclaim" => reclaim::reclaim,
        "inode-exhaustion" => exhaustion::exhaustion,
        "ladder" => ladder::ladder,
        "psi-conditions" => psi::conditions,
        "available" => available::available,
        "protected-cache" => protected_cache::protected_cache,
        "swap" => swap::swap,
        "reclaim-first" => reclaim_first::reclaim_first,
        "oom-score-drift" => drift::drift,
        "incidents" => journal::journal,
        "probes" => probes::probes,
        "oom-gallery" => gallery::gallery,
        "oom-many" => oom_many::oom_many,
        "inodes" => inodes::inodes,
        "project-quota" => projects::project_quota,
        "inodes-100k" => turnover::turnover,
        "inodes-overlay" => overlay::overlay,
        "restart" => lifecycle::restart,
        "second-instance" => lifecycle::second_instance,
        "protected-early" => lifecycle::protected_early,
        "accounts" => accounts::accounts,
        "storm" => storm::storm,
        "idle" => idle::idle,
        "near" => idle::near,
        "earlyoom" => earlyoom::earlyoom,
        "earlyoom-systemd" => earlyoom::among_services,
        "oom-score-adj" => scores::scores,
        "omit" => omit::omit,
        "crossing-calls" => enforcing::crossing::calls,
        "dwarfs" => enforcing::benefit::dwarfs,
        "neighbours" => enforcing::benefit::neighbours,
        "slow-leak" => enforcing::benefit::slow_leak,
        "two-leakers" => enforcing::benefit::two_leakers,
        "late-free" => enforcing::pending::late_free,
        "protected-leak" => enforcing::effect::protected_leak,
        "others-victim" => enforcing::pending::others_victim,
        "undying" => enforcing::pending::undying,
        "reload-would-kill" => enforcing::arming::reload_would_kill,
        "openrc-tree" => enforcing::identity::openrc_tree,
        "quadlet" => enforcing::identity::quadlet,
        "fuse-mount" => enforcing::identity::fuse_mount,
        "own-limit" => enforcing::own_limit::own_limit,
        "any-name" => enforcing::any_name::any_name,
        "terminating" => enforcing::cluster::terminating,
        "swap-keeps-up" => enforcing::swap_rule::keeps_up,
        "swap-does-not" => enforcing::swap_rule::does_not,
        "zram" => enforcing::swap_rule::zram,
        "dashboards" => dashboards::dashboards,
        "status-page" => status_page::status_page,
        "chaos" => enforcing::chaos::chaos,
        "restart-protected" => enforcing::cluster::restart_protected,
        "limits-and-memory" => enforcing::budgets::limits_and_memory,
        "runtime-slice" => enforcing::runtime_slice::runtime_slice,
        "package-deb" => packages::debian,
        "package-rpm" => packages::red_hat,
        "containers" => containers::containers,
        "doctor" => doctor::doctor,
        "unused-images" => tidying::unused_images,
        "dead-containers" => tidying::dead_containers,
        "writable-layer" => full_disk::on_the_shared_disk,
        "imagefs-layer" => full_disk::on_the_images_disk,
        "tiny-files" => full_disk::tiny_files,
        "volume-limit" => full_disk::volume_limit,
        "fork-bomb" => fork_bomb::fork_bomb,
        "runtime-outage" => outage::outage,
        "kubernetes" => kubernetes::kubernetes,
        "image" => image::image,
        "cluster-install" => real_kubelet::install,
        "cluster-figures" => real_kubelet::figures,
        "cluster-ramp" => real_kubelet::ramp,
        "cluster-elsewhere" => real_kubelet::elsewhere,
        "cluster-owners" => real_kubelet::owners,
        "cluster-swarm" => real_kubelet::swarm,
        "cluster-outage" => real_kubelet::outage,
        "cluster-killed" => real_kubelet::agent_killed,
        "cluster-kubelet" => real_kubelet::kubelet_restarted,
        "cluster-instead" => real_kubelet::instead,
        "cluster-watch" => real_kubelet::watch,
        "cluster-disk" => real_kubelet::disk,
        "cluster-disk-both" => real_kubelet::disk_below_both,
        "cluster-oom" => real_kubelet::oom,
        "cluster-thrash" => real_kubelet::thrash,
        "cluster-budget" => real_kubelet::budget,
        "cluster-drain" => real_kubelet::drain,
        "cluster-no-execute" => real_kubelet::no_execute,
        "cluster-preemption" => real_kubelet::preemption,
        "cluster-resize" => real_kubelet::resize,
        "cluster-journal-hook" => real_kubelet::journal_hook,
        "cluster-removal" => real_kubelet::removal,
        _ => return None,
    })
}

/// One word of `npm.scenarios=`: a name, optionally with a count.
#[derive(Debug)]
struct Request {
    entry: &'static Entry,
    times: u32,
}

fn parse_request(word: &str) -> Result<Request> {
    let (name, times) = word.split_once('*').unwrap_or((word, "1"));
    let entry =
        CATALOGUE.iter().find(|entry| entry.name == name).with_context(|| format!("{name:?} is in no catalogue"))?;
    let times: u32 = times.parse().with_context(|| format!("{word:?}: not a count"))?;
    Ok(Request { entry, times: times.max(1) })
}

/// Plays the requested scenarios; returns how many passed, failed and were skipped.
pub fn play(layout: Layout, guest: Guest, pages: bool, expressions: &str) -> Result<(u32, u32, u32)> {
    let boot = Boot::new(layout, guest, pages)?;
    let watchdog = Watchdog::start()?;
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    let mut replays = Replays::default();
    for word in expressions.split(',').filter(|word| !word.is_empty()) {
        let (name, verdict, reason) = match parse_request(word) {
            Err(error) => (word.to_owned(), Verdict::Fail, format!("{error:#}")),
            Ok(request) => {
                console::start(request.entry.name);
                let chaos =
                    if request.entry.name == "chaos" { enforcing::chaos::wish().longest().as_secs() } else { 0 };
                let seconds = (u64::from(request.entry.timeout_seconds) + chaos) * u64::from(request.times);
                watchdog.guard(request.entry.name, Duration::from_secs(seconds), (passed, failed, skipped));
                let (verdict, reason) = play_request(&boot, &request, &mut replays);
                watchdog.rest();
                (request.entry.name.to_owned(), verdict, reason)
            }
        };
        match verdict {
            Verdict::Pass => passed += 1,
            Verdict::Fail => failed += 1,
            Verdict::Skip => skipped += 1,
        }
        console::outcome(&name, verdict, &reason);
    }
    if replays.all > 0 {
        let Replays { same, all, played, played_alike, .. } = replays;
        let words = format!(
            "replayed {same} of {all} evictions to the same step, {played_alike} of {played} in the simulated node"
        );
        console::note("replay", words);
    }
    if let Some(reason) = replays.too_few_alike() {
        failed += 1;
        console::outcome("replay", Verdict::Fail, &reason);
    }
    Ok((passed, failed, skipped))
}

fn play_request(boot: &Boot, request: &Request, replays: &mut Replays) -> (Verdict, String) {
    let Request { entry, times } = request;
    let Some(scenario) = scenario(entry.name) else {
        return (Verdict::Fail, "the catalogue has it, and no function plays it".to_owned());
    };
    if !entry.cgroups.contains(&boot.layout.name()) {
        return (Verdict::Skip, format!("not on cgroup {}", boot.layout.name()));
    }
    if entry.guest != boot.guest {
        return (Verdict::Skip, "needs the other guest".to_owned());
    }
    if let Some(viewer) = entry.viewer
        && init::option(viewer.key()).is_none()
    {
        return (Verdict::Skip, format!("the host has no {viewer:?}: `cargo xtask setup` installs it"));
    }
    let begun = monotonic_ns();
    let mut reports: Vec<Report> = Vec::new();
    for run in 1..=*times {
        let report = match Stage::new(boot, entry.name) {
            Ok(mut stage) => {
                let outcome = scenario(&mut stage);
                let mut report = stage.finish(outcome);
                report.failures.extend(replays.replay_new());
                report
            }
            Err(error) => return (Verdict::Fail, format!("{error:#}")),
        };
        if *times > 1 {
            for failure in &report.failures {
                console::note(entry.name, format!("run {run}: {failure}"));
            }
            console::note(entry.name, format!("run {run} of {times} done"));
        }
        if run == 1 || !report.failures.is_empty() {
            for (ms, what) in &report.timeline {
                console::timeline(entry.name, *ms, what);
            }
        }
        reports.push(report);
    }
    print_figures(entry.name, &reports);
    let seconds = Duration::from_nanos(monotonic_ns() - begun).as_secs_f64();
    let (verdict, reason) = judge_reports(&reports);
    (verdict, format!("{reason} ({seconds:.1} s)"))
}

/// Prints the figures of one run, or the median and the extremes of several runs.
fn print_figures(name: &str, reports: &[Report]) {
    let Some(first) = reports.first() else { return };
    if reports.len() == 1 {
        for (key, value, unit) in &first.figures {
            console::figure(name, key, *value, unit);
        }
        return;
    }
    for (key, _, unit) in &first.figures {
        let values: Vec<f64> = reports
            .iter()
            .flat_map(|report| report.figures.iter().filter(|figure| figure.0 == *key))
            .map(|figure| figure.1)
            .collect();
        if let Some(middle) = median(&values) {
            let highest = values.iter().copied().fold(f64::MIN, f64::max);
            let lowest = values.iter().copied().fold(f64::MAX, f64::min);
            console::figure(name, &format!("{key}_median"), middle, unit);
            console::figure(name, &format!("{key}_min"), lowest, unit);
            console::figure(name, &format!("{key}_max"), highest, unit);
        }
    }
}

/// Returns whether nothing failed in a run, and something was compared unless a part was skipped.
fn is_clean(report: &Report) -> bool {
    report.failures.is_empty() && (report.checked > 0 || report.skipped.is_some())
}

fn judge_reports(reports: &[Report]) -> (Verdict, String) {
    let skipped = reports.iter().find_map(|report| report.skipped.clone());
    // A part that cannot be run hides no failure of another part.
    if let Some(reason) = skipped.filter(|_| reports.iter().all(is_clean)) {
        return (Verdict::Skip, reason);
    }
    let bad = reports.iter().filter(|report| !is_clean(report)).count();
    let total = reports.len();
    if bad == 0 {
        let checked: u32 = reports.iter().map(|report| report.checked).sum();
        return (Verdict::Pass, format!("{total} of {total} runs, {checked} assertions"));
    }
    let story = reports
        .iter()
        .find(|report| !report.failures.is_empty())
        .map_or("nothing was compared".to_owned(), |report| report.failures.join("; "));
    (Verdict::Fail, format!("{} of {total} runs; {story}", total - bad))
}

/// Ends the boot when a scenario hangs. Without it a hung guest would print nothing.
#[derive(Debug)]
struct Watchdog {
    state: Arc<WatchdogState>,
}

#[derive(Debug, Default)]
struct WatchdogState {
    /// The time at which the boot ends; 0 while no scenario runs.
    deadline_ns: AtomicU64,
    guarded: Mutex<(&'static str, (u32, u32, u32))>,
}

impl Watchdog {
    fn start() -> Result<Self> {
        let state = Arc::new(WatchdogState::default());
        let its = Arc::clone(&state);
        thread::Builder::new()
            .name("watchdog".to_owned())
            .stack_size(64 * 1024)
            .spawn(move || {
                loop {
                    thread::sleep(Duration::from_millis(500));
                    let deadline = its.deadline_ns.load(Ordering::Acquire);
                    if deadline != 0 && monotonic_ns() > deadline {
                        let (name, (passed, failed, skipped)) =
                            *its.guarded.lock().unwrap_or_else(PoisonError::into_inner);
                        console::outcome(name, Verdict::Fail, "timed out; the rest of this boot did not run");
                        init::finish(passed, failed + 1, skipped);
                    }
                }
            })
            .context("start the watchdog's thread")?;
        Ok(Self { state })
    }

    fn guard(&self, name: &'static str, span: Duration, counts: (u32, u32, u32)) {
        *self.state.guarded.lock().unwrap_or_else(PoisonError::into_inner) = (name, counts);
        self.state.deadline_ns.store(monotonic_ns() + nanoseconds(span), Ordering::Release);
    }

    fn rest(&self) {
        self.state.deadline_ns.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_of_the_catalogue_has_a_scenario() {
        for entry in CATALOGUE {
            assert!(scenario(entry.name).is_some(), "{}", entry.name);
        }
    }

    #[test]
    fn a_request_may_have_a_count() {
        assert_eq!(parse_request("ramp-max*20").unwrap().times, 20);
        assert_eq!(parse_request("ramp").unwrap().times, 1);
        assert!(parse_request("rampe").is_err());
        assert!(parse_request("ramp*x").is_err());
    }

    #[test]
    fn a_run_that_compared_nothing_has_failed_and_a_skip_hides_no_failure() {
        let report = |checked, failures: &[&str], skipped: bool| Report {
            checked,
            failures: failures.iter().map(|&failure| failure.to_owned()).collect(),
            skipped: skipped.then(|| "no helm".to_owned()),
            figures: Vec::new(),
            timeline: Vec::new(),
        };
        let (well, broken, skipped) = (report(1, &[], false), report(1, &["ouch"], true), report(1, &[], true));
        assert_eq!(judge_reports(&[report(0, &[], false)]).0, Verdict::Fail);
        assert_eq!(judge_reports(&[well]).0, Verdict::Pass);
        assert_eq!(judge_reports(&[skipped]).0, Verdict::Skip);
        assert_eq!(judge_reports(&[broken]).0, Verdict::Fail);
    }
}
