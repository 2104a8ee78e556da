//! Reads JSON as Kubernetes' own clients do. A null is the default, and unknown fields are ignored.

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;

use indexmap::IndexMap;
use jiff::Timestamp;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

pub fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Reads a list in which a null stands for a default item; a null instead of the list is an empty list.
pub fn list<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    struct List<T>(PhantomData<T>);
    impl<'de, T: Default + Deserialize<'de>> Visitor<'de> for List<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            let mut all = Vec::new();
            while let Some(item) = items.next_element::<Option<T>>()? {
                all.push(item.unwrap_or_default());
            }
            Ok(all)
        }
    }
    deserializer.deserialize_any(List(PhantomData))
}

/// Returns whether the value is not null.
pub fn is_present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<IgnoredAny>::deserialize(deserializer)?.is_some())
}

/// Reads a time. An unreadable time is `None`: a pod that could not be parsed would escape limits and priority.
pub fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Wire {
        Text(String),
        Other(IgnoredAny),
    }
    Ok(match Wire::deserialize(deserializer)? {
        Wire::Text(text) => text.parse().ok(),
        Wire::Other(_) => None,
    })
}

/// Reads the entries of a map in their written order. Of a repeated key the last value counts. A null is an empty map.
pub fn entries<'de, D, K, T>(deserializer: D) -> Result<Vec<(K, T)>, D::Error>
where
    D: Deserializer<'de>,
    K: Eq + Hash + Deserialize<'de>,
    T: Default + Deserialize<'de>,
{
    entries_of(deserializer, |_| true)
}

/// As [`entries`], but keeps only the keys for which `is_wanted` holds. The other values are still checked.
pub fn entries_of<'de, D, K, T>(deserializer: D, is_wanted: fn(&K) -> bool) -> Result<Vec<(K, T)>, D::Error>
where
    D: Deserializer<'de>,
    K: Eq + Hash + Deserialize<'de>,
    T: Default + Deserialize<'de>,
{
    struct Entries<K, T>(fn(&K) -> bool, PhantomData<T>);
    impl<'de, K: Eq + Hash + Deserialize<'de>, T: Default + Deserialize<'de>> Visitor<'de> for Entries<K, T> {
        type Value = Vec<(K, T)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut all = IndexMap::new();
            while let Some((key, value)) = map.next_entry::<K, Option<T>>()? {
                if self.0(&key) {
                    all.insert(key, value.unwrap_or_default());
                }
            }
            Ok(all.into_iter().collect())
        }
    }
    deserializer.deserialize_any(Entries(is_wanted, PhantomData))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::workloads::pod::Pod;

    fn read(json: &str) -> Vec<(String, u64)> {
        entries(&mut serde_json::Deserializer::from_str(json)).unwrap()
    }

    #[test]
    fn a_repeated_key_keeps_its_place_and_takes_the_last_value() {
        assert_eq!(read("null"), []);
        for length in [1_u64, 2, 15, 16, 17, 48] {
            let first: String = (0..length).map(|index| format!("\"k{index}\": {index}, ")).collect();
            let again: String = (0..length).rev().map(|index| format!(", \"k{index}\": {}", index + 100)).collect();
            let entries = read(&format!("{{{first}\"x\": null{again}}}"));
            let mut expected: Vec<_> = (0..length).map(|index| (format!("k{index}"), index + 100)).collect();
            expected.push(("x".to_owned(), 0));
            assert_eq!(entries, expected);
        }
    }

    /// Reads a pod with so many annotations and requests, and returns how long that took.
    fn read_pod_of(entries: usize) -> Duration {
        let (mut annotations, mut requests) = (String::new(), String::new());
        for index in 0..entries {
            write!(annotations, "\"a{index}\":\"\",").unwrap();
            write!(requests, "\"r{index}\":1,").unwrap();
        }
        let json = format!(
            "{{\"metadata\":{{\"annotations\":{{{annotations}\"kubernetes.io/config.source\":\"file\"}}}},
               \"spec\":{{\"containers\":[{{\"resources\":{{\"requests\":{{{requests}\"memory\":2}}}}}}]}}}}"
        );
        let start = Instant::now();
        let pod: Pod = serde_json::from_str(&json).unwrap();
        let took = start.elapsed();
        assert!(pod.is_critical());
        assert_eq!(pod.metadata.annotations.len(), entries + 1);
        assert_eq!(pod.spec.containers[0].resources.requests.0.len(), entries + 1);
        took
    }

    #[test]
    fn a_hostile_map_is_read_in_linear_time() {
        // Linear time is ten times as long, quadratic a hundred times. The machine may be busy.
        let (few, many) = (0..3).map(|_| (read_pod_of(10_000), read_pod_of(100_000))).min_by_key(|it| it.1).unwrap();
        assert!(many < few * 40, "{few:?} {many:?}");
    }
}
