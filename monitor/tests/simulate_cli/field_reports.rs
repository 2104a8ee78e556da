//! Nodes after public reports (`tests/FIELD.md`): what the kubelet does, and what `corrected` semantics do instead.

use super::*;

const KUBELET: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmergeDefaultEvictionSettings: true\n\
                       evictionHard: {memory.available: 500Mi, pid.available: '2000'}\n";
const MONITOR: &str = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n\
                       evictionHard: {memory.available: 500Mi, nodefs.available: 10%, nodefs.inodesFree: 5%, imagefs.available: 15%, \
                       imagefs.inodesFree: 5%, pid.available: 2000}\n";

/// Returns the policy of a kubelet of this version.
fn kubelet_of(version: &str) -> String {
    format!("{MONITOR}semantics: kubelet\nranking: kubernetes\nkubeletVersion: \"{version}\"\n")
}

const GI: u64 = 1 << 30;
const MI: u64 = 1 << 20;

/// A filesystem of 100Gi and 6,000,000 inodes with this much left.
fn fs(available: u64, inodes_free: u64) -> Value {
    json!({"capacityBytes": 100 * GI, "availableBytes": available, "usedBytes": 100 * GI - available,
           "inodes": 6_000_000, "inodesFree": inodes_free})
}

/// What is left on a node, and how its filesystems are cut.
struct Node {
    layout: &'static str,
    nodefs: u64,
    imagefs: u64,
    inodes: u64,
    memory: u64,
    pids: u64,
}

impl Default for Node {
    fn default() -> Self {
        Self { layout: "single", nodefs: 60 * GI, imagefs: 60 * GI, inodes: 5_000_000, memory: 8 * GI, pids: 30_000 }
    }
}

impl Node {
    /// Returns the line of a trace with these pods and their statistics.
    fn line(&self, pods: &[(Value, Value)]) -> Value {
        let (nodefs, imagefs) = (fs(self.nodefs, self.inodes), fs(self.imagefs, self.inodes));
        let containerfs = if self.layout == "split" { nodefs.clone() } else { imagefs.clone() };
        let (specs, stats): (Vec<&Value>, Vec<&Value>) = pods.iter().map(|(spec, stats)| (spec, stats)).unzip();
        json!({
            "time": at(0),
            "node": {"capacity": {"memory": "16Gi"}, "dedicatedImageFs": self.layout != "single", "splitImageFs": self.layout == "split"},
            "summary": {"node": {
                "memory": {"availableBytes": self.memory, "workingSetBytes": 16 * GI - self.memory},
                "fs": nodefs,
                "runtime": {"imageFs": imagefs, "containerFs": containerfs},
                "rlimit": {"maxpid": 32768, "curproc": 32768 - self.pids},
            }, "pods": stats},
            "pods": specs,
        })
    }
}

fn pod(name: &str, spec: Value, status: Value, stats: Value) -> (Value, Value) {
    let (mut status, mut stats) = (status, stats);
    status["phase"] = "Running".into();
    stats["podRef"] = json!({"namespace": "shop", "name": name, "uid": name});
    let metadata = json!({"namespace": "shop", "name": name, "uid": name});
    let pod = [("metadata", metadata), ("spec", spec), ("status", status)].map(|(name, part)| (name.to_owned(), part));
    (Value::Object(pod.into_iter().collect()), stats)
}

/// A container's writable layer and logs.
fn used(name: &str, layer: u64, logs: u64) -> Value {
    json!({"name": name, "rootfs": {"usedBytes": layer}, "logs": {"usedBytes": logs}})
}

/// A container with this limit of local storage.
fn limited(name: &str, limit: &str) -> Value {
    json!({"name": name, "resources": {"limits": {"ephemeral-storage": limit}}})
}

/// Returns the answer of a policy to one line.
fn decided(policy: &str, line: &Value) -> Value {
    let output = Place::new(policy).simulate(trace(std::slice::from_ref(line)), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the message about the first pod that is above a limit of its own.
fn above_limit(policy: &str, line: &Value) -> Option<String> {
    decided(policy, line)["localStorageEvictions"][0]["message"].as_str().map(str::to_owned)
}

fn evicted(policy: &str, line: &Value) -> String {
    decided(policy, line)["evict"]["pod"].as_str().unwrap_or("nobody").to_owned()
}

/// kubernetes/kubernetes#138371: a log shipper that is a sidecar. istio/istio#53509: the proxy's logs of about 1Gi, where the proxy has become
/// a sidecar. Dynatrace/dynatrace-operator#1123: a webhook's limit of 10M is one of a regular container, and was always checked.
#[test]
fn the_limit_of_a_sidecar_is_checked_since_1_37() {
    let with = |sidecar: Value, uses: &[Value]| {
        let spec = json!({"containers": [limited("app", "4Gi")], "initContainers": [sidecar]});
        let total: u64 = uses
            .iter()
            .map(|it| it["rootfs"]["usedBytes"].as_u64().unwrap() + it["logs"]["usedBytes"].as_u64().unwrap())
            .sum();
        let stats = json!({"containers": uses, "ephemeral-storage": {"usedBytes": total}});
        Node::default().line(&[pod("web", spec, json!({}), stats)])
    };
    let sidecar = |name: &str, limit: &str| {
        let mut sidecar = limited(name, limit);
        sidecar["restartPolicy"] = "Always".into();
        sidecar
    };
    let app = used("app", 10 * MI, MI);
    for (init, uses, above) in [
        (sidecar("logship", "1Gi"), vec![app.clone(), used("logship", 2 * GI, MI)], Some("logship")),
        (
            sidecar("istio-proxy", "500Mi"),
            vec![used("istio-proxy", 0, 942_888 << 10), app.clone()],
            Some("istio-proxy"),
        ),
        (sidecar("vault-agent", "10M"), vec![used("vault-agent", 9_000_000, 1_000_001)], Some("vault-agent")),
        // Exactly the limit, no limit of its own, and an init container that is no sidecar.
        (sidecar("vault-agent", "10M"), vec![used("vault-agent", 9_000_000, 1_000_000)], None),
        (sidecar("proxy", "0"), vec![used("proxy", GI, GI)], None),
        (limited("migrate", "1Gi"), vec![used("migrate", 2 * GI, 0)], None),
    ] {
        let line = with(init, &uses);
        let said = |policy: &str| above_limit(policy, &line).and_then(|text| Some(text.split(' ').nth(1)?.to_owned()));
        let expected = above.map(str::to_owned);
        assert_eq!(said(KUBELET), None, "{line}");
        assert_eq!(said(&kubelet_of("1.36")), None, "{line}");
        assert_eq!(
            [said(&kubelet_of("1.37")), said(&kubelet_of("v1.38.1+k3s1")), said(MONITOR)],
            [&expected; 3].map(Clone::clone),
            "{line}"
        );
        let as_before = format!("{MONITOR}quirks: {{sidecarStorageLimitIgnored: true}}\n");
        assert_eq!(said(&as_before), None);
    }
}

/// kubernetes/kubernetes#139205 (two containers, one above its limit), #81523 (`failpod` of 100Ki), #99280 (containerd's root on a disk of its
/// own). The limit of a pod of one container is the pod's limit, which counted everywhere (#127642).
#[test]
fn a_writable_layer_counts_for_its_container_wherever_images_are() {
    let two = |limit: &str, layer: u64, logs: u64| {
        let spec = json!({"containers": [limited("writer", limit), limited("idle", "10Gi")]});
        let stats = json!({"containers": [used("writer", layer, logs), used("idle", 0, 0)], "ephemeral-storage": {"usedBytes": layer + logs}});
        pod("two", spec, json!({}), stats)
    };
    for layout in ["single", "dedicated", "split"] {
        let node = Node { layout, ..Node::default() };
        for (limit, layer, logs) in [("500Mi", 700 * MI, 0), ("100Ki", 1000 << 10, 0), ("1Gi", GI / 2, GI / 2 + 1)] {
            let line = node.line(&[two(limit, layer, logs)]);
            let expected = format!("Container writer exceeded its local ephemeral storage limit \"{limit}\". ");
            assert_eq!(above_limit(MONITOR, &line), Some(expected.clone()), "{layout}");
            assert_eq!(above_limit(KUBELET, &line), Some(expected).filter(|_| layout == "single"), "{layout} {limit}");
        }
        assert_eq!(above_limit(MONITOR, &node.line(&[two("1Gi", GI / 2, GI / 2)])), None, "{layout}: not above it");
        // Logs alone always counted.
        assert!(above_limit(KUBELET, &node.line(&[two("1Gi", 0, 2 * GI)])).is_some(), "{layout}");
    }
}

/// kubernetes/kubernetes#130439 (60Gi in an emptyDir), concourse/hush-house#8 (a worker's scratch volume of a 10GiB disk), cloud-ark/kubeplus#1382
/// (two containers are named). Inodes: many small files in a volume.
#[test]
fn the_message_names_the_volume_that_holds_the_space() {
    let node = Node { nodefs: 8 * GI, imagefs: 8 * GI, ..Node::default() };
    let volume = |name: &str, bytes: u64, inodes: u64| json!({"name": name, "usedBytes": bytes, "inodesUsed": inodes});
    let spec = |volumes: &[&str]| {
        let volumes: Vec<Value> = volumes.iter().map(|name| json!({"name": name, "emptyDir": {}})).collect();
        json!({"containers": [{"name": "app"}, {"name": "other"}], "volumes": volumes})
    };
    let message = |policy: &str, line: &Value| {
        let answer = decided(policy, line);
        answer["evict"]["message"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    for (volumes, containers, named, unnamed) in [
        (
            vec![volume("tmp", 60 * GI, 10)],
            vec![used("app", 102_400, 22_528)],
            vec!["Pod p was using 62914682Ki, request is 0", "Volume tmp holds 60Gi. "],
            vec!["122Ki"],
        ),
        (
            vec![volume("work", 9 * GI, 10), volume("keys", 4096, 2)],
            vec![used("app", 70 * MI, 0), used("other", 2 * GI, 0)],
            vec!["Volume work holds 9Gi. ", "Container other was using 2Gi"],
            vec!["keys", "Container app"],
        ),
        (
            vec![],
            vec![used("app", 103_040 << 10, 0), used("other", 526_760 << 10, 0)],
            vec!["Container app was using 103040Ki", "Container other was using 526760Ki"],
            vec!["Volume"],
        ),
    ] {
        let names: Vec<&str> = volumes.iter().map(|it| it["name"].as_str().unwrap()).collect();
        let line =
            node.line(&[pod("p", spec(&names), json!({}), json!({"containers": containers, "volume": volumes}))]);
        let (corrected, kubelet) = (message(MONITOR, &line), message(KUBELET, &line));
        assert!(named.iter().all(|part| corrected.contains(part)), "{corrected}");
        assert!(unnamed.iter().all(|part| !corrected.contains(part)), "{corrected}");
        assert!(!kubelet.contains("Volume") && !kubelet.contains("Pod p"), "{kubelet}");
    }
    let node = Node { inodes: 100_000, ..Node::default() };
    let line = node.line(&[pod("p", spec(&["npm"]), json!({}), json!({"volume": [volume("npm", GI, 2_000_000)]}))]);
    assert!(message(MONITOR, &line).ends_with("Volume npm holds 2M. "), "{}", message(MONITOR, &line));
    assert!(message(KUBELET, &line).ends_with("available: 100k. "));
}

/// kubernetes/kubernetes#46789 and #129616: where images have a filesystem of their own, a full nodefs has logs of dead containers, and no
/// collection precedes the eviction.
#[test]
fn dead_containers_are_collected_for_a_nodefs_beside_the_images() {
    for (layout, kubelet, corrected) in [
        ("single", json!(["containers", "images"]), json!(["containers", "images"])),
        ("dedicated", json!([]), json!(["containers"])),
        ("split", json!(["containers"]), json!(["containers"])),
    ] {
        for node in [
            Node {
                layout,
                nodefs: 8 * GI,
                imagefs: if layout == "single" { 8 * GI } else { 60 * GI },
                ..Node::default()
            },
            Node {
                layout,
                inodes: if layout == "dedicated" { 100_000 } else { 5_000_000 },
                nodefs: 9 * GI,
                ..Node::default()
            },
        ] {
            let spec = json!({"containers": [{"name": "app"}]});
            let mut line = node.line(&[pod("p", spec, json!({}), json!({"containers": [used("app", 0, 5 * GI)]}))]);
            line["summary"]["node"]["runtime"]["imageFs"]["inodesFree"] = 5_000_000.into();
            line["summary"]["node"]["runtime"]["containerFs"]["inodesFree"] = 5_000_000.into();
            assert_eq!(decided(KUBELET, &line)["garbageCollection"], kubelet, "{layout}");
            assert_eq!(decided(MONITOR, &line)["garbageCollection"], corrected, "{layout}");
        }
    }
    // What the collection frees may suffice.
    let node = |free| Node { layout: "dedicated", nodefs: free, ..Node::default() };
    let pods = [pod(
        "p",
        json!({"containers": [{"name": "app"}]}),
        json!({}),
        json!({"containers": [used("app", 0, 5 * GI)]}),
    )];
    let mut line = node(8 * GI).line(&pods);
    line["summaryAfterGarbageCollection"] = node(30 * GI).line(&pods)["summary"].clone();
    let enforcing = format!("{MONITOR}mode: enforce\n");
    assert_eq!((evicted(KUBELET, &line), evicted(&enforcing, &line)), ("shop/p".to_owned(), "nobody".to_owned()));
}

/// The status of a container `app` with these requests for memory: allocated and in force.
fn resized(allocated: Option<&str>, in_force: &str, reason: &str) -> Value {
    let mut status = json!({"name": "app", "resources": {"requests": {"memory": in_force}}});
    if let Some(allocated) = allocated {
        status["allocatedResources"] = json!({"memory": allocated});
    }
    let condition = json!({"type": "PodResizePending", "status": "True", "reason": reason});
    json!({"qosClass": "Burstable", "containerStatuses": [status], "conditions": [condition]})
}

fn asking(memory: &str) -> Value {
    json!({"containers": [{"name": "app", "resources": {"requests": {"memory": memory}}}]})
}

fn holds(bytes: u64) -> Value {
    let memory = json!({"workingSetBytes": bytes, "rssBytes": bytes});
    json!({"memory": memory, "containers": [{"name": "app", "memory": memory}]})
}

/// kubernetes/kubernetes#122602 (deferred), #125559 (infeasible), #117765 (a user games the request), #129532 (a smaller request is pending
/// while a larger one is carried out): the kubelet ranks by what it has allocated, and so do we.
#[test]
fn a_pod_that_asks_for_more_is_ranked_by_what_it_has() {
    let node = Node { memory: 400 * MI, ..Node::default() };
    for (asks, status, uses, first, request) in [
        ("4Gi", resized(Some("1Gi"), "1Gi", "Deferred"), 3 * GI, "shop/grow", "1Gi"),
        ("4Gi", resized(None, "1Gi", "Deferred"), 3 * GI, "shop/grow", "1Gi"),
        ("64Gi", resized(Some("1Gi"), "1Gi", "Infeasible"), 3 * GI, "shop/grow", "1Gi"),
        ("10Ti", resized(Some("64Mi"), "64Mi", "Infeasible"), 10 * GI, "shop/grow", "64Mi"),
        // Allocated, and not yet in force: the pod has the promise.
        ("4Gi", resized(Some("4Gi"), "1Gi", ""), 3 * GI, "shop/other", "1Gi"),
        ("1Gi", resized(Some("4Gi"), "2Gi", "Deferred"), 3 * GI, "shop/other", "1Gi"),
    ] {
        let grow = pod("grow", asking(asks), status, holds(uses));
        let other = pod("other", asking("1Gi"), json!({"qosClass": "Burstable"}), holds(1224 * MI));
        let line = node.line(&[grow, other]);
        for policy in [KUBELET.to_owned(), kubelet_of("1.37"), MONITOR.to_owned()] {
            let answer = decided(&policy, &line);
            assert_eq!(answer["evict"]["pod"], first, "{asks}: {answer}");
            let message = answer["evict"]["message"].as_str().unwrap();
            assert!(message.contains(&format!("request is {request}, has larger consumption of memory")), "{message}");
        }
    }
}

/// kubernetes/kubernetes#140009: a pod with 100Mi in its specification and 4Gi of memory by a resource claim seems far above its request. Its
/// `oom_score_adj` follows from both (1.37), shared by the containers of the claim.
#[test]
fn memory_of_a_claim_is_part_of_the_request() {
    let claim = |containers: &[&str], mapping: &str| {
        let mapping = json!([{"name": "memory", "quantity": mapping}]);
        json!({"qosClass": "Burstable", "nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "npu", "containers": containers, "mapping": mapping}]})
    };
    let node = Node { memory: 400 * MI, ..Node::default() };
    for (containers, mapping, uses, corrected, score) in [
        (&["app"][..], "4Gi", 4 * GI, "shop/other", 744),
        (&["app", "helper"], "4Gi", 4 * GI, "shop/other", 869),
        (&["app"], "8Gi", 9 * GI, "shop/npu", 494),
    ] {
        let npu = pod("npu", asking("100Mi"), claim(containers, mapping), holds(uses));
        let other = pod("other", asking("1Gi"), json!({"qosClass": "Burstable"}), holds(1224 * MI));
        let line = node.line(&[npu, other]);
        let answer = decided(MONITOR, &line);
        assert_eq!(answer["evict"]["pod"], corrected, "{mapping}: {answer}");
        assert_eq!(answer["pods"]["shop/npu"]["oomScoreAdj"]["app"], score, "{mapping}");
        assert_eq!(evicted(&kubelet_of("1.37"), &line), "shop/npu");
    }
}

/// kubernetes/kubernetes#89284 (innocent pods go before a fork bomb), #72844 (12,000 processes), enhancements#1631.
#[test]
fn a_fork_bomb_goes_before_its_small_neighbours() {
    let node = Node { pids: 1768, ..Node::default() };
    let forks = |name: &str, class: &str, priority: i32, count: u64| {
        let spec = json!({"priority": priority, "containers": [{"name": "app"}]});
        pod(name, spec, json!({"qosClass": class}), json!({"process_stats": {"process_count": count}}))
    };
    for (pods, kubelet, corrected) in [
        (
            [("worker", "Burstable", 0, 28_000), ("cron", "BestEffort", 0, 3), ("batch", "Burstable", -10, 5)],
            "shop/batch",
            "shop/worker",
        ),
        (
            [("bomb", "Guaranteed", 10, 12_000), ("innocent", "BestEffort", 0, 1), ("other", "BestEffort", -1, 900)],
            "shop/other",
            "shop/bomb",
        ),
        // Of two bombs the class decides.
        (
            [("a", "Burstable", 0, 9_000), ("b", "BestEffort", 0, 8_000), ("c", "BestEffort", -5, 40)],
            "shop/c",
            "shop/b",
        ),
        // The largest is critical to the node: it does not go, and shields nobody.
        (
            [
                ("critical", "Burstable", 2_000_001_000, 20_000),
                ("bomb", "Burstable", 0, 3_000),
                ("tiny", "BestEffort", 0, 2),
            ],
            "shop/bomb",
            "shop/bomb",
        ),
    ] {
        let all = pods.map(|(name, class, priority, count)| forks(name, class, priority, count));
        let line = node.line(&all);
        assert_eq!((evicted(KUBELET, &line).as_str(), evicted(MONITOR, &line).as_str()), (kubelet, corrected));
    }
}

/// kubernetes/kubernetes PR #123904 (a pod with 16Ki), #128604 (a proxy whose emptyDir is in memory), #106606 (a pod that only logs beside one
/// that fills an emptyDir): a pod that frees nothing does not go for a full disk.
#[test]
fn a_pod_that_frees_nothing_stays() {
    let holding = |name: &str, class: &str, medium: &str, bytes: u64, logs: u64| {
        let spec = json!({"containers": [{"name": "app"}], "volumes": [{"name": "v", "emptyDir": {"medium": medium}}]});
        let stats = json!({"containers": [used("app", 0, logs)], "volume": [{"name": "v", "usedBytes": bytes}]});
        pod(name, spec, json!({"qosClass": class}), stats)
    };
    for layout in ["single", "dedicated"] {
        let node = Node {
            layout,
            nodefs: 8 * GI,
            imagefs: if layout == "single" { 8 * GI } else { 60 * GI },
            ..Node::default()
        };
        for small in [
            holding("small", "BestEffort", "", 16 << 10, 0),
            holding("small", "BestEffort", "Memory", 2 * GI, 4096),
            holding("small", "BestEffort", "", 0, 20 * MI),
        ] {
            let line = node.line(&[small, holding("hog", "Burstable", "", 40 * GI, 0)]);
            assert_eq!(evicted(MONITOR, &line), "shop/hog", "{layout}");
        }
        // If nobody frees anything, nobody goes.
        let line = node.line(&[holding("small", "BestEffort", "", 16 << 10, 0)]);
        assert_eq!(
            (evicted(MONITOR, &line).as_str(), evicted(KUBELET, &line).as_str()),
            ("nobody", "shop/small"),
            "{layout}"
        );
    }
}
