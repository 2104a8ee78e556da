use serde_json::{Value, json};

use super::*;
use crate::config::MonitorConfig;
use crate::eviction::Layout;
use crate::eviction::fixtures::{pod_statistics, requesting, summary};
use crate::units::Moment;
use crate::workloads::Pod;

const SECOND: i128 = 1_000_000_000;
const MIB: u64 = 1 << 20;
const CONFIG: &str = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\nmode: enforce\nevictionHard: {memory.available: 100Mi}\n";

/// The state of a node at one second: what is available, and the anonymous memory of each pod, in MiB.
type Line<'t> = (i128, u64, &'t [u64]);

fn config(more: &str) -> MonitorConfig {
    MonitorConfig::parse("m.yaml", &format!("{CONFIG}{more}")).unwrap().config
}

/// Returns the victim of each line, with the worth of its end, and the rules that were named as not applied.
fn replay(config: &MonitorConfig, pods: &[Pod], lines: &[Line<'_>]) -> (Vec<String>, Vec<Vec<&'static str>>) {
    let mut preview = Preview::of(AgentView::of(config).unwrap());
    let decide = |(second, available, memory): &Line<'_>| {
        let node = json!({"memory": {"availableBytes": available * MIB, "workingSetBytes": (8_192 - available) * MIB}});
        let usages: Vec<Value> = pods.iter().zip(*memory).map(|(pod, mib)| usage(&pod.metadata.uid, *mib)).collect();
        let summary = summary(node, &usages);
        let now = Moment(second * SECOND);
        let input = Input { now, layout: Layout::Single, summary: &summary, after_collection: None, pods };
        let done = preview.synchronize(&input);
        let name = done.eviction.as_ref().map(|eviction| eviction.pod.metadata.name.clone()).unwrap_or_default();
        let worth = done.worth.map(|worth| format!(" {}", worth.words())).unwrap_or_default();
        (format!("{name}{worth}"), done.not_applied.iter().map(|rule| rule.as_str()).collect())
    };
    lines.iter().map(decide).unzip()
}

fn usage(uid: &str, mib: u64) -> Value {
    let memory = json!({"workingSetBytes": mib * MIB, "rssBytes": mib * MIB});
    pod_statistics(uid, json!({"memory": memory, "containers": [{"name": "c", "memory": memory}]}))
}

fn burstable(name: &str, request: &str) -> Pod {
    requesting(name, "memory", request, 0)
}

#[test]
fn growth_from_line_to_line_finds_the_leak() {
    let pods = [requesting("idle", "memory", "0", 0), burstable("leak", "50Mi")];
    let lines: &[Line<'_>] = &[(0, 300, &[60, 100]), (1, 200, &[60, 200]), (2, 90, &[60, 310])];
    let (victims, missing) = replay(&config(""), &pods, lines);
    assert_eq!(victims, ["", "", "leak leaks"]);
    assert!(!missing[2].contains(&"growth"), "{missing:?}");
}

#[test]
fn growth_within_the_request_is_no_leak() {
    let pods = [requesting("giant", "memory", "0", 0), burstable("warm", "4Gi")];
    let lines: &[Line<'_>] = &[(0, 120, &[2_000, 1_000]), (1, 110, &[2_000, 1_010]), (2, 99, &[2_000, 1_021])];
    let (victims, _) = replay(&config(""), &pods, lines);
    assert!(victims[2].starts_with("giant buys"), "{victims:?}");
}

#[test]
fn what_the_agent_protects_stays() {
    let mut daemon = requesting("daemon", "memory", "0", 0);
    daemon.metadata.owners =
        serde_json::from_value(json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "controller": true}])).unwrap();
    let pods = [daemon, requesting("named", "memory", "0", 0), requesting("other", "memory", "0", 0)];
    let lines: &[Line<'_>] = &[(0, 300, &[900, 900, 300]), (1, 90, &[900, 900, 300])];
    let named = "protected: [\"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podnamed.slice\"]\n";
    let (victims, _) = replay(&config(named), &pods, lines);
    assert!(victims[1].starts_with("other"), "{victims:?}");
}

#[test]
fn a_rule_without_figures_is_named_once() {
    let pods = [requesting("one", "memory", "0", 0), requesting("two", "memory", "0", 0)];
    let lines: &[Line<'_>] = &[(0, 90, &[300, 200]), (60, 90, &[300, 200])];
    let (victims, missing) = replay(&config(""), &pods, lines);
    assert!(victims[0].starts_with("one"), "{victims:?}");
    assert!(missing[0].contains(&"growth") && missing[0].contains(&"fall"), "{missing:?}");
    assert!(!missing[1].contains(&"growth"), "{missing:?}");
}
