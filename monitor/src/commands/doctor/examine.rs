//! Collects the facts as the agent does at its start. Settings that the agent would change are tried on this process only.

use std::path::{Path, PathBuf};

use crate::actions::{reclaim, self_protection};
use crate::cluster::Access;
use crate::cluster::own_node_policy::{self, OwnNodePolicy};
use crate::cluster::own_permissions::{self, Missing};
use crate::config::{Candidates, MonitorConfig};
use crate::kernel::{Kernel, ProbeReport, ProbeState};
use crate::node::kmsg::{self, Kmsg};
use crate::node::meminfo::{MemDetails, MemInfo};
use crate::node::other_killers::{self, OtherKillerFact, SetUpFact};
use crate::node::pods_memory::PodsMemory;
use crate::node::psi_trigger::PsiTrigger;
use crate::node::{Hierarchy, MemoryReader, NESTED_ACCOUNTING, PoolChoice, cpus, namespaces};
use crate::sensors::allocatable_signal;
use crate::sensors::counter_error::CounterError;
use crate::sensors::oom_kill_stream::OomKills;
use crate::units::{Bytes, Signal, kernel_text, privileges, signed};
use crate::workloads::Reach;

use super::facts::{Facts, Kernel as KernelFacts, MissingProbe, Probes, Problem};
use super::{candidate_facts, decision_facts, filesystem_facts, host_facts, runtime_facts, threshold_facts};

/// Collects all facts. `unread` is a configuration file that was not given: the defaults are examined instead.
pub async fn examine(config: &MonitorConfig, unread: Option<&Path>) -> Facts {
    let (config, poolless) = of_this_node(config).await;
    let config = &config;
    let proc_root = &config.proc_root;
    let mut problems = Vec::new();
    // As `run` does. If it fails, the namespace is among the facts.
    let _stays = namespaces::join_cgroups_of_machine();
    if let Err(reason) = host_facts::sees_processes(proc_root) {
        problems.push(Problem::fatal("processes", reason));
    }
    let hierarchy = Hierarchy::detect(&config.cgroup_root);
    let hierarchy = hierarchy.map_err(|error| problems.push(Problem::fatal("cgroup", error.to_string()))).ok();
    if let Some(hierarchy) = &hierarchy
        && let Err(error) = MemoryReader::open(proc_root, hierarchy).and_then(|mut reader| reader.sample())
    {
        problems.push(Problem::fatal("memory", format!("memory cannot be read: {error}; the agent evicts nothing")));
    }
    let left_out = hierarchy.as_ref().and_then(Hierarchy::leaves_out_nested);
    problems.extend(left_out.map(|reason| Problem::fatal(NESTED_ACCOUNTING, reason)));
    let scanned = hierarchy.as_ref().map(|hierarchy| candidate_facts::find(config, hierarchy)).transpose();
    let scanned = scanned.map_err(|error| problems.push(Problem::fatal("cgroup", error))).ok().flatten();
    let workloads = scanned.as_ref().map_or(0, |it| it.workloads);
    let reach = scanned.as_ref().map(|it| it.reach);
    let (decisions, kept) = decision_facts::find(config, workloads);
    let report = Kernel::check_probes(&config.kernel);
    let mut missing: Vec<String> = report.degradations.iter().map(ToString::to_string).collect();
    let oom_kills_told_by = OomKills::open(&report, proc_root, &mut missing).source();
    let psi = PsiTrigger::register(proc_root);
    let psi = psi.map_err(|reason| missing.push(format!("PSI trigger: {reason}"))).is_ok();
    missing.extend(self_protection::lower_own_score(proc_root));
    missing.extend(self_protection::apply());
    missing.extend(self_protection::missing_for_scores(proc_root));
    if let Some(hierarchy) = hierarchy.as_ref().filter(|_| !config.evictions.reclaim_deadline.is_zero())
        && let Err(reason) = reclaim::is_possible(hierarchy)
    {
        missing.push(format!("memory.reclaim: {reason}"));
    }
    let pods_memory = hierarchy.as_ref().map(|hierarchy| PodsMemory::new(hierarchy.clone()).sample());
    let without_pods = pods_memory.as_ref().and_then(|sampled| allocatable_signal::missing(&config.policy, sampled));
    missing.extend(without_pods.map(|reason| format!("{}: {reason}", Signal::AllocatableMemoryAvailable)));
    missing.extend(cpus::online().1);
    missing.extend(CounterError::read(proc_root).and_then(|error| {
        let mut config = config.clone();
        error.fit(&mut config);
        error.degradation(&config.policy)
    }));
    let root = root(proc_root);
    let kubelet = filesystem_facts::has_kubelet(&root);
    let (runtimes, hints) = runtime_facts::find(&root, &config.runtime.endpoint).await;
    let by_role = filesystem_facts::by_role(config, kubelet, &hints);
    missing.extend(by_role.missing.iter().cloned());
    let filesystems = &by_role.found;
    missing.extend(unwritable(
        "incidents",
        &config.incidents.directory,
        "incidents are kept in memory, and lost at a restart",
    ));
    let (at_api_server, lacks_to_enforce) = api_server(config).await;
    missing.extend(at_api_server);
    missing.extend(poolless);
    problems.extend(missing.into_iter().map(degraded));
    if let Some(reason) = unwritable("lock file", &config.lock_file, &without_lock(unread)) {
        problems.push(Problem::fatal("lock file", reason));
    }
    // Unreadable files count as empty here: the agent reports them itself.
    let text = |name: &str| kernel_text::read(proc_root.join(name)).unwrap_or_default();
    let (status, meminfo) = (text("self/status"), text("meminfo"));
    let memory = MemInfo::parse(&meminfo).ok().map(|meminfo| meminfo.total);
    let removes_garbage = runtimes.iter().any(|runtime| runtime.trouble.is_none());
    let pods = pods_memory.and_then(Result::ok);
    let thresholds = threshold_facts::thresholds(config, hierarchy.as_ref(), filesystems, pods, &kept, |threshold| {
        let semantics = config.policy.semantics;
        let of = |reach: Reach| {
            (reach.reported_only(threshold, semantics, removes_garbage), reach.evicts(threshold, semantics))
        };
        reach.map_or((None, None), of)
    });
    let capacities = |signal| match signal {
        Signal::MemoryAvailable => memory.map(|memory| signed(memory.0)),
        _ => thresholds.iter().find(|it| it.signal == signal).map(|it| it.capacity),
    };
    let others = other_killers::find(proc_root);
    Facts {
        mode: config.mode.as_str(),
        pool: config.pool.as_deref().map(str::to_owned),
        kernel: KernelFacts {
            release: rustix::system::uname().release().to_string_lossy().into_owned(),
            features: host_facts::features(hierarchy.as_ref(), proc_root),
        },
        cgroup: hierarchy.as_ref().map(|hierarchy| host_facts::cgroup(hierarchy, &config.cgroup_root)),
        probes: probes(report),
        oom_kills_told_by,
        pressure_stall_information: psi,
        kernel_log: Kmsg::open(Path::new(kmsg::PATH)).is_ok(),
        swap_bytes: MemDetails::parse(&meminfo).swap_total.unwrap_or(Bytes::ZERO).0,
        capabilities: host_facts::capabilities(&status),
        is_root: privileges::is_root(),
        private_namespaces: namespaces::private(),
        other_killers: others
            .iter()
            .map(|other| OtherKillerFact::of(other, other.meaning(config, &capacities)))
            .collect(),
        set_up: SetUpFact::of(&others, config, &capacities),
        remarks: threshold_facts::remarks(&config.policy, &capacities, filesystems),
        unobserved: threshold_facts::unobserved(&config.policy, &thresholds, &by_role),
        thresholds,
        pods_limit: pods.and_then(|sample| threshold_facts::pods_limit(&config.policy, sample)),
        decisions,
        filesystem_layout: filesystem_facts::layout(filesystems),
        filesystems: by_role.found,
        kubelet,
        runtimes,
        candidates: reach.map_or(Candidates::Everything, Reach::candidates).as_str(),
        patterns: scanned.as_ref().map_or_else(Vec::new, |it| it.patterns.clone()),
        unheld_sockets: scanned.as_ref().and_then(|it| it.unheld_sockets.clone()),
        needed: scanned.map_or_else(Vec::new, |it| it.needed),
        other_instance: host_facts::lock_holder(proc_root, &config.lock_file),
        unread_configuration: unread.map(Path::to_owned),
        limits_unknown: config.policy.local_storage_isolation
            && config.pods.is_none()
            && Access::find(&config.kubernetes).is_none(),
        lacks_to_enforce,
        problems,
    }
}

/// Returns the root directory of the machine's init if it is visible: an agent in a container has another root.
fn root(proc_root: &Path) -> PathBuf {
    let init = proc_root.join("1");
    let process = if init.join("root/.").exists() { init } else { proc_root.join("self") };
    process.join("root")
}

/// Returns the configuration of the pool that this node is in. The second value says why that is not known.
async fn of_this_node(config: &MonitorConfig) -> (MonitorConfig, Option<String>) {
    let Some(access) = Access::find(&config.kubernetes).filter(|_| !config.pools.is_empty()) else {
        return (PoolChoice::of(config.clone(), false).choose(), None);
    };
    match access.node_labels().await {
        Ok(labels) => (config.of_pool(Some(&labels)), None),
        Err(reason) => {
            let recorded = PoolChoice::of(config.clone(), true);
            let effect = match recorded.is_known() {
                true => "an agent uses those that the last one has recorded",
                false => "an agent only observes",
            };
            let text = format!("pool: the labels of node {} cannot be read: {reason}; {effect}", access.node_name());
            (recorded.choose(), Some(text))
        }
    }
}

/// Returns what this machine's agent may not do at the API server, and what it should not be able to do, if one is configured. The second value is
/// what an agent that observes lacks to enforce.
async fn api_server(config: &MonitorConfig) -> (Vec<String>, Option<String>) {
    let Some(access) = Access::find(&config.kubernetes) else { return (Vec::new(), None) };
    let Missing { now, to_enforce } = match own_permissions::missing(&access, config).await {
        Ok(missing) => missing,
        Err(reason) => {
            return (vec![format!("API server: {reason}; what the agent may do there is not known")], None);
        }
    };
    let mut missing: Vec<String> = now.into_iter().map(own_permissions::sentence).collect();
    if access.is_of_pod() && own_node_policy::look(&access).await == OwnNodePolicy::Missing {
        missing.push(format!("API server: {}", own_node_policy::MISSING));
    }
    (missing, own_permissions::sentence_to_enforce(&to_enforce))
}

/// Splits the subject off one of the agent's sentences, which begin with it.
fn degraded(sentence: String) -> Problem {
    let about = sentence.split_once(": ").map_or("", |(about, _)| about).to_owned();
    Problem::degraded(about, sentence)
}

/// Returns a sentence if `path` cannot be written or created. For a missing path the nearest existing directory is checked.
fn unwritable(about: &str, path: &Path, consequence: &str) -> Option<String> {
    let there = path.ancestors().find(|place| place.exists())?;
    let errno = rustix::fs::access(there, rustix::fs::Access::WRITE_OK).err()?;
    Some(format!("{about}: cannot write {}: {}: {errno}; {consequence}", path.display(), there.display()))
}

/// Returns the effect of a lock file that cannot be written, and the fix. In a container with a read-only root directory the default path
/// is not writable, but the mounted configuration may name another.
fn without_lock(unread: Option<&Path>) -> String {
    match unread.map(Path::display) {
        Some(unread) => format!(
            "by the defaults, which were examined, the agent does not start; {unread} was not given and may name another path: add \
             --config {unread}"
        ),
        None => "the agent does not start without it; set lockFile to a writable path".to_owned(),
    }
}

fn probes(report: ProbeReport) -> Probes {
    let cgroup_ids = report.cgroup_source.as_str();
    let (mut would_attach, mut missing) = (Vec::new(), Vec::new());
    for probe in report.probes {
        match probe.state {
            ProbeState::Attached => would_attach.push(probe.name),
            ProbeState::Missing(reason) => {
                missing.push(MissingProbe { name: probe.name, purpose: probe.purpose, reason });
            }
        }
    }
    Probes { would_attach, missing, cgroup_ids }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_begins_with_its_subject() {
        assert_eq!(degraded("PSI trigger: cannot open".to_owned()).about, "PSI trigger");
        assert_eq!(degraded("just a sentence".to_owned()).about, "");
    }

    #[test]
    fn an_unread_configuration_is_named() {
        let sentence = without_lock(Some(Path::new("/etc/npm.yaml")));
        assert!(
            sentence.starts_with("by the defaults") && sentence.ends_with("add --config /etc/npm.yaml"),
            "{sentence}"
        );
        assert!(without_lock(None).ends_with("set lockFile to a writable path"));
    }

    #[test]
    fn a_missing_path_is_checked_by_its_parent() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(unwritable("incidents", &directory.path().join("not/yet"), "gone"), None);
        // Not even root creates files there.
        let sentence = unwritable("incidents", Path::new("/proc/sys/none/x"), "gone");
        assert!(sentence.is_none_or(|sentence| sentence.contains("/proc/sys") && sentence.ends_with("; gone")));
    }
}
