//! Reading JSON as Kubernetes' own clients do: a null is the same as nothing, and fields that are not known are passed over.

use std::fmt;
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
    K: PartialEq + Deserialize<'de>,
    T: Default + Deserialize<'de>,
{
    struct Entries<K, T>(PhantomData<(K, T)>);
    impl<'de, K: PartialEq + Deserialize<'de>, T: Default + Deserialize<'de>> Visitor<'de> for Entries<K, T> {
        type Value = Vec<(K, T)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut all: Vec<(K, T)> = Vec::new();
            while let Some((key, value)) = map.next_entry::<K, Option<T>>()? {
                let value = value.unwrap_or_default();
                match all.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, known)) => *known = value,
                    None => all.push((key, value)),
                }
            }
            Ok(all)
        }
    }
    deserializer.deserialize_any(Entries(PhantomData))
}
