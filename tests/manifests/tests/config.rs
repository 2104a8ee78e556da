//! Checks the files under `config/`.

use std::process::Command;

use node_pressure_manifests::{check, documents, kustomize, root, units};

#[test]
fn every_manifest_fits_the_schemas_and_the_code() {
    let report = check(&root()).unwrap();
    assert!(report.problems.is_empty(), "\n{}", report.problems.join("\n"));
    let objects: usize = report.kustomizations.iter().map(|(_, objects)| objects).sum();
    assert!(objects > 20 && !report.units.is_empty(), "checked {objects} objects: {report:?}");
}

#[test]
fn systemd_knows_every_directive() {
    for unit in check(&root()).unwrap().units {
        match units::rejected_by_systemd(&unit) {
            None => println!(
                "SKIPPED systemd_knows_every_directive for {}: systemd-analyze is not installed",
                unit.display()
            ),
            Some(rejected) => assert!(rejected.is_empty(), "{rejected:?}"),
        }
    }
}

/// A file and its faults: text, replacement, expected problem.
type Faults = (&'static str, &'static [[&'static str; 3]]);

const FAULTS: &[Faults] = &[
    (
        "kubernetes/base/daemon-set.yaml",
        &[
            ["hostPID:", "hostPid:", "unknown field spec.template.spec.hostPid"],
            ["hostPID: true", "hostPID: host", "expected a boolean"],
            ["- --log-format=json", "- --log-formt=json", "--log-formt"],
            ["path: /readyz", "path: /ready", "the agent serves no /ready:"],
            ["port: metrics", "port: http", "\"http\", which the container does not name"],
            ["containerPort: 9946", "containerPort: 9945", "metrics.listen has port 9946"],
            ["mountPath: /run/node-pressure-monitor", "mountPath: /run/other", "lockFile"],
            ["mountPath: /etc/node-", "mountPath: /etc/a-node-", "is in no ConfigMap"],
            ["- name: tracing\n              m", "- name: trace\n              m", "there is no volume trace"],
            ["- KILL", "- CHOWN", "lacks CAP_KILL"],
        ],
    ),
    (
        "kubernetes/base/configuration.yaml",
        &[
            ["mode: observe", "mode: watch", "mode"],
            ["mode: observe", "mode: enforce", "create pods/eviction is not granted"],
            ["lockFile: /run/node-pressure-monitor/", "lockFile: /run/", "on no directory of the host"],
        ],
    ),
    (
        "kubernetes/base/permissions-agent.yaml",
        &[
            ["[create, patch]", "[create]", "patch events is not granted"],
            ["[create, patch]", "[create, patch, delete]", "delete events is granted"],
            ["[list, watch]", "[list, watch, delete]", "delete pods is granted"],
            ["[get, list, watch]", "[get, list, watch, patch]", "patch nodes is granted"],
            ["[nodes/status]", "[nodes/status, pods/status]", "patch pods/status is granted"],
            ["kind: Role\n", "kind: ClusterRole\n", "create leases.coordination.k8s.io is granted in the cluster"],
        ],
    ),
    (
        "kubernetes/enforce/permissions.yaml",
        &[
            ["[get, list, watch, delete]", "[get, list, watch]", "delete pods is not granted"],
            ["resources: [pods/eviction]", "resources: [pods/binding]", "create pods/eviction is not granted"],
        ],
    ),
    ("kubernetes/first/kustomization.yaml", &[["  - ../enforce\n", "", "patch nodes is not granted"]]),
    (
        "kubernetes/base/permissions-sweeper.yaml",
        &[["name: node-pressure-monitor-sweeper", "name: sweeper", "is not granted"]],
    ),
    (
        "kubernetes/base/service-account.yaml",
        &[["name: node-pressure-monitor\n", "name: monitor\n", "no ServiceAccount node-"]],
    ),
    ("kubernetes/base/kustomization.yaml", &[["  - quota.yaml\n", "", "quota.yaml: no kustomization names it"]]),
    (
        "kubernetes/prometheus/rules.yaml",
        &[
            ["evictions_total", "eviction_total", "has no metric node_pressure_monitor_eviction_total"],
            ["severity: info", "severity: 1", "is not of the right type"],
        ],
    ),
    ("kubernetes/prometheus/service.yaml", &[["name: metrics", "name: http", "the Service has no port metrics"]]),
    (
        "kubernetes/tls/daemon-set.yaml",
        &[
            ["scheme: HTTPS", "scheme: HTTP", "do not agree"],
            ["mountPath: /etc/node-pressure-monitor-tls", "mountPath: /tls", "is on no volume"],
        ],
    ),
    (
        "kubernetes/tls/permissions-reviews.yaml",
        &[["[tokenreviews]", "[reviews]", "create tokenreviews.authentication.k8s.io is not"]],
    ),
    ("openshift/changes/security-context-constraints.yaml", &[["  - SYSLOG\n", "", "CAP_SYSLOG is not both"]]),
    (
        "systemd/node-pressure-monitor.service",
        &[
            ["CAP_KILL ", "", "CapabilityBoundingSet differs"],
            ["--lock-file /run/node-", "--lock-file /run/x-node-", "and the default is /run/node-"],
        ],
    ),
];

#[test]
fn a_fault_in_any_file_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let copied = Command::new("cp").arg("-r").arg(root().join("config")).arg(directory.path()).status().unwrap();
    assert!(copied.success());
    for (file, faults) in FAULTS {
        let path = directory.path().join("config").join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        for [from, to, expected] in *faults {
            assert!(text.contains(from), "{file} has no {from:?}");
            std::fs::write(&path, text.replace(from, to)).unwrap();
            let problems = match check(directory.path()) {
                Ok(report) => report.problems,
                Err(error) => vec![format!("{error:#}")],
            };
            let is_reported = problems.iter().any(|problem| problem.contains(expected));
            assert!(is_reported, "{file}: {from:?} to {to:?}: {problems:#?}");
        }
        std::fs::write(&path, text).unwrap();
    }
}

/// The Job's policy is a copy, because the agents' policies may be gone before it.
#[test]
fn the_policies_of_sweeper_and_removal_differ_only_in_the_account() {
    let text = |path: &str| {
        let text = std::fs::read_to_string(root().join("config/kubernetes").join(path)).unwrap();
        text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
    };
    let (sweeper, removal) = (text("own-node/sweeper.yaml"), text("removal/policy.yaml"));
    let renamed = sweeper.replace(
        "node-pressure-monitor:node-pressure-monitor-",
        "node-pressure-monitor-removal:node-pressure-monitor-",
    );
    assert_eq!(renamed.replace("sweeper", "removal"), removal);
}

/// Each account that may change nodes is named by a policy for nodes.
#[test]
fn every_account_that_changes_nodes_has_a_policy() {
    for directory in ["kubernetes", "kubernetes/first", "kubernetes/removal", "openshift", "openshift/removal"] {
        let objects = kustomize::build(&root().join("config").join(directory)).unwrap();
        for account in objects.iter().filter(|object| object["kind"] == "ServiceAccount") {
            let [name, namespace] = ["name", "namespace"].map(|field| account["metadata"][field].as_str().unwrap());
            let user = format!("\"system:serviceaccount:{namespace}:{name}\"");
            let is_its = |policy: &serde_json::Value| {
                policy["kind"] == "ValidatingAdmissionPolicy"
                    && policy["spec"]["matchConditions"].to_string().replace('\\', "").contains(&user)
                    && policy["spec"]["matchConstraints"].to_string().contains("\"nodes\",\"nodes/status\"")
            };
            assert!(objects.iter().any(is_its), "{directory}: no policy limits what {user} does to nodes");
        }
    }
}

#[test]
fn the_defaults_restrict_agents_and_readers() {
    let of_kubernetes = ["kubernetes", "kubernetes/first", "kubernetes/instead", "kubernetes/tls"];
    for directory in of_kubernetes.into_iter().chain(["openshift", "openshift/first", "openshift/instead"]) {
        let objects = kustomize::build(&root().join("config").join(directory)).unwrap();
        for kind in ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "NetworkPolicy"] {
            assert!(objects.iter().any(|object| object["kind"] == kind), "{directory}: no {kind}");
        }
    }
}

/// A patch replaces the whole text of the configuration, so a variant has a copy of it.
#[test]
fn a_variant_of_the_configuration_differs_only_where_it_has_to() {
    let configuration = |directory: &str| -> serde_json::Value {
        let objects = kustomize::build(&root().join("config").join(directory)).unwrap();
        let map = objects.iter().find(|object| object["kind"] == "ConfigMap").unwrap();
        documents::parse(map["data"]["monitor.yaml"].as_str().unwrap()).unwrap().remove(0)
    };
    for (directory, different) in [
        ("kubernetes/first", &["mode", "evictionHard"][..]),
        ("kubernetes/instead", &["mode"]),
        ("kubernetes/tls", &["metrics"]),
        ("openshift", &[]),
        ("openshift/first", &["mode", "evictionHard"]),
        ("openshift/instead", &["mode"]),
    ] {
        let (mut base, mut variant) = (configuration("kubernetes"), configuration(directory));
        for field in different {
            assert_ne!(base[field], variant[field], "{directory}: {field}");
            (base[field], variant[field]) = (serde_json::Value::Null, serde_json::Value::Null);
        }
        assert_eq!(base, variant, "{directory}");
    }
}

#[test]
fn only_the_agent_stays_on_a_dead_node() {
    let directories = ["kubernetes", "kubernetes/removal", "openshift/removal"];
    let objects = directories.map(|directory| kustomize::build(&root().join("config").join(directory)).unwrap());
    for object in objects.concat() {
        if object["kind"] == "Deployment" || object["kind"] == "Job" {
            let tolerations = object["spec"]["template"]["spec"]["tolerations"].as_array().unwrap();
            for key in ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"] {
                let is_of_it = |it: &&serde_json::Value| {
                    (it["key"] == key || it.get("key").is_none())
                        && (it["effect"] == "NoExecute" || it.get("effect").is_none())
                };
                let mut of_it = tolerations.iter().filter(is_of_it).peekable();
                assert!(
                    of_it.peek().is_some() && of_it.all(|it| it["tolerationSeconds"] == 60),
                    "{key}: {tolerations:?}"
                );
            }
        }
    }
}
