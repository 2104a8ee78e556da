//! What the loop says as it happens: one log record and one count for each thing worth knowing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use monitor_ebpf::ReclaimKind;

use crate::actions::{Ended, Outcome};
use crate::eviction::rank::Order;
use crate::eviction::{Armed, MetThreshold, Observation, SignalValue};
use crate::kernel::{Event, OomKill, Stall};
use crate::report::EvictionOutcome;
use crate::units::{Amount, CgroupId, Monotonic, Signal};

use super::act::{Deed, RankedWorkload};
use super::last::Scan;
use super::others::is_of_disk;
use super::{Agent, EVENTS_PER_WAKEUP, Look, allow, allow_at};

/// How many of the ranking go into a log record.
const RANKING_SHOWN: usize = 5;
/// Stands for the workload of a cgroup that is in none, or was gone before it was seen.
pub(super) const UNKNOWN: &str = "(none)";

impl Agent {
    /// Decodes what the kernel streamed, at most a bounded number.
    pub(super) fn drain_events(&mut self) {
        self.sensors.ring_has_more = self
            .sensors
            .kernel
            .drain(EVENTS_PER_WAKEUP, &mut self.sensors.events, &mut self.sensors.oom_kills)
            .exhausted;
    }

    /// Tells of each event that was drained. The tree is looked at again at most once for all of them.
    pub(super) fn tell_events(&mut self) {
        let mut events = std::mem::take(&mut self.sensors.events);
        let mut oom_kills = std::mem::take(&mut self.sensors.oom_kills);
        self.settle_kills(&mut oom_kills);
        self.look_for_owners(&oom_kills);
        // One look at the clock for all: reading it costs as much as an event.
        let now = Instant::now();
        for event in events.drain(..) {
            self.tell_event(&event, now);
        }
        for kill in oom_kills.drain(..) {
            self.tell_or_hold(kill, now);
        }
        self.tell_held(now);
        self.sensors.events = events;
        self.sensors.oom_kills = oom_kills;
    }

    /// Looks at the tree again when somebody was killed in a cgroup that it does not know. Where the kernel told the cgroup's path, that
    /// says whose it was too: in a storm of kills in cgroups that come and go there is no walk for each.
    fn look_for_owners(&mut self, kills: &[OomKill]) {
        let is_unknown = |id: &CgroupId| id.0 != 0 && self.sensors.tree.owner(*id).is_none();
        let is_told = |kill: &OomKill, id: CgroupId| {
            kill.victim_path.as_ref().is_some_and(|path| path.levels().any(|(level, _)| level == id))
        };
        let unknown = |kill: &OomKill| {
            let concerned = [kill.victim_cgroup, Some(kill.trigger_cgroup)].into_iter().flatten().filter(is_unknown);
            concerned.map(|id| is_told(kill, id)).min()
        };
        // What the last scan did not see although it was there then is gone for good.
        let Scan { at, took } = self.sensors.scan;
        let is_later = |kill: &&OomKill| at.is_none_or(|at| at.since(Monotonic(kill.marked_at_ns)) < took);
        match kills.iter().filter(is_later).filter_map(unknown).min() {
            Some(false) => self.scan_if_older(Duration::ZERO),
            Some(true) => self.scan_if_old(),
            None => {}
        }
    }

    fn tell_event(&mut self, event: &Event, now: Instant) {
        match event {
            Event::Stall(stall) => self.tell_stall(stall, now),
            Event::OomMark { at_ns, victim_pid, trigger_pid, .. } => {
                self.note_mark(event);
                tracing::debug!(
                    event = "oom_mark",
                    victim_pid = victim_pid.0,
                    trigger_pid = trigger_pid.0,
                    at_mono_ns = at_ns,
                    "marked by the OOM killer"
                );
            }
            Event::KswapdWake { at_ns, node, order } => {
                tracing::debug!(event = "kswapd_wake", node, order, at_mono_ns = at_ns, "kswapd was woken");
            }
            Event::DirectReclaim { at_ns, pid, .. } => {
                tracing::debug!(
                    event = "direct_reclaim",
                    pid = pid.0,
                    at_mono_ns = at_ns,
                    "a task entered direct reclaim"
                );
            }
            Event::OomScoreAdj { at_ns, pid, comm, adj, writer_pid } => {
                self.actions.audits.note_write(*pid);
                tracing::debug!(event = "oom_score_adj_update", pid = pid.0, %comm, oom_score_adj = adj, writer_pid = writer_pid.0, at_mono_ns = at_ns, "somebody set oom_score_adj");
            }
        }
    }

    fn tell_stall(&mut self, stall: &Stall, now: Instant) {
        let Some(suppressed) = allow_at(&mut self.reporter.limits.stalls, now) else { return };
        let workload = self.owner_known(stall.cgroup);
        tracing::info!(
            event = "stall",
            workload = &*workload,
            kind = reclaim_kind(stall.kind),
            pid = stall.pid.0,
            comm = %stall.comm,
            duration_ms = Duration::from_nanos(stall.duration_ns).as_secs_f64() * 1e3,
            reclaimed_pages = stall.reclaimed_pages,
            at_mono_ns = stall.at_ns,
            suppressed,
            "stalled in reclaim"
        );
    }

    pub(super) fn owner_known(&self, id: CgroupId) -> Arc<str> {
        self.sensors.tree.owner(id).unwrap_or_else(|| UNKNOWN.into())
    }

    /// Tells which thresholds are met now, and which no longer are. A figure that hovers about a threshold crosses it at every look:
    /// what is not told now is told at a later look, if it is still so.
    pub(super) fn tell_changes(&mut self, look: &Look) {
        for (place, Armed { threshold, .. }) in self.decision.armed.iter().enumerate() {
            let met = look.assessment.met.iter().find(|met| met.threshold == *threshold);
            let is_crossed = look.assessment.crossed.get(place).copied().unwrap_or(false);
            let is_told = self.reporter.told_met.contains(&place);
            if let Some(met) = met.filter(|_| !is_told) {
                let Some(suppressed) = allow(&mut self.reporter.limits.crossings) else { continue };
                self.reporter.told_met.insert(place);
                tell_met(look, met, suppressed);
            } else if is_told && !is_crossed && met.is_none() {
                let Some(value) = look.observation.get(threshold.signal) else { continue };
                let Some(suppressed) = allow(&mut self.reporter.limits.crossings) else { continue };
                self.reporter.told_met.remove(&place);
                tracing::info!(
                    event = "recovered",
                    signal = threshold.signal.as_str(),
                    threshold = %threshold,
                    available_bytes = is_bytes(threshold.signal).then_some(value.available),
                    available = (!is_bytes(threshold.signal)).then_some(value.available),
                    sampled_mono_ns = look.sampled.0,
                    suppressed,
                    "{threshold} no longer: {} left", value.words()
                );
            }
        }
    }

    pub(super) fn tell_eviction(&mut self, look: &Look, deed: &Deed) {
        let Deed { met, ranked, action, .. } = deed;
        let workload = &ranked.candidate.workload;
        let message = match *action {
            "would_kill" => {
                self.count_eviction(met.threshold.signal, EvictionOutcome::Observed);
                "observe mode: this workload would be evicted"
            }
            "ask" => "evicting: the API server was asked, the kubelet stops it when that is granted",
            "term" => "evicting: SIGTERM sent, SIGKILL follows after the grace period",
            _ => "evicting: SIGKILL sent",
        };
        tracing::warn!(
            event = "eviction",
            workload = workload.name,
            workload_id = workload.id.0,
            pod = self.pod_of(&workload.name),
            qos_class = workload.qos.as_str(),
            priority = workload.pod.as_ref().map(|pod| pod.priority()),
            signal = met.threshold.signal.as_str(),
            kind = kind(met),
            mode = self.config.mode.as_str(),
            action,
            wakeup = look.wakeup.as_str(),
            processes = deed.processes,
            working_set_bytes = ranked.candidate.working_set.0,
            used = ranked.candidate.other.and_then(|other| other.used).map(Amount::units),
            available_bytes = of_bytes(met, met.value.available),
            threshold_bytes = of_bytes(met, met.quantity.units()),
            available = of_others(met, met.value.available),
            threshold_value = of_others(met, met.quantity.units()),
            woken_mono_ns = look.woken.0,
            sampled_mono_ns = look.sampled.0,
            ordered_mono_ns = deed.ordered.0,
            decided_mono_ns = deed.decided.0,
            acted_mono_ns = deed.acted.0,
            reclaim = deed.reclaimed.as_ref().map(|reclaimed| reclaimed.outcome.as_str()),
            reclaim_freed_bytes = deed.reclaimed.as_ref().map(|reclaimed| reclaimed.freed.0),
            reclaim_ms = deed.reclaimed.as_ref().map(|reclaimed| reclaimed.took.as_secs_f64() * 1e3),
            explanation = ranked.explanation(Order::of(&self.config.policy, met.threshold.signal.resource())),
            ranking = deed.ranking,
            "{message}"
        );
    }

    /// Tells of evictions that were found ended at `at`; `seen` is what was observed right after.
    pub(super) fn tell_ended(&mut self, ended: &[Ended], at: Monotonic, seen: Option<&Observation>) {
        // What is left on a disk is known later, when its filesystem is asked again.
        let available =
            |signal: Signal| seen.and_then(|seen| seen.get(signal)).filter(|_| !is_of_disk(signal.resource()));
        ended.iter().for_each(|ended| self.tell_one_ended(ended, at, ended.cause.signal().and_then(available)));
    }

    fn tell_one_ended(&mut self, ended: &Ended, at: Monotonic, available: Option<SignalValue>) {
        self.record_ended(ended, at, available);
        let took_ms = ended.took.as_secs_f64() * 1e3;
        let available_bytes = available.filter(|value| is_bytes(value.signal)).map(|value| value.available_bytes().0);
        let killed_mono_ns = ended.killed.map(|killed| killed.0);
        match &ended.outcome {
            Outcome::Gone => {
                self.count_eviction(ended.cause, EvictionOutcome::Killed);
                tracing::info!(
                    event = "eviction_done",
                    workload = ended.name,
                    killed_mono_ns,
                    gone_mono_ns = at.0,
                    took_ms,
                    available_bytes,
                    cause = ended.cause.as_str(),
                    note = ended.note,
                    "no process is left"
                );
            }
            Outcome::Refused(reason) => {
                self.count_eviction(ended.cause, EvictionOutcome::Refused);
                tracing::warn!(
                    event = "eviction_refused",
                    workload = ended.name,
                    reason,
                    took_ms,
                    "nothing was touched; the next candidate is to be tried"
                );
            }
            Outcome::Failed(reason) => {
                self.count_eviction(ended.cause, EvictionOutcome::Failed);
                tracing::error!(
                    event = "eviction_failed",
                    workload = ended.name,
                    reason,
                    took_ms,
                    note = ended.note,
                    "the next candidate is to be tried"
                );
            }
        }
    }
}

/// The head of a ranking, for the log.
pub(super) fn ranking_text(ranking: &[RankedWorkload]) -> String {
    let names: Vec<&str> =
        ranking.iter().take(RANKING_SHOWN).map(|ranked| ranked.candidate.workload.name.as_str()).collect();
    let more = ranking.len().saturating_sub(RANKING_SHOWN);
    if more > 0 { format!("{}, and {more} more", names.join(", ")) } else { names.join(", ") }
}

const fn is_bytes(signal: Signal) -> bool {
    signal.resource().is_bytes()
}

/// A figure of the threshold's signal, where that counts bytes.
pub(super) fn of_bytes(met: &MetThreshold, figure: i64) -> Option<i64> {
    is_bytes(met.threshold.signal).then_some(figure)
}

/// The same where it counts something else.
pub(super) fn of_others(met: &MetThreshold, figure: i64) -> Option<i64> {
    (!is_bytes(met.threshold.signal)).then_some(figure)
}

fn tell_met(look: &Look, met: &MetThreshold, suppressed: u64) {
    tracing::warn!(
        event = "threshold_met",
        signal = met.threshold.signal.as_str(),
        kind = kind(met),
        threshold = %met.threshold,
        available_bytes = of_bytes(met, met.value.available),
        threshold_bytes = of_bytes(met, met.quantity.units()),
        available = of_others(met, met.value.available),
        threshold_value = of_others(met, met.quantity.units()),
        wakeup = look.wakeup.as_str(),
        sampled_mono_ns = look.sampled.0,
        suppressed,
        "{}: {} left", met.threshold, met.value.words()
    );
}

fn kind(met: &MetThreshold) -> &'static str {
    if met.is_hard() { "hard" } else { "soft" }
}

pub(super) fn reclaim_kind(kind: ReclaimKind) -> &'static str {
    match kind {
        ReclaimKind::Direct => "direct",
        ReclaimKind::Memcg => "memcg",
    }
}
