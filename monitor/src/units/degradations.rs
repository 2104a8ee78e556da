//! Capabilities that are missing, each with its reason.

/// Part of the reason of a capability that this machine cannot have.
pub const NOTHING_TO_DO: &str = "nothing to do";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapabilityChange {
    /// It was there before.
    Degraded,
    Restored,
    /// It is missing or there, as before.
    Unchanged,
}

/// In the order in which the capabilities went missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Degradations(Vec<(String, String)>);

impl Degradations {
    /// Sets why the capability is missing, or with `None` that it is there.
    pub fn set(&mut self, capability: &str, reason: Option<&str>) -> CapabilityChange {
        let place = self.0.iter().position(|(known, _)| known == capability);
        match (place.and_then(|place| self.0.get_mut(place)), reason) {
            (None, Some(reason)) => {
                self.0.push((capability.to_owned(), reason.to_owned()));
                CapabilityChange::Degraded
            }
            (Some((_, known)), Some(reason)) => {
                if known != reason {
                    reason.clone_into(known);
                }
                CapabilityChange::Unchanged
            }
            (Some(_), None) => {
                self.0.retain(|(known, _)| known != capability);
                CapabilityChange::Restored
            }
            (None, None) => CapabilityChange::Unchanged,
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(capability, reason)| (capability.as_str(), reason.as_str()))
    }
}

/// Splits `capability: reason`.
pub fn split_degradation(text: &str) -> (&str, &str) {
    text.split_once(": ").unwrap_or((text, "it is missing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_differences_are_changes() {
        let mut degradations = Degradations::default();
        for (capability, reason, expected) in [
            ("a", None, CapabilityChange::Unchanged),
            ("a", Some("x"), CapabilityChange::Degraded),
            ("a", Some("y"), CapabilityChange::Unchanged),
            ("b", Some("z"), CapabilityChange::Degraded),
            ("a", None, CapabilityChange::Restored),
        ] {
            assert_eq!(degradations.set(capability, reason), expected, "{capability} {reason:?}");
        }
        assert_eq!(degradations.iter().collect::<Vec<_>>(), [("b", "z")]);
    }

    #[test]
    fn a_probe_name_with_colons_is_one_capability() {
        assert_eq!(split_degradation("oom:mark_victim: no BTF: x"), ("oom:mark_victim", "no BTF: x"));
    }
}
