//! Properties of the conditions that follow from pressure.

use std::time::Duration;

use node_pressure_monitor::config::{PressureCondition, PressureKind, PressureLevel, PressureResource, PressureScope};
use node_pressure_monitor::eviction::pressure::PressureState;
use node_pressure_monitor::units::Moment;
use proptest::prelude::*;

use super::check::forall;

const SECOND: i128 = 1_000_000_000;

fn condition() -> impl Strategy<Value = PressureCondition> {
    let levels = (1_u32..=100, 0_u32..=100, 0_u64..10, 0_u64..10);
    levels.prop_map(|(set, lower, set_for, clear_for)| {
        let level = |percent: u32, seconds| PressureLevel {
            share: f64::from(percent) / 100.0,
            lasting: Duration::from_secs(seconds),
        };
        PressureCondition {
            condition: "X".to_owned(),
            scope: PressureScope::System,
            resource: PressureResource::Memory,
            kind: PressureKind::Some,
            set: level(set, set_for),
            clear: level(set.saturating_sub(lower), clear_for),
        }
    })
}

/// Generates averages, each so many seconds after the one before. Some are missing.
fn samples() -> impl Strategy<Value = Vec<(u8, Option<f64>)>> {
    let average = prop_oneof![1 => Just(None), 6 => (0_u32..=100).prop_map(|percent| Some(f64::from(percent) / 100.0))];
    // Averages change rarely, so that levels last.
    let spells = prop::collection::vec((average, 1_usize..8), 1..20);
    (spells, 1_u8..4).prop_map(|(spells, step)| {
        spells.into_iter().flat_map(|(average, length)| vec![(step, average); length]).collect()
    })
}

/// Catches a break that does not restart the time, a time taken from the other level, and levels compared in the wrong direction. When the
/// status changes, every sample of the whole time before supports the change, so it cannot flap faster.
#[test]
fn a_status_changes_only_if_all_samples_support_it() {
    forall(1000, 300, &(condition(), samples()), |(condition, samples), seen| {
        let mut state = PressureState::default();
        let (mut now, mut changed) = (0_i128, None::<i128>);
        let mut past: Vec<(i128, Option<f64>)> = Vec::new();
        for (step, average) in samples {
            now += i128::from(step) * SECOND;
            past.push((now, average));
            let before = state.status();
            state = state.after(&condition, average, Moment(now));
            if state.status() == before {
                continue;
            }
            seen.when(true);
            let level = if before { condition.clear } else { condition.set };
            let lasting = i128::try_from(level.lasting.as_nanos()).unwrap();
            let asks = |average: Option<f64>| {
                average.is_some_and(|average| if before { average < level.share } else { average >= level.share })
            };
            let within: Vec<_> = past.iter().filter(|(at, _)| now - at <= lasting).collect();
            prop_assert!(within.iter().all(|(_, average)| asks(*average)), "{within:?}");
            prop_assert!(past[0].0 <= now - lasting, "no sample is as old as that");
            prop_assert!(changed.is_none_or(|changed| now - changed >= lasting), "it flaps");
            changed = Some(now);
        }
        Ok(())
    });
}
