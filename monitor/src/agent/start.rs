//! The first turn, and what is reported about it.

use std::io::Write as _;

use crate::report::record::{Record, Start};
use crate::report::summary::render_page;

use crate::units::Monotonic;

use super::{Agent, Wakeup};

impl Agent {
    /// Looks once, and describes the node: as text on stdout when people read along, as one log record otherwise.
    pub fn start(&mut self, text: bool, degradations: &[String]) {
        // The first turn may find more.
        self.reporter.set_missing(degradations, Monotonic::now());
        self.reporter.with_metrics(|metrics| metrics.configuration(self.reload.state(), None));
        self.run_turn(Wakeup::Housekeeping);
        let node = self.node_report(Monotonic::now());
        // Said at start if they are not what they might be; from now on their changes are.
        self.sensors.update_sources();
        let available = node.memory.as_ref().map(|memory| memory.available(self.config.policy.semantics));
        let publication = self.publication(node, None);
        if text {
            // A closed stdout does not stop the agent.
            let _unread = std::io::stdout().write_all(render_page(&publication).as_bytes());
        }
        let start = Start {
            config: &self.config,
            probes: self.sensors.events.report(),
            available,
            fastest_rate: self.sensors.memory.rate().bytes_per_second(),
        };
        self.reporter.report(&Record::Started(&start), Monotonic::now());
    }
}
