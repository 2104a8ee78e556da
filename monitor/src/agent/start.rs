//! The first look, and what is said about it.

use std::io::Write as _;

use crate::node::Hierarchy;
use crate::report::record::{Record, Start};
use crate::report::{NodeReport, StartSummary, render_summary};

use crate::units::Monotonic;

use super::{Agent, Wakeup};

impl Agent {
    /// Looks once, and describes the node: as text on stdout when people read along, as one log record otherwise.
    pub fn start(&mut self, text: bool, degradations: &[String]) {
        // The first look may find more.
        self.reporter.set_missing(degradations, Monotonic::now());
        self.reporter.with_metrics(|metrics| metrics.configuration(self.reload.state(), None));
        self.look(Wakeup::Housekeeping);
        let node = self.node_report(Monotonic::now());
        // Said at start if they are not what they might be; from now on their changes are.
        self.sensors.update_sources();
        if text {
            // A closed stdout does not stop the agent.
            let _unread = std::io::stdout().write_all(self.render_page(&node).as_bytes());
        }
        let start = Start {
            config: &self.config,
            probes: self.sensors.events.report(),
            available: node.memory.map(|memory| memory.available(self.config.policy.semantics)),
            fastest_rate: self.sensors.memory.rate().bytes_per_second(),
        };
        self.reporter.report(&Record::Started(&start), Monotonic::now());
    }

    /// The node as people want to read of it.
    pub(super) fn render_page(&self, node: &NodeReport) -> String {
        let hierarchy = describe(self.sensors.workloads.tree().hierarchy());
        render_summary(&StartSummary {
            version: env!("CARGO_PKG_VERSION"),
            mode: self.config.mode,
            semantics: self.config.policy.semantics,
            cgroup: &hierarchy,
            listen: self.config.listen,
            node,
        })
    }
}

fn describe(hierarchy: &Hierarchy) -> String {
    let hybrid = if hierarchy.hybrid { ", hybrid: v2 is mounted without the memory controller" } else { "" };
    format!("{} at {}{hybrid}", hierarchy.version, hierarchy.memory.display())
}
