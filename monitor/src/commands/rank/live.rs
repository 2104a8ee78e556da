//! Measures the workloads of this node once, in the form of `kubectl`'s output, as far as the node itself knows it. The
//! command acts on nothing, loads no program into the kernel, and needs no agent.

mod disks;
mod node;
mod pods;
mod pods_here;

use std::sync::Arc;
use std::time::Duration;

use crate::actions::self_protection::raise_open_files;
use crate::cluster::{Access, cached_pods};
use crate::config::{MonitorConfig, Semantics};
use crate::disk::{Usage, Usages, WorkloadPlaces};
use crate::eviction::Layout;
use crate::node::available_memory::MiscountedReader;
use crate::node::filesystem_roles::{FilesystemHints, Role};
use crate::node::pinned_file::Buffer;
use crate::node::{CgroupVersion, Hierarchy, namespaces};
use crate::runtime::{self, Snapshot, State, View};
use crate::sensors::disk_usage_by_role::{Roles, trusts_quotas};
use crate::sensors::standing;
use crate::units::Monotonic;
use crate::units::{Pid, Resource, Signal, format_go_duration};
use crate::workloads::Tracked;
use crate::workloads::kubelet_summary::{PodMemory, PodReference, PodStats, ProcessStats};
use crate::workloads::{Outlook, Pod, PodSpecs, Protection, Summary, WorkloadTree, WorkloadUsage, task_count};

use super::super::doctor::host_facts;
use super::super::input::CommandError;
use super::super::output;
use super::marks::{Mark, Marks};

pub use pods_here::pods_here;

#[derive(Debug)]
pub struct Live {
    /// How the filesystems share devices.
    pub layout: Layout,
    pub pods: Vec<Pod>,
    /// The usage of the workloads, and what is available.
    pub summary: Summary,
    /// The agent's marks on the workloads.
    pub marks: Marks,
    pub version: CgroupVersion,
}

const NODE_CRITICAL: &str = "critical to the node: the kubelet gave it oom_score_adj -997";
const NOT_REMOVED: &str = "no container runtime removes what it has on a disk";
const NOT_ROOT: &str = "this node is measured by root alone: others see neither its container runtime nor what pods keep on the disks; \
                        run it with sudo, or give it --pods and --summary";

/// Measures this node for a ranking by `signal`. Failed requests are noted on stderr.
pub fn look(config: &MonitorConfig, signal: Signal, layout: Option<Layout>) -> Result<Live, CommandError> {
    require_root()?;
    let mut tree = scan(config)?;
    let is_of_disk = signal.resource().is_on_disk();
    let view = look_at_runtime(config, is_of_disk);
    let hints = FilesystemHints { image: view.stores.image.clone(), container: view.stores.container.clone() };
    let (samples, missing) = node::filesystems(config, &hints);
    if is_of_disk {
        note_missing(config, signal, &missing);
    }
    let (stats, trouble) = node::statistics(config, tree.hierarchy(), &samples, signal);
    trouble.into_iter().for_each(output::note);
    let specs = specs(config);
    let snapshot = view.snapshot.as_deref();
    let mut summary = Summary { node: stats, pods: Vec::new() };
    let (mut pods, mut marks) = (Vec::new(), Marks::default());
    let usages = ranked(&mut tree, signal.is_of_pods());
    let measured = if is_of_disk { Some(measure(config, &tree, &usages, &specs, snapshot)?) } else { None };
    let roles = Roles::at(|role| samples.iter().find(|sample| sample.role == role).map(|sample| &*sample.place));
    let on_disk = |usage: &WorkloadUsage| {
        let usage = measured.as_ref()?.get(&usage.workload.name, usage.workload.id)?;
        // Usage on another disk than that of the role does not count there.
        let parts = usage.parts.iter().filter(|part| roles.holds(part)).cloned().collect();
        Some(Usage::new(usage.id, parts, usage.at, usage.is_complete))
    };
    let mut buffer = Buffer::new();
    for usage in usages {
        let Some(tracked) = tree.find(usage.workload.id) else { continue };
        let on_disk = on_disk(&usage);
        let volumes = on_disk.as_ref().map(pods::volumes).unwrap_or_default();
        let stats = disk_statistics(&usage, is_of_disk, on_disk.as_ref(), snapshot)
            .and_then(|stats| with_others(stats, &usage, tracked, &tree, signal, &mut buffer));
        pods.push(pods::pod(&usage.workload, &specs, snapshot, volumes));
        summary.pods.extend(stats);
        let of_spec = || usage.workload.kind.pod_uid().and_then(|uid| specs.find(uid));
        let operators = of_spec().and_then(|pod| operators(pod, config));
        let is_daemon = operators == Some(Protection::DaemonSet);
        let exempt = if standing::is_node_critical(tracked, &config.proc_root) {
            Some(NODE_CRITICAL)
        } else if let Some(protection) = operators.filter(|_| !is_daemon) {
            Some(protection.as_str())
        } else {
            // The disk usage of a pod is freed by its removal, not by ending its processes.
            (is_of_disk && !view.state.is_there()).then_some(NOT_REMOVED)
        };
        let only_as_leaker = is_daemon || usage.workload.only_as_leaker;
        let among_own = usage.workload.among_own;
        let outlook = Outlook { is_daemon, only_as_leaker, among_own, ..usage.outlook };
        let mark = Mark { preference: usage.workload.preference, exempt, outlook };
        marks.set(pods::uid(&usage.workload).to_owned(), mark);
    }
    if is_of_disk && pods.is_empty() {
        output::note(
            "no pod lives on this node: for a disk pods alone are ranked, since what others have there stays when they end",
        );
    }
    let (layout, version) = (layout.unwrap_or_else(|| node::layout(&samples)), tree.hierarchy().version);
    Ok(Live { layout, pods, summary, marks, version })
}

fn require_root() -> Result<(), CommandError> {
    let is_root = rustix::process::geteuid().is_root();
    if is_root { Ok(()) } else { Err(CommandError::Wrong(NOT_ROOT.to_owned())) }
}

fn scan(config: &MonitorConfig) -> Result<WorkloadTree, CommandError> {
    // The notes below name the consequence of a failure.
    let _stays = namespaces::join_cgroups_of_machine();
    let hierarchy = Hierarchy::detect(&config.cgroup_root).map_err(CommandError::Wrong)?;
    if let Err(reason) = host_facts::sees_processes(&config.proc_root) {
        output::note(reason);
    }
    if let Some(reason) = hierarchy.leaves_out_nested() {
        output::note(reason);
    }
    let private = namespaces::private();
    if !private.is_empty() {
        let private = private.join(" and ");
        output::note(format_args!(
            "in a {private} namespace of its own: only what is seen there is ranked; run it in the host's"
        ));
    }
    let agent = host_facts::lock_holder(&config.proc_root, &config.lock_file).map(Pid);
    let tree = WorkloadTree::new(hierarchy, config.proc_root.clone(), config.protected.clone());
    let has_api_server = Access::find(&config.kubernetes).is_some();
    let tree = tree.with_candidates(config.candidates.clone(), has_api_server, &config.runtime.endpoint);
    let mut tree = tree.with_agent(agent);
    tree.set_usage_quirks(config.policy.quirks);
    if config.policy.semantics == Semantics::Corrected {
        let mut miscounted = MiscountedReader::read_once(&config.proc_root, tree.hierarchy());
        tree.set_withheld(miscounted.take_withheld(config.policy.quirks).unwrap_or_default());
    }
    if let Some(missing) = raise_open_files() {
        output::note(format_args!("{missing}; on a node with many pods some may be missing"));
    }
    let changes = tree.scan().map_err(|error| CommandError::Wrong(error.to_string()))?;
    changes.unreadable.iter().chain(&changes.cut).for_each(output::note);
    Ok(tree)
}

/// Returns the operator's protection of a pod. Pods that the system needs carry their own mark.
fn operators(pod: &Pod, config: &MonitorConfig) -> Option<Protection> {
    pod.protection(&config.kubernetes.protect).filter(|_| !pod.is_critical())
}

/// Queries the runtime, and notes the consequence of a failure.
fn look_at_runtime(config: &MonitorConfig, is_of_disk: bool) -> View {
    let view = runtime::observe_once(config.runtime.clone()).unwrap_or_else(|error| {
        let (reason, since) = (format!("cannot be asked: {error}"), crate::units::Monotonic::now());
        View { state: State::Down { reason, since }, ..View::default() }
    });
    let why = match &view.state {
        State::Up { .. } => return view,
        State::Down { reason, .. } => reason.as_str(),
        State::Off => "switched off in the configuration",
        State::Looking | State::Absent => "there is none",
    };
    let is_for_nothing = is_of_disk && !view.state.is_there();
    let consequence = if is_for_nothing { "; no workload would be evicted for a disk" } else { "" };
    output::note(format_args!(
        "container runtime: {why}; pods that no pods: file names are called by their UID{consequence}"
    ));
    view
}

/// Notes the missing filesystems behind the signal. A node without containers has no filesystem for them.
fn note_missing(config: &MonitorConfig, signal: Signal, missing: &[(Role, String)]) {
    for (role, reason) in missing {
        let is_named = match role {
            Role::Node => true,
            Role::Image => config.filesystems.image.is_some(),
            Role::Container => config.filesystems.container.is_some(),
        };
        if is_named || signal.as_str().starts_with(role.as_str()) {
            output::note(format_args!("{}: {reason}", role.as_str()));
        }
    }
}

fn specs(config: &MonitorConfig) -> PodSpecs {
    let Some(path) = &config.pods else {
        let Some((specs, as_of)) = cached_pods(&config.lock_file) else { return PodSpecs::default() };
        let seconds = Monotonic::now().since(as_of).as_secs();
        let (pods, age) = (specs.pods().len(), format_go_duration(Duration::from_secs(seconds)));
        output::note(format_args!("the {pods} pods are those that the agent knew from the API server {age} ago"));
        return specs;
    };
    PodSpecs::read(path).unwrap_or_else(|reason| {
        output::note(format_args!("pods: {reason}; priorities and requests are not known"));
        PodSpecs::default()
    })
}

/// Returns the ranked workloads with their memory. A ranking for a disk holds only pods, because the disk usage of
/// other workloads stays after they end. Static pods are included; other protected workloads are only noted.
fn ranked(tree: &mut WorkloadTree, is_of_pods: bool) -> Vec<WorkloadUsage> {
    let mut usages = tree.usages();
    usages.retain(|usage| !is_of_pods || usage.workload.kind.pod_uid().is_some());
    let is_shown = |usage: &WorkloadUsage| matches!(usage.workload.protection, None | Some(Protection::StaticPod));
    let (shown, protected): (Vec<_>, Vec<_>) = usages.into_iter().partition(is_shown);
    let is_noted = |usage: &&WorkloadUsage| usage.workload.protection != Some(Protection::HoldsOthers);
    let protected: Vec<String> = protected
        .iter()
        .filter(is_noted)
        .filter_map(|WorkloadUsage { workload, .. }| Some(format!("{} ({})", workload.name, workload.protection?)))
        .collect();
    if !protected.is_empty() {
        output::note(format_args!(
            "{} left out as protected: {}",
            protected.len(),
            output::few(&protected, output::NAMES)
        ));
    }
    shown
}

/// Measures the disks, and notes the workloads whose usage is only a lower bound.
fn measure(
    config: &MonitorConfig,
    tree: &WorkloadTree,
    ranked: &[WorkloadUsage],
    specs: &PodSpecs,
    snapshot: Option<&Snapshot>,
) -> Result<Arc<Usages>, CommandError> {
    let hierarchy = &tree.hierarchy().memory;
    let places = |WorkloadUsage { workload, .. }: &WorkloadUsage| {
        let pod = workload.kind.pod_uid().and_then(|uid| specs.find(uid));
        let trusts_quotas = trusts_quotas(config.disk_usage.project_quotas, pod);
        WorkloadPlaces::of(workload, hierarchy).map(|places| WorkloadPlaces { trusts_quotas, ..places })
    };
    let measured = disks::measure(config, ranked.iter().filter_map(places).collect());
    let disks::Measured { usages, is_over } =
        measured.map_err(|error| CommandError::Wrong(format!("disks cannot be measured: no thread: {error}")))?;
    usages.degradations.iter().for_each(output::note);
    let is_partial =
        |usage: &&WorkloadUsage| usages.get(&usage.workload.name, usage.workload.id).is_none_or(|it| !it.is_complete);
    let name = |usage: &WorkloadUsage| pods::pod(&usage.workload, specs, snapshot, Vec::new()).full_name();
    let partial: Vec<String> = ranked.iter().filter(is_partial).map(name).collect();
    if !partial.is_empty() {
        let why = if is_over { "not all of it could be seen" } else { "it takes too long or hangs" };
        let (count, names) = (partial.len(), output::few(&partial, output::NAMES));
        output::note(format_args!("not measured to the end, {why}; {count} may have more than is said: {names}"));
    }
    Ok(usages)
}

/// Returns the disk usage of a workload if requested; `None` if it was not measured.
fn disk_statistics(
    usage: &WorkloadUsage,
    is_of_disk: bool,
    on_disk: Option<&Usage>,
    snapshot: Option<&Snapshot>,
) -> Option<PodStats> {
    let uid = pods::uid(&usage.workload);
    if !is_of_disk {
        return Some(PodStats { pod_ref: PodReference { uid: uid.to_owned() }, ..PodStats::default() });
    }
    on_disk.map(|it| it.statistics(uid, |id| Some(snapshot?.container(id)?.name.clone())))
}

/// Adds memory, and the number of process ids if requested and countable.
fn with_others(
    stats: PodStats,
    usage: &WorkloadUsage,
    tracked: &Tracked,
    tree: &WorkloadTree,
    signal: Signal,
    buffer: &mut Buffer,
) -> Option<PodStats> {
    let process_stats = if signal.resource() == Resource::Pids {
        let count = task_count::count(tracked.directory(), &usage.workload.name, tree.hierarchy(), buffer)?;
        Some(ProcessStats { process_count: Some(count) })
    } else {
        None
    };
    let memory = Some(PodMemory { working_set_bytes: Some(usage.working_set.0), ..PodMemory::default() });
    Some(PodStats { memory, process_stats, ..stats })
}
