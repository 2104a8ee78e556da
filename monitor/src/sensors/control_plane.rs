//! The control plane as the loop knows it: the latest view, and whether the node is in maintenance.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::{NodeFacts, State, View, Viewer};
use crate::units::{Monotonic, format_go_duration};

/// Node facts older than this do not defer soft evictions: the maintenance may have ended.
const NODE_FACTS_LIMIT: Duration = Duration::from_secs(600);
/// Until a request is answered, soft evictions wait this long for the first node facts.
const FIRST_ANSWER: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct ControlPlane {
    viewer: Viewer,
    node: Arc<NodeFacts>,
    /// When the agent started to query the API server.
    begun: Monotonic,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SoftEvictions {
    Allowed,
    /// The node is in maintenance, or the API server has not answered yet.
    Deferred,
    /// The node was in maintenance this long ago. Soft evictions are allowed.
    Outdated(Duration),
}

impl ControlPlane {
    pub fn new(viewer: Viewer, begun: Monotonic) -> Self {
        Self { viewer, node: Arc::default(), begun }
    }

    /// Returns whether an API server is configured, whether it answers or not.
    pub const fn is_there(&self) -> bool {
        self.viewer.is_there()
    }

    /// Returns when the agent started to query the API server.
    pub const fn begun(&self) -> Monotonic {
        self.begun
    }

    /// Returns the latest view without waiting.
    pub fn view(&self) -> View {
        self.viewer.view()
    }

    /// Takes the latest facts of the node object. Returns them, and whether the maintenance has changed.
    pub fn take_node(&mut self) -> (Arc<NodeFacts>, bool) {
        let node = self.view().node;
        let before = std::mem::replace(&mut self.node, Arc::clone(&node));
        let is_changed = node.maintenance != before.maintenance;
        (node, is_changed)
    }

    pub fn soft_evictions(&self, now: Monotonic) -> SoftEvictions {
        match node_maintenance(&self.view(), self.begun, now) {
            NodeMaintenance::None => SoftEvictions::Allowed,
            NodeMaintenance::Outdated(age) => SoftEvictions::Outdated(age),
            NodeMaintenance::Active(_) | NodeMaintenance::Unknown => SoftEvictions::Deferred,
        }
    }

    pub fn why_deferred(&self, now: Monotonic) -> String {
        match node_maintenance(&self.view(), self.begun, now) {
            NodeMaintenance::Active(reason) => reason,
            NodeMaintenance::None | NodeMaintenance::Outdated(_) | NodeMaintenance::Unknown => {
                "whether the node is in maintenance is not known yet".to_owned()
            }
        }
    }

    /// Returns the reason why no request can be sent to the API server now.
    pub fn why_put_off(&self) -> String {
        let view = self.view();
        match &view.state {
            State::Down { reason, .. } => format!("the API server does not answer: {reason}"),
            State::Looking | State::Off | State::Up if is_read(&view) => {
                "the API server does not list this pod on this node".to_owned()
            }
            State::Looking | State::Off | State::Up => view
                .node
                .degradation
                .clone()
                .unwrap_or_else(|| "the API server has not listed the pods of this node yet".to_owned()),
        }
    }
}

/// Returns whether the API server has listed the pods of this node.
pub fn is_read(view: &View) -> bool {
    view.pods_as_of.is_some() && !view.node.uid.is_empty()
}

#[derive(Debug, PartialEq, Eq)]
enum NodeMaintenance {
    /// No source reports maintenance.
    None,
    /// The node is in maintenance, for this reason.
    Active(String),
    /// The node was in maintenance this long ago.
    Outdated(Duration),
    /// The agent has just started, and the API server has not answered yet.
    Unknown,
}

fn node_maintenance(view: &View, begun: Monotonic, now: Monotonic) -> NodeMaintenance {
    let waits_for = match (&view.state, view.node_as_of, &view.node.degradation) {
        // The agent has read the pods but not the node object, and the watch of the node reports no error.
        (State::Up, None, None) => NODE_FACTS_LIMIT,
        (State::Looking, None, None) => FIRST_ANSWER,
        _ => Duration::ZERO,
    };
    if now.since(begun) < waits_for {
        return NodeMaintenance::Unknown;
    }
    let Some(reason) = &view.node.maintenance else { return NodeMaintenance::None };
    match view.node_as_of.map(|as_of| now.since(as_of)) {
        Some(age) if age >= NODE_FACTS_LIMIT => NodeMaintenance::Outdated(age),
        _ => NodeMaintenance::Active(reason.clone()),
    }
}

pub fn pods_age(view: &View) -> Option<Duration> {
    view.pods_as_of.map(|as_of| Monotonic::now().since(as_of))
}

/// Describes the pods that the agent uses while the API server does not answer.
pub fn last_known(view: &View) -> String {
    match pods_age(view) {
        Some(age) => {
            let whole = Duration::from_secs(age.as_secs());
            format!("the {} pods known are those of {} ago", view.pods.pods().len(), format_go_duration(whole))
        }
        None => "no pod was ever known, workloads are known by their cgroups alone".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_maintenance_expires_and_is_awaited() {
        let at = |seconds: u64| Monotonic(seconds * 1_000_000_000);
        let down = || State::Down { reason: "away".to_owned(), since: at(100) };
        let of = |state: State, as_of: Option<u64>, maintenance: bool, now: u64| {
            let maintenance = maintenance.then(|| "cordoned".to_owned());
            let node = Arc::new(NodeFacts { maintenance, ..NodeFacts::default() });
            let mut view = View::default();
            (view.state, view.node, view.node_as_of) = (state, node, as_of.map(at));
            node_maintenance(&view, at(100), at(now))
        };
        let cordoned = || NodeMaintenance::Active("cordoned".to_owned());
        assert_eq!(of(State::Up, Some(150), true, 151), cordoned());
        assert_eq!(of(State::Up, Some(150), false, 151), NodeMaintenance::None);
        assert_eq!(of(down(), Some(150), true, 749), cordoned());
        assert_eq!(of(down(), Some(150), true, 750), NodeMaintenance::Outdated(NODE_FACTS_LIMIT));
        // Before the first node facts.
        assert_eq!(of(State::Looking, None, false, 159), NodeMaintenance::Unknown);
        assert_eq!(of(State::Looking, None, false, 160), NodeMaintenance::None);
        assert_eq!(of(State::Up, None, false, 160), NodeMaintenance::Unknown);
        assert_eq!(of(State::Up, None, false, 700), NodeMaintenance::None);
        assert_eq!(of(down(), None, false, 101), NodeMaintenance::None);
        assert_eq!(of(State::Off, None, false, 101), NodeMaintenance::None);
    }
}
