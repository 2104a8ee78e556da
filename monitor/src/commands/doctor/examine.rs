//! Looks at everything once, in the way in which the agent does when it starts; what it would change is tried on this process alone.

use std::path::{Path, PathBuf};

use crate::actions::{reclaim, self_protection};
use crate::agent::{Kills, not_acted_on};
use crate::cluster::Access;
use crate::config::MonitorConfig;
use crate::kernel::{Kernel, ProbeReport, ProbeState};
use crate::node::kmsg::{self, Kmsg};
use crate::node::meminfo::MemDetails;
use crate::node::psi_trigger::PsiTrigger;
use crate::node::{Hierarchy, MemoryReader, namespaces};
use crate::units::Bytes;

use super::facts::{Facts, Kernel as KernelFacts, MissingProbe, Probes, Trouble};
use super::{filesystem_facts, host_facts, runtime_facts};

/// Everything there is to see. `unread` is a configuration in the place of which the defaults are examined.
pub async fn examine(config: &MonitorConfig, unread: Option<&Path>) -> Facts {
    let proc_root = &config.proc_root;
    let mut troubles = Vec::new();
    // As `run` does. Where it fails, the namespace is among the facts.
    let _stays = namespaces::join_cgroups_of_machine();
    if let Err(reason) = host_facts::sees_processes(proc_root) {
        troubles.push(Trouble::fatal("processes", reason));
    }
    let hierarchy = Hierarchy::detect(&config.cgroup_root);
    let hierarchy = hierarchy.map_err(|error| troubles.push(Trouble::fatal("cgroup", error.to_string()))).ok();
    if let Some(hierarchy) = &hierarchy
        && let Err(error) = MemoryReader::open(proc_root, hierarchy).and_then(|mut reader| reader.sample())
    {
        troubles.push(Trouble::fatal("memory", format!("cannot observe memory; nothing is decided: {error}")));
    }
    let report = Kernel::rehearse(&config.kernel);
    let mut missing: Vec<String> = report.degradations.iter().map(ToString::to_string).collect();
    let oom_kills_told_by = Kills::open(&report, &mut missing).source();
    let psi = PsiTrigger::register(proc_root);
    let psi = psi.map_err(|reason| missing.push(format!("PSI trigger: {reason}"))).is_ok();
    missing.extend(self_protection::apply(proc_root));
    missing.extend(self_protection::missing_for_scores(proc_root));
    if let Some(hierarchy) = hierarchy.as_ref().filter(|_| !config.evictions.reclaim_deadline.is_zero())
        && let Err(reason) = reclaim::is_possible(hierarchy)
    {
        missing.push(format!("memory.reclaim: {reason}"));
    }
    missing.extend(not_acted_on(&config.policy));
    let root = root(proc_root);
    let kubelet = filesystem_facts::has_kubelet(&root);
    let (runtimes, hints) = runtime_facts::find(&root, &config.runtime.endpoint).await;
    let (filesystems, unasked) = filesystem_facts::by_role(config, kubelet, &hints);
    missing.extend(unasked);
    missing.extend(unwritable(
        "incidents",
        &config.incidents.directory,
        "they are kept in memory, and lost at a restart",
    ));
    troubles.extend(missing.into_iter().map(degraded));
    if let Some(reason) = unwritable("lock file", &config.lock_file, &without_lock(unread)) {
        troubles.push(Trouble::fatal("lock file", reason));
    }
    // What cannot be read is shown as not there: the loop says more of it.
    let text = |name: &str| std::fs::read_to_string(proc_root.join(name)).unwrap_or_default();
    let (status, meminfo) = (text("self/status"), text("meminfo"));
    Facts {
        mode: config.mode.as_str(),
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
        private_namespaces: namespaces::private(),
        filesystem_layout: filesystem_facts::layout(&filesystems),
        filesystems,
        kubelet,
        runtimes,
        other_instance: host_facts::lock_holder(proc_root, &config.lock_file),
        unread_configuration: unread.map(Path::to_owned),
        limits_unknown: config.policy.local_storage_isolation
            && config.pods.is_none()
            && Access::find(&config.kubernetes).is_none(),
        troubles,
    }
}

/// The root directory of the machine's init, where it can be seen: an agent in a container has another.
fn root(proc_root: &Path) -> PathBuf {
    let init = proc_root.join("1");
    let process = if init.join("root/.").exists() { init } else { proc_root.join("self") };
    process.join("root")
}

/// The agent's own sentences begin with what they are about.
fn degraded(sentence: String) -> Trouble {
    let about = sentence.split_once(": ").map_or("", |(about, _)| about).to_owned();
    Trouble::degraded(about, sentence)
}

/// What is to be said where `path` cannot be written, nor made: asked of the nearest directory that is there.
fn unwritable(about: &str, path: &Path, consequence: &str) -> Option<String> {
    let there = path.ancestors().find(|place| place.exists())?;
    let errno = rustix::fs::access(there, rustix::fs::Access::WRITE_OK).err()?;
    Some(format!("{about}: cannot write {}: {}: {errno}; {consequence}", path.display(), there.display()))
}

/// What follows where the lock file cannot be written, and what to do. In a container with a read-only root directory the defaults name no
/// place that can be written; the configuration that is mounted there does.
fn without_lock(unread: Option<&Path>) -> String {
    match unread.map(Path::display) {
        Some(unread) => format!(
            "by the defaults, which were examined, the agent does not start; {unread} was not given and may name another place: add \
             --config {unread}"
        ),
        None => "the agent does not start without it; name a writable place with lockFile".to_owned(),
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
    fn a_sentence_begins_with_what_it_is_about() {
        assert_eq!(degraded("PSI trigger: cannot open".to_owned()).about, "PSI trigger");
        assert_eq!(degraded("just a sentence".to_owned()).about, "");
    }

    #[test]
    fn the_defaults_are_not_told_as_if_they_were_the_agents_configuration() {
        let said = without_lock(Some(Path::new("/etc/npm.yaml")));
        assert!(said.starts_with("by the defaults") && said.ends_with("add --config /etc/npm.yaml"), "{said}");
        assert!(without_lock(None).ends_with("with lockFile"));
    }

    #[test]
    fn what_cannot_be_made_is_asked_of_the_directory_above() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(unwritable("incidents", &directory.path().join("not/yet"), "gone"), None);
        // Nobody makes anything there, not even root.
        let said = unwritable("incidents", Path::new("/proc/sys/none/x"), "gone");
        assert!(said.is_none_or(|said| said.contains("/proc/sys") && said.ends_with("; gone")));
    }
}
