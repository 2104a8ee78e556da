//! `node-pressure-monitor rank`: the eviction order of the pods, with every key that decides it.

mod inputs;
mod json;
mod live;
mod marks;
mod nodes;
mod oom;
mod preemption;
pub(super) mod read;
mod table;
mod utilization;
mod verdict;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;

use crate::config::{MonitorConfig, Policy};
use crate::eviction::Layout;
use crate::eviction::preview::AgentView;
use crate::node::CgroupVersion;
use crate::sensors::counter_error::CounterError;
use crate::units::{Moment, Resource, Signal};
use crate::workloads::cgroup_path::{Role, role};
use crate::workloads::{Pod, PodUid, Summary};

use super::input::{self, CommandError};
use super::output::{self, TableOrJson};
use inputs::{Inputs, of_node};
use live::Live;
use oom::OomOrder;
use preemption::PreemptionOptions;
use utilization::UtilizationOptions;
use verdict::{Question, Verdict};

/// Options of `rank`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Options {
    /// The policy: a KubeletConfiguration, OpenShift 3 kubeletArguments, or a MonitorConfiguration, which also says where things are on
    /// this node; - is standard input; without one the defaults apply
    #[arg(long, value_name = "POLICY.yaml")]
    config: Option<PathBuf>,
    /// The pods: a list as kubectl get pods -A -o json prints it, a pod, or an array of pods; - is standard input; without this and
    /// --summary the workloads of this node are ranked, measured now
    #[arg(long, value_name = "PODS.json")]
    pods: Option<PathBuf>,
    /// Their usage, as /stats/summary of the node's kubelet prints it; - is standard input
    #[arg(long, value_name = "SUMMARY.json")]
    summary: Option<PathBuf>,
    /// The same some seconds before, for how fast memory falls and pods grow; with a MonitorConfiguration; - is standard input
    #[arg(long, value_name = "SUMMARY.json", requires = "summary")]
    summary_before: Option<PathBuf>,
    /// The signal to rank for
    #[arg(long, value_name = "SIGNAL", default_value_t = Signal::MemoryAvailable, value_parser = parse_signal)]
    signal: Signal,
    /// The node whose pods count; without it the one that the summary names
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// The node's filesystems; by default single, or as this node has them
    #[arg(long, value_enum)]
    layout: Option<LayoutOption>,
    /// Show, beside the ranking for memory, which process or container the kernel's OOM killer would choose if the node had no memory left
    #[arg(long, conflicts_with_all = ["preemption_for", "utilization"])]
    oom: bool,
    #[command(flatten)]
    preemption: PreemptionOptions,
    #[command(flatten)]
    utilization: UtilizationOptions,
    /// The nodes, for --requests and --utilization: a list as kubectl get nodes -o json prints it, a node, or an array of nodes; - is standard input
    #[arg(long, value_name = "NODES.json", requires = "of_nodes")]
    nodes: Option<PathBuf>,
    /// How to answer
    #[arg(long, value_enum, default_value_t = TableOrJson::Table)]
    output: TableOrJson,
}

const HELP: &str = r#"To rank the workloads of this node, run the command as root on it. It evicts nothing, and does not disturb a running agent:

  node-pressure-monitor rank
  node-pressure-monitor rank --signal nodefs.inodesFree
  node-pressure-monitor rank --config /etc/node-pressure-monitor/monitor.yaml --signal pid.available

The command reads memory and processes from the cgroups, and measures disk usage, which may take up to five minutes. The container runtime
names the pod of each cgroup. Priorities and requests come from the pods: file of the configuration; without that file the priority is 0, and
the request is the memory that the cgroup guarantees. For a disk only pods are ranked. Protected workloads are left out. exempt says why a
workload would not be evicted, for example because it would give back too little. Sources that did not answer are named on stderr.

To rank the pods of any node, from files:

  node-pressure-monitor rank --pods pods.json --summary summary.json

  kubectl get pods -A -o json > pods.json
  kubectl get --raw /api/v1/nodes/NODE/proxy/stats/summary > summary.json

The kind of the configuration chooses the rules. Without one, and with a MonitorConfiguration (semantics: corrected), they are the agent's:
protected pods, what an eviction buys, and, with --summary-before, growth. With a KubeletConfiguration they are the kubelet's. Rules that lack
figures are named on stderr.

Only the pods on the summary's node that have not ended count. A pod that names no node counts when the summary has statistics of it, or
when no pod names a node. Critical pods are ranked, but never evicted: exempt says why.

To show what the scheduler and the descheduler would do, from files:

  node-pressure-monitor rank --pods pods.json --preemption-for 1000 --requests cpu=500m,memory=1Gi --nodes nodes.json
  node-pressure-monitor rank --pods pods.json --utilization --nodes nodes.json

  kubectl get nodes -o json > nodes.json

--preemption-for lists the pods of a node that kube-scheduler may preempt for a pending pod of that priority: those of lower priority, the
lowest priority first, of equal priority the pod that started last first. With --requests and --nodes the answer says which of them are
preempted. The scheduler removes all of them, then keeps as many as fit beside the pending pod, the most important first; a pod of
low priority may therefore stay. Without --pods the pods of this node are listed, with the priorities in the pods: file.

--utilization lists the nodes, the node with the highest share first. A share is the sum of the requests of the node's pods that have not
ended, divided by what the node has allocatable. A node is underutilized if no share is above its threshold, and overutilized if one is above
its target threshold. An unschedulable node is never underutilized, and a node that is not ready is left out. A resource that neither
--thresholds nor --target-thresholds names is not judged. LowNodeUtilization evicts only if more nodes than --number-of-nodes, its parameter
numberOfNodes, are underutilized.

--oom shows the ten processes, of files containers, that the kernel's OOM killer prefers if the node has no memory left: what they use in
thousandths of memory and swap, plus oom_score_adj, the largest sum first. On this node memory, swap and page tables of each process are the
kernel's own figures, and each process is one that the kernel may choose. The agent evicts by another order, so the two may differ.

With --output json the answer is one object:

  {"signal", "node", "available", "capacity", "time",
   "thresholds": [{"threshold", "kind": "hard"|"soft", "gracePeriodSeconds", "quantity", "met"}],
   "ranking": [{"pod", "uid", "owner", "qosClass", "priority", "usage", "request", "exempt", "keys": {by name, in order}, "explanation"}],
   "first", "gracePeriodSeconds", "message", "notApplied": [rules of the agent that lack figures],
   "oom": with --oom {"total", "victim", "order": [{"pod", "container" or "process" and "pid", "usage", "usageThousandths", "oomScoreAdj", "score"}],
                      "spared": NUMBER of those at oom_score_adj -1000}}

usage is what the place follows from. By the agent's rules that is, for memory, what the end of the workload gives back: no file pages.

with --preemption-for:

  {"node", "priority", "requests": {by resource}, "fits": "withoutPreemption"|"afterPreemption"|"never"|null,
   "insufficient": {by resource, what would be free}|null,
   "candidates": [{"pod", "uid", "priority", "startTime", "terminating", "requests": {by resource}, "preempted": true|false|null}],
   "spared": NUMBER of pods whose priority is not lower}

with --utilization:

  {"numberOfNodes", "conclusion", "thresholds": {by resource}, "targetThresholds": {by resource},
   "nodes": [{"node", "ready", "unschedulable", "utilization": {by resource: {"requested", "allocatable", "percent"}},
              "verdict": "underutilized"|"overutilized"|"appropriately utilized"|null}]}

Amounts of the ranking are in bytes, inodes or processes; the other two have quantities as Kubernetes writes them. Unknown and missing
values are null. A workload of this node that is not a pod has the path of its cgroup as name and uid; a pod without a known name is called
?/UID.

Exit status: 0 answered; 1 the policy, the pods, the nodes or the summary are wrong, this node cannot be measured (not root, no cgroups), or
the answer cannot be written; 2 wrong usage (a ranking needs both of --pods and --summary, or neither), or a file that cannot be read."#;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LayoutOption {
    /// One filesystem for images, containers and volumes
    Single,
    /// Images and containers have one of their own
    Dedicated,
    /// Images alone have one of their own
    Split,
}

impl From<LayoutOption> for Layout {
    fn from(option: LayoutOption) -> Self {
        match option {
            LayoutOption::Single => Self::Single,
            LayoutOption::Dedicated => Self::DedicatedImageFs,
            LayoutOption::Split => Self::SplitImageFs,
        }
    }
}

impl Options {
    fn inputs(&self) -> Inputs<'_> {
        Inputs {
            config: self.config.as_deref(),
            pods: self.pods.as_deref(),
            summary: self.summary.as_deref(),
            node: self.node.as_deref(),
            nodes: self.nodes.as_deref(),
            output: self.output,
        }
    }
}

fn parse_signal(text: &str) -> Result<Signal, String> {
    text.parse().map_err(|error| {
        let all: Vec<&str> = Signal::ALL.iter().map(|signal| signal.as_str()).collect();
        format!("{error}; write one of {}", all.join(", "))
    })
}

pub fn run(options: &Options) -> Result<(), CommandError> {
    let files = [&options.config, &options.pods, &options.summary, &options.summary_before, &options.nodes];
    if files.into_iter().flatten().filter(|path| input::is_stdin(path)).count() > 1 {
        let reason =
            "of --config, --pods, --summary, --summary-before and --nodes only one of them can be standard input";
        return Err(CommandError::Usage(reason.to_owned()));
    }
    if options.utilization.utilization {
        return utilization::run(&options.inputs(), &options.utilization);
    }
    let preemption = |priority| preemption::run(&options.inputs(), &options.preemption, priority);
    options.preemption.preemption_for.map_or_else(|| of_signal(options), preemption)
}

fn of_signal(options: &Options) -> Result<(), CommandError> {
    if options.oom && options.signal.resource() != Resource::Memory {
        let reason = format!("--oom: the kernel kills for memory, not for {}; leave out --signal", options.signal);
        return Err(CommandError::Usage(reason));
    }
    match (&options.pods, &options.summary) {
        (Some(pods), Some(summary)) => of_files(options, pods, summary),
        (None, None) => of_this_node(options),
        (pods, _) => {
            let missing = if pods.is_none() { "--pods" } else { "--summary" };
            let reason = "the two go together; without both of them this node is measured now";
            Err(CommandError::Usage(format!("{missing} is missing: {reason}")))
        }
    }
}

fn of_files(options: &Options, pods: &Path, summary: &Path) -> Result<(), CommandError> {
    let config = options.config.as_deref().map_or_else(|| Ok(MonitorConfig::default()), input::monitor)?;
    let policy = &config.policy;
    let before = options.summary_before.as_deref().map(read::summary).transpose()?;
    let summary = read::summary(summary)?;
    let all = read::pods(pods)?;
    let node = options.node.as_deref().unwrap_or(&summary.node.node_name);
    let pods = of_node(all, node, &summary);
    let layout = options.layout.map_or(Layout::Single, Layout::from);
    let question = Question { signal: options.signal, layout, pods: &pods, summary: &summary, marks: None };
    let verdict = match AgentView::of(&config) {
        Some(view) => verdict::judge_as_agent(view, question, before.as_ref()),
        None if before.is_some() => {
            let reason = "--summary-before tells how fast memory falls, which only a MonitorConfiguration with semantics: corrected uses";
            return Err(CommandError::Usage(reason.to_owned()));
        }
        None => verdict::judge(policy, question),
    };
    let oom = options.oom.then(|| oom_of_files(&pods, &summary, policy)).transpose()?;
    answer(options, policy, &verdict, (node, &summary), oom.as_ref())
}

fn oom_of_files(pods: &[Pod], summary: &Summary, policy: &Policy) -> Result<OomOrder, CommandError> {
    let order = oom::of_files(pods, summary, policy).ok_or_else(|| {
        CommandError::Wrong("--oom: the summary lacks node.memory.availableBytes or workingSetBytes".to_owned())
    })?;
    output::note(
        "--oom: a container's figures are those of all its processes, of which the kernel kills one, or all with memory.oom.group",
    );
    let working_sets = oom::working_sets(summary);
    if working_sets > 0 {
        output::note(format_args!(
            "--oom: {working_sets} containers have no rssBytes: their working set counts, which has page cache in it"
        ));
    }
    Ok(order)
}

/// Orders the processes of this node. They are called by their workload, as in the ranking.
fn oom_of_this_node(config: &MonitorConfig, pods: &[Pod], version: CgroupVersion) -> Result<OomOrder, CommandError> {
    let names: HashMap<&str, String> = pods.iter().map(|pod| (pod.metadata.uid.as_str(), pod.full_name())).collect();
    let name = |workload: &str| match role(workload) {
        Role::Pod(PodUid(uid), _) => names.get(uid.as_str()).cloned().unwrap_or(format!("?/{uid}")),
        _ => names.get(workload).cloned().unwrap_or_else(|| workload.to_owned()),
    };
    oom::of_this_node(&config.proc_root, version, name).map_err(CommandError::Wrong)
}

fn of_this_node(options: &Options) -> Result<(), CommandError> {
    if options.node.is_some() {
        let reason = "--node chooses among the pods of --pods, which are missing; without files this node is measured";
        return Err(CommandError::Usage(reason.to_owned()));
    }
    let mut config = options.config.as_deref().map_or_else(|| Ok(MonitorConfig::default()), input::monitor)?;
    if let Some(error) = CounterError::read(&config.proc_root) {
        error.fit(&mut config);
    }
    let Live { layout, pods, summary, marks, version } =
        live::look(&config, options.signal, options.layout.map(Layout::from))?;
    let question = Question { signal: options.signal, layout, pods: &pods, summary: &summary, marks: Some(&marks) };
    let verdict = verdict::judge(&config.policy, question);
    let oom = options.oom.then(|| oom_of_this_node(&config, &pods, version)).transpose()?;
    answer(options, &config.policy, &verdict, (&summary.node.node_name, &summary), oom.as_ref())
}

fn answer(
    options: &Options,
    policy: &Policy,
    verdict: &Verdict<'_>,
    (node, summary): (&str, &Summary),
    oom: Option<&OomOrder>,
) -> Result<(), CommandError> {
    for rule in &verdict.not_applied {
        output::note(format_args!("not applied: {}: {}", rule.as_str(), rule.reason()));
    }
    if let Some(words) = input::swap_words(summary) {
        output::note(words);
    }
    if let Some(at) = verdict.value.and_then(|value| value.at) {
        note_age(at);
    }
    let write = |out: &mut _| match options.output {
        TableOrJson::Table => {
            table::write(out, verdict, policy, node)?;
            oom.map_or(Ok(()), |order| oom::table(out, order, verdict.first_name().as_deref()))
        }
        TableOrJson::Json => json::write(out, verdict, node, oom),
    };
    output::answer(write).map_err(CommandError::Output)
}

/// Statistics younger than this need no note: a kubelet measures every ten seconds.
const OLD: Duration = Duration::from_secs(60);

fn note_age(at: Moment) {
    let now = Moment(jiff::Timestamp::now().as_nanosecond());
    let age = u64::try_from(now.nanos_since(at) / 1_000_000_000).map(Duration::from_secs).unwrap_or(Duration::ZERO);
    if age >= OLD {
        output::note(format_args!("the statistics are {} old", age_words(age)));
    }
}

fn age_words(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} minutes", seconds / 60),
        7_200..172_800 => format!("{} hours", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Returns a time in the format of the Kubernetes API.
fn time_words(at: Moment) -> String {
    jiff::Timestamp::from_nanosecond(at.0).map_or_else(|_| String::from("?"), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_rounded_down() {
        for (seconds, words) in [(61, "61 s"), (150, "2 minutes"), (7_300, "2 hours"), (200_000, "2 days")] {
            assert_eq!(age_words(Duration::from_secs(seconds)), words);
        }
    }
}
