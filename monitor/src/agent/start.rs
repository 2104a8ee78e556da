//! The first turn and its report.

use std::io::Write as _;

use crate::actions::self_protection;
use crate::node::other_killers::OtherKiller;
use crate::report::node_reporting::publication;
use crate::report::record::{Record, Start};
use crate::report::summary::render_page;
use crate::units::Monotonic;

use super::{Agent, Wakeup};

impl Agent {
    /// Observes once and describes the node: as text on stdout for an interactive reader, else as one log record. Then
    /// gives back the memory that only the start needed.
    pub fn start(&mut self, text: bool, degradations: &[String], others: &[OtherKiller]) {
        // The first turn may find more degradations.
        self.reporter.set_missing(degradations, Monotonic::now());
        self.reporter.outlets.metrics.configuration.observe(self.reload.state(), None);
        let pool = self.config.pool.clone();
        self.show_pool(pool.as_deref());
        self.sensors.remember_pods(&self.config);
        self.run_turn(Wakeup::Housekeeping);
        let (drifted, now) = (self.actions.audits.drifted() as u64, Monotonic::now());
        let (reporter, mut state) = self.reporting();
        let node = reporter.node_report(&mut state, drifted, now);
        // The start page shows degraded sources. From now on only their changes are reported.
        self.sensors.update_sources();
        let available = node.memory.as_ref().map(|memory| memory.available(self.config.policy.semantics));
        let publication = publication(&self.reporting().1, node, None);
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
        let memory = self.sensors.memory.sample().map(|sample| sample.meminfo.total);
        for other in others {
            let meaning = &other.meaning(&self.config, memory);
            self.reporter.report(&Record::OtherKiller { other, meaning }, Monotonic::now());
        }
        let missing = self_protection::give_back(&self.config.proc_root);
        self.reporter.set_missing(missing.as_slice(), Monotonic::now());
        self.rehearse();
    }
}
