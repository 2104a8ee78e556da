//! Assembles the kernel's marks and kills into one incident for each invocation of the OOM killer. Pure: no clock, no files.
//!
//! The kernel marks one victim, or with `memory.oom.group` every process of a cgroup; each victim exits at its own time. An incident is
//! reported when all its victims have exited, or after two seconds. A later exit is added to the incident, which is reported again.

use std::time::Duration;

use jiff::Timestamp;

use super::model::{self, Kind, OomKill, Step, Trigger, Victim};
use crate::units::Monotonic;

/// The marks of a group follow one another within this time. Until then their number is unknown.
const SETTLE: Duration = Duration::from_millis(20);
/// The first report waits this long for victims to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// The wait before the next report of an incident doubles this many times: one record for each exit of a thousand processes would
/// push all other records out of the journal.
const DOUBLINGS: u32 = 3;
/// Exits later than this are not attributed to an invocation.
const ATTRIBUTION: Duration = Duration::from_secs(30);
/// Without the time of the invocation, marks of one task within this time belong to one invocation.
const SAME_INVOCATION: Duration = Duration::from_millis(100);
/// The most incidents under assembly. In a larger storm the oldest are reported as they are.
const OPEN: usize = 256;
/// The most victims that a record lists.
const VICTIMS: usize = 100;

/// The OOM killer chose a process.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    pub at: Monotonic,
    /// The time of the invocation, which all its marks share.
    pub invoked: Option<Monotonic>,
    pub victim_pid: i32,
    /// The task whose allocation invoked the OOM killer.
    pub trigger: Trigger,
}

/// A victim of the OOM killer exited.
#[derive(Debug, Clone, PartialEq)]
pub struct Kill {
    pub at: Monotonic,
    /// The time of the choice.
    pub marked: Monotonic,
    pub invoked: Option<Monotonic>,
    pub victim: Victim,
    /// The facts that all victims of the invocation share. Its `victims` are ignored.
    pub kill: OomKill,
}

/// An incident to report, with what is known so far.
#[derive(Debug, Clone, PartialEq)]
pub struct Assembled {
    pub id: String,
    /// The time of the invocation, or else of the first mark.
    pub at: Monotonic,
    pub kill: OomKill,
    pub steps: Vec<Step>,
    /// An earlier report, with less information, precedes this one.
    pub again: bool,
    /// All victims have exited.
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
    /// Victims that have not exited: process id, mark.
    marked: Vec<(i32, Monotonic)>,
    /// Process id, mark, exit.
    exited: Vec<(i32, Monotonic, Monotonic)>,
    reported: bool,
    reports: u32,
    last_report: Monotonic,
}

#[derive(Debug, Default)]
pub struct Assembler {
    open: Vec<Open>,
}

impl Assembler {
    /// Adds a mark; `time` is its wall-clock time.
    pub fn mark(&mut self, mark: Mark, time: Timestamp) {
        let Mark { at, invoked, victim_pid, trigger } = mark;
        let is_known = |open: &&Open| {
            let same = |pid: i32, marked: Monotonic| pid == victim_pid && marked == at;
            open.marked.iter().any(|(pid, marked)| same(*pid, *marked))
                || open.exited.iter().any(|(pid, marked, _)| same(*pid, *marked))
        };
        if self.open.iter().any(|open| is_known(&open)) {
            return;
        }
        let open = self.find_or_open(invoked, at, &trigger, victim_pid, time);
        open.kill.trigger.get_or_insert(trigger);
        open.last_mark = open.last_mark.max(at);
        open.last_news = open.last_news.max(at);
        open.marked.push((victim_pid, at));
        open.reported = false;
    }

    /// Adds a kill; `time` is the wall-clock time of its mark. Returns the incident's id.
    pub fn kill(&mut self, kill: Kill, time: Timestamp) -> &str {
        let Kill { at, marked, invoked, victim, kill } = kill;
        let trigger = kill.trigger.clone().unwrap_or_default();
        let open = self.find_or_open(invoked, marked, &trigger, victim.pid, time);
        // The kernel may mark a thread other than the process's first: then only the time of the mark matches.
        let is_it = |by: fn(&(i32, Monotonic), &(i32, Monotonic)) -> bool| {
            open.marked.iter().position(|mark| by(mark, &(victim.pid, marked)))
        };
        if let Some(place) = is_it(|mark, kill| mark.0 == kill.0).or_else(|| is_it(|mark, kill| mark.1 == kill.1)) {
            open.marked.remove(place);
        }
        open.exited.push((victim.pid, marked, at));
        open.last_mark = open.last_mark.max(marked);
        open.last_news = open.last_news.max(at);
        open.reported = false;
        let known = &mut open.kill;
        let OomKill { constraint, source, order, limit, trigger, .. } = kill;
        known.constraint = known.constraint.take().or(constraint);
        known.order = known.order.or(order);
        known.limit = known.limit.take().or(limit);
        // A kill describes the task in more detail than a mark.
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

    /// Returns the incidents to report now, also those with news since an earlier report.
    pub fn due(&mut self, now: Monotonic) -> Vec<Assembled> {
        let too_many = self.open.len().saturating_sub(OPEN);
        let mut due = Vec::new();
        for (index, open) in self.open.iter_mut().enumerate() {
            if !open.reported && (open.until_due(now).is_zero() || index < too_many) {
                due.push(open.report(now));
            }
        }
        self.open.retain(|open| !open.reported || now.since(open.last_news) < ATTRIBUTION);
        let beyond_limit = self.open.len().saturating_sub(OPEN);
        self.open.drain(..beyond_limit);
        due
    }

    /// Returns all unreported incidents, complete or not: the agent is stopping.
    pub fn rest(&mut self, now: Monotonic) -> Vec<Assembled> {
        self.open.iter_mut().filter(|open| !open.reported).map(|open| open.report(now)).collect()
    }

    /// Returns the time until the next report is due; `None` without unreported incidents.
    pub fn next_due(&self, now: Monotonic) -> Option<Duration> {
        self.open.iter().filter(|open| !open.reported).map(|open| open.until_due(now)).min()
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
                exited: Vec::new(),
                reported: false,
                reports: 0,
                last_report: Monotonic::default(),
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
        let due =
            if self.marked.is_empty() { settled } else { EXIT_TIMEOUT.saturating_sub(now.since(self.first_mark)) };
        match self.reports.checked_sub(1) {
            None => due,
            Some(again) => {
                due.max((EXIT_TIMEOUT * (1 << again.min(DOUBLINGS))).saturating_sub(now.since(self.last_report)))
            }
        }
    }

    fn report(&mut self, now: Monotonic) -> Assembled {
        let assembled = self.assembled();
        self.reported = true;
        self.reports += 1;
        self.last_report = now;
        assembled
    }

    fn assembled(&self) -> Assembled {
        let begin = self.invoked.unwrap_or(self.first_mark).min(self.first_mark);
        let ms = |at: Monotonic| model::millis(at.0.saturating_sub(begin.0));
        let mut steps: Vec<Step> = self.invoked.map(|at| Step::at("invoked", ms(at))).into_iter().collect();
        let all_marked = self.marked.iter().copied().chain(self.exited.iter().map(|(pid, marked, _)| (*pid, *marked)));
        let of = |step: &str, pid: i32, at: Monotonic| Step { pid: Some(pid), ..Step::at(step, ms(at)) };
        steps.extend(all_marked.take(VICTIMS).map(|(pid, at)| of("marked", pid, at)));
        // The kernel's log reports only the choice.
        let exited = self.exited.iter().filter(|(_, marked, at)| at > marked);
        steps.extend(exited.take(VICTIMS).map(|(pid, _, at)| of("exited", *pid, *at)));
        steps.sort_by(|a, b| a.ms.total_cmp(&b.ms));
        let mut kill = self.kill.clone();
        // Of a victim that has not exited only the process id is known.
        let waiting = self.marked.iter().map(|(pid, _)| Victim { pid: *pid, ..Victim::default() });
        kill.victims.extend(waiting.take(VICTIMS));
        // Without the time of the invocation several victims are no proof of a group: one task may invoke the OOM killer twice.
        kill.group = self.invoked.is_some() && self.marked.len() + self.exited.len() > 1;
        let (again, complete) = (self.reports > 0, self.marked.is_empty());
        Assembled { id: self.id.clone(), at: begin, kill, steps, again, complete }
    }
}

#[cfg(test)]
#[path = "oom_assembly_tests.rs"]
mod tests;
