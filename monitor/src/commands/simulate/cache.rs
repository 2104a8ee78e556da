//! Cache of a trace's pods, parsed again only after a change.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::config::Policy;
use crate::eviction::oom_score::container_adjustments;
use crate::workloads::Pod;

use super::super::input::Fault;
use super::super::output::Pairs;
use super::trace::{self, TraceLine};

/// The pods of the previous line, and their description in the answer.
#[derive(Debug, Default)]
pub struct PodCache {
    text: String,
    capacity: Option<i64>,
    pods: Vec<Pod>,
    described: Option<Box<RawValue>>,
    twice: Option<String>,
}

impl PodCache {
    /// Updates the pods from `line`, unless their text equals that of the previous line.
    pub fn update(&mut self, parsed: &TraceLine<'_>, line: &str, policy: &Policy) -> Result<(), Fault> {
        let (text, capacity) = (parsed.pods_text(), parsed.memory_capacity());
        if self.text != text {
            self.described = None;
            self.pods = trace::pods(text, line)?;
            text.clone_into(&mut self.text);
        }
        if self.described.is_none() || self.capacity != capacity {
            self.capacity = capacity;
            let (by_name, twice) = describe(&self.pods, capacity, policy);
            self.twice = twice;
            let described = serde_json::value::to_raw_value(&by_name);
            self.described = Some(described.map_err(|error| Fault::whole(error.to_string()))?);
        }
        Ok(())
    }

    pub fn pods(&self) -> &[Pod] {
        &self.pods
    }

    /// Returns a name that several pods have.
    pub fn twice(&self) -> Option<&str> {
        self.twice.as_deref()
    }

    pub fn described(&self) -> Option<&RawValue> {
        self.described.as_deref()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Described<'a> {
    qos_class: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    oom_score_adj: Option<Pairs<&'a str, i64>>,
}

/// Describes all pods by name, ended ones included, with their containers and init containers, but without ephemeral
/// containers. Without the node's capacity there is no `oomScoreAdj`. The last of several pods with one name counts;
/// returns the first such name.
fn describe<'a>(
    pods: &'a [Pod],
    capacity: Option<i64>,
    policy: &Policy,
) -> (BTreeMap<String, Described<'a>>, Option<String>) {
    let (mut by_name, mut twice) = (BTreeMap::new(), None);
    for pod in pods {
        let described = Described {
            qos_class: pod.qos_class(policy.quirks).as_str(),
            oom_score_adj: capacity
                .map(|capacity| Pairs(container_adjustments(pod, capacity, &policy.oom_scores, policy.quirks))),
        };
        if by_name.insert(pod.full_name(), described).is_some() && twice.is_none() {
            twice = Some(pod.full_name());
        }
    }
    (by_name, twice)
}
