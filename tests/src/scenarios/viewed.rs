//! An agent that programs of the host look at, and a ramp of a pod whose name the API server knows.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

use super::cluster_eyes::Seen;
use super::enforcing::cluster::listed_pod;
use super::judge;
use super::pressure::EVERYTHING_MIB;
use crate::agent::Agent;
use crate::catalogue::{GUEST, VIEWED_PORT};
use crate::cgroups::{Pod, PodSpec};
use crate::config::AgentConfig;
use crate::control_plane::{ControlPlane, NODE};
use crate::incidents;
use crate::stage::{Stage, Worker};

/// The pod that ramps through the threshold.
pub const VICTIM: &str = "report";
/// The pod that stays within its request.
pub const BYSTANDER: &str = "web";
/// The directory of the kubelet, with the volumes of pods.
const KUBELET: &str = "/var/lib/kubelet";
/// The directory of the logs of pods.
const LOGS: &str = "/var/log/pods";
/// The ramp's MiB per second.
pub const RAMP_MIB: u32 = 30;
/// Time limit from the start of the ramp to the end of its pod.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Viewed {
    plane: ControlPlane,
    pub agent: Agent,
    bystander: Worker,
}

/// The victim on its way to the threshold.
#[derive(Debug)]
pub struct Ramp {
    pod: Pod,
    worker: Worker,
}

impl Viewed {
    /// Starts the API server, a bystander, and an agent in enforce mode at the address that the host's port leads to.
    pub fn start(stage: &mut Stage<'_>) -> Result<Self> {
        incidents::forget()?;
        let plane = ControlPlane::start()?;
        let pod = listed_pod(&plane, stage, BYSTANDER, PodSpec::guaranteed(400), "ReplicaSet")?;
        let bystander = stage.holder(&pod, 350)?;
        // The agent measures disks only if a threshold needs it. The thresholds on them are never met.
        let volume = format!("{KUBELET}/pods/{}/volumes/kubernetes.io~empty-dir/data", pod.uid);
        for directory in [LOGS, &volume] {
            fs::create_dir_all(directory).with_context(|| format!("create {directory}"))?;
        }
        fs::write(format!("{volume}/file"), [1; 65_536]).with_context(|| format!("write into {volume}"))?;
        let extra = format!(
            "{}kubernetes: {{kubeconfig: {}, nodeName: {NODE}, heartbeat: 10s}}\n",
            incidents::configuration(),
            plane.kubeconfig()?.display()
        );
        let never = [("pid.available", "5%"), ("nodefs.available", "1Ki"), ("nodefs.inodesFree", "1")];
        let thresholds = never.map(|(signal, value)| (signal, value.to_owned())).to_vec();
        let (host, port) = (GUEST, VIEWED_PORT);
        let agent = stage.agent(&AgentConfig {
            extra,
            thresholds,
            host,
            port,
            workload_memory: true,
            ..AgentConfig::default()
        })?;
        let viewed = Self { plane, agent, bystander };
        Seen { plane: &viewed.plane, agent: &viewed.agent }.pods(stage, 1);
        Ok(viewed)
    }

    /// Lets the victim ramp slowly through the threshold, and asserts that it dies and the bystander lives.
    pub fn ramp(&self, stage: &mut Stage<'_>) -> Result<()> {
        let ramp = self.start_ramp(stage, RAMP_MIB)?;
        self.end_ramp(stage, &ramp)
    }

    /// Starts the victim, which ramps slowly towards the threshold, by so many MiB per second.
    pub fn start_ramp(&self, stage: &mut Stage<'_>, rate: u32) -> Result<Ramp> {
        let pod = listed_pod(&self.plane, stage, VICTIM, PodSpec::best_effort(), "ReplicaSet")?;
        Seen { plane: &self.plane, agent: &self.agent }.pods(stage, 2);
        let ramp = format!("ramp --name {VICTIM} --rate {rate} --to {EVERYTHING_MIB} --fast-until 300");
        let worker = stage.work(&pod, &ramp)?;
        Ok(Ramp { pod, worker })
    }

    /// Waits for the end of the victim, and asserts that it was killed and the bystander lives.
    pub fn end_ramp(&self, stage: &mut Stage<'_>, ramp: &Ramp) -> Result<()> {
        judge::wait_gone(stage, &ramp.pod, LIMIT);
        stage.check_killed(&ramp.worker);
        stage.check_alive(&[&self.bystander]);
        stage.check_no_oom_kill()
    }

    /// Stops the agent, and removes what the bystander kept on the disk.
    pub fn stop(self, stage: &mut Stage<'_>) -> Result<()> {
        stage.stop(&self.agent);
        fs::remove_dir_all(KUBELET).with_context(|| format!("remove {KUBELET}"))
    }
}
