//! Ranks candidates: the order in which they are evicted, and its explanation.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;

use super::mutants::rule;
use super::standing::Standing;
use crate::config::{Policy, Quirk, Quirks, RankingKey, Semantics};
use crate::units::{Amount, CgroupId, Resource};
use crate::workloads::{AmongOwn, Outlook, OwnPlace, Preference, QosClass, WorkloadUsage};

/// The facts about a candidate that a ranking uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The preference by the mark `user.oomd_avoid`.
    pub preference: Preference,
    pub qos: QosClass,
    /// The pod's `spec.priority`, or zero if it has none.
    pub priority: i32,
    /// The usage of the resource, or `None` without statistics.
    pub usage: Option<Amount>,
    /// The request, or `None` for a resource that cannot be requested.
    pub request: Option<Amount>,
    /// The amount that is subtracted from the usage. It is the request, except under [`Quirk::InodesMinusBytes`].
    pub subtracted: Amount,
}

/// A workload that can be ranked.
pub trait Candidate {
    /// The type of names.
    type Name<'a>: Ord + fmt::Display
    where
        Self: 'a;
    /// Returns the name. It decides between candidates whose keys are equal.
    fn name(&self) -> Self::Name<'_>;
    /// Returns the identity. It decides between candidates with the same name.
    fn id(&self) -> Cow<'_, str>;
    /// Returns the facts that the ranking keys use.
    fn facts(&self) -> Facts;
    /// Returns the cgroup, by which failed attempts are remembered.
    fn cgroup(&self) -> CgroupId {
        CgroupId(0)
    }
    /// Returns whether the usage is exact. Otherwise it is an upper bound.
    fn is_exact(&self) -> bool {
        true
    }
    /// Returns what is known about its memory beyond its usage.
    fn outlook(&self) -> Outlook {
        Outlook::default()
    }
    /// Returns whether the API server's list of pods is awaited, and the pod is not known. It goes last: it may be critical.
    fn is_unlisted(&self) -> bool {
        false
    }
    /// Returns the standing, or `None` if it is read only when the candidate is about to be evicted.
    fn standing(&self) -> Option<Standing> {
        None
    }
}

impl Candidate for WorkloadUsage {
    type Name<'a> = &'a str;

    fn name(&self) -> &str {
        &self.workload.name
    }

    fn id(&self) -> Cow<'_, str> {
        Cow::Owned(self.workload.id.to_string())
    }

    fn facts(&self) -> Facts {
        let memory = || (Some(self.working_set.into()), Some(Amount::from(self.workload.request)));
        let (usage, request) = self.other.map_or_else(memory, |other| (other.used, other.request));
        Facts {
            preference: self.workload.preference,
            qos: self.workload.qos,
            priority: self.workload.pod.as_ref().map_or(0, |pod| pod.priority()),
            usage,
            request,
            subtracted: request.unwrap_or_default(),
        }
    }

    fn cgroup(&self) -> CgroupId {
        self.workload.id
    }

    fn is_exact(&self) -> bool {
        self.exact || self.other.is_some()
    }

    fn outlook(&self) -> Outlook {
        self.outlook
    }

    fn is_unlisted(&self) -> bool {
        self.workload.is_unlisted
    }
}

/// The value of one ranking key for one candidate. Both the order and the explanation derive from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyValue {
    /// [`RankingKey::Preference`].
    Preference(Preference),
    /// [`RankingKey::QosClass`].
    QosClass(QosClass),
    /// [`RankingKey::ExceedsRequests`].
    ExceedsRequests(bool),
    /// [`RankingKey::Priority`].
    Priority(i32),
    /// [`RankingKey::UsageAboveRequest`].
    UsageAboveRequest(Amount),
    /// [`RankingKey::Excess`].
    Excess(Amount),
    /// [`RankingKey::Usage`].
    Usage(Amount),
    /// [`RankingKey::Request`].
    Request(Amount),
    /// A key that uses the usage, for a candidate without statistics.
    NoStatistics,
}

impl KeyValue {
    pub fn of(key: RankingKey, facts: &Facts) -> Self {
        let with_usage =
            |make: fn(Amount, &Facts) -> Self| facts.usage.map_or(Self::NoStatistics, |usage| make(usage, facts));
        match key {
            RankingKey::Preference => Self::Preference(facts.preference),
            RankingKey::QosClass => Self::QosClass(facts.qos),
            RankingKey::Priority => Self::Priority(facts.priority),
            RankingKey::Request => Self::Request(facts.request.unwrap_or_default()),
            RankingKey::ExceedsRequests if facts.request.is_none() => Self::ExceedsRequests(false),
            RankingKey::ExceedsRequests => {
                with_usage(|usage, facts| Self::ExceedsRequests(facts.request.is_some_and(|request| usage > request)))
            }
            RankingKey::UsageAboveRequest => {
                with_usage(|usage, facts| Self::UsageAboveRequest(usage - facts.subtracted))
            }
            RankingKey::Excess => with_usage(|usage, facts| Self::Excess((usage - facts.subtracted).max(Amount::ZERO))),
            RankingKey::Usage => with_usage(|usage, _| Self::Usage(usage)),
        }
    }

    /// Returns a number to order by; the smaller is evicted first. Amounts are bounded, so `i128::MIN` is free for missing statistics.
    fn order(self) -> i128 {
        match self {
            Self::Preference(preference) => preference as i128,
            Self::QosClass(class) => class as i128,
            Self::ExceedsRequests(exceeds) => i128::from(!exceeds),
            Self::Priority(priority) => rule!(HighPriorityFirst: -i128::from(priority), i128::from(priority)),
            Self::Request(request) => request.billionths(),
            Self::UsageAboveRequest(amount) | Self::Excess(amount) | Self::Usage(amount) => -amount.billionths(),
            Self::NoStatistics => i128::MIN,
        }
    }

    /// Returns the value in words. `resource` gives amounts their unit.
    pub fn words(self, resource: Resource) -> String {
        let amount = |amount: Amount| quantity_words(amount, resource);
        match self {
            Self::Preference(Preference::None) => "no preference".to_owned(),
            Self::Preference(_) => "marked user.oomd_avoid".to_owned(),
            Self::QosClass(class) => class.to_string(),
            Self::ExceedsRequests(true) => "exceeds its request".to_owned(),
            Self::ExceedsRequests(false) => "within its request".to_owned(),
            Self::Priority(priority) => format!("priority {priority}"),
            Self::UsageAboveRequest(above) if above.is_negative() => {
                format!("{} below it", amount(Amount::ZERO - above))
            }
            Self::UsageAboveRequest(above) | Self::Excess(above) => format!("{} above it", amount(above)),
            Self::Usage(usage) => format!("uses {}", amount(usage)),
            Self::Request(request) => format!("requests {}", amount(request)),
            Self::NoStatistics => "no statistics".to_owned(),
        }
    }
}

pub(super) fn quantity_words(amount: Amount, resource: Resource) -> String {
    if resource.is_bytes() { amount.bytes().to_string() } else { amount.units().to_string() }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranked<C> {
    pub candidate: C,
}

impl<C: Candidate> Ranked<C> {
    /// Returns the facts that its place in the ranking follows from.
    pub fn facts(&self, order: Order<'_>) -> Facts {
        order.facts(&self.candidate)
    }

    /// Returns the value of every key of the order, most important first.
    pub fn keys(&self, order: Order<'_>) -> Vec<KeyValue> {
        let facts = self.facts(order);
        order.keys.iter().map(|key| KeyValue::of(*key, &facts)).collect()
    }

    pub fn explanation(&self, order: Order<'_>) -> String {
        let mut keys: Vec<String> = self.keys(order).into_iter().map(|key| key.words(order.resource)).collect();
        keys.extend(own_place(&self.candidate).words().map(str::to_owned));
        let name = self.candidate.name();
        match self.facts(order).usage {
            Some(usage) => {
                format!("{name} uses {}: {}", quantity_words(usage, order.resource), keys.join(", "))
            }
            None => format!("{name} has no statistics: {}", keys.join(", ")),
        }
    }
}

/// The keys to order candidates by.
#[derive(Debug, Clone, Copy)]
pub struct Order<'a> {
    keys: &'a [RankingKey],
    resource: Resource,
    quirks: Quirks,
    /// Whether usage is what a workload's end gives back: hot file pages pick no victim.
    counts_gain: bool,
}

impl<'a> Order<'a> {
    /// Returns the order of the policy for a resource that runs out.
    pub fn of(policy: &'a Policy, resource: Resource) -> Self {
        let is_corrected = policy.semantics == Semantics::Corrected;
        let counts_gain = rule!(FilePagesCount: false, is_corrected && resource == Resource::Memory);
        Self { keys: policy.ranking.keys(resource), resource, quirks: policy.quirks, counts_gain }
    }

    /// Returns the facts of the candidate that its place follows from.
    fn facts<C: Candidate>(self, candidate: &C) -> Facts {
        let facts = candidate.facts();
        let gain = candidate.outlook().gain.filter(|_| self.counts_gain).map(Amount::from);
        Facts { usage: gain.or(facts.usage), ..facts }
    }

    /// Returns the keys, most important first.
    pub fn keys(&self) -> &'a [RankingKey] {
        self.keys
    }

    /// Returns the resource that runs out.
    pub const fn resource(&self) -> Resource {
        self.resource
    }

    /// Orders candidates, first to be evicted first. The order is total: between equal candidates the name decides, and between equal names
    /// the identity.
    pub fn rank<C: Candidate>(self, candidates: impl IntoIterator<Item = C>) -> Vec<Ranked<C>> {
        let mut ranked: Vec<Ranked<C>> = candidates.into_iter().map(|candidate| Ranked { candidate }).collect();
        // Sorting compares and moves each element many times, and candidates are large. The sort therefore works on places and precomputed
        // numbers, and the candidates are moved once at the end.
        let keys = self.keys.len() + 1;
        let mut orders: Vec<i128> = Vec::with_capacity(keys * ranked.len());
        orders.extend(ranked.iter().flat_map(|ranked| self.orders(&ranked.candidate)));
        let orders = |place: usize| &orders[place * keys..][..keys];
        let last = |a: usize, b: usize| by_identity(&ranked[a].candidate, &ranked[b].candidate);
        let mut places: Vec<usize> = (0..ranked.len()).collect();
        places.sort_by(|a, b| orders(*a).cmp(orders(*b)).then_with(|| last(*a, *b)));
        put_own_first(&mut places, |place| ranked[place].candidate.outlook().among_own);
        arrange(&mut ranked, places);
        ranked
    }

    /// Moves the first candidate, whose usage was measured anew, to its place. The others have to be in order.
    pub fn settle_first<C: Candidate>(self, ranked: &mut [Ranked<C>]) {
        let Some((first, rest)) = ranked.split_first() else { return };
        let own = |other: &Ranked<C>| other.candidate.outlook().among_own;
        // With workloads that a user wants to keep, others of this user stand before better ones.
        let is_mixed = rest.iter().filter_map(own).any(|own| own.place > OwnPlace::Ordinary);
        let is_before = |other: &Ranked<C>| self.compare(other, first) == Ordering::Less;
        let place = if is_mixed {
            rest.iter().rposition(is_before).map_or(0, |last| last + 1)
        } else {
            rest.partition_point(is_before)
        };
        if let Some(moved) = ranked.get_mut(..=place) {
            moved.rotate_left(1);
        }
        if is_mixed {
            let mut places: Vec<usize> = (0..ranked.len()).collect();
            put_own_first(&mut places, |place| ranked.get(place).and_then(own));
            arrange(ranked, places);
        }
    }

    fn compare<C: Candidate>(self, a: &Ranked<C>, b: &Ranked<C>) -> Ordering {
        self.orders(&a.candidate).cmp(self.orders(&b.candidate)).then_with(|| by_identity(&a.candidate, &b.candidate))
    }

    /// Returns the numbers to order by. An unlisted pod goes last. Without [`Quirk::MissingStatisticsFirst`] a candidate without statistics goes last, whatever its
    /// keys.
    fn orders<C: Candidate>(self, candidate: &C) -> impl Iterator<Item = i128> + use<'a, C> {
        let facts = self.facts(candidate);
        let is_unknown = facts.usage.is_none() && !self.quirks.has(Quirk::MissingStatisticsFirst);
        let by_keys = self.keys.iter().map(move |key| KeyValue::of(*key, &facts).order());
        let last = i128::from(candidate.is_unlisted()) * 2 + i128::from(is_unknown);
        std::iter::once(last).chain(by_keys)
    }
}

fn own_place<C: Candidate>(candidate: &C) -> OwnPlace {
    candidate.outlook().among_own.map(|own| own.place).unwrap_or_default()
}

/// Moves the candidate at each of `places` to the place of this number.
fn arrange<C>(ranked: &mut [Ranked<C>], mut places: Vec<usize>) {
    for to in 0..places.len() {
        let mut from = places[to];
        // The candidate of that place has been swapped away already; follow it to where it is now.
        while from < to {
            from = places[from];
        }
        places[to] = from;
        ranked.swap(to, from);
    }
}

/// Puts before each workload that its user wants to keep the others of this user. No workload of anybody else comes nearer to its eviction.
fn put_own_first(places: &mut [usize], own: impl Fn(usize) -> Option<AmongOwn>) {
    let mut of_users: HashMap<u32, Vec<(OwnPlace, usize)>> = HashMap::new();
    for (rank, own) in places.iter().enumerate().filter_map(|(rank, place)| Some((rank, own(*place)?))) {
        of_users.entry(own.user).or_default().push((own.place, rank));
    }
    of_users.retain(|_, all| all.iter().any(|(place, _)| *place > OwnPlace::Ordinary));
    if of_users.is_empty() {
        return;
    }
    // From the last to the first, so that the next one is at the end.
    of_users.values_mut().for_each(|all| all.sort_unstable_by(|a, b| b.cmp(a)));
    let (before, mut is_placed, mut next) = (places.to_vec(), vec![false; places.len()], places.iter_mut());
    for (rank, candidate) in before.iter().enumerate() {
        let kept = own(*candidate).and_then(|kept| Some((kept.place, of_users.get_mut(&kept.user)?)));
        if let Some((kept, all)) = kept.filter(|_| !is_placed[rank]) {
            while let Some((_, earlier)) = all.pop_if(|(place, _)| *place < kept) {
                if !std::mem::replace(&mut is_placed[earlier], true)
                    && let Some(slot) = next.next()
                {
                    *slot = before[earlier];
                }
            }
        }
        if !std::mem::replace(&mut is_placed[rank], true)
            && let Some(slot) = next.next()
        {
            *slot = *candidate;
        }
    }
}

fn by_identity<C: Candidate>(a: &C, b: &C) -> Ordering {
    a.name().cmp(&b.name()).then_with(|| a.id().cmp(&b.id()))
}

impl fmt::Display for RankingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
#[path = "rank_tests.rs"]
mod tests;
