//! The agent's liveness on a node that thrashes.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::ending::tidy;
use super::scene::{APP, Scene, TIME_LIMIT, end, volume_file, work};
use super::set_ups::{WITHOUT_EVICTION, restart_kubelet, restart_until_ready};
use crate::evidence::{meminfo, vmstat};
use crate::http;
use crate::stage::Stage;
use crate::units::MIB;

/// The memory that is left for page cache, in MiB.
const LEFT: u64 = 250;
/// The size of the file that is read again and again, in MiB.
const FILE: u64 = 500;
/// How long the node thrashes. The liveness probe of the manifests ends the agent after six failures, one each 20 s.
const THRASH_TIME: Duration = Duration::from_secs(130);
/// The most unanswered requests in succession. A request times out after 5 s, the probe after 15 s.
const MOST_LATE: u32 = 2;
const BETWEEN_PROBES: Duration = Duration::from_secs(1);
const PAGE: u64 = 4_096;

/// The node's page cache refaults for longer than the liveness probe may fail. The kubelet does not restart the agent, which answers in time.
pub fn thrash(stage: &mut Stage<'_>) -> Result<()> {
    let Scene { cluster, agent, pod, uid, .. } = Scene::begin(stage, "")?;
    // The kubelet's eviction would end the pod.
    restart_until_ready(stage, &cluster, WITHOUT_EVICTION)?;
    let held = (meminfo("MemAvailable")? / MIB).saturating_sub(LEFT);
    let holder = work(stage, &pod, &format!("hold --name {APP} --mib {held}"))?;
    stage.wait_resident(&holder, held)?;
    let before = vmstat("workingset_refault_file")?;
    let file = volume_file(&uid, "thrash");
    let reader =
        work(stage, &pod, &format!("cache --name {APP} --file {file} --mib {FILE} --ready /tmp/thrash-ready"))?;
    let (begun, mut longest) = (Instant::now(), Duration::ZERO);
    let (mut late, mut most_late) = (0, 0);
    while begun.elapsed() < THRASH_TIME {
        let asked = Instant::now();
        let is_answered = http::get(agent.address, "/healthz").is_ok();
        longest = longest.max(asked.elapsed());
        late = if is_answered { 0 } else { late + 1 };
        most_late = most_late.max(late);
        stage.pause(BETWEEN_PROBES);
    }
    let refaulted = (vmstat("workingset_refault_file")? - before) * PAGE / MIB;
    stage.note(format!("{refaulted} MiB were read again; the longest answer of /healthz took {longest:?}"));
    stage.check(refaulted > FILE, || format!("the node did not thrash: {refaulted} MiB were read again"));
    stage.check(most_late <= MOST_LATE, || format!("{most_late} requests of /healthz in succession had no answer"));
    stage.check_no_oom_kill()?;
    end(stage, &reader);
    end(stage, &holder);
    // The control plane has thrashed, too, and recovers slowly on a slow machine.
    let is_back = stage.until(TIME_LIMIT, |_| cluster.is_healthy());
    stage.check(is_back, || format!("the API server is not ready {TIME_LIMIT:?} after the node has thrashed"));
    tidy(stage, &cluster)?;
    restart_kubelet(stage, "", || true)
}
