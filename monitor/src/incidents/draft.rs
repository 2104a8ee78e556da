//! A record on its way from the loop to the thread that writes it.

use super::model::{Incident, SignalHistory, millis};
use super::sample_ring::Sample;

/// A record as the agent's loop hands it over.
#[derive(Debug)]
pub struct Draft {
    /// The record without its signal.
    pub incident: Incident,
    /// The signal's name and history without samples.
    pub signal: Option<(&'static str, SignalHistory)>,
    pub samples: Vec<Sample>,
}

impl Draft {
    /// Returns the record with its signal, and the buffer of the samples.
    pub fn finish(self) -> (Incident, Vec<Sample>) {
        let Self { mut incident, signal, samples } = self;
        if let Some((name, mut history)) = signal {
            let at = incident.monotonic_ns;
            let before = |sample: &Sample| match at.checked_sub(sample.at.0) {
                Some(before) => millis(before),
                None => -millis(sample.at.0 - at),
            };
            history.samples = samples.iter().map(|sample| (before(sample), sample.value)).collect();
            incident.signals.insert(name.to_owned(), history);
        }
        (incident, samples)
    }
}
