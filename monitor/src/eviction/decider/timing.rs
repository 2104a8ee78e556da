//! Decides whether a threshold may be acted on now: by what is armed, by what evictions before it are still to free, and by the budget.

use std::time::Duration;

use crate::eviction::MetThreshold;
use crate::eviction::budget::{Class, Refusal};
use crate::eviction::mutants::rule;
use crate::eviction::rank::Candidate;
use crate::units::{Amount, Monotonic, Signal};

use super::{AgentRules, Decider, EvictionStage, Memory, Note, Rules, Snapshot, UnderWay, start};

impl<C: Candidate> Decider<C> {
    /// Judges which thresholds are armed. Only the agent has this rule, in either mode.
    pub(super) fn judge_arming(&mut self, rules: Rules<'_>, snapshot: &Snapshot) {
        let Some(agent) = rules.agent() else { return };
        let is_waived = agent.limits.act_on_present_pressure;
        let Memory { arming, stalls, .. } = &mut self.memory;
        self.verdicts.renew((arming, stalls), rules.policy, &self.armed, snapshot, is_waived);
        let note = |(threshold, verdict): &(usize, _)| match *verdict {
            Ok(by) => Note::Armed { threshold: *threshold, by },
            Err(why) => Note::Unarmed { threshold: *threshold, why },
        };
        self.turn.notes.extend(self.verdicts.changes.iter().map(note));
    }

    pub(super) fn may_act_on(&mut self, rules: Rules<'_>, snapshot: &Snapshot, met: &MetThreshold) -> bool {
        let Some(agent) = rules.agent() else { return true };
        let now = snapshot.clock();
        let (signal, hard) = (met.threshold.signal, met.is_hard());
        let is_on_disk = signal.resource().is_on_disk();
        if !self.verdicts.is_armed(met.place) {
            return false;
        }
        if let Some(at) = start::looked_at_again(snapshot.pod_list, met, rules.policy.quirks, now) {
            self.retry_at(at);
            self.turn.notes.push(Note::AwaitsPods { threshold: met.place });
            return false;
        }
        if self.awaits_first_fall(rules, snapshot, met)
            || self.awaits_memory(rules, snapshot)
            || self.awaits_swap(rules, snapshot, met)
        {
            return false;
        }
        let is_pressing = is_on_disk && self.presses_before_removal(snapshot, met);
        let class = Class::of(signal, hard);
        if let Err(refusal) = self.may_start(agent, snapshot, class, (is_on_disk, is_pressing))
            && rule!(PaceAtTheCliff: true, !self.is_at_cliff(rules, snapshot, met))
        {
            let (Refusal::CoolDown(left) | Refusal::Spent(left)) = refusal;
            self.retry_at(now.after(left));
            if let Refusal::Spent(left) = refusal {
                self.turn.notes.push(Note::BudgetSpent { left });
            }
            return false;
        }
        if is_on_disk && self.leaves_to_kubelet(agent, met, now) {
            return false;
        }
        if !hard && agent.defers_soft && snapshot.in_maintenance {
            self.turn.notes.push(Note::Deferred { threshold: met.place });
            return false;
        }
        if let Some(until) = self.memory.cool_downs.until((signal, hard), now) {
            // The agent samples a filesystem anyway for as long as a threshold on it is crossed.
            if !is_on_disk {
                self.retry_at(until);
            }
            return false;
        }
        !(is_on_disk && self.expected_suffices(rules, snapshot, met))
    }

    /// Checks the evictions under way and the budget. An eviction for a disk that is pressing does not wait for a removal.
    pub(super) fn may_start(
        &self,
        agent: AgentRules,
        snapshot: &Snapshot,
        class: Class,
        (is_on_disk, is_pressing): (bool, bool),
    ) -> Result<(), Refusal> {
        let under_way = snapshot.under_way.iter().copied();
        let under_way = under_way.filter(|it| !is_pressing || it.stage != EvictionStage::Removing);
        // For memory the rule of pending memory decides how long processes that were killed are waited for.
        let under_way = under_way.filter(|it| class != Class::HardMemory || it.stage != EvictionStage::Dying);
        if blocks(under_way, is_on_disk, class != Class::Soft) {
            // The agent polls the evictions under way again after this time.
            let is_dying = snapshot.under_way.iter().any(|under_way| under_way.stage == EvictionStage::Dying);
            return Err(Refusal::CoolDown(Duration::from_millis(if is_dying { 5 } else { 100 })));
        }
        self.memory.budget.check(&agent.limits, (class, snapshot.workloads), snapshot.clock())
    }

    pub(super) fn retry_at(&mut self, at: Monotonic) {
        self.turn.retry = Some(self.turn.retry.map_or(at, |retry| retry.min(at)));
    }

    /// Returns whether a disk fills up, by a hard threshold, while an evicted pod is being removed: less than half of what was available at
    /// first is left.
    fn presses_before_removal(&mut self, snapshot: &Snapshot, met: &MetThreshold) -> bool {
        let is_removing = snapshot.under_way.iter().any(|it| it.stage == EvictionStage::Removing);
        if !is_removing && snapshot.expected.is_empty() {
            self.memory.expected_since.clear();
        }
        is_removing && met.is_hard() && !self.is_worth_waiting(met.threshold.signal, met.value.available)
    }

    /// Returns whether the space that evicted and ended pods still occupy will suffice once it is freed. Returns false once less than half of
    /// what was available at first is left.
    pub(super) fn expected_suffices(&mut self, rules: Rules<'_>, snapshot: &Snapshot, met: &MetThreshold) -> bool {
        let signal = met.threshold.signal;
        let amount = snapshot.expected.iter().find(|(of, _)| *of == signal).map_or(Amount::ZERO, |(_, amount)| *amount);
        let suffices = amount > Amount::ZERO
            && Amount::from_units(met.value.available) + amount >= met.wanted(rules.policy.quirks)
            && self.is_worth_waiting(signal, met.value.available);
        if suffices {
            self.turn.notes.push(Note::Expected { threshold: met.place, amount });
        }
        suffices
    }

    fn is_worth_waiting(&mut self, signal: Signal, available: i64) -> bool {
        let began = &mut self.memory.expected_since;
        if let Some((_, at_first)) = began.iter().find(|(of, _)| *of == signal) {
            return available >= at_first / 2;
        }
        began.push((signal, available));
        true
    }
}

/// Returns whether the evictions under way delay another one. An eviction for a hard threshold waits only for processes that were killed
/// already, because their memory is being freed. For a disk it also waits for urgent evictions in their grace period, and for those
/// whose files are being removed.
pub fn blocks(under_way: impl IntoIterator<Item = UnderWay>, is_on_disk: bool, hard: bool) -> bool {
    under_way.into_iter().any(|under_way| match under_way.stage {
        EvictionStage::Dying => true,
        EvictionStage::Removing => !hard || is_on_disk,
        EvictionStage::Leaving => !hard || is_on_disk && under_way.is_urgent,
    })
}
