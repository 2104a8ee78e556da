//! The JSON Schema of the configuration, with a validator, against the parser.
#![expect(clippy::unwrap_used, reason = "a file that cannot be read fails its test")]

use std::path::{Path, PathBuf};

use jsonschema::Validator;
use node_pressure_manifests::root;
use node_pressure_monitor::config::file_kinds::Source;
use node_pressure_monitor::config::yaml::{Node, Value as Yaml};
use node_pressure_monitor::config::{MonitorConfig, schema};
use serde_json::{Map, Value, json};

const HEAD: &str = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n";

fn validator() -> Validator {
    let schema: Value = serde_json::from_str(schema::SCHEMA).unwrap();
    jsonschema::meta::validate(&schema).unwrap();
    jsonschema::validator_for(&schema).unwrap()
}

/// Converts a document as an editor with YAML 1.2 reads it.
fn json_of(node: &Node) -> Value {
    match &node.value {
        Yaml::Null => Value::Null,
        Yaml::Scalar { text, quoted: true } => json!(text),
        Yaml::Scalar { text, .. } => match text.as_str() {
            "true" | "True" | "TRUE" => json!(true),
            "false" | "False" | "FALSE" => json!(false),
            text => text
                .parse::<i64>()
                .map(|number| json!(number))
                .or_else(|_| text.parse::<f64>().map(|number| json!(number)))
                .unwrap_or_else(|_| json!(text)),
        },
        Yaml::Sequence(items) => items.iter().map(json_of).collect(),
        Yaml::Mapping(pairs) => {
            let pair = |(key, value): &(Node, Node)| Some((key.text()?.to_owned(), json_of(value)));
            Value::Object(pairs.iter().filter_map(pair).collect::<Map<_, _>>())
        }
    }
}

/// Returns what the validator says of the configuration in a text.
fn problems(validator: &Validator, text: &str) -> Vec<String> {
    let document = json_of(&Source::locate("f", text).unwrap().node);
    validator.iter_errors(&document).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

fn is_accepted(text: &str) -> bool {
    MonitorConfig::parse("f", text).is_ok()
}

/// The files below a directory whose text names our kind.
fn ours(directory: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !["target", ".git", "node_modules"].contains(&name.as_str()) {
                ours(&path, found);
            }
        } else if name.ends_with(".yaml") {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            if text.contains("kind: MonitorConfiguration") {
                found.push((path, text));
            }
        }
    }
}

/// The configurations that a document shows, whole or without their head.
fn shown(text: &str) -> Vec<String> {
    let blocks = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    let ours = blocks.filter(|block| !block.contains("apiVersion:") || block.contains("kind: MonitorConfiguration"));
    ours.map(|block| if block.contains("kind: Monitor") { block.to_owned() } else { format!("{HEAD}{block}") })
        .collect()
}

#[test]
fn every_configuration_of_a_document_is_valid() {
    let validator = validator();
    let mut count = 0;
    for document in
        ["config/README.md", "config/SEMANTICS.md", "config/openshift/README.md", "monitor/COMMANDS.md", "README.md"]
    {
        for text in shown(&std::fs::read_to_string(root().join(document)).unwrap()) {
            count += 1;
            let found = problems(&validator, &text);
            assert!(is_accepted(&text) && found.is_empty(), "{document}: {text}\n{found:#?}");
        }
    }
    assert!(count >= 2, "only {count} configurations");
}

#[test]
fn every_configuration_of_the_repository_is_valid() {
    let validator = validator();
    let mut files = Vec::new();
    for directory in ["config", "monitor/src/config", "tests/fixtures"] {
        ours(&root().join(directory), &mut files);
    }
    let mut count = 0;
    for (path, text) in files {
        if !is_accepted(&text) {
            // A file with several documents, or a part of one.
            continue;
        }
        count += 1;
        let found = problems(&validator, &text);
        assert!(found.is_empty(), "{}: {found:#?}", path.display());
    }
    assert!(count >= 4, "only {count} configurations");
}

#[test]
fn spellings_that_the_parser_accepts_are_valid() {
    let validator = validator();
    for text in [
        "",
        "mode:",
        "ranking: [usage, priority]",
        "evictionHard: {memory.available: 1e9, pid.available: 1000, nodefs.available: \"10.5%\", imagefs.available: .5Gi}",
        "evictionHard: {memory.available: +1Gi, nodefs.available: 0%, imagefs.available: 5%%}",
        "evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 1m30.5s}",
        "evictionMinimumReclaim: {memory.available: 0}",
        "evictionPressureTransitionPeriod: 0",
        "evictionMaxPodGracePeriod: -1",
        "kubernetes: {events: yes, taints: {effect: off, noExecute: {after: 1h}}, protect: {priorityAtLeast: -5}}",
        "kubernetes: {nodeName: 5}",
        "runtime: {endpoint: unix:///run/x.sock}",
        "systemReserved: {cpu: 0.5, memory: 1Gi, pid: 0}",
        "enforceNodeAllocatable: [pods, system-reserved-compressible]",
        "metrics: {listen: \"[::1]:1\", tls: {}, bearerToken: {file: }}",
        "quirks: {inodesMinusBytes: true}",
        "pools:\n- name: a\n  nodeSelector: {a: \"b\", c: 1}\n  mode: enforce\n  kubernetes: {conditions: off}\n  sampling: {ceiling: 5s}",
        "pressureConditions: [{condition: A, scope: system, resource: io, kind: some, set: {level: 10%, for: 0s}, clear: {level: .5%, for: 1m}}]",
    ] {
        let text = format!("{HEAD}{text}\n");
        assert!(is_accepted(&text), "{text}: {:?}", MonitorConfig::parse("f", &text).err());
        let found = problems(&validator, &text);
        assert!(found.is_empty(), "{text}: {found:#?}");
    }
}

#[test]
fn each_mistake_is_refused_by_the_schema_and_by_the_parser() {
    let validator = validator();
    for text in [
        // Names.
        "evictonHard: {}",
        "evictionHard: {memory.avail: 1Gi}",
        "quirks: {unknown: true}",
        "sampling: {flor: 1ms}",
        "evictions: {coolDwn: 1s}",
        "kubernetes: {protect: {daemonsets: true}}",
        "pools: [{name: a, nodeSelector: {a: b}, lockFile: /run/x}]",
        "pools: [{name: a, nodeSelector: {a: b}, kubernetes: {nodeName: n}}]",
        "systemReserved: {gpu: 1}",
        // Types.
        "mode: [observe]",
        "evictionHard: []",
        "evictionHard: {memory.available: }",
        "evictionHard: {memory.available: [1Gi]}",
        "evictionSoftGracePeriod: {memory.available: }",
        "evictionMaxPodGracePeriod: \"30\"",
        "evictionMaxPodGracePeriod: 1.5",
        "localStorageCapacityIsolation: 1",
        "protected: a.service",
        "pools: {name: a}",
        "kubernetes: off",
        "enforceNodeAllocatable: pods",
        "metrics: {tls: /etc/x}",
        // Choices.
        "mode: enforc",
        "semantics: Kubelet",
        "ranking: fair",
        "ranking: [qos]",
        "oomScoreAdj: none",
        "diskUsage: {projectQuotas: all}",
        "kubernetes: {evictions: {hard: kill}}",
        "kubernetes: {conditions: both}",
        "evictions: {candidates: nothing}",
        "enforceNodeAllocatable: [pod]",
        // Amounts.
        "evictionHard: {memory.available: 100MB}",
        "evictionHard: {memory.available: 100 Mi}",
        "evictionHard: {memory.available: 100mi}",
        "evictionHard: {memory.available: -1Gi}",
        "evictionHard: {memory.available: 0}",
        "evictionHard: {memory.available: <1Gi}",
        "evictionHard: {memory.available: \"1,5Gi\"}",
        "kernel: {ringBuffer: 256KB}",
        "kernel: {ringBuffer: -1}",
        "sampling: {floor: 0}",
        "sampling: {floor: 0s}",
        "sampling: {ceiling: 10}",
        "evictionPressureTransitionPeriod: 5min",
        "evictionPressureTransitionPeriod: -5m",
        "evictionSoftGracePeriod: {memory.available: 30}",
        "evictions: {maxPerMinute: 0}",
        "diskUsage: {cpuShare: 0.02}",
        // Forms.
        "pods: pods.json",
        "lockFile: run/x",
        "protected: [/system.slice/x]",
        "runtime: {endpoint: tcp://localhost:1}",
        "metrics: {listen: localhost}",
        "pressureConditions: [{condition: lower, scope: system, resource: io, kind: some, set: {level: 1%, for: 1s}, clear: {level: 1%, for: 1s}}]",
        // Missing fields.
        "pools: [{nodeSelector: {a: b}}]",
        "pools: [{name: a}]",
        "pressureConditions: [{condition: A}]",
    ] {
        let text = format!("{HEAD}{text}\n");
        assert!(!is_accepted(&text), "the parser accepts {text}");
        assert!(!problems(&validator, &text).is_empty(), "the schema accepts {text}");
    }
    for text in
        ["kind: MonitorConfiguration\n", "apiVersion: node-pressure-monitor/v1\nkind: MonitorConfiguration\n", "{}\n"]
    {
        assert!(!is_accepted(text) && !problems(&validator, text).is_empty(), "{text}");
    }
}
