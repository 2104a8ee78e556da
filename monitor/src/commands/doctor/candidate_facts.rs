//! Facts about which workloads can be candidates, and what protects those that the node needs.

use crate::cluster::Access;
use crate::config::{Candidates, MonitorConfig};
use crate::node::Hierarchy;
use crate::units::Pid;
use crate::workloads::{Essential, Protection, WorkloadTree};

use super::facts::Needed;
use super::host_facts;

/// Scans the tree as the agent does. Returns the candidates in force, the protected workloads outside pods by name, and the number of
/// workloads.
pub fn find(config: &MonitorConfig, hierarchy: &Hierarchy) -> Result<(&'static str, Vec<Needed>, usize), String> {
    let agent = host_facts::lock_holder(&config.proc_root, &config.lock_file).map(Pid);
    let tree = WorkloadTree::new(hierarchy.clone(), config.proc_root.clone(), config.protected.clone());
    let has_api_server = Access::find(&config.kubernetes).is_some();
    let tree = tree.with_candidates(config.candidates.clone(), has_api_server, &config.runtime.endpoint);
    let mut tree = tree.with_agent(agent);
    tree.scan().map_err(|error| error.to_string())?;
    let candidates = if tree.candidacy().is_pods_only() { Candidates::Pods } else { Candidates::Everything };
    let by_identity = |(workload, Essential { protection, pid: Pid(pid), by }): (String, Essential)| Needed {
        workload,
        protection: protection.as_str(),
        by,
        process: Some(pid),
    };
    let by_place = tree.workloads().filter_map(|workload| {
        let protection = workload.protection?;
        let by = match protection {
            Protection::Init => "contains process 1",
            Protection::Agent => "contains the running agent",
            Protection::Session => "by its path",
            _ => return None,
        };
        let workload = workload.name.clone();
        Some(Needed { workload, protection: protection.as_str(), by: by.to_owned(), process: None })
    });
    let mut needed: Vec<Needed> = tree.essentials().into_iter().map(by_identity).chain(by_place).collect();
    needed.sort_by(|one, other| (&one.workload, one.protection).cmp(&(&other.workload, other.protection)));
    Ok((candidates.as_str(), needed, tree.tracked().len()))
}
