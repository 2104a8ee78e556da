//! Pressure stall information, and the node conditions that the configuration derives from it.

use std::path::Path;
use std::time::Duration;

use crate::config::{PressureCondition, PressureKind, PressureResource, PressureScope};
use crate::eviction::pressure::PressureState;
use crate::node::Hierarchy;
use crate::node::psi_figures::PressureFiles;
use crate::units::Monotonic;

use super::figure_report::PressureReport;

/// The kernel renews its averages this often (`PSI_FREQ`).
const EVERY: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct PressureConditions {
    files: PressureFiles,
    /// Whether the memory pressure of the whole system can be read.
    is_known: bool,
    watched: Vec<Watched>,
    sampled: Option<Monotonic>,
}

/// A configured condition with its state.
#[derive(Debug)]
struct Watched {
    condition: PressureCondition,
    state: PressureState,
    /// The reason why its pressure file cannot be read.
    missing: Option<String>,
}

impl Watched {
    fn new(condition: &PressureCondition) -> Self {
        Self { condition: condition.clone(), state: PressureState::default(), missing: None }
    }
}

impl PressureConditions {
    pub fn new(proc_root: &Path, hierarchy: &Hierarchy, conditions: &[PressureCondition]) -> Self {
        let files = PressureFiles::new(proc_root, hierarchy);
        let is_known = files.read(PressureScope::System, PressureResource::Memory).is_ok();
        Self { files, is_known, watched: conditions.iter().map(Watched::new).collect(), sampled: None }
    }

    pub fn is_known(&self) -> bool {
        self.is_known
    }

    /// Returns the total time for which all tasks waited for memory; nothing without PSI.
    pub fn memory_stalled(&self) -> Option<Duration> {
        let pressure = self.files.read(PressureScope::System, PressureResource::Memory).ok()?;
        pressure.of(PressureKind::Full).map(|stall| stall.total)
    }

    /// Replaces the conditions. A condition that remains keeps its state. Returns the names of the removed ones.
    pub fn reconfigure(&mut self, conditions: &[PressureCondition]) -> Vec<String> {
        let mut before = std::mem::take(&mut self.watched);
        let watched = |condition: &PressureCondition| {
            let known = before.iter().position(|watched| watched.condition == *condition);
            known.map_or_else(|| Watched::new(condition), |place| before.swap_remove(place))
        };
        self.watched = conditions.iter().map(watched).collect();
        let is_kept = |name: &String| conditions.iter().any(|condition| condition.condition == *name);
        before.into_iter().map(|watched| watched.condition.condition).filter(|name| !is_kept(name)).collect()
    }

    /// Returns how long until the next sample; nothing if no condition is configured.
    pub fn until_due(&self, now: Monotonic) -> Option<Duration> {
        let since = self.sampled.map_or(EVERY, |at| now.since(at));
        (!self.watched.is_empty()).then(|| EVERY.saturating_sub(since))
    }

    /// Takes one sample for each condition if that is due. Returns whether it was due.
    pub fn sample_if_due(&mut self, now: Monotonic) -> bool {
        let is_due = self.until_due(now).is_some_and(|left| left.is_zero());
        if is_due {
            self.sampled = Some(now);
            for Watched { condition, state, missing } in &mut self.watched {
                let PressureCondition { scope, resource, kind, .. } = *condition;
                let read = self.files.read(scope, resource);
                let stall = read.as_ref().ok().and_then(|pressure| pressure.of(kind));
                *state = state.after(condition, stall.map(|stall| stall.averages[0]), now.into());
                *missing = read.err();
            }
        }
        is_due
    }

    pub fn statuses(&self) -> impl Iterator<Item = (&str, bool)> + Clone {
        self.watched.iter().map(|watched| (watched.condition.condition.as_str(), watched.state.status()))
    }

    /// Returns the reason why conditions do not change.
    pub fn missing(&self) -> Option<String> {
        let reason =
            |watched: &Watched| Some(format!("{}: {}", watched.condition.condition, watched.missing.as_ref()?));
        let reasons: Vec<String> = self.watched.iter().filter_map(reason).collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    pub fn reports(&mut self) -> Vec<PressureReport> {
        let mut reports = Vec::new();
        for scope in PressureScope::ALL {
            for resource in PressureResource::ALL {
                let read = self.files.read(scope, resource);
                if (scope, resource) == (PressureScope::System, PressureResource::Memory) {
                    self.is_known = read.is_ok();
                }
                let Ok(pressure) = read else { continue };
                let report = |kind| {
                    let stall = pressure.of(kind)?;
                    Some(PressureReport { scope, resource, kind, averages: stall.averages, total: stall.total })
                };
                reports.extend(PressureKind::ALL.into_iter().filter_map(report));
            }
        }
        reports
    }
}
