//! Reserved memory lowers the corrected figure of memory.available, but not the kubelet's figure.

use std::time::Duration;

use anyhow::{Context, Result};

use super::accounts::end;
use super::cache::mounted;
use super::pressure::lingering_pod;
use crate::agent::Agent;
use crate::cgroups::PodSpec;
use crate::config::AgentConfig;
use crate::evidence::{meminfo, vmstat};
use crate::init::EXT4;
use crate::knob::Knob;
use crate::stage::Stage;
use crate::units::{MIB, mib};

/// The memory that each step reserves. It is far more than the variation between two readings.
const ASIDE: u64 = 48 * MIB;
/// The variation between two readings, in MiB.
const FLICKER: f64 = 10.0;

/// The figures of one reading, in MiB.
#[derive(Debug, Clone, Copy)]
struct Figures {
    corrected: f64,
    kubelet: f64,
    hugepages: f64,
    watermarks: f64,
}

fn figures(stage: &mut Stage<'_>, agent: &Agent) -> Result<Figures> {
    // The agent reads the zones' watermarks about once a second, not at every scrape.
    stage.pause(Duration::from_millis(2500));
    let metrics = agent.metrics()?;
    let value = |name: &str, label, value| {
        let bytes = metrics.sum(name, &[(label, value)]).with_context(|| format!("no {name}{{{label}={value:?}}}"));
        bytes.map(|bytes| bytes / 1_048_576.0)
    };
    Ok(Figures {
        corrected: value("memory_available_bytes", "semantics", "corrected")?,
        kubelet: value("memory_available_bytes", "semantics", "kubelet")?,
        hugepages: value("memory_correction_bytes", "correction", "hugepages")?,
        watermarks: value("memory_correction_bytes", "correction", "watermarks")?,
    })
}

pub fn available(stage: &mut Stage<'_>) -> Result<()> {
    let agent = stage.agent(&AgentConfig::observe())?;
    let before = figures(stage, &agent)?;
    let aside = mib(ASIDE);

    let knob = Knob::open("nr_hugepages")?;
    knob.set(ASIDE / (2 * MIB))?;
    let huge = figures(stage, &agent)?;
    stage.check((huge.hugepages - aside).abs() < 0.1, || format!("huge pages: {:.1} MiB, not {aside}", huge.hugepages));
    check_lowered(stage, "huge pages", before, huge);
    drop(knob);

    let between = figures(stage, &agent)?;
    let knob = Knob::open("min_free_kbytes")?;
    knob.set(knob.before + ASIDE / 1024)?;
    let reserved = figures(stage, &agent)?;
    let rise = reserved.watermarks - between.watermarks;
    // The high watermark rises by the minimum watermark plus two quarters of it.
    stage.check(rise > 0.9 * aside, || format!("the watermarks rose by {rise:.1} MiB only"));
    check_lowered(stage, "min_free_kbytes", between, reserved);
    drop(knob);
    if mounted(EXT4) {
        refaults(stage, &agent)?;
    }
    stage.stop(&agent);
    Ok(())
}

fn check_lowered(stage: &mut Stage<'_>, what: &str, before: Figures, after: Figures) {
    let (corrected, kubelet) = (before.corrected - after.corrected, before.kubelet - after.kubelet);
    stage.note(format!("{what}: corrected fell by {corrected:.1} MiB, the kubelet's by {kubelet:.1} MiB"));
    // Some of the reserved memory did not count as free before, such as the pages of the per-CPU lists.
    stage.check(corrected > 0.6 * mib(ASIDE), || format!("{what}: corrected fell by {corrected:.1} MiB only"));
    stage.check(kubelet.abs() < FLICKER, || format!("{what}: the kubelet's figure moved by {kubelet:.1} MiB"));
}

/// Checks the correction for refaults. File pages that are read again as soon as they are dropped are not available, if the
/// node drops them. The correction does not count a workload that thrashes at its own memory limit.
fn refaults(stage: &mut Stage<'_>, agent: &Agent) -> Result<()> {
    let own = stage.pod("own", PodSpec::best_effort())?;
    own.container()?.limit(32 * MIB)?;
    let own = stage.work(&own, &format!("cache --name own --file {EXT4}/own --mib 48 --ready /tmp/own-ready"))?;
    let worth = watch(stage, agent, Duration::from_secs(4), "a workload at its own limit")?;
    stage.check_equal("refaulting_file while only a workload thrashes", &worth, &0.0);
    end(stage, &[own]);

    lingering_pod(stage, "filler", PodSpec::best_effort(), 140)?;
    stage.until(Duration::from_secs(20), |_| meminfo("MemAvailable").is_ok_and(|bytes| bytes < 150 * MIB));
    let pod = stage.pod("thrasher", PodSpec::best_effort())?;
    stage.work(&pod, &format!("cache --name thrasher --file {EXT4}/thrash --mib 200 --ready /tmp/thrash-ready"))?;
    let worth = watch(stage, agent, Duration::from_secs(20), "the node")?;
    stage.check(worth > 0.0, || {
        "memory_correction_bytes{correction=\"refaulting_file\"} stays 0 under refaults".to_owned()
    });
    stage.figure("refaulting_file", worth / 1_048_576.0, "MiB");
    stage.check_no_oom_kill()
}

/// Returns the value of the correction `refaulting_file` at the end of the time, or as soon as it is positive during activations.
fn watch(stage: &mut Stage<'_>, agent: &Agent, time: Duration, whose: &str) -> Result<f64> {
    let counts = || Ok::<_, anyhow::Error>([vmstat("workingset_refault_file")?, vmstat("workingset_activate_file")?]);
    let before = counts()?;
    let mut worth = 0.0;
    stage.until(time, |stage| {
        stage.pause(Duration::from_millis(500));
        let metrics = agent.metrics().unwrap_or_default();
        worth = metrics.sum("memory_correction_bytes", &[("correction", "refaulting_file")]).unwrap_or(0.0);
        // The correction of an earlier workload's refaults decays slowly, so a positive value counts only with new activations.
        worth > 0.0 && counts().is_ok_and(|now| now[1] > before[1])
    });
    let after = counts()?;
    let (back, active) = (after[0] - before[0], after[1] - before[1]);
    stage.note(format!("{whose}: file pages back, and active at once: {back} and {active}"));
    stage.check(active > 0, || format!("{whose}: no file page came back"));
    Ok(worth)
}
