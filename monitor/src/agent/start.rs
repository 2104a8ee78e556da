//! The first look, and what is said about it.

use std::io::Write as _;

use crate::config::MonitorConfig;
use crate::kernel::ProbeReport;
use crate::node::Hierarchy;
use crate::report::{NodeReport, StartSummary, render_summary};

use super::{Agent, Wakeup};

impl Agent {
    /// Looks once, and describes the node: as text on stdout when people read along, as one log record otherwise.
    pub fn start(&mut self, text: bool, degradations: &[String]) {
        // The first look may find more.
        self.reporter.health.set_degradations(degradations.to_vec());
        self.with_metrics(|metrics| metrics.configuration(self.reload.state(), None));
        self.look(Wakeup::Housekeeping);
        let node = self.node_report();
        // Said at start if they are not what they might be; from now on their changes are.
        self.climb();
        let report = self.sensors.kernel.report();
        if text {
            // Nobody reading the summary is no reason to stop.
            let _unread = std::io::stdout().write_all(self.render_page(&node).as_bytes());
        }
        tell_started(
            &self.config,
            report,
            self.sensors.rate.bytes_per_second(),
            node.memory.map(|memory| memory.available(self.config.policy.semantics).0),
        );
    }

    /// The node as people want to read of it.
    pub(super) fn render_page(&self, node: &NodeReport) -> String {
        let hierarchy = describe(self.sensors.tree.hierarchy());
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

fn tell_started(config: &MonitorConfig, report: &ProbeReport, fastest_rate: f64, memory_available_bytes: Option<u64>) {
    tracing::info!(
        event = "started",
        version = env!("CARGO_PKG_VERSION"),
        mode = config.mode.as_str(),
        semantics = config.policy.semantics.as_str(),
        listen = %config.listen,
        probes_attached = report.attached(),
        probes_missing = report.missing(),
        cgroup_ids = report.cgroup_source.as_str(),
        memory_available_bytes,
        fastest_rate_bytes_per_second = fastest_rate,
        "started"
    );
    for probe in report.probes.iter().filter(|probe| !probe.is_attached()) {
        tracing::debug!(event = "probe_missing", probe = probe.name, state = ?probe.state, "probe missing");
    }
}

fn describe(hierarchy: &Hierarchy) -> String {
    let hybrid = if hierarchy.hybrid { ", hybrid: v2 is mounted without the memory controller" } else { "" };
    format!("{} at {}{hybrid}", hierarchy.version, hierarchy.memory.display())
}
