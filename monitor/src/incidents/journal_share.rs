//! The share of a workload in the journal. A container that the kernel kills again and again must not push the incidents of all others
//! out. Pure: no clock, no files.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::journal::Segment;
use super::model::{Eviction, Incident, OomKill, StoredHead};

/// The records of one workload take at most this part of the journal.
const PART_OF_WORKLOAD: u64 = 4;
/// The records of one namespace take at most this part. A pod that is created anew each time is another workload each time.
const PART_OF_NAMESPACE: u64 = 2;
/// The count of further incidents is written again when it has grown by this part.
const GROWTH_PART: u64 = 4;
/// The ids of recent incidents are kept, because an incident may have several records.
const RECENT: usize = 256;
/// The most workloads and namespaces whose further incidents are counted at once.
const COUNTED: usize = 256;

/// An account that the records of incidents are charged to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Account {
    Workload(String),
    Namespace(String),
}

impl Account {
    /// Returns by what the size of the journal, and of the records that wait for the disk, is divided for this account's share.
    pub fn part(&self) -> u64 {
        match self {
            Self::Workload(_) => PART_OF_WORKLOAD,
            Self::Namespace(_) => PART_OF_NAMESPACE,
        }
    }

    /// Returns the accounts of an incident: those of the evicted workload, or of the first process that the kernel killed.
    pub fn of(incident: &Incident) -> Vec<Self> {
        let Incident { eviction, oom_kill, .. } = incident;
        let victim = oom_kill.as_ref().and_then(|kill| kill.victims.first());
        match (eviction, victim) {
            (Some(Eviction { workload, pod, .. }), _) => Self::of_pod(Some(workload), pod.as_deref()),
            (None, Some(victim)) => Self::of_pod(victim.workload.as_deref(), victim.pod.as_deref()),
            (None, None) => Vec::new(),
        }
    }

    /// Returns the accounts of a record in the journal.
    pub fn of_stored(record: &StoredHead) -> Vec<Self> {
        let victim = record.eviction.as_ref().or_else(|| record.oom_kill.as_ref()?.victims.first());
        victim.map_or_else(Vec::new, |victim| Self::of_pod(victim.workload.as_deref(), victim.pod.as_deref()))
    }

    /// `pod` is `namespace/name`.
    fn of_pod(workload: Option<&str>, pod: Option<&str>) -> Vec<Self> {
        Self::named(workload, pod.and_then(|pod| pod.split_once('/')).map(|(namespace, _)| namespace))
    }

    pub fn named(workload: Option<&str>, namespace: Option<&str>) -> Vec<Self> {
        let namespace = namespace.map(str::to_owned);
        let workload = workload.filter(|name| !name.is_empty()).map(|name| Self::Workload(name.to_owned()));
        workload.into_iter().chain(namespace.map(Self::Namespace)).collect()
    }
}

/// The part of an incident that is written.
#[derive(Debug, Clone, PartialEq)]
pub enum Admission {
    Whole,
    /// The newest incident without its evidence, and the number of incidents like it.
    Counted {
        incident: Box<Incident>,
        /// Whether to write it now. Until then only the index has the number.
        is_due: bool,
    },
}

/// The sizes of the records in the journal, by account, and the incidents that are only counted.
#[derive(Debug, Default)]
pub struct Shares {
    max_size: u64,
    used: HashMap<Account, BTreeMap<Segment, u64>>,
    /// The recent ids, with the account that an incident is only counted for.
    recent: VecDeque<(String, Option<Account>)>,
    counted: HashMap<Account, Counted>,
}

#[derive(Debug)]
struct Counted {
    newest: Incident,
    count: u64,
    written: u64,
}

impl Counted {
    /// Returns the record that stands for all. Its id is that of the first, so that each replaces the one before.
    fn record(&self, id: &str) -> Incident {
        let mut incident = self.newest.clone();
        id.clone_into(&mut incident.id);
        incident.repeated = self.count - 1;
        if incident.repeated > 0 {
            incident.summary = format!("{}, and {} more like this", incident.summary, incident.repeated);
        }
        incident
    }
}

impl Shares {
    pub fn new(max_size: u64) -> Self {
        Self { max_size, ..Self::default() }
    }

    /// Forgets all records, before the journal is read.
    pub fn clear(&mut self) {
        self.used.clear();
    }

    /// Notes a record that is in the journal.
    pub fn add(&mut self, accounts: &[Account], segment: Segment, bytes: u64) {
        for account in accounts {
            *self.used.entry(account.clone()).or_default().entry(segment).or_default() += bytes;
        }
    }

    /// Notes that the journal has dropped the files before `oldest`.
    pub fn remove_before(&mut self, oldest: Segment) {
        self.used.retain(|_, segments| {
            segments.retain(|segment, _| *segment >= oldest);
            !segments.is_empty()
        });
    }

    /// Decides what is written of an incident whose record has `bytes` bytes. `waiting` returns, of the
    /// records that wait for the disk, the bytes of an account, and whether the account has its share of them.
    pub fn admit(&mut self, incident: &Incident, bytes: u64, waiting: impl Fn(&Account) -> (u64, bool)) -> Admission {
        let earlier = self.recent.iter().find(|(id, _)| *id == incident.id).map(|(_, account)| account.clone());
        let is_new = earlier.is_none();
        let account = earlier.unwrap_or_else(|| {
            let used = |account: &Account| self.used.get(account).map_or(0, |segments| segments.values().sum::<u64>());
            let is_full = |account: &Account| {
                let (waiting, is_crowded) = waiting(account);
                is_crowded || used(account) + waiting + bytes > self.max_size / account.part()
            };
            let account = Account::of(incident).into_iter().find(is_full);
            if self.recent.len() >= RECENT {
                self.recent.pop_front();
            }
            self.recent.push_back((incident.id.clone(), account.clone()));
            account
        });
        let Some(account) = account else { return Admission::Whole };
        if self.counted.len() >= COUNTED && !self.counted.contains_key(&account) {
            // A tenant with that many workloads loses the counts, not the others their incidents.
            self.counted.clear();
        }
        let newest = without_evidence(incident);
        let counted =
            self.counted.entry(account).or_insert_with(|| Counted { newest: newest.clone(), count: 0, written: 0 });
        let id = if counted.count == 0 { newest.id.clone() } else { counted.newest.id.clone() };
        counted.newest = Incident { id: id.clone(), ..newest };
        counted.count += u64::from(is_new);
        let is_due = counted.count - counted.written > counted.written / GROWTH_PART || !is_new && counted.count == 1;
        if is_due {
            counted.written = counted.count;
        }
        Admission::Counted { incident: Box::new(counted.record(&id)), is_due }
    }

    /// Returns the records whose count was not written yet, when the agent stops.
    pub fn unwritten(&mut self) -> Vec<Incident> {
        let late = self.counted.values_mut().filter(|counted| counted.written < counted.count);
        late.map(|counted| {
            counted.written = counted.count;
            counted.record(&counted.newest.id)
        })
        .collect()
    }
}

/// Returns what happened, without the samples, the figures of the node, and the trace.
fn without_evidence(incident: &Incident) -> Incident {
    let Incident { id, kind, time, monotonic_ns, node, summary, mode, oom_kill, eviction, .. } = incident.clone();
    let oom_kill = oom_kill.map(|mut kill| {
        let omitted = kill.victims.len().saturating_sub(1);
        kill.victims.truncate(1);
        OomKill { victims_omitted: kill.victims_omitted + omitted, ..kill }
    });
    let eviction = eviction.map(|eviction| Eviction { policy: None, trace: Vec::new(), trace_cut: None, ..eviction });
    Incident { id, kind, time, monotonic_ns, node, summary, mode, oom_kill, eviction, ..Incident::default() }
}

#[cfg(test)]
mod tests {
    use super::super::model::Victim;
    use super::*;

    const MAX: u64 = 4000;

    fn kill(id: u32, workload: &str, pod: &str) -> Incident {
        let victim = Victim { workload: Some(workload.to_owned()), pod: Some(pod.to_owned()), ..Victim::default() };
        let oom_kill = Some(OomKill { victims: vec![victim], ..OomKill::default() });
        Incident { id: id.to_string(), oom_kill, summary: "it was killed".to_owned(), ..Incident::default() }
    }

    /// Admits an incident of this size, and notes what is written of it in the file `segment`. Returns whether it is whole, or the summary
    /// of the record if one is written.
    fn write(shares: &mut Shares, incident: &Incident, bytes: u64, segment: u64) -> Result<(), Option<String>> {
        let accounts = Account::of(incident);
        assert_eq!(
            Account::of_stored(&serde_json::from_value(serde_json::to_value(incident).unwrap()).unwrap()),
            accounts
        );
        match shares.admit(incident, bytes, |_| (0, false)) {
            Admission::Whole => {
                shares.add(&accounts, Segment(segment), bytes);
                Ok(())
            }
            Admission::Counted { incident, is_due } => Err(is_due.then_some(incident.summary)),
        }
    }

    #[test]
    fn a_workload_has_a_quarter_and_is_counted_beyond() {
        let mut shares = Shares::new(MAX);
        for id in 0..10 {
            assert_eq!(write(&mut shares, &kill(id, "loop", "a/x"), 100, 1), Ok(()), "{id}");
        }
        let mut records = Vec::new();
        for id in 10..823 {
            let summary = write(&mut shares, &kill(id, "loop", "a/x"), 100, 1).unwrap_err();
            records.extend(summary);
        }
        assert_eq!(
            records[..3],
            ["it was killed", "it was killed, and 1 more like this", "it was killed, and 2 more like this"]
        );
        assert!(records.len() < 40, "{} records for 813 incidents", records.len());
        let last = shares.unwritten();
        assert_eq!((last.len(), last[0].repeated, last[0].id.as_str()), (1, 812, "10"));
        assert_eq!(last[0].summary, "it was killed, and 812 more like this");
        assert_eq!(shares.unwritten(), []);
        assert_eq!(write(&mut shares, &kill(900, "other", "b/y"), 100, 1), Ok(()), "the others have the rest");
    }

    #[test]
    fn a_namespace_has_half_whatever_its_pods_are_called() {
        let mut shares = Shares::new(MAX);
        let whole = (0..100).filter(|id| {
            let pod = format!("a/job-{id}");
            write(&mut shares, &kill(*id, &pod, &pod), 100, 1) == Ok(())
        });
        assert_eq!(whole.count(), 20);
        assert_eq!(write(&mut shares, &kill(900, "other", "b/y"), 100, 1), Ok(()));
    }

    #[test]
    fn a_dropped_file_gives_the_share_back_and_a_restart_does_not() {
        let mut shares = Shares::new(MAX);
        for id in 0..10 {
            write(&mut shares, &kill(id, "loop", "a/x"), 100, 1 + u64::from(id) / 5).unwrap();
        }
        assert!(write(&mut shares, &kill(10, "loop", "a/x"), 100, 2).is_err());
        // The next agent reads the journal.
        let mut next = Shares::new(MAX);
        next.add(&Account::of(&kill(0, "loop", "a/x")), Segment(1), 500);
        next.add(&Account::of(&kill(0, "loop", "a/x")), Segment(2), 500);
        for shares in [&mut shares, &mut next] {
            assert!(write(shares, &kill(11, "loop", "a/x"), 100, 2).is_err());
            shares.remove_before(Segment(2));
            assert_eq!(write(shares, &kill(12, "loop", "a/x"), 100, 2), Ok(()));
        }
    }

    #[test]
    fn a_later_record_of_an_incident_goes_the_way_of_the_first() {
        let mut shares = Shares::new(MAX);
        let whole = kill(1, "loop", "a/x");
        write(&mut shares, &whole, 900, 1).unwrap();
        let counted = kill(2, "loop", "a/x");
        assert_eq!(write(&mut shares, &counted, 900, 1), Err(Some("it was killed".to_owned())));
        assert_eq!(write(&mut shares, &whole, 900, 1), Ok(()), "it is complete only now");
        let complete = Incident { summary: "it is gone".to_owned(), ..counted };
        assert_eq!(write(&mut shares, &complete, 900, 1), Err(Some("it is gone".to_owned())), "it counts once");
    }

    #[test]
    fn a_disk_that_does_not_answer_does_not_lift_the_share() {
        let mut shares = Shares::new(MAX);
        let crowded = |account: &Account| (0, *account == Account::Workload("loop".to_owned()));
        assert!(matches!(shares.admit(&kill(1, "loop", "a/x"), 1, crowded), Admission::Counted { .. }));
        assert_eq!(shares.admit(&kill(2, "other", "a/y"), 1, crowded), Admission::Whole);
        assert_eq!(shares.admit(&Incident::default(), MAX, crowded), Admission::Whole, "no account to charge");
    }
}
