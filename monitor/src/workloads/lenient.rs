//! Reading JSON as Kubernetes' own clients do: a null is the same as nothing, and fields that are not known are passed over.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A null is the default.
///
/// # Errors
/// When it is neither null nor what is wanted.
pub fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A list in which a null stands for a default item; a null for the whole list is an empty one.
///
/// # Errors
/// When it is neither null nor a list of what is wanted.
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

/// Whether there is anything but null.
///
/// # Errors
/// When it is not JSON.
pub fn is_present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<IgnoredAny>::deserialize(deserializer)?.is_some())
}

/// The entries of a map in the order written; where a key is given twice the last counts. A null is an empty one.
///
/// # Errors
/// When it is neither null nor a map to what is wanted.
pub fn entries<'de, D, K, T>(deserializer: D) -> Result<Vec<(K, T)>, D::Error>
where
    D: Deserializer<'de>,
    K: Clone + Eq + Hash + Deserialize<'de>,
    T: Default + Deserialize<'de>,
{
    entries_of(deserializer, |_| true)
}

/// As [`entries`], but only those with keys that are wanted. The others are read all the same.
///
/// # Errors
/// When it is neither null nor a map to what is wanted.
pub fn entries_of<'de, D, K, T>(deserializer: D, is_wanted: fn(&K) -> bool) -> Result<Vec<(K, T)>, D::Error>
where
    D: Deserializer<'de>,
    K: Clone + Eq + Hash + Deserialize<'de>,
    T: Default + Deserialize<'de>,
{
    struct Entries<K, T>(fn(&K) -> bool, PhantomData<T>);
    impl<'de, K: Clone + Eq + Hash + Deserialize<'de>, T: Default + Deserialize<'de>> Visitor<'de> for Entries<K, T> {
        type Value = Vec<(K, T)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut all = Unique { entries: Vec::new(), places: HashMap::new() };
            while let Some((key, value)) = map.next_entry::<K, Option<T>>()? {
                if self.0(&key) {
                    all.set(key, value.unwrap_or_default());
                }
            }
            Ok(all.entries)
        }
    }
    deserializer.deserialize_any(Entries(is_wanted, PhantomData))
}

/// So many entries are looked through faster than a table of them is made.
const FEW: usize = 16;

/// Entries of which no two have the same key.
struct Unique<K, T> {
    entries: Vec<(K, T)>,
    /// Where each is, once they are many: looking through them for every one more would take hours for a hostile document.
    places: HashMap<K, usize>,
}

impl<K: Clone + Eq + Hash, T> Unique<K, T> {
    fn set(&mut self, key: K, value: T) {
        let place = if self.entries.len() < FEW {
            self.entries.iter().position(|(known, _)| *known == key)
        } else {
            if self.places.is_empty() {
                self.places = self.entries.iter().enumerate().map(|(place, (key, _))| (key.clone(), place)).collect();
            }
            self.places.get(&key).copied()
        };
        if let Some((_, known)) = place.and_then(|place| self.entries.get_mut(place)) {
            *known = value;
            return;
        }
        if !self.places.is_empty() {
            self.places.insert(key.clone(), self.entries.len());
        }
        self.entries.push((key, value));
    }
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
    fn the_last_of_one_key_counts_in_the_place_of_the_first() {
        assert_eq!(read("null"), []);
        for length in [1, 2, FEW - 1, FEW, FEW + 1, 3 * FEW] {
            let first: String = (0..length).map(|index| format!("\"k{index}\": {index}, ")).collect();
            let again: String = (0..length).rev().map(|index| format!(", \"k{index}\": {}", index + 100)).collect();
            let entries = read(&format!("{{{first}\"x\": null{again}}}"));
            let mut expected: Vec<_> = (0..length).map(|index| (format!("k{index}"), index as u64 + 100)).collect();
            expected.push(("x".to_owned(), 0));
            assert_eq!(entries, expected);
        }
    }

    #[test]
    fn a_hostile_map_takes_no_longer_than_it_is_long() {
        let (mut annotations, mut requests) = (String::new(), String::new());
        for index in 0..100_000 {
            write!(annotations, "\"a{index}\":\"\",").unwrap();
            write!(requests, "\"r{index}\":1,").unwrap();
        }
        let json = format!(
            "{{\"metadata\":{{\"annotations\":{{{annotations}\"kubernetes.io/config.source\":\"file\"}}}},
               \"spec\":{{\"containers\":[{{\"resources\":{{\"requests\":{{{requests}\"memory\":2}}}}}}]}}}}"
        );
        let start = Instant::now();
        let pod: Pod = serde_json::from_str(&json).unwrap();
        assert!(pod.is_critical());
        assert_eq!(pod.metadata.annotations.len(), 100_001);
        assert_eq!(pod.spec.containers[0].resources.requests.0.len(), 100_001);
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    }
}
