//! Conditions that follow from pressure stall information. A condition becomes true after some time above one level, and false after
//! some time below another.

use super::thresholds::nanos;
use crate::config::{PressureCondition, PressureLevel};
use crate::units::Moment;

/// The state of one condition between two samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PressureState {
    status: bool,
    /// Since when every sample has called for the other status.
    since: Option<Moment>,
}

impl PressureState {
    pub const fn status(self) -> bool {
        self.status
    }

    /// Takes in one sample. A sample without a figure interrupts the time that the pressure has lasted.
    #[must_use]
    pub fn after(self, condition: &PressureCondition, average: Option<f64>, now: Moment) -> Self {
        let PressureLevel { share, lasting } = if self.status { condition.clear } else { condition.set };
        let asks_for_other =
            average.is_some_and(|average| if self.status { average < share } else { average >= share });
        if !asks_for_other {
            return Self { since: None, ..self };
        }
        let since = self.since.unwrap_or(now);
        if now.nanos_since(since) >= nanos(lasting) {
            return Self { status: !self.status, since: None };
        }
        Self { since: Some(since), ..self }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{PressureKind, PressureResource, PressureScope};

    fn condition(set_for: u64, clear_for: u64) -> PressureCondition {
        let level = |share, seconds| PressureLevel { share, lasting: Duration::from_secs(seconds) };
        PressureCondition {
            condition: "X".to_owned(),
            scope: PressureScope::System,
            resource: PressureResource::Memory,
            kind: PressureKind::Some,
            set: level(0.10, set_for),
            clear: level(0.05, clear_for),
        }
    }

    /// Returns the status after each sample. Samples are two seconds apart; a negative one stands for a sample without a figure.
    fn statuses(condition: &PressureCondition, percents: &[f64]) -> Vec<bool> {
        let mut state = PressureState::default();
        let step = |(index, percent): (usize, &f64)| {
            let now = Moment(i128::try_from(index).unwrap() * 2_000_000_000);
            state = state.after(condition, (*percent >= 0.0).then_some(percent / 100.0), now);
            state.status()
        };
        percents.iter().enumerate().map(step).collect()
    }

    #[test]
    fn the_status_changes_after_the_time_beyond_a_level() {
        for (name, set_for, clear_for, percents, expected) in [
            ("above the level for four seconds", 4, 4, &[10.0, 10.0, 10.0, 10.0][..], "..##"),
            ("just below the level", 0, 0, &[9.99, 9.99], ".."),
            ("an interruption starts the time anew", 4, 4, &[20.0, 20.0, 9.0, 20.0, 20.0, 20.0], ".....#"),
            ("at once", 0, 0, &[10.0, 4.0, 10.0], "#.#"),
            ("between the levels the status stays", 0, 0, &[7.0, 12.0, 7.0, 5.0, 4.9, 7.0], ".###.."),
            ("clearing takes four seconds", 0, 4, &[50.0, 1.0, 1.0, 1.0, 1.0], "###.."),
            ("an interruption starts clearing anew", 0, 4, &[50.0, 1.0, 1.0, 6.0, 1.0, 1.0, 1.0], "######."),
            ("a missing sample starts the time anew", 4, 4, &[20.0, 20.0, -1.0, 20.0, 20.0, 20.0], ".....#"),
            ("missing samples do not clear", 0, 4, &[50.0, -1.0, -1.0, -1.0, -1.0], "#####"),
        ] {
            let shown: String = statuses(&condition(set_for, clear_for), percents)
                .iter()
                .map(|on| if *on { '#' } else { '.' })
                .collect();
            assert_eq!(shown, expected, "{name}");
        }
    }
}
