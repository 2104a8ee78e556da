//! The state of the view.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use node_pressure_state::record::Incident;
use node_pressure_state::{IncidentLine, Place, SignalState, State, WorkloadState};

use crate::what_if::Asked;

/// The recorded period.
pub const RECORDED: Duration = Duration::from_secs(60);
/// The agent renews its document once a second.
pub const MOST_FRAMES: usize = 61;

#[derive(Debug, Clone, Default)]
pub struct Model {
    /// Documents of the last minute, oldest first.
    pub frames: VecDeque<Arc<State>>,
    /// The frame that is shown, if it is not the newest. While it is set, the recording stands still.
    pub paused: Option<usize>,
    /// The newest document, received while the recording stood still.
    pub newest: Option<Arc<State>>,
    /// Since the last document was received.
    pub since: Duration,
    pub link: Link,
    /// `None`: the signal nearest to its threshold.
    pub signal: Option<String>,
    pub sort: Sort,
    pub filter: String,
    /// The text that is being typed.
    pub entry: Option<Entry>,
    pub what_if: Option<Asked>,
    pub focus: Focus,
    /// The path of the selected workload. `None`: the first row.
    pub workload: Option<String>,
    /// The id of the selected incident. `None`: the newest.
    pub incident: Option<String>,
    pub opened: Option<Opened>,
    pub page: Page,
    pub measured: Measured,
    pub has_colour: bool,
    /// An error about what was typed.
    pub mistake: Option<String>,
    pub has_ended: bool,
}

/// The connection to the agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Link {
    #[default]
    Connecting,
    Streaming,
    /// The agent's streams are taken: the document is read once a second.
    Polling,
    Lost(String),
}

/// The page that is shown while no incident is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Page {
    #[default]
    Overview,
    Help,
    /// The agent's missing capabilities, each with its remedy.
    Missing,
}

/// The measuring program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Measured {
    #[default]
    ByAgent,
    /// No agent runs: `top` measures the node while it runs.
    ByTop {
        /// The measurements that it has no right to, and the remedy.
        missing: Option<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    #[default]
    Eviction,
    Memory,
    Rate,
    Stalls,
    Name,
}

impl Sort {
    #[must_use]
    pub const fn next(self) -> Self {
        match self {
            Self::Eviction => Self::Memory,
            Self::Memory => Self::Rate,
            Self::Rate => Self::Stalls,
            Self::Stalls => Self::Name,
            Self::Name => Self::Eviction,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    Filter(String),
    WhatIf(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Focus {
    #[default]
    Ranking,
    Incidents,
}

/// An incident that fills the screen.
#[derive(Debug, Clone)]
pub struct Opened {
    pub id: String,
    pub record: Record,
    /// The position in [`Opened::moments`].
    pub moment: usize,
    pub begin: Begin,
    /// Lines of the record that are scrolled away.
    pub scroll: u16,
}

/// The moment that a record shows when it has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// The moment of the incident; later ones are what followed.
    Incident,
    First,
    Last,
}

#[derive(Debug, Clone)]
pub enum Record {
    Awaited,
    Unreadable(String),
    Read(Box<Incident>),
}

impl Opened {
    /// Returns the recorded moments, oldest first: milliseconds before the incident, negative after it.
    #[must_use]
    pub fn moments(&self) -> Vec<f64> {
        let Record::Read(incident) = &self.record else { return Vec::new() };
        let samples = incident.signals.values().flat_map(|signal| signal.samples.iter().map(|(ms, _)| *ms));
        let steps = incident.steps.iter().map(|step| -step.ms);
        let mut moments: Vec<f64> = samples.chain(steps).filter(|ms| ms.is_finite()).collect();
        moments.sort_by(|a, b| b.total_cmp(a));
        moments.dedup();
        moments
    }
}

/// One row of the ranking.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    pub workload: &'a str,
    pub display: &'a str,
    pub place: Option<&'a Place>,
    pub state: Option<&'a WorkloadState>,
    pub is_next: bool,
}

impl Row<'_> {
    pub fn exempt(&self) -> Option<&str> {
        let of_place = self.place.and_then(|place| place.exempt.as_deref());
        of_place.or_else(|| self.state.filter(|_| self.place.is_none())?.exempt.as_deref())
    }
}

impl Model {
    /// Returns the frame that is shown.
    #[must_use]
    pub fn shown(&self) -> Option<&State> {
        let index = self.paused.unwrap_or_else(|| self.frames.len().saturating_sub(1));
        self.frames.get(index).map(|frame| &**frame)
    }

    #[must_use]
    pub fn selected_signal(&self) -> Option<&SignalState> {
        let state = self.shown()?;
        let chosen = self.signal.as_ref().and_then(|name| state.signal(name));
        let nearest = || state.rankings.first().and_then(|ranking| state.signal(&ranking.signal));
        chosen.or_else(nearest).or_else(|| state.signals.first())
    }

    /// Returns the rows of the selected signal's ranking. Without a ranking they are the workloads.
    #[must_use]
    pub fn rows(&self) -> Vec<Row<'_>> {
        let Some(state) = self.shown() else { return Vec::new() };
        let ranking = self.selected_signal().and_then(|signal| state.ranking(&signal.signal));
        let mut rows: Vec<Row<'_>> = match ranking {
            Some(ranking) => (ranking.places.iter())
                .map(|place| Row {
                    workload: &place.workload,
                    display: &place.display,
                    place: Some(place),
                    state: state.workload(&place.workload),
                    is_next: ranking.next.as_deref() == Some(&place.workload),
                })
                .collect(),
            None => (state.workloads.iter())
                .map(|workload| Row {
                    workload: &workload.name.workload,
                    display: &workload.name.display,
                    place: None,
                    state: Some(workload),
                    is_next: false,
                })
                .collect(),
        };
        let filter = self.filter.to_lowercase();
        rows.retain(|row| {
            let owner = row.state.and_then(|state| state.name.owner.as_deref()).unwrap_or_default();
            [row.display, row.workload, owner].iter().any(|name| name.to_lowercase().contains(&filter))
        });
        let memory = |row: &Row<'_>| row.state.and_then(|state| state.memory_bytes);
        let rate =
            |row: &Row<'_>| row.state.and_then(|state| state.memory_bytes_per_second).unwrap_or(f64::NEG_INFINITY);
        let stalls = |row: &Row<'_>| row.state.and_then(|state| state.stall_seconds).unwrap_or(f64::NEG_INFINITY);
        // The sort is stable: rows that are equal stay in the order of eviction.
        rows.sort_by(|a, b| match self.sort {
            Sort::Eviction => Ordering::Equal,
            Sort::Memory => memory(b).cmp(&memory(a)),
            Sort::Rate => rate(b).total_cmp(&rate(a)),
            Sort::Stalls => stalls(b).total_cmp(&stalls(a)),
            Sort::Name => a.display.cmp(b.display),
        });
        rows
    }

    /// Returns the position of the selected row.
    #[must_use]
    pub fn row(&self, rows: &[Row<'_>]) -> usize {
        rows.iter().position(|row| Some(row.workload) == self.workload.as_deref()).unwrap_or(0)
    }

    /// Returns the known incidents, newest first. They do not step back with the recording.
    #[must_use]
    pub fn incidents(&self) -> &[IncidentLine] {
        let newest = self.newest.as_ref().or(self.frames.back());
        newest.map_or(&[], |state| &state.incidents)
    }

    #[must_use]
    pub fn incident_row(&self) -> usize {
        self.incidents().iter().position(|line| Some(&line.id) == self.incident.as_ref()).unwrap_or(0)
    }

    /// Seconds from the observation of the shown frame to now.
    #[must_use]
    pub fn age(&self) -> Option<f64> {
        let shown = self.shown()?;
        let newest = self.newest.as_ref().or(self.frames.back())?;
        let between = newest.time.duration_since(shown.time).as_secs_f64().max(0.0);
        Some(newest.age_seconds + between + self.since.as_secs_f64())
    }
}
