use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

/// The name of a resource. Common names need no string: a decision over a thousand pods compares ten thousand names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ResourceName {
    Cpu,
    Memory,
    EphemeralStorage,
    Other(Box<str>),
}

impl ResourceName {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::EphemeralStorage => "ephemeral-storage",
            Self::Other(name) => name,
        }
    }
}

impl From<&str> for ResourceName {
    fn from(name: &str) -> Self {
        let known = [Self::Cpu, Self::Memory, Self::EphemeralStorage];
        known.into_iter().find(|known| known.as_str() == name).unwrap_or_else(|| Self::Other(name.into()))
    }
}

impl<'de> Deserialize<'de> for ResourceName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = ResourceName;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a resource")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<ResourceName, E> {
                Ok(name.into())
            }
        }
        deserializer.deserialize_str(Name)
    }
}

impl Serialize for ResourceName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
