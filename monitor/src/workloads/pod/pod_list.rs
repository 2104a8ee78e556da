//! Lists of pods. Each pod must be an object. A derived struct would also accept an array, with the fields as its items.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use super::object::Pod;
use crate::workloads::json_defaults::list;

/// A list of pods. A null pod is an empty pod, a null list is an empty list.
#[derive(Debug, Default)]
pub struct Pods(pub Vec<Pod>);

impl<'de> Deserialize<'de> for Pods {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let pods: Vec<Object> = list(deserializer)?;
        Ok(Self(pods.into_iter().map(|Object(pod)| pod).collect()))
    }
}

#[derive(Debug, Default)]
struct Object(Pod);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object: Pod")
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Object, A::Error> {
                Pod::deserialize(MapAccessDeserializer::new(fields)).map(Object)
            }
        }
        deserializer.deserialize_map(Fields)
    }
}
