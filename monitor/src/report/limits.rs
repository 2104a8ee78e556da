//! Limits of what a lasting fault or a flickering value would repeat: log lines, events and token reviews.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::record::Record;
use crate::incidents::Account;
use crate::kernel::Event;
use crate::units::Monotonic;

/// Admits `burst` lines at once, and then one every `interval`.
///
/// This is the generic cell rate algorithm: it keeps the time at which a line that conforms exactly to the rate would be due, so that no
/// tokens have to be refilled.
#[derive(Debug, Clone)]
pub struct RateLimiter {
    interval: Duration,
    /// How far ahead of the rate a line may be.
    tolerance: Duration,
    due: Option<Monotonic>,
    suppressed: u64,
}

impl RateLimiter {
    /// A burst of zero counts as one.
    pub fn new(burst: u32, interval: Duration) -> Self {
        Self { interval, tolerance: interval.saturating_mul(burst.saturating_sub(1)), due: None, suppressed: 0 }
    }

    /// Returns how many lines were suppressed since the last admitted one; `None` suppresses this line.
    pub fn admit(&mut self, now: Monotonic) -> Option<u64> {
        let due = self.due.map_or(now, |due| due.max(now));
        if due.since(now) > self.tolerance {
            self.suppressed = self.suppressed.saturating_add(1);
            return None;
        }
        self.due = Some(due.after(self.interval));
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// What is kept of each of the parties that asked last. The one that asked longest ago gives way.
#[derive(Debug)]
pub(super) struct Parties<K, V>(Vec<(K, V)>);

impl<K, V> Default for Parties<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: PartialEq + Clone, V> Parties<K, V> {
    pub(super) const MOST: usize = 64;

    /// Returns what `act` makes of the party's value, which is `new` if the party is not known.
    pub(super) fn of<T>(&mut self, party: &K, new: impl FnOnce() -> V, act: impl FnOnce(&mut V) -> T) -> T {
        let (party, mut value) = match self.0.iter().position(|(known, _)| known == party) {
            Some(place) => self.0.remove(place),
            None => (party.clone(), new()),
        };
        let made = act(&mut value);
        if self.0.len() >= Self::MOST {
            self.0.remove(0);
        }
        self.0.push((party, value));
        made
    }

    #[cfg(test)]
    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }
}

/// A rate limit of which no party can take more than its part, so that one cannot silence the others.
#[derive(Debug)]
pub struct SharedLimiter<K> {
    burst: u32,
    interval: Duration,
    all: RateLimiter,
    parties: Parties<K, RateLimiter>,
    suppressed: u64,
}

impl<K: PartialEq + Clone> SharedLimiter<K> {
    /// A burst of zero counts as one.
    pub fn new(burst: u32, interval: Duration) -> Self {
        let burst = burst.max(1);
        Self { burst, interval, all: RateLimiter::new(burst, interval), parties: Parties::default(), suppressed: 0 }
    }

    /// Admits a line that is charged to these parties, each of which may take one part in so many. Returns how many lines were suppressed
    /// since the last admitted one; `None` suppresses this line.
    pub fn admit(&mut self, parties: &[(K, u32)], now: Monotonic) -> Option<u64> {
        // The parties first: what a party's own limit refuses must not spend the limit of all.
        let has_share = parties.iter().all(|(party, part)| self.admit_party(party, *part, now));
        if has_share && self.all.admit(now).is_some() {
            return Some(std::mem::take(&mut self.suppressed));
        }
        self.suppressed = self.suppressed.saturating_add(1);
        None
    }

    fn admit_party(&mut self, party: &K, part: u32, now: Monotonic) -> bool {
        let part = part.clamp(1, self.burst);
        let new = || RateLimiter::new(self.burst / part, self.interval.saturating_mul(part));
        self.parties.of(party, new, |limiter| limiter.admit(now).is_some())
    }
}

/// Returns the parties that are charged, with the part that the journal gives each account.
pub(super) fn parts<K>(accounts: Vec<Account>, charge: impl Fn(Account) -> K) -> Vec<(K, u32)> {
    let part = |account: &Account| u32::try_from(account.part()).unwrap_or(u32::MAX);
    accounts.into_iter().map(|account| (part(&account), account)).map(|(part, it)| (charge(it), part)).collect()
}

/// Keys reported within the last `interval`. Two keys that alternate are reported once each, not at every change.
#[derive(Debug)]
pub struct Dedup<K> {
    interval: Duration,
    reported: Vec<(K, Monotonic)>,
}

impl<K: PartialEq> Dedup<K> {
    pub const fn new(interval: Duration) -> Self {
        Self { interval, reported: Vec::new() }
    }

    /// Whether the key is to be reported now; if so, records it as reported.
    pub fn is_due(&mut self, key: K, now: Monotonic) -> bool {
        self.reported.retain(|(_, at)| now.since(*at) < self.interval);
        let is_due = self.reported.iter().all(|(reported, _)| *reported != key);
        if is_due {
            self.reported.push((key, now));
        }
        is_due
    }

    pub fn clear(&mut self) {
        self.reported.clear();
    }
}

/// A condition with a short transition period may flicker: this many changes are reported at once, then one every `INTERVAL`.
const BURST: u32 = 10;
const INTERVAL: Duration = Duration::from_secs(10);

/// The status of each condition that was reported last.
#[derive(Debug, Default)]
pub struct ConditionLog {
    reported: BTreeMap<String, Reported>,
}

#[derive(Debug)]
struct Reported {
    status: bool,
    limiter: RateLimiter,
    /// The status as seen, reported or not.
    seen: bool,
    /// When it was seen to change last.
    since: Option<Monotonic>,
}

impl ConditionLog {
    /// Returns how many changes were suppressed before, if the status differs from the reported one and may be reported now. A suppressed
    /// change is reported later if it still holds. A condition that is false when first seen is no change.
    pub fn update(&mut self, condition: &str, status: bool, now: Monotonic) -> Option<u64> {
        if !self.reported.contains_key(condition) {
            let limiter = RateLimiter::new(BURST, INTERVAL);
            self.reported.insert(condition.to_owned(), Reported { status: false, limiter, seen: status, since: None });
        }
        let reported = self.reported.get_mut(condition)?;
        if reported.seen != status {
            (reported.seen, reported.since) = (status, Some(now));
        }
        if reported.status == status {
            return None;
        }
        let suppressed = reported.limiter.admit(now)?;
        reported.status = status;
        Some(suppressed)
    }

    /// Returns the conditions that have changed since the first look, and when they did last.
    pub fn changes(&self) -> Vec<(String, Monotonic)> {
        self.reported.iter().filter_map(|(condition, it)| Some((condition.clone(), it.since?))).collect()
    }

    /// Drops a condition that the configuration no longer has. If it returns, it starts as false.
    pub fn forget(&mut self, condition: &str) {
        self.reported.remove(condition);
    }
}

/// The limits of records, by the kind of fault.
#[derive(Debug)]
pub(super) struct LogLimits {
    kinds: HashMap<&'static str, RateLimiter>,
    oom_kills: SharedLimiter<Account>,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self { kinds: HashMap::new(), oom_kills: SharedLimiter::new(200, Duration::from_millis(100)) }
    }
}

impl LogLimits {
    /// Returns how many records were suppressed before this one; `None` suppresses this one.
    pub(super) fn admit(&mut self, record: &Record<'_>, now: Monotonic) -> Option<u64> {
        let seldom = (1, Duration::from_secs(10));
        let often = (10, Duration::from_secs(1));
        let (kind, (burst, interval)) = match record {
            Record::ThresholdMet { .. } | Record::ThresholdRecovered { .. } => {
                ("crossings", (20, Duration::from_secs(1)))
            }
            Record::ThresholdUnarmed { .. } | Record::ThresholdArmed { .. } => {
                ("arming", (20, Duration::from_secs(10)))
            }
            Record::CandidatesExhausted { .. } | Record::BudgetSpent { .. } => ("exhausted", seldom),
            Record::EvictionWaits { .. } | Record::MemoryExpected { .. } => ("waits", seldom),
            Record::LeftToKubelet { .. } => ("left to the kubelet", seldom),
            Record::SwapKeepsUp { .. } => ("swap keeps up", seldom),
            Record::SwapFallsShort { .. } => ("swap falls short", seldom),
            Record::ProtectedLeak { .. } => ("protected leak", seldom),
            Record::RefaultsOnly { .. } => ("refaults", seldom),
            Record::PodsAwaited { .. } => ("pods awaited", seldom),
            Record::EvictionPutOff { .. } => ("put off", seldom),
            Record::PodUnknown { .. } | Record::EvictionUnreported { .. } | Record::EvictionRestLeft { .. } => {
                ("unknown pods", seldom)
            }
            Record::KernelEvent { event: Event::Stall(_), .. } => ("stalls", often),
            Record::OomKill(kill) => {
                let victim = &kill.victim_name;
                let accounts = Account::named(Some(&victim.workload), victim.namespace.as_deref());
                return self.oom_kills.admit(&parts(accounts, |account| account), now);
            }
            Record::OomScoreDrift { .. } | Record::OwnOomScore { .. } => ("OOM scores", often),
            Record::Degraded { .. } | Record::Restored { .. } => ("capabilities", (100, Duration::from_secs(1))),
            Record::EventDropped { .. } => ("dropped events", seldom),
            Record::ConditionChanged { suppressed, .. } => return Some(*suppressed),
            _ => return Some(0),
        };
        self.kinds.entry(kind).or_insert_with(|| RateLimiter::new(burst, interval)).admit(now)
    }

    /// Whether the metrics count a suppressed record too. Records that describe a lasting state are counted as often as they are logged.
    pub(super) const fn is_counted_always(record: &Record<'_>) -> bool {
        !matches!(
            record,
            Record::CandidatesExhausted { .. } | Record::ProtectedLeak { .. } | Record::EvictionPutOff { .. }
        )
    }
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
