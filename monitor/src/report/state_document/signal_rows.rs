//! The signals with their thresholds and their last minute.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use node_pressure_state::{History, SignalState, ThresholdState};

use crate::eviction::SignalValue;
use crate::eviction::exhaustion::foreseeable_seconds;
use crate::report::live::Live;
use crate::report::{NodeReport, ThresholdReport};
use crate::units::{Resource, Signal, signed};

const MINUTE: Duration = Duration::from_secs(60);

/// The last minute of the signals for which the agent keeps none, from the documents before.
#[derive(Debug, Default)]
pub(super) struct Histories(Vec<(Signal, VecDeque<(Instant, u64)>)>);

impl Histories {
    pub(super) fn observe(&mut self, signals: &[SignalValue], at: Instant) {
        for value in signals {
            let available = u64::try_from(value.available).unwrap_or(0);
            let known = self.0.iter().position(|(signal, _)| *signal == value.signal);
            let place = known.unwrap_or_else(|| {
                self.0.push((value.signal, VecDeque::new()));
                self.0.len() - 1
            });
            let Some((_, samples)) = self.0.get_mut(place) else { continue };
            while samples.get(1).is_some_and(|(second, _)| at.saturating_duration_since(*second) > MINUTE) {
                samples.pop_front();
            }
            if samples.back().is_none_or(|(_, last)| *last != available) {
                samples.push_back((at, available));
            }
        }
    }

    fn of(&self, signal: Signal, now: Instant) -> Vec<(f64, u64)> {
        let samples = self.0.iter().find(|(known, _)| *known == signal).map(|(_, samples)| samples);
        samples.into_iter().flatten().map(|(at, value)| (millis(now.saturating_duration_since(*at)), *value)).collect()
    }
}

fn millis(age: Duration) -> f64 {
    (age.min(MINUTE).as_secs_f64() * 1000.0).round()
}

pub(super) fn signals(report: &NodeReport, live: &Live, histories: &Histories, at: Instant) -> Vec<SignalState> {
    let with_threshold = |signal: &Signal| report.thresholds.iter().any(|it| it.threshold.signal == *signal);
    let is_observed = |signal: &Signal| report.figures.signals.iter().any(|it| it.signal == *signal);
    let shown = Signal::ALL.iter().copied().filter(|signal| with_threshold(signal) || is_observed(signal));
    shown.map(|signal| signal_state(signal, report, live, histories, at)).collect()
}

fn signal_state(signal: Signal, report: &NodeReport, live: &Live, histories: &Histories, at: Instant) -> SignalState {
    let value = report.figures.signals.iter().find(|it| it.signal == signal);
    let rate = live.per_second.iter().find(|(known, _)| *known == signal).map(|(_, rate)| *rate);
    let mut thresholds: Vec<ThresholdState> = (report.thresholds.iter())
        .filter(|it| it.threshold.signal == signal)
        .map(|it| threshold(it, value.map(|value| value.available), rate))
        .collect();
    thresholds.sort_by_key(|threshold| std::cmp::Reverse(threshold.value));
    let samples = match signal {
        Signal::MemoryAvailable if !live.history.is_empty() => {
            (live.history.iter()).map(|sample| (millis(live.observed.since(sample.at)), sample.value)).collect()
        }
        _ => histories.of(signal, at),
    };
    SignalState {
        signal: signal.as_str().to_owned(),
        unit: match signal.resource() {
            Resource::Memory | Resource::EphemeralStorage => "bytes",
            Resource::Inodes => "inodes",
            Resource::Pids => "pids",
        }
        .to_owned(),
        available: value.map(|value| u64::try_from(value.available).unwrap_or(0)),
        capacity: value.map(|value| u64::try_from(value.capacity).unwrap_or(0)),
        per_second: rate,
        exhausted_in_seconds: value.and_then(|value| foreseeable_seconds(value.available, rate?)),
        thresholds,
        history: History { samples },
    }
}

fn threshold(report: &ThresholdReport, available: Option<i64>, rate: Option<f64>) -> ThresholdState {
    let threshold = &report.threshold;
    let value = report.bytes.map(|bytes| bytes.0);
    let distance = value.zip(available).map(|(value, available)| available.saturating_sub(signed(value)));
    let crossed =
        if report.met { Some(0.0) } else { distance.and_then(|distance| foreseeable_seconds(distance, rate?)) };
    ThresholdState {
        threshold: threshold.to_string(),
        kind: threshold.kind().to_owned(),
        value,
        distance,
        met: report.met,
        crossed_in_seconds: crossed,
        grace_period_seconds: (!threshold.is_hard()).then_some(threshold.grace_period.as_secs_f64()),
        unarmed: report.unarmed.map(|why| why.reason().to_owned()),
        reported_only: report.reported_only.map(str::to_owned),
        evicts: report.evicts.clone(),
    }
}
