//! A generated node, the same on every run: pods of three containers each, which request and use memory and disk.

use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

/// A pseudorandom number generator that is the same on every run.
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

fn uid(index: usize) -> String {
    format!("{index:08x}-1111-4111-8111-{index:012x}")
}

/// Returns pods as the API prints them.
#[must_use]
pub fn pods(count: usize) -> Vec<Value> {
    let mut dice = Dice(1);
    let container = |name: &str, dice: &mut Dice| {
        let (request, limit) = (dice.roll(8) * 64, 512);
        json!({"name": name, "image": "registry.example/app:1", "resources": {
            "requests": {"cpu": "100m", "memory": format!("{request}Mi"), "ephemeral-storage": "1Gi"},
            "limits": {"cpu": "1", "memory": format!("{limit}Mi")}}})
    };
    let pod = |index: usize| {
        let containers: Vec<Value> =
            ["app", "proxy", "logs"].into_iter().map(|name| container(name, &mut dice)).collect();
        json!({
            "metadata": {"name": format!("service-{:x}-{index:05}", dice.roll(4096)), "namespace": format!("team-{}", index % 7),
                         "uid": uid(index), "labels": {"app": "service"}, "annotations": {"kubernetes.io/config.source": "api"}},
            "spec": {"nodeName": "node-1", "containers": containers, "priority": dice.roll(3) * 1000,
                     "terminationGracePeriodSeconds": 30, "volumes": [{"name": "cache", "emptyDir": {}}]},
            "status": {"phase": "Running", "qosClass": "Burstable"},
        })
    };
    (0..count).map(pod).collect()
}

/// Returns `/stats/summary` of these pods at a time. The node has less than 100 MiB of available memory.
#[must_use]
pub fn summary(count: usize, time: &str) -> Value {
    let mut dice = Dice(2);
    let memory = |bytes: u64| json!({"time": time, "usageBytes": bytes + MIB, "workingSetBytes": bytes, "rssBytes": bytes, "pageFaults": 1000, "majorPageFaults": 0});
    let fs = |bytes: u64| {
        json!({"time": time, "availableBytes": 60_000 * MIB, "capacityBytes": 100_000 * MIB, "usedBytes": bytes,
               "inodesFree": 6_000_000, "inodes": 6_553_600, "inodesUsed": 120})
    };
    let pod = |index: usize| {
        let used = ["app", "proxy", "logs"].map(|name| (name, dice.roll(768) * MIB));
        let all = used.iter().map(|(_, bytes)| bytes).sum();
        let container = |(name, bytes): (&str, u64)| json!({"name": name, "memory": memory(bytes), "rootfs": fs(4096), "logs": fs(8192)});
        json!({
            "podRef": {"name": format!("service-{index}"), "namespace": format!("team-{}", index % 7), "uid": uid(index)},
            "containers": used.map(container), "memory": memory(all), "volume": [{"name": "cache", "usedBytes": 4096, "inodesUsed": 3}],
            "ephemeral-storage": fs(12_288), "process_stats": {"process_count": 20},
        })
    };
    let pods: Vec<Value> = (0..count).map(pod).collect();
    let left =
        json!({"time": time, "availableBytes": 90 * MIB, "usageBytes": 11_000 * MIB, "workingSetBytes": 10_150 * MIB});
    json!({
        "node": {"nodeName": "node-1", "memory": left, "fs": fs(40_000 * MIB), "runtime": {"imageFs": fs(40_000 * MIB), "containerFs": fs(0)},
                 "systemContainers": [{"name": "pods", "memory": memory(10_000 * MIB)}], "rlimit": {"time": time, "maxpid": 32_768, "curproc": 900}},
        "pods": pods,
    })
}
