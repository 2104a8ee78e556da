//! The answer as a table.

use std::fmt::Write as _;

use super::super::output::{aligned, printable};
use super::{Allocatable, Capacity, Loaded};
use crate::config::{Policy, Quirk, RankingKey, Semantics, Threshold};
use crate::eviction::at_capacity::shown;
use crate::units::{Quantity, Resource, format_go_duration};

/// Column of the text after a label.
const INDENT: usize = 16;

/// Renders the answer, ending with a line break.
pub fn render(file: &str, loaded: &Loaded, left: &[Allocatable], capacity: &Capacity<'_>) -> String {
    let policy = &loaded.config.policy;
    let what = loaded.what.unwrap_or(loaded.kind.as_str());
    let mut text = format!("{}: a valid {what}\n\n", printable(file));
    thresholds(&mut text, policy, capacity);
    text.push('\n');
    if !loaded.config.pools.is_empty() {
        row(&mut text, "mode", loaded.config.mode.as_str());
    }
    for pool in &loaded.config.pools {
        row(&mut text, "pool", &format!("{}: {}; --pool {0} shows the rest", pool.name, pool.config.mode.as_str()));
    }
    row(&mut text, "semantics", &semantics(policy));
    row(&mut text, "ranking", &ranking(policy));
    let scores = policy.oom_scores;
    let scores =
        format!("Guaranteed {}, Burstable {} to 999, BestEffort 1000", scores.guaranteed, scores.burstable_min);
    row(&mut text, "oom_score_adj", &scores);
    row(&mut text, "soft evictions", &grace(policy));
    let period = format_go_duration(policy.pressure_transition_period);
    row(&mut text, "conditions", &format!("last for {period} after the last threshold was met"));
    let isolation = if policy.local_storage_isolation { "limits are enforced" } else { "limits are not enforced" };
    row(&mut text, "local storage", isolation);
    row(&mut text, "reserved", &reserved(policy));
    for one in left {
        row(&mut text, "allocatable", &allocatable(one));
    }
    quirks(&mut text, policy);
    text
}

fn row(text: &mut String, label: &str, what: &str) {
    // Writing to a String does not fail.
    let _ = writeln!(text, "{label:<INDENT$}{}", printable(what));
}

fn thresholds(text: &mut String, policy: &Policy, capacity: &Capacity<'_>) {
    let thresholds = &policy.thresholds;
    if thresholds.is_empty() {
        text.push_str("no thresholds: the agent evicts nothing for a signal\n");
        return;
    }
    let rows: Vec<_> = thresholds
        .iter()
        .map(|threshold| {
            let grace = match threshold.is_hard() {
                true => "at once".to_owned(),
                false => format!("after {}", format_go_duration(threshold.grace_period)),
            };
            let reclaim = threshold.min_reclaim.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
            let row = [threshold.to_string(), threshold.kind().to_owned(), grace, reclaim].into_iter();
            row.chain(amount(threshold, policy, capacity)).collect()
        })
        .collect();
    let mut heads = ["THRESHOLD", "KIND", "EVICTS", "MINIMUM RECLAIM"].map(str::to_owned).to_vec();
    if !capacity.is_empty() {
        heads.push("AT THIS CAPACITY".to_owned());
    }
    text.push_str(&aligned(&[vec![heads], rows].concat(), 3, |_| false));
}

/// Returns the amount that a threshold stands for, as a column where there is a capacity.
fn amount(threshold: &Threshold, policy: &Policy, capacity: &Capacity<'_>) -> Option<String> {
    let signal = threshold.signal;
    let amount = capacity.of(signal).map(|capacity| {
        let units = capacity.value_bytes();
        let amount = threshold.value.resolve(units, policy.quirks).units();
        format!("{} of {}", shown(signal, amount), shown(signal, units))
    });
    (!capacity.is_empty()).then(|| amount.unwrap_or_else(|| "-".to_owned()))
}

fn semantics(policy: &Policy) -> String {
    let what = match policy.semantics {
        Semantics::Kubelet => "available is capacity minus working set",
        Semantics::Corrected => "available is what the kernel can really allocate",
    };
    format!("{}: {what}", policy.semantics.as_str())
}

fn ranking(policy: &Policy) -> String {
    let keys = |resource| {
        let keys = policy.ranking.keys(resource).iter().copied().map(RankingKey::as_str);
        keys.collect::<Vec<_>>().join(", ")
    };
    let memory = keys(Resource::Memory);
    let mut text = format!("{}: {memory}", policy.ranking.as_str());
    for (resource, name) in [(Resource::EphemeralStorage, "disk"), (Resource::Pids, "pids")] {
        let others = keys(resource);
        if others != memory {
            let _ = write!(text, "; for {name}: {others}");
        }
    }
    text
}

fn grace(policy: &Policy) -> String {
    match policy.max_pod_grace_period {
        0 => "the pod is killed at once".to_owned(),
        seconds @ 1.. => format!("the pod has at most {seconds} s to stop"),
        seconds if policy.quirks.has(Quirk::NegativeMaxGrace) => format!("the pod is given {seconds} s, unchanged"),
        _ => "the pod has its own grace period to stop".to_owned(),
    }
}

fn reserved(policy: &Policy) -> String {
    let list = |amounts: &[(String, Quantity)]| {
        let amounts: Vec<_> = amounts.iter().map(|(name, amount)| format!("{name}={}", amount.canonical())).collect();
        if amounts.is_empty() { "nothing".to_owned() } else { amounts.join(", ") }
    };
    let hard = if policy.reservations.hard_thresholds {
        "hard thresholds are subtracted from allocatable, too"
    } else {
        "hard thresholds are not subtracted from allocatable: the reservations must cover them"
    };
    format!("system {}; kube {}; {hard}", list(&policy.reservations.system), list(&policy.reservations.kube))
}

fn allocatable(one: &Allocatable) -> String {
    format!(
        "{} {} of {} (system {}, kube {}, hard threshold {})",
        one.resource,
        one.allocatable.canonical(),
        one.capacity.canonical(),
        one.system_reserved.canonical(),
        one.kube_reserved.canonical(),
        one.hard_threshold.canonical(),
    )
}

fn quirks(text: &mut String, policy: &Policy) {
    let (kept, corrected): (Vec<Quirk>, Vec<Quirk>) = Quirk::ALL.iter().partition(|quirk| policy.quirks.has(**quirk));
    if corrected.is_empty() {
        row(text, "quirks", "all of the kubelet's are reproduced; config/SEMANTICS.md explains them");
        return;
    }
    let mut label = "corrected";
    for quirk in corrected {
        row(text, label, &format!("{}: {}", quirk.as_str(), instead(quirk)));
        label = "";
    }
    let kept: Vec<_> = kept.into_iter().map(Quirk::as_str).collect();
    row(text, "as the kubelet", &if kept.is_empty() { "nothing".to_owned() } else { kept.join(", ") });
}

/// Describes the behaviour if a quirk is corrected.
const fn instead(quirk: Quirk) -> &'static str {
    match quirk {
        Quirk::ContainerFsFirstPass => "thresholds for containerfs count from the first pass on",
        Quirk::InodesMinusBytes => "inodes are compared with inodes",
        Quirk::NegativeMaxGrace => "a negative evictionMaxPodGracePeriod means the pod's own",
        Quirk::GraceRestartsAtOnce => "a single good sample does not restart a grace period",
        Quirk::ConditionBeforeGrace => "the node condition waits for the grace period",
        Quirk::ZeroTransitionHidesCondition => "without a transition period the condition is reported nevertheless",
        Quirk::AlwaysMetPercentage => "100.0% is refused",
        Quirk::Float32Percentages => "percentages are exact",
        Quirk::AvailableUnderflow => "usage above capacity leaves zero, not less",
        Quirk::EventWithoutCandidate => "the node event is sent only when something can be freed",
        Quirk::EveryThresholdAfterGarbageCollection => "garbage collection is judged by the filesystems alone",
        Quirk::MissingStatisticsFirst => "a pod without statistics ranks last",
        Quirk::LocalStorageWithoutDisruptionTarget => "evictions for local storage set DisruptionTarget, too",
        Quirk::PodLevelHidesStorageRequest => "pod-level resources leave the request for ephemeral storage alone",
        Quirk::EmptyPodResourcesBestEffort => "`resources: {}` of a pod has no effect",
        Quirk::OomScoreAdjAbove1000 => "oom_score_adj is 999 at most",
        Quirk::SidecarStorageLimitIgnored => "the limit of local storage of a sidecar is checked",
        Quirk::ContainerLimitWithoutWritableLayer => {
            "a container's writable layer counts for its limit wherever it lies"
        }
        Quirk::MessageWithoutVolumes => "the message of an eviction for a disk names the volumes, too",
        Quirk::NoGarbageCollectionForNodeFs => "dead containers are removed for nodefs, because their logs are there",
        Quirk::ImagesCountAsFreed => "space is measured when that of a removed image is free",
        Quirk::HugePagesAvailable => "huge pages are not available memory",
        Quirk::ClaimedMemoryIgnored => "memory of a pod's resource claims is part of its request",
        Quirk::ArcIsUsed => "what ZFS can drop of its cache (ARC) is available",
        Quirk::CmaIsAvailable => "free CMA pages are not available",
        Quirk::ProtectedCacheIsAvailable => "page cache that memory.min protects is not available",
        Quirk::LowProtectedCacheIsAvailable => "page cache that memory.low protects is not available",
        Quirk::HugePagesAreUsage => "huge pages are no usage of a workload",
    }
}
