//! Why a candidate has its place in the ranking, in one phrase.

use super::rank::{Facts, KeyValue, Order, quantity_words};
use crate::config::RankingKey;
use crate::units::{Amount, Resource};
use crate::workloads::Preference;

/// Returns the keys that set a candidate apart, most important first, for example `BestEffort, 812.0 MiB above its request`.
pub fn place_words(facts: &Facts, order: Order<'_>) -> String {
    let has_distance = facts.request.is_some() && order.keys().contains(&RankingKey::UsageAboveRequest);
    let mut words: Vec<String> = Vec::new();
    for key in order.keys() {
        let is_told_later = *key == RankingKey::ExceedsRequests && has_distance;
        let word = key_words(KeyValue::of(*key, facts), facts, order.resource()).filter(|_| !is_told_later);
        words.extend(word.filter(|word| !words.contains(word)));
    }
    if words.is_empty() { "no key sets it apart; its name decides".to_owned() } else { words.join(", ") }
}

/// Returns the value of one key; `None` if most workloads have the same.
fn key_words(value: KeyValue, facts: &Facts, resource: Resource) -> Option<String> {
    let amount = |amount: Amount| with_unit(amount, resource);
    Some(match value {
        KeyValue::Preference(Preference::None) | KeyValue::Priority(0) => return None,
        KeyValue::ExceedsRequests(_) | KeyValue::Request(_) if facts.request.is_none() => return None,
        KeyValue::UsageAboveRequest(_) | KeyValue::Excess(_) if facts.request.is_none() => {
            format!("uses {}", amount(facts.usage?))
        }
        KeyValue::UsageAboveRequest(above) if above.is_negative() => {
            format!("{} below its request", amount(Amount::ZERO - above))
        }
        KeyValue::UsageAboveRequest(above) | KeyValue::Excess(above) if above.is_zero() => {
            "within its request".to_owned()
        }
        KeyValue::UsageAboveRequest(above) | KeyValue::Excess(above) => format!("{} above its request", amount(above)),
        KeyValue::Usage(usage) => format!("uses {}", amount(usage)),
        KeyValue::NoStatistics => "its usage is not known".to_owned(),
        value => value.words(resource),
    })
}

fn with_unit(amount: Amount, resource: Resource) -> String {
    let quantity = quantity_words(amount, resource);
    let unit = match resource {
        Resource::Memory | Resource::EphemeralStorage => return quantity,
        Resource::Inodes => "inode",
        Resource::Pids => "process id",
    };
    let plural = if amount.units() == 1 { "" } else { "s" };
    format!("{quantity} {unit}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Policy, Ranking};
    use crate::units::Bytes;
    use crate::workloads::QosClass;

    fn facts(qos: QosClass, priority: i32, usage: Option<u64>, request: Option<u64>) -> Facts {
        let amount = |mib| Amount::from(Bytes::from_mib(mib));
        Facts {
            preference: Preference::None,
            qos,
            priority,
            usage: usage.map(amount),
            request: request.map(amount),
            subtracted: request.map(amount).unwrap_or_default(),
        }
    }

    #[test]
    fn a_phrase_has_the_keys_that_set_a_candidate_apart() {
        use QosClass::{BestEffort, Burstable, Guaranteed};
        for (facts, expected) in [
            (facts(BestEffort, 0, Some(812), Some(0)), "BestEffort, 812.0 MiB above its request"),
            (facts(Burstable, 1000, Some(690), Some(512)), "Burstable, priority 1000, 178.0 MiB above its request"),
            (facts(Guaranteed, 0, Some(350), Some(400)), "Guaranteed, 50.0 MiB below its request"),
            (facts(Guaranteed, 0, Some(400), Some(400)), "Guaranteed, within its request"),
            (facts(Burstable, 0, None, Some(400)), "Burstable, its usage is not known"),
        ] {
            assert_eq!(place_words(&facts, Order::of(&Policy::default(), Resource::Memory)), expected);
        }
        let marked = Facts { preference: Preference::Avoid, ..facts(BestEffort, 0, Some(1), Some(0)) };
        let phrase = place_words(&marked, Order::of(&Policy::default(), Resource::Memory));
        assert_eq!(phrase, "marked user.oomd_avoid, BestEffort, 1.0 MiB above its request");
    }

    #[test]
    fn a_resource_without_requests_has_usages() {
        let counted =
            |usage| Facts { usage: Some(Amount::from_units(usage)), ..facts(QosClass::Burstable, 0, None, None) };
        for (usage, resource, expected) in [
            (17, Resource::Pids, "Burstable, uses 17 process ids"),
            (1, Resource::Pids, "Burstable, uses 1 process id"),
            (17, Resource::Inodes, "Burstable, uses 17 inodes"),
        ] {
            assert_eq!(place_words(&counted(usage), Order::of(&Policy::default(), resource)), expected);
        }
    }

    #[test]
    fn each_ranking_has_a_phrase() {
        let within = facts(QosClass::Burstable, 0, Some(100), Some(200));
        let custom = |keys: &[RankingKey]| Ranking::Custom(keys.to_vec());
        for (ranking, expected) in [
            (Ranking::Kubernetes, "100.0 MiB below its request"),
            (Ranking::OpenShift3, "Burstable, within its request, uses 100.0 MiB"),
            (Ranking::OpenShift39, "100.0 MiB below its request"),
            (custom(&[RankingKey::ExceedsRequests]), "within its request"),
            (custom(&[RankingKey::Request]), "requests 200.0 MiB"),
            (custom(&[RankingKey::Priority]), "no key sets it apart; its name decides"),
        ] {
            let policy = Policy { ranking, ..Policy::default() };
            assert_eq!(place_words(&within, Order::of(&policy, Resource::Memory)), expected);
        }
    }
}
