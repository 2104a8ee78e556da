//! Conditions on pressure stall information: each is set once after its time, and cleared once after its time.

use std::time::Duration;

use anyhow::Result;

use super::accounts::{end, stallers};
use super::cache::mounted;
use crate::agent::{Agent, Record};
use crate::cgroups::Layout;
use crate::config::AgentConfig;
use crate::init::EXT4;
use crate::stage::Stage;
use crate::units::monotonic_ns;

const NAME: &str = "MemoryContention";
/// The time for which the level must be reached before the condition is set, and left before it is cleared.
const FOR: Duration = Duration::from_secs(2);

pub fn conditions(stage: &mut Stage<'_>) -> Result<()> {
    if !mounted(EXT4) {
        stage.skip("no ext4 disk in this guest");
        return Ok(());
    }
    // The clear level is close to the set level, because the ten-second average falls slowly.
    let extra = format!(
        "pressureConditions:\n  - condition: {NAME}\n    scope: system\n    resource: memory\n    kind: some\n    \
         set: {{level: 15%, for: 2s}}\n    clear: {{level: 12%, for: 2s}}\n"
    );
    let agent = stage.agent(&AgentConfig { extra, ..AgentConfig::observe() })?;
    stage.check_equal("the condition at first", &status(&agent), &Some(0.0));
    let begun = monotonic_ns();
    let workers = stallers(stage, 3)?;
    let set = stage.until(Duration::from_secs(30), |_| changes(&agent).len() == 1);
    let after = Duration::from_nanos(monotonic_ns() - begun);
    let ratio = |scope| {
        let labels = [("scope", scope), ("resource", "memory"), ("kind", "some")];
        agent.metrics().ok().and_then(|metrics| metrics.sum("pressure_ratio", &labels)).unwrap_or(0.0)
    };
    let (system, pods) = (ratio("system"), ratio("kubepods"));
    end(stage, &workers);
    stage.check(set, || format!("{NAME} was not set in 30 s"));
    stage.check(after >= FOR, || format!("set after {after:?}, sooner than it may be"));
    stage.check(system > 0.0, || format!("pressure_ratio of the system is {system}"));
    if stage.layout() == Layout::V2 {
        stage.check(pods > 0.0, || format!("pressure_ratio of kubepods is {pods}"));
    }
    stage.check_equal("the condition when set", &status(&agent), &Some(1.0));
    let cleared = stage.until(Duration::from_secs(40), |_| changes(&agent).len() >= 2);
    stage.check(cleared, || format!("{NAME} was not cleared in 40 s"));
    stage.check_equal("the condition when cleared", &status(&agent), &Some(0.0));
    stage.check_equal("changes of the condition", &changes(&agent).len(), &2);
    stage.figure("set_after", after.as_secs_f64(), "s");
    stage.stop(&agent);
    Ok(())
}

fn status(agent: &Agent) -> Option<f64> {
    agent.metrics().ok()?.sum("condition", &[("condition", NAME)])
}

fn changes(agent: &Agent) -> Vec<Record> {
    agent.events("condition").into_iter().filter(|record| record.text("condition") == NAME).collect()
}
