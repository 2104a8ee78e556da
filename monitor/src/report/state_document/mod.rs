//! Builds the document of `/api/v1/state` from a publication. Runs on the HTTP server's thread.

mod mends;
mod ranking_rows;
mod signal_rows;
mod workload_rows;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use node_pressure_state::{
    API_VERSION, Agent, Condition, Configuration, Degradation, Evictions, IncidentLine, Memory, Pattern, Pressure,
    Probe, Source, State, UnderWay,
};

use super::live::Live;
use super::publications::Publication;
use super::stats::{Cgroups, CpuHistory};
use super::{FiguresReport, Health, NodeReport};
use crate::eviction::decider::EvictionStage;
use crate::incidents::{Head, IncidentIndex};
use crate::kernel::ProbeState;
use crate::units::Bytes;
use crate::workloads::PatternReach;
use signal_rows::Histories;

/// Incidents in the document; `/incidents` has the others.
const INCIDENTS: usize = 20;
/// The tasks of all workloads are counted at most once in this time, because without the pids controller that reads every list of tasks.
const TASKS_COUNTED: Duration = Duration::from_secs(5);

/// Builds documents, and keeps what a document shows of those before it.
#[derive(Debug)]
pub struct Documents {
    begun: Instant,
    histories: Histories,
    /// When the working sets were measured, and each by the path of its workload.
    working_sets: Option<(Instant, HashMap<String, Bytes>)>,
    /// When the tasks were counted, and how many each workload has by its path.
    tasks: Option<(Instant, HashMap<String, u64>)>,
}

impl Default for Documents {
    fn default() -> Self {
        Self { begun: Instant::now(), histories: Histories::default(), working_sets: None, tasks: None }
    }
}

impl Documents {
    /// Returns the document of a publication; `None` if the publication has nothing of what is measured for it.
    pub fn build(&mut self, publication: &Publication, health: &Health, incidents: &IncidentIndex) -> Option<State> {
        let live = publication.live.as_ref()?;
        let report = &publication.report;
        self.histories.observe(&report.figures.signals, publication.at);
        let mut state = State {
            api_version: API_VERSION.to_owned(),
            time: live.observed.wall(),
            age_seconds: publication.at.elapsed().as_secs_f64(),
            agent: agent(publication, live, self.begun),
            signals: signal_rows::signals(report, live, &self.histories, publication.at),
            memory: memory(report),
            pressure: pressure(&report.figures),
            conditions: conditions(report, live),
            rankings: ranking_rows::rankings(live, report),
            evictions: evictions(live),
            incidents: incident_lines(incidents),
            sources: (report.sources.iter())
                .map(|(figure, source)| Source { figure: (*figure).to_owned(), source: (*source).to_owned() })
                .collect(),
            probes: probes(report),
            degradations: degradations(health),
            ..State::default()
        };
        let before = self.working_sets.as_ref();
        (state.workloads, state.workloads_omitted) = workload_rows::workloads(live, before, publication.at);
        self.count_tasks(publication, live);
        let tasks = self.tasks.as_ref().map(|(_, tasks)| tasks);
        for row in &mut state.workloads {
            row.pids = tasks.and_then(|tasks| tasks.get(&row.name.workload)).copied();
        }
        self.remember(live, publication.at);
        state.verdict = state.judge();
        Some(state)
    }

    fn count_tasks(&mut self, publication: &Publication, live: &Live) {
        if self.tasks.as_ref().is_some_and(|(at, _)| at.elapsed() < TASKS_COUNTED) {
            return;
        }
        let mut history = CpuHistory::default();
        let mut cgroups = Cgroups::new(&publication.hierarchy, &mut history);
        let counted = live.usages.iter().filter_map(|(usage, _)| {
            let path = &usage.workload.name;
            Some((path.clone(), cgroups.processes(&cgroups.open(path)?, path)?))
        });
        self.tasks = Some((Instant::now(), counted.collect()));
    }

    fn remember(&mut self, live: &Live, at: Instant) {
        let sets = live.usages.iter().map(|(usage, _)| (usage.workload.name.clone(), usage.working_set)).collect();
        self.working_sets = Some((at, sets));
    }
}

fn agent(publication: &Publication, live: &Live, begun: Instant) -> Agent {
    let configuration = &live.configuration;
    Agent {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: option_env!("MONITOR_COMMIT").map(str::to_owned),
        node: live.node.clone(),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        cgroup: publication.hierarchy.version.to_string(),
        mode: publication.mode.as_str().to_owned(),
        semantics: publication.semantics.as_str().to_owned(),
        pool: live.pool.clone(),
        uptime_seconds: Some(begun.elapsed().as_secs_f64()),
        configuration: Configuration {
            file: configuration.file.as_ref().map(|file| file.display().to_string()),
            hash: configuration.fingerprint.map(|fingerprint| format!("{:016x}", fingerprint.0)),
            since: Timestamp::try_from(configuration.since).ok(),
            refused: configuration.refused.clone(),
            restart_needed: configuration.needs_restart.iter().map(|field| (*field).to_owned()).collect(),
            patterns: publication.report.patterns.iter().map(pattern).collect(),
        },
    }
}

fn pattern(PatternReach { field, pattern, matches, examples, hint }: &PatternReach) -> Pattern {
    Pattern {
        field: (*field).to_owned(),
        pattern: pattern.clone(),
        matches: *matches,
        examples: examples.clone(),
        hint: hint.clone(),
    }
}

fn memory(report: &NodeReport) -> Option<Memory> {
    let memory = report.memory.as_ref()?;
    let swap = report.figures.swap;
    Some(Memory {
        capacity_bytes: Some(memory.capacity.0),
        working_set_bytes: Some(memory.working_set.0),
        corrected_bytes: Some(memory.corrected.0),
        kubelet_bytes: Some(memory.kubelet.0),
        swap_total_bytes: swap.map(|swap| swap.total.0),
        swap_free_bytes: swap.map(|swap| swap.free.0),
    })
}

fn pressure(figures: &FiguresReport) -> Vec<Pressure> {
    let each = |report: &super::PressureReport| {
        let [avg10, avg60, avg300] = report.averages;
        let (scope, resource, kind) = (report.scope.as_str(), report.resource.as_str(), report.kind.as_str());
        Pressure { scope: scope.to_owned(), resource: resource.to_owned(), kind: kind.to_owned(), avg10, avg60, avg300 }
    };
    figures.pressure.iter().map(each).collect()
}

fn conditions(report: &NodeReport, live: &Live) -> Vec<Condition> {
    let since =
        |condition: &str| live.conditions_since.iter().find(|(name, _)| name == condition).map(|(_, at)| at.wall());
    let each = |(condition, holds): &(std::borrow::Cow<'static, str>, bool)| Condition {
        condition: condition.to_string(),
        holds: Some(*holds),
        since: since(condition),
    };
    report.conditions.iter().map(each).collect()
}

fn evictions(live: &Live) -> Evictions {
    let (left, allowed) = live.budget;
    let under_way = live.under_way.iter().map(|(name, ongoing)| UnderWay {
        workload: name.workload.clone(),
        display: name.display.clone(),
        signal: ongoing.cause.as_str().to_owned(),
        step: match ongoing.under_way.stage {
            EvictionStage::Leaving => "it was asked to end",
            EvictionStage::Dying => "it was killed, and processes are left",
            EvictionStage::Removing => "no process is left, and its files are being removed",
        }
        .to_owned(),
        seconds: live.observed.since(ongoing.started).as_secs_f64(),
    });
    Evictions {
        budget_left: Some(left),
        budget_per_minute: Some(allowed),
        cool_down_seconds: live.cool_down.map(|left| left.as_secs_f64()),
        waits_because: live.waits.clone(),
        under_way: under_way.collect(),
    }
}

fn incident_lines(index: &IncidentIndex) -> Vec<IncidentLine> {
    let line = |head: Head| {
        let namespace = head.namespace().map(str::to_owned);
        let pod = head.pod.as_deref().and_then(|pod| pod.split_once('/')).map(|(_, pod)| pod.to_owned());
        IncidentLine {
            id: head.id,
            kind: head.kind.as_str().to_owned(),
            time: head.time,
            summary: head.summary,
            mode: Some(head.mode).filter(|mode| !mode.is_empty()),
            namespace,
            pod,
            outcome: head.outcome.map(|outcome| outcome.as_str().to_owned()),
            repeated: usize::try_from(head.repeated).unwrap_or(usize::MAX),
        }
    };
    let mut lines: Vec<IncidentLine> = index.heads(INCIDENTS).into_iter().map(line).collect();
    lines.reverse();
    lines
}

fn probes(report: &NodeReport) -> Vec<Probe> {
    let each = |probe: &crate::kernel::ProbeStatus| Probe {
        name: probe.name.clone(),
        attached: probe.is_attached(),
        reason: match &probe.state {
            ProbeState::Attached => None,
            ProbeState::Missing(reason) => Some(reason.clone()),
        },
    };
    report.probes.iter().map(each).collect()
}

fn degradations(health: &Health) -> Vec<Degradation> {
    let each = |(capability, reason): (&str, &str)| Degradation {
        capability: capability.to_owned(),
        sentence: reason.to_owned(),
        mend: mends::mend(capability, reason).map(str::to_owned),
    };
    health.degradations().iter().map(each).collect()
}

/// One document for all who ask within a second.
pub type Shared = Arc<(Instant, State)>;
