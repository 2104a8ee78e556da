//! Generates nodes, pods, statistics and policies. Each value is one of a few, so that ties, crossings and limits are frequent.

use std::time::Duration;

use node_pressure_monitor::config::threshold::parse_threshold_value;
use node_pressure_monitor::config::{Policy, Quirk, Quirks, Ranking, RankingKey, Semantics, Threshold, ThresholdValue};
use node_pressure_monitor::eviction::Layout;
use node_pressure_monitor::units::Signal;
use node_pressure_monitor::workloads::{Pod, Summary};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

pub const GIB: u64 = 1 << 30;
/// The capacity of memory and of every filesystem.
pub const CAPACITY: u64 = 10 * GIB;

/// A node over some time, as a trace records it.
#[derive(Debug, Clone)]
pub struct Node {
    pub pods: Vec<Value>,
    /// Seconds since the beginning, and the statistics at that time.
    pub steps: Vec<(u32, Value)>,
    pub layout: Layout,
}

impl Node {
    pub fn pods(&self) -> Vec<Pod> {
        self.pods.iter().map(|pod| serde_json::from_value(pod.clone()).unwrap()).collect()
    }

    pub fn summaries(&self) -> Vec<(u32, Summary)> {
        self.steps.iter().map(|(at, summary)| (*at, serde_json::from_value(summary.clone()).unwrap())).collect()
    }
}

/// Returns a time as the API writes it, so many seconds after an arbitrary origin.
pub fn time(seconds: i64) -> String {
    jiff::Timestamp::from_second(1_767_225_600 + seconds).unwrap().to_string()
}

fn request(texts: &'static [&'static str]) -> impl Strategy<Value = Value> {
    option::of(select(texts)).prop_map(|text| json!(text))
}

fn resources() -> impl Strategy<Value = Value> {
    let memory = || request(&["0", "100m", "64Mi", "1Gi", "1.5Gi", "2G"]);
    let storage = || request(&["0", "1", "1Mi", "1Gi"]);
    (memory(), memory(), storage(), storage()).prop_map(|(request, limit, stored, most)| {
        json!({"requests": {"memory": request, "ephemeral-storage": stored}, "limits": {"memory": limit, "ephemeral-storage": most}})
    })
}

fn container(name: &'static str) -> impl Strategy<Value = Value> {
    (resources(), select(&["", "Always"][..]))
        .prop_map(move |(resources, restart)| json!({"name": name, "resources": resources, "restartPolicy": restart}))
}

fn filesystem() -> impl Strategy<Value = Value> {
    (select(&[0, 1, 1 << 20, GIB][..]), select(&[0_u64, 1, 5, 1000][..]))
        .prop_map(|(bytes, inodes)| json!({"usedBytes": bytes, "inodesUsed": inodes}))
}

fn annotations() -> impl Strategy<Value = Value> {
    prop_oneof![
        9 => Just(json!({})),
        2 => Just(json!({"kubernetes.io/config.source": "file"})),
        1 => Just(json!({"kubernetes.io/config.source": "api"})),
    ]
}

/// Generates a pod, and its statistics if it has any.
fn pod() -> impl Strategy<Value = (Value, Option<Value>)> {
    let spec = (
        vec(container("app"), 1..=1),
        vec(container("second"), 0..=1),
        vec(container("init"), 0..=1),
        option::weighted(0.8, select(&[-5, 0, 1000, 1_999_999_999, 2_000_000_000, 2_000_001_000][..])),
        option::weighted(0.2, resources()),
        option::weighted(0.3, select(&["0", "1Mi", "1Gi"][..])),
        option::of(select(&[0, 5, 600][..])),
    );
    let status = (
        prop_oneof![8 => Just("Running"), 1 => Just("Failed"), 1 => Just("Succeeded")],
        select(&["", "", "BestEffort", "Burstable", "Guaranteed"][..]),
    );
    let memory = select(&[0, 1, 64 << 20, GIB, GIB + 1, 2 * GIB][..]);
    let stats = option::weighted(0.85, (option::weighted(0.95, memory), filesystem(), filesystem(), 0_u64..4));
    (spec, status, annotations(), stats).prop_map(|(spec, (phase, class), annotations, stats)| {
        let (mut containers, second, init, priority, pod_level, size_limit, grace) = spec;
        containers.extend(second);
        let volume = json!({"name": "cache", "emptyDir": {"sizeLimit": size_limit}});
        let pod = json!({
            "metadata": {"annotations": annotations},
            "spec": {"containers": containers, "initContainers": init, "priority": priority, "resources": pod_level,
                     "volumes": [volume], "terminationGracePeriodSeconds": grace},
            "status": {"phase": phase, "qosClass": class},
        });
        let stats = stats.map(|(memory, rootfs, logs, processes)| {
            json!({
                "memory": {"workingSetBytes": memory},
                "containers": [{"name": "app", "memory": {"workingSetBytes": memory}, "rootfs": rootfs, "logs": logs}],
                "volume": [{"name": "cache", "usedBytes": logs["usedBytes"], "inodesUsed": 1}],
                "ephemeral-storage": rootfs, "process_stats": {"process_count": processes},
            })
        });
        (pod, stats)
    })
}

/// Generates the node's statistics at one time: remaining amounts, in sixteenths of the capacity.
fn node_stats() -> impl Strategy<Value = (u32, [Option<u64>; 5], bool)> {
    let left = || option::weighted(0.9, prop_oneof![2 => 0_u64..3, 1 => 0_u64..=16]);
    let all = [left(), left(), left(), left(), left()];
    (select(&[0, 1, 4, 10, 31, 301][..]), all, prop::bool::weighted(0.2))
}

fn node_value(at: u32, left: [Option<u64>; 5], pods: &[Value]) -> Value {
    let memory = |left: u64| json!({"time": time(at.into()), "availableBytes": left * CAPACITY / 16, "workingSetBytes": CAPACITY - left * CAPACITY / 16});
    let fs = |left: u64| {
        json!({"time": time(at.into()), "availableBytes": left * CAPACITY / 16, "capacityBytes": CAPACITY,
               "inodesFree": left * 1000, "inodes": 16_000})
    };
    let [node, all_pods, node_fs, image_fs, pids] = left;
    json!({
        "node": {
            "memory": node.map(memory), "fs": node_fs.map(fs),
            "systemContainers": [{"name": "pods", "memory": all_pods.map(memory)}],
            "runtime": {"imageFs": image_fs.map(fs), "containerFs": image_fs.map(fs)},
            "rlimit": pids.map(|left| json!({"time": time(at.into()), "maxpid": 16_000, "curproc": 16_000 - left * 1000})),
        },
        "pods": pods,
    })
}

pub fn layout() -> impl Strategy<Value = Layout> {
    select(&[Layout::Single, Layout::DedicatedImageFs, Layout::SplitImageFs][..])
}

/// Generates a node with up to `most` pods over up to `steps` moments. Only some nodes have limits of local storage.
pub fn node(most: usize, steps: usize) -> impl Strategy<Value = Node> {
    (vec(pod(), 0..=most), vec(node_stats(), 1..=steps), layout(), prop::bool::weighted(0.3)).prop_map(
        |(pods, steps, layout, limits)| {
            let mut all = Vec::new();
            let mut statistics = Vec::new();
            for (index, (mut pod, stats)) in pods.into_iter().enumerate() {
                let namespace = if index % 2 == 0 { "a" } else { "b" };
                let reference =
                    json!({"name": format!("p{index}"), "namespace": namespace, "uid": format!("u{index}")});
                for (key, value) in reference.as_object().unwrap() {
                    pod["metadata"][key] = value.clone();
                }
                if !limits {
                    without_storage_limits(&mut pod);
                }
                all.push(pod);
                statistics.extend(stats.map(|mut stats| {
                    stats["podRef"] = reference;
                    stats
                }));
            }
            let mut now = 0;
            let steps = steps.into_iter().map(|(after, left, stale)| {
                let measured = now;
                now += after;
                (now, node_value(if stale { measured } else { now }, left, &statistics))
            });
            Node { pods: all, steps: steps.collect(), layout }
        },
    )
}

fn without_storage_limits(pod: &mut Value) {
    pod["spec"]["volumes"][0]["emptyDir"] = json!({});
    for kind in ["containers", "initContainers"] {
        for container in pod["spec"][kind].as_array_mut().unwrap() {
            container["resources"]["limits"]["ephemeral-storage"].take();
            container["resources"]["limits"].as_object_mut().unwrap().remove("ephemeral-storage");
        }
    }
    if let Some(limits) = pod["spec"]["resources"]["limits"].as_object_mut() {
        limits.remove("ephemeral-storage");
    }
}

pub fn value(signal: Signal, text: &str) -> ThresholdValue {
    parse_threshold_value(signal, text, Quirks::ALL).unwrap().unwrap()
}

pub fn threshold() -> impl Strategy<Value = Threshold> {
    let amount = || select(&["1", "3500", "1Gi", "2Gi", "10%", "25%", "33.3%", "6Gi"][..]);
    (select(&Signal::ALL[..]), amount(), select(&[0, 0, 0, 4, 10, 30][..]), option::weighted(0.4, amount())).prop_map(
        |(signal, amount, grace, reclaim)| Threshold {
            signal,
            value: value(signal, amount),
            grace_period: Duration::from_secs(grace),
            min_reclaim: reclaim.map(|reclaim| value(signal, reclaim)),
        },
    )
}

pub fn ranking() -> impl Strategy<Value = Ranking> {
    let custom = subsequence(&RankingKey::ALL[..], 0..=RankingKey::ALL.len()).prop_shuffle().prop_map(Ranking::Custom);
    prop_oneof![2 => select(&[Ranking::Qos, Ranking::Kubernetes, Ranking::OpenShift3][..]), 1 => custom]
}

/// Generates the kubelet's quirks, the corrected ones, or a random choice for each.
pub fn quirks() -> impl Strategy<Value = Quirks> {
    let some = subsequence(&Quirk::ALL[..], 0..=Quirk::ALL.len()).prop_map(|some| {
        let mut quirks = Quirks::of(Semantics::Corrected);
        for quirk in Quirk::ALL {
            quirks.set(quirk, some.contains(&quirk));
        }
        quirks
    });
    prop_oneof![Just(Quirks::ALL), Just(Quirks::of(Semantics::Corrected)), some]
}

pub fn policy(thresholds: usize) -> impl Strategy<Value = Policy> {
    let thresholds = vec(threshold(), 1..=thresholds);
    let period = select(&[0, 30, 300][..]);
    (thresholds, ranking(), quirks(), period, select(&[-1, 0, 30][..]), any::<bool>()).prop_map(
        |(thresholds, ranking, quirks, period, max_pod_grace_period, local_storage_isolation)| Policy {
            thresholds,
            ranking,
            quirks,
            pressure_transition_period: Duration::from_secs(period),
            max_pod_grace_period,
            local_storage_isolation,
            ..Policy::default()
        },
    )
}
