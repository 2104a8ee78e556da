//! From the kernel's marks and kills to one incident for each invocation of the OOM killer. Pure: no clock, no files.
//!
//! The kernel marks a victim, or with `memory.oom.group` every process of a cgroup, and each of them exits in its own time. An
//! incident is told when all that were marked have gone, or after two seconds; who comes later is added to it, and it is told again.

use std::time::Duration;

use jiff::Timestamp;

use super::model::{self, Kind, OomKill, Step, Trigger, Victim};
use crate::units::Monotonic;

/// A group's marks follow each other within this time: until then it is not known how many there are.
const SETTLE: Duration = Duration::from_millis(20);
/// Whoever has not gone by then is not waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// An incident is told again after this long, then twice as long, and so on this many times: of a thousand processes each goes when
/// it can, and one record for each would push all others out of the journal.
const DOUBLINGS: u32 = 3;
/// Whoever goes later than this belongs to nobody any more.
const MEMORY: Duration = Duration::from_secs(30);
/// Where the kernel does not say which marks belong together: those of one task within this time.
const SAME_INVOCATION: Duration = Duration::from_millis(100);
/// Incidents that are kept apart at once. In a storm beyond that the oldest are told as they are.
const OPEN: usize = 256;
/// Victims that are told one by one.
const VICTIMS: usize = 100;

/// The OOM killer chose a process.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// When.
    pub at: Monotonic,
    /// When the OOM killer was invoked: the same for all that it chose then.
    pub invoked: Option<Monotonic>,
    /// The process.
    pub victim_pid: i32,
    /// Whose allocation it was.
    pub trigger: Trigger,
}

/// A process that the OOM killer had chosen has gone.
#[derive(Debug, Clone, PartialEq)]
pub struct Kill {
    /// When it had gone.
    pub at: Monotonic,
    /// When it was chosen.
    pub marked: Monotonic,
    /// When the OOM killer was invoked.
    pub invoked: Option<Monotonic>,
    /// The process.
    pub victim: Victim,
    /// Everything that is the same for all victims of the invocation; its victims are not looked at.
    pub kill: OomKill,
}

/// An incident as far as it is known.
#[derive(Debug, Clone, PartialEq)]
pub struct Assembled {
    /// Its name.
    pub id: String,
    /// When the OOM killer was invoked, or else chose its first victim.
    pub at: Monotonic,
    /// Everything about it.
    pub kill: OomKill,
    /// What happened, from then on.
    pub steps: Vec<Step>,
    /// It was told before, knowing less.
    pub again: bool,
    /// All that were chosen have gone.
    pub complete: bool,
}

#[derive(Debug)]
struct Open {
    id: String,
    invoked: Option<Monotonic>,
    first_mark: Monotonic,
    last_mark: Monotonic,
    last_news: Monotonic,
    kill: OomKill,
    /// Chosen, and not gone yet.
    marked: Vec<(i32, Monotonic)>,
    gone: Vec<(i32, Monotonic, Monotonic)>,
    told: bool,
    /// So often.
    tellings: u32,
    last_told: Monotonic,
}

/// Puts together what belongs together.
#[derive(Debug, Default)]
pub struct Assembler {
    open: Vec<Open>,
}

impl Assembler {
    /// Notes a mark; `time` is the wall clock's time of it.
    pub fn mark(&mut self, mark: Mark, time: Timestamp) {
        let Mark { at, invoked, victim_pid, trigger } = mark;
        let is_known = |open: &&Open| {
            let same = |pid: i32, marked: Monotonic| pid == victim_pid && marked == at;
            open.marked.iter().any(|(pid, marked)| same(*pid, *marked))
                || open.gone.iter().any(|(pid, marked, _)| same(*pid, *marked))
        };
        if self.open.iter().any(|open| is_known(&open)) {
            return;
        }
        let open = self.find_or_open(invoked, at, &trigger, victim_pid, time);
        open.kill.trigger.get_or_insert(trigger);
        open.last_mark = open.last_mark.max(at);
        open.last_news = open.last_news.max(at);
        open.marked.push((victim_pid, at));
        // Who was not known of until now is news.
        open.told = false;
    }

    /// Notes a kill; `time` is the wall clock's time at which it was chosen. Returns the name of the incident.
    pub fn kill(&mut self, kill: Kill, time: Timestamp) -> &str {
        let Kill { at, marked, invoked, victim, kill } = kill;
        let trigger = kill.trigger.clone().unwrap_or_default();
        let open = self.find_or_open(invoked, marked, &trigger, victim.pid, time);
        // Of a process with several threads the one that was marked may be another than the one that the process is called by.
        let is_it = |by: fn(&(i32, Monotonic), &(i32, Monotonic)) -> bool| {
            open.marked.iter().position(|mark| by(mark, &(victim.pid, marked)))
        };
        if let Some(place) = is_it(|mark, kill| mark.0 == kill.0).or_else(|| is_it(|mark, kill| mark.1 == kill.1)) {
            open.marked.remove(place);
        }
        open.gone.push((victim.pid, marked, at));
        open.last_mark = open.last_mark.max(marked);
        open.last_news = open.last_news.max(at);
        open.told = false;
        let known = &mut open.kill;
        let OomKill { constraint, source, order, limit, trigger, .. } = kill;
        known.constraint = known.constraint.take().or(constraint);
        known.order = known.order.or(order);
        known.limit = known.limit.take().or(limit);
        // A mark says less of the task than a kill does.
        known.trigger = trigger.or(known.trigger.take());
        if !source.is_empty() {
            known.source = source;
        }
        if known.victims.len() < VICTIMS {
            known.victims.push(victim);
        } else {
            known.victims_omitted += 1;
        }
        &open.id
    }

    /// Incidents to be told now. One that was told before is told again when more is known of it.
    pub fn due(&mut self, now: Monotonic) -> Vec<Assembled> {
        let too_many = self.open.len().saturating_sub(OPEN);
        let mut due = Vec::new();
        for (index, open) in self.open.iter_mut().enumerate() {
            if !open.told && (open.until_due(now).is_zero() || index < too_many) {
                due.push(open.tell(now));
            }
        }
        self.open.retain(|open| !open.told || now.since(open.last_news) < MEMORY);
        let told_first = self.open.len().saturating_sub(OPEN);
        self.open.drain(..told_first);
        due
    }

    /// What has not been told yet, whatever may follow: nobody will be there to tell it.
    pub fn rest(&mut self, now: Monotonic) -> Vec<Assembled> {
        self.open.iter_mut().filter(|open| !open.told).map(|open| open.tell(now)).collect()
    }

    /// How long until something is due; `None` when nothing is waited for.
    #[must_use]
    pub fn next_due(&self, now: Monotonic) -> Option<Duration> {
        self.open.iter().filter(|open| !open.told).map(|open| open.until_due(now)).min()
    }

    fn find_or_open(
        &mut self,
        invoked: Option<Monotonic>,
        marked: Monotonic,
        trigger: &Trigger,
        victim_pid: i32,
        time: Timestamp,
    ) -> &mut Open {
        let is_it = |open: &Open| match (open.invoked, invoked) {
            (Some(open), Some(invoked)) => open == invoked,
            _ => {
                let near = |a: Monotonic, b: Monotonic| a.since(b).max(b.since(a)) <= SAME_INVOCATION;
                let task = |trigger: &Trigger| trigger.tid.or(trigger.pid);
                let same_task =
                    open.kill.trigger.as_ref().is_none_or(|of| task(of) == task(trigger) || of.pid == trigger.pid);
                near(open.first_mark, marked) && same_task
            }
        };
        let place = self.open.iter().position(is_it).unwrap_or_else(|| {
            self.open.push(Open {
                id: model::name(Kind::OomKill, time, victim_pid),
                invoked,
                first_mark: marked,
                last_mark: marked,
                last_news: marked,
                kill: OomKill { source: "ebpf".to_owned(), ..OomKill::default() },
                marked: Vec::new(),
                gone: Vec::new(),
                told: false,
                tellings: 0,
                last_told: Monotonic::default(),
            });
            self.open.len() - 1
        });
        let open = &mut self.open[place];
        open.invoked = open.invoked.or(invoked);
        open.first_mark = open.first_mark.min(marked);
        open
    }
}

impl Open {
    fn until_due(&self, now: Monotonic) -> Duration {
        let settled = SETTLE.saturating_sub(now.since(self.last_mark));
        let due = if self.marked.is_empty() { settled } else { PATIENCE.saturating_sub(now.since(self.first_mark)) };
        match self.tellings.checked_sub(1) {
            None => due,
            Some(again) => due.max((PATIENCE * (1 << again.min(DOUBLINGS))).saturating_sub(now.since(self.last_told))),
        }
    }

    fn tell(&mut self, now: Monotonic) -> Assembled {
        let assembled = self.assembled();
        self.told = true;
        self.tellings += 1;
        self.last_told = now;
        assembled
    }

    fn assembled(&self) -> Assembled {
        let begin = self.invoked.unwrap_or(self.first_mark).min(self.first_mark);
        let ms = |at: Monotonic| model::millis(at.0.saturating_sub(begin.0));
        let mut steps: Vec<Step> = self.invoked.map(|at| Step::at("invoked", ms(at))).into_iter().collect();
        let all_marked = self.marked.iter().copied().chain(self.gone.iter().map(|(pid, marked, _)| (*pid, *marked)));
        let of = |step: &str, pid: i32, at: Monotonic| Step { pid: Some(pid), ..Step::at(step, ms(at)) };
        steps.extend(all_marked.take(VICTIMS).map(|(pid, at)| of("marked", pid, at)));
        // The kernel's log tells only of the choice.
        let exited = self.gone.iter().filter(|(_, marked, at)| at > marked);
        steps.extend(exited.take(VICTIMS).map(|(pid, _, at)| of("exited", *pid, *at)));
        steps.sort_by(|a, b| a.ms.total_cmp(&b.ms));
        let mut kill = self.kill.clone();
        // Who has been chosen and is still there: nothing is known but that.
        let waiting = self.marked.iter().map(|(pid, _)| Victim { pid: *pid, ..Victim::default() });
        kill.victims.extend(waiting.take(VICTIMS));
        // Only the same invocation makes a group; one task may call the OOM killer twice in a moment.
        kill.group = self.invoked.is_some() && self.marked.len() + self.gone.len() > 1;
        let (again, complete) = (self.tellings > 0, self.marked.is_empty());
        Assembled { id: self.id.clone(), at: begin, kill, steps, again, complete }
    }
}

#[cfg(test)]
#[path = "oom_assembly_tests.rs"]
mod tests;
