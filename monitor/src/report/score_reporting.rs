//! Reports audits of `oom_score_adj`, and the agent's own value.

use crate::actions::Audits;
use crate::actions::oom_score::Audit;
use crate::actions::self_protection::{self, OwnScore};
use crate::config::Mode;
use crate::units::Monotonic;
use crate::workloads::Reach;

use super::Reporter;
use super::record::Record;

const SCORE_NOT_SET: &str = "oom_score_adj cannot be set (lowering it needs CAP_SYS_RESOURCE)";

impl Reporter {
    /// Reports an audit of `oom_score_adj`. Drift that the rate limit suppresses is reported after the next audit.
    pub fn report_audit(&mut self, audit: &Audit, audits: &mut Audits, reach: Reach, mode: Mode, now: Monotonic) {
        if reach.has_pods {
            self.report_each_drift(audit, audits, mode, now);
        } else {
            self.sum_up_drift(audit, audits, mode, now);
        }
        if audit.refused.is_some() || audit.repaired > 0 {
            self.set_capability(self_protection::SCORES, audit.refused.as_deref(), SCORE_NOT_SET, now);
        }
        self.report(&Record::OomScoresAudited(audit), now);
    }

    fn report_each_drift(&mut self, audit: &Audit, audits: &mut Audits, mode: Mode, now: Monotonic) {
        for drift in &audit.workloads {
            if !audits.is_reported(drift.id) && self.report(&Record::OomScoreDrift { drift, mode }, now) {
                audits.note_reported(drift.id);
            }
        }
    }

    /// Reports the drift of a host without pods once.
    fn sum_up_drift(&mut self, audit: &Audit, audits: &mut Audits, mode: Mode, now: Monotonic) {
        if audit.workloads.is_empty() || audits.is_summed_up() {
            return;
        }
        let processes = audit.workloads.iter().map(|drift| drift.processes).sum();
        let workloads = audit.workloads.len();
        self.report(&Record::OomScoreDriftWithoutPods { workloads, processes, mode }, now);
        audits.note_summed_up();
    }

    /// Reports the outcome of [`self_protection::keep_own_score`].
    pub fn report_own_score(&mut self, kept: OwnScore, now: Monotonic) {
        match kept {
            Ok(None) => {}
            Ok(Some(found)) => {
                self.set_capability(self_protection::OWN_SCORE, None, "", now);
                self.report(&Record::OwnOomScore { found }, now);
            }
            Err(reason) => {
                self.set_capability(self_protection::OWN_SCORE, Some(&reason), SCORE_NOT_SET, now);
            }
        }
    }
}
