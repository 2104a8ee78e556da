//! Facts about which workloads can be candidates, and what protects those that the node needs.

use crate::cluster::Access;
use crate::config::MonitorConfig;
use crate::node::Hierarchy;
use crate::units::Pid;
use crate::workloads::{Essential, PatternReach, Protection, Reach, WorkloadTree};

use super::facts::Needed;
use super::host_facts;

/// The result of a scan of the tree.
pub struct Scanned {
    pub reach: Reach,
    /// The protected workloads outside pods, by name.
    pub needed: Vec<Needed>,
    /// The sockets of daemons that no visible process holds; `None` if the sockets are not known.
    pub unheld_sockets: Option<Vec<String>>,
    /// What the patterns of the configuration match.
    pub patterns: Vec<PatternReach>,
    /// The number of workloads.
    pub workloads: usize,
}

/// Scans the tree as the agent does.
pub fn find(config: &MonitorConfig, hierarchy: &Hierarchy) -> Result<Scanned, String> {
    let agent = host_facts::lock_holder(&config.proc_root, &config.lock_file).map(Pid);
    let tree = WorkloadTree::new(hierarchy.clone(), config.proc_root.clone(), config.protected.clone());
    let has_api_server = Access::find(&config.kubernetes).is_some();
    let tree = tree.with_candidates(config.candidates.clone(), has_api_server, &config.runtime.endpoint);
    let mut tree = tree.with_agent(agent);
    tree.scan().map_err(|error| error.to_string())?;
    let by_identity = |(workload, Essential { protection, pid: Pid(pid), by, .. }): (String, Essential)| Needed {
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
            Protection::Session | Protection::Mount => "by its path",
            _ => return None,
        };
        let workload = workload.name.clone();
        Some(Needed { workload, protection: protection.as_str(), by: by.to_owned(), process: None })
    });
    let mut needed: Vec<Needed> = tree.essentials().into_iter().map(by_identity).collect();
    let is_known =
        |place: &Needed| needed.iter().any(|it| (&it.workload, it.protection) == (&place.workload, place.protection));
    let by_place: Vec<Needed> = by_place.filter(|place| !is_known(place)).collect();
    needed.extend(by_place);
    needed.sort_by(|one, other| (&one.workload, one.protection).cmp(&(&other.workload, other.protection)));
    let unheld_sockets = tree.unheld_sockets();
    let patterns = tree.configured_patterns();
    Ok(Scanned { reach: tree.reach(), needed, unheld_sockets, patterns, workloads: tree.tracked().len() })
}
