//! systemd-oomd's attributes: an omitted workload is never evicted, an avoided one only when no other candidate is left.

use std::time::Duration;

use anyhow::Result;

use super::judge;
use super::pressure::ramping_pod;
use crate::cgroups::PodSpec;
use crate::config::AgentConfig;
use crate::sampler;
use crate::stage::Stage;
use crate::units::MIB;

/// A shortage ends after this time without a met threshold, with a shorter transition period.
const SHORTAGE: Duration = Duration::from_secs(21);

pub fn omit(stage: &mut Stage<'_>) -> Result<()> {
    let omitted_pod = stage.pod("omitted", PodSpec::best_effort())?;
    omitted_pod.cgroup.set_attribute("user.oomd_omit", "1")?;
    let avoided_pod = stage.pod("avoided", PodSpec::best_effort())?;
    avoided_pod.cgroup.set_attribute("user.oomd_avoid", "1")?;
    // These two rank first by usage.
    let omitted = stage.holder(&omitted_pod, 280)?;
    let avoided = stage.holder(&avoided_pod, 240)?;
    let agent = stage.agent(&AgentConfig::default())?;
    stage.boot.sampler.start();

    let (plain_pod, plain) = ramping_pod(stage, "plain", PodSpec::best_effort())?;
    judge::wait_gone(stage, &plain_pod, Duration::from_secs(25));
    stage.pause(Duration::from_millis(800));
    stage.check_alive(&[&omitted, &avoided]);

    // Burstable ranks behind BestEffort, but before avoided workloads.
    let (burstable_pod, burstable) = ramping_pod(stage, "burstable", PodSpec::burstable(16))?;
    judge::wait_gone(stage, &burstable_pod, Duration::from_secs(25));
    stage.pause(Duration::from_millis(800));
    stage.check_alive(&[&omitted, &avoided]);

    let (by_agent, _) = stage.signals_of(&agent)?;
    let targets: Vec<i32> = by_agent.iter().map(|signal| signal.target).collect();
    stage.check_equal("signalled, in order", &targets, &vec![plain.pid, burstable.pid]);
    stage.check_no_oom_kill()?;
    let curve = stage.boot.sampler.curve();
    let crossed = sampler::lowest(&curve).is_some_and(|lowest| lowest < 130 * MIB);
    stage.check(crossed, || "the guest was never near the threshold".to_owned());

    // In the same shortage two evictions that bought little would leave only leakers as candidates.
    stage.pause(SHORTAGE);
    // No other candidate is left: the avoided pod is evicted, and the omitted one still is not.
    let (last_pod, last) = omitted_ramp(stage)?;
    judge::wait_gone(stage, &avoided_pod, Duration::from_secs(25));
    stage.check_alive(&[&omitted]);
    drop((last_pod, last));
    stage.check_no_oom_kill()?;
    stage.stop(&agent);
    Ok(())
}

/// Starts a ramp in an exempt workload. It is small enough for the pressure to end when the avoided workload is evicted.
fn omitted_ramp(stage: &Stage<'_>) -> Result<(crate::cgroups::Pod, crate::stage::Worker)> {
    let pod = stage.pod("pressing", PodSpec::best_effort())?;
    pod.cgroup.set_attribute("user.oomd_omit", "1")?;
    let worker = stage.work(&pod, "ramp --name pressing --rate 60 --to 900 --fast-until 150 --stop-at 85")?;
    Ok((pod, worker))
}
