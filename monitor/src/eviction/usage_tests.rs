use serde_json::{Value, json};

use super::*;
use crate::config::{Ranking, RankingKey};
use crate::eviction::fixtures::{kubelet, memory, pod, pod_statistics, requesting, summary};
use crate::eviction::rank::Order;

/// Returns the names of the candidates, first to be evicted first.
fn ranked(policy: &Policy, signal: Signal, layout: Layout, pods: &[Pod], stats: &[Value]) -> Vec<String> {
    let summary = summary(json!({}), stats);
    let active = active_pods(pods, &summary);
    let candidates = candidates(policy, signal, layout, &active);
    let ranked = Order::of(policy, signal.resource()).rank(candidates);
    ranked.into_iter().map(|ranked| ranked.candidate.pod.metadata.name.clone()).collect()
}

fn by_memory(pods: &[Pod], stats: &[Value]) -> Vec<String> {
    ranked(&kubelet(&[]), Signal::MemoryAvailable, Layout::Single, pods, stats)
}

/// Returns a pod with local and other volumes of each kind, and one container.
fn with_volumes() -> Pod {
    let volumes = json!([
        {"name": "directory", "emptyDir": {}},
        {"name": "tmpfs", "emptyDir": {"medium": "Memory"}},
        {"name": "host", "hostPath": {"path": "/x"}},
        {"name": "map", "configMap": {"name": "x"}},
        {"name": "git", "gitRepo": {"repository": "x"}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "x"}},
    ]);
    pod("p", json!({"containers": [{"name": "c"}], "volumes": volumes}))
}

#[test]
fn what_is_measured_depends_on_the_layout() {
    let used = |bytes: u64| json!({"usedBytes": bytes, "inodesUsed": bytes + 1});
    let volume = |name: &str, bytes: u64| json!({"name": name, "usedBytes": bytes, "inodesUsed": bytes + 1});
    let stats: PodStats = serde_json::from_value(json!({
        "containers": [
            {"name": "c", "rootfs": used(1000), "logs": used(100)},
            {"name": "gone", "rootfs": used(2000), "logs": null},
        ],
        // If a name occurs twice, the first figure counts.
        "volume": [volume("directory", 10), volume("directory", 90), volume("tmpfs", 50), volume("host", 1), volume("map", 2),
                   volume("git", 3), volume("claim", 70)],
    }))
    .unwrap();
    // The sums of bytes and of inodes cover two writable layers, one log and four volumes.
    let (layers, rest, nothing) = ((3000, 3002), (116, 121), (0, 0));
    let all = (3116, 3123);
    for (layout, node, image, container) in [
        (Layout::Single, all, all, all),
        (Layout::DedicatedImageFs, rest, layers, layers),
        (Layout::SplitImageFs, all, nothing, all),
    ] {
        let usage = |signal| usage(signal, layout, &with_volumes(), &stats).units();
        let both = |bytes, inodes| (usage(bytes), usage(inodes));
        assert_eq!(both(Signal::NodeFsAvailable, Signal::NodeFsInodesFree), node, "{layout:?}");
        assert_eq!(both(Signal::ImageFsAvailable, Signal::ImageFsInodesFree), image, "{layout:?}");
        assert_eq!(both(Signal::ContainerFsAvailable, Signal::ContainerFsInodesFree), container, "{layout:?}");
    }
}

#[test]
fn missing_statistics_count_as_zero() {
    let null = json!({"memory": {"workingSetBytes": null}, "process_stats": {"process_count": null},
                      "containers": [{"rootfs": null, "logs": {"usedBytes": null}}, null], "volume": [{"name": "directory"}]});
    for stats in [json!({}), json!({"memory": null, "process_stats": null, "containers": null, "volume": null}), null] {
        let stats: PodStats = serde_json::from_value(stats).unwrap();
        for signal in Signal::ALL {
            assert_eq!(usage(signal, Layout::Single, &with_volumes(), &stats), Amount::ZERO, "{signal}");
        }
    }
}

#[test]
fn the_last_statistics_of_a_uid_count() {
    let pods = [requesting("a", "memory", "0", 0), requesting("b", "memory", "0", 0)];
    let named = json!({"podRef": {"name": "a", "namespace": "ns", "uid": "other"}, "memory": {"workingSetBytes": 99}});
    let stats = [named, memory("a", 9), memory("b", 5), memory("a", 1)];
    assert_eq!(by_memory(&pods, &stats), ["b", "a"]);
}

#[test]
fn memory_ranks_by_excess_priority_and_distance() {
    let pods = [
        requesting("within-low-priority", "memory", "100", -10),
        requesting("above-high-priority", "memory", "10", 100),
        requesting("above-by-little", "memory", "100", 0),
        requesting("above-by-more", "memory", "10", 0),
        requesting("exactly", "memory", "50", -10),
    ];
    let stats = ["within-low-priority", "above-high-priority", "above-by-more", "exactly"].map(|name| memory(name, 50));
    let stats = [&stats[..], &[memory("above-by-little", 101)]].concat();
    let expected = ["above-by-more", "above-by-little", "above-high-priority", "exactly", "within-low-priority"];
    assert_eq!(by_memory(&pods, &stats), expected);
}

#[test]
fn fractions_of_a_byte_count() {
    let pods = [requesting("within", "memory", "1100m", 0), requesting("above", "memory", "900m", 0)];
    let stats = [memory("within", 1), memory("above", 1)];
    assert_eq!(by_memory(&pods, &stats), ["above", "within"]);
}

#[test]
fn pods_without_statistics_rank_first_or_last() {
    let pods = [requesting("known", "memory", "0", -5), requesting("unknown", "memory", "0", 1000)];
    let known = [memory("known", 50)];
    for (quirk, expected) in [(true, ["unknown", "known"]), (false, ["known", "unknown"])] {
        let mut policy = kubelet(&[]);
        policy.quirks.set(Quirk::MissingStatisticsFirst, quirk);
        assert_eq!(ranked(&policy, Signal::MemoryAvailable, Layout::Single, &pods, &known), expected);
        // The ranking by processes compares the priority first.
        assert_eq!(ranked(&policy, Signal::PidAvailable, Layout::Single, &pods, &known), ["known", "unknown"]);
    }
}

#[test]
fn processes_rank_by_priority_then_count() {
    let pods = ["few", "many", "important"].map(|name| requesting(name, "memory", "0", i32::from(name == "important")));
    let count = |name, count: u64| pod_statistics(name, json!({"process_stats": {"process_count": count}}));
    let stats = [count("few", 2), count("many", u64::MAX), count("important", 1000)];
    assert_eq!(
        ranked(&kubelet(&[]), Signal::PidAvailable, Layout::Single, &pods, &stats),
        ["many", "few", "important"]
    );
}

#[test]
fn the_kubelet_subtracts_bytes_from_inodes() {
    let pods = [requesting("requested", "ephemeral-storage", "1Ki", 0), requesting("none", "memory", "0", 0)];
    let inodes = |name, inodes: u64| {
        pod_statistics(name, json!({"containers": [{"name": "c", "rootfs": {"inodesUsed": inodes}}]}))
    };
    let stats = [inodes("requested", 500), inodes("none", 1)];
    for (quirk, expected) in [(true, ["none", "requested"]), (false, ["requested", "none"])] {
        let mut policy = kubelet(&[]);
        policy.quirks.set(Quirk::InodesMinusBytes, quirk);
        assert_eq!(ranked(&policy, Signal::NodeFsInodesFree, Layout::Single, &pods, &stats), expected);
    }
}

#[test]
fn images_of_a_split_layout_rank_by_smallest_request() {
    let pods = [
        requesting("large", "ephemeral-storage", "1Gi", 0),
        requesting("small", "ephemeral-storage", "1Ki", 0),
        requesting("important", "ephemeral-storage", "1", 1),
    ];
    let used = |name| {
        pod_statistics(
            name,
            json!({"containers": [{"name": "c", "rootfs": {"usedBytes": 1_u64 << 40, "inodesUsed": 9}}]}),
        )
    };
    let stats = ["large", "small", "important"].map(used);
    for signal in [Signal::ImageFsAvailable, Signal::ImageFsInodesFree] {
        let order = ranked(&kubelet(&[]), signal, Layout::SplitImageFs, &pods, &stats);
        assert_eq!(order, ["small", "large", "important"], "{signal}");
    }
}

#[test]
fn critical_pods_are_candidates_and_ended_ones_are_not() {
    let mut pods = ["failed", "succeeded", "unknown"].map(|name| requesting(name, "memory", "0", 0)).to_vec();
    for (pod, phase) in pods.iter_mut().zip(["Failed", "Succeeded", "Unknown"]) {
        phase.clone_into(&mut pod.status.phase);
    }
    pods.push(requesting("critical", "memory", "0", 2_000_000_000));
    assert_eq!(by_memory(&pods, &[]), ["unknown", "critical"]);
}

#[test]
fn without_usage_the_smallest_request_ranks_first() {
    let policy = Policy { ranking: Ranking::Custom(vec![RankingKey::Request]), ..kubelet(&[]) };
    let pods =
        [requesting("b", "memory", "2", 0), requesting("a", "memory", "2", 0), requesting("c", "memory", "1", 0)];
    assert_eq!(ranked(&policy, Signal::MemoryAvailable, Layout::Single, &pods, &[]), ["c", "a", "b"]);
}
