//! Checks each value of the Helm chart: its default, its schema, its description, and what Helm renders with it.
#![expect(clippy::unwrap_used, reason = "a file that cannot be read fails its test")]

use std::collections::BTreeSet;
use std::fs;

use node_pressure_manifests::chart::CHART;
use node_pressure_manifests::{documents, root};
use serde_json::{Value, json};

#[path = "support/helm_program.rs"]
mod helm_program;

use helm_program::{printed_by, rendered, run, skip};

const AGENT: &str = "DaemonSet node-pressure-monitor";
const SWEEPER: &str = "Deployment node-pressure-monitor-sweeper";
const REMOVAL: &str = "Job node-pressure-monitor-removal";
const MONITOR: &str = "ServiceMonitor node-pressure-monitor";
const RULES: &str = "PrometheusRule node-pressure-monitor";
const DASHBOARDS: [&str; 3] = [
    "ConfigMap node-pressure-monitor-dashboard-agent",
    "ConfigMap node-pressure-monitor-dashboard-fleet",
    "ConfigMap node-pressure-monitor-dashboard-node",
];
const POD: &str = "/spec/template/spec";

/// A value, what it is set to, and what the field of the objects is then. `Null` stands for no field.
struct Case {
    value: &'static str,
    set: Value,
    /// Values that make Helm render the objects, as `--set` takes them.
    under: &'static str,
    objects: &'static [&'static str],
    field: String,
    expected: Value,
}

/// A value that is the whole field.
fn whole(value: &'static str, set: Value, under: &'static str, objects: &'static [&'static str], field: &str) -> Case {
    let is_empty = set == json!({}) || set == json!([]) || set == "";
    let expected = if is_empty { Value::Null } else { set.clone() };
    Case { value, set, under, objects, field: field.to_owned(), expected }
}

/// A value that adds an entry to a map of texts.
fn entry(
    value: &'static str,
    [key, text]: [&str; 2],
    under: &'static str,
    objects: &'static [&'static str],
    map: &str,
) -> Case {
    let set = json!({ (key): text });
    Case { value, set, under, objects, field: format!("{map}/{key}"), expected: text.into() }
}

fn expecting(case: Case, expected: Value) -> Case {
    Case { expected, ..case }
}

fn cases() -> Vec<Case> {
    let pod = |field: &str| format!("{POD}/{field}");
    let pods: &[&str] = &[AGENT, SWEEPER];
    let resources = || json!({"limits": {"memory": "1Gi"}, "requests": {"cpu": "1", "memory": "64Mi"}});
    let affinity =
        || json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}});
    let tolerations = || json!([{"key": "a", "operator": "Exists"}]);
    let mut cases = vec![
        whole("imagePullSecrets", json!([{"name": "registry"}]), "", pods, &pod("imagePullSecrets")),
        whole("imagePullSecrets", json!([{"name": "registry"}]), "removal=true", &[REMOVAL], &pod("imagePullSecrets")),
        entry("podAnnotations", ["a", "b"], "", pods, "/spec/template/metadata/annotations"),
        entry("podAnnotations", ["a", "b"], "removal=true", &[REMOVAL], "/spec/template/metadata/annotations"),
        entry("podLabels", ["team", "x"], "", pods, "/spec/template/metadata/labels"),
        entry("podLabels", ["team", "x"], "removal=true", &[REMOVAL], "/spec/template/metadata/labels"),
        whole("serviceMonitor.interval", json!("1m"), "prometheus=true", &[MONITOR], "/spec/endpoints/0/interval"),
        whole(
            "serviceMonitor.scrapeTimeout",
            json!("3s"),
            "prometheus=true",
            &[MONITOR],
            "/spec/endpoints/0/scrapeTimeout",
        ),
        entry("serviceMonitor.labels", ["release", "p"], "prometheus=true", &[MONITOR], "/metadata/labels"),
        entry("prometheusRule.labels", ["release", "p"], "prometheus=true", &[RULES], "/metadata/labels"),
        whole("dashboards.namespace", json!("grafana"), "grafana=true", &DASHBOARDS, "/metadata/namespace"),
        whole(
            "dashboards.annotations",
            json!({"grafana_folder": "Nodes"}),
            "grafana=true",
            &DASHBOARDS,
            "/metadata/annotations",
        ),
        expecting(
            whole(
                "dashboards.labels",
                json!({"grafana_dashboard": "yes"}),
                "grafana=true",
                &DASHBOARDS,
                "/metadata/labels",
            ),
            json!({"app.kubernetes.io/name": "node-pressure-monitor", "grafana_dashboard": "yes"}),
        ),
        entry("nodeSelector", ["disk", "ssd"], "", &[AGENT], &pod("nodeSelector")),
        whole("tolerations", tolerations(), "", &[AGENT], &pod("tolerations")),
        whole("tolerations", json!([]), "", &[AGENT], &pod("tolerations")),
        whole("affinity", affinity(), "", &[AGENT], &pod("affinity")),
        whole("priorityClassName", json!("high"), "", &[AGENT], &pod("priorityClassName")),
        whole("priorityClassName", json!(""), "", &[AGENT], &pod("priorityClassName")),
        whole("resources", resources(), "", &[AGENT], &pod("containers/0/resources")),
        whole("sweeper.priorityClassName", json!("high"), "", &[SWEEPER], &pod("priorityClassName")),
    ];
    for (under, objects) in [("", &[SWEEPER]), ("removal=true", &[REMOVAL])] {
        cases.push(entry("sweeper.nodeSelector", ["disk", "ssd"], under, objects, &pod("nodeSelector")));
        cases.push(whole("sweeper.tolerations", tolerations(), under, objects, &pod("tolerations")));
        // Helm adds a map to the default one.
        let mut both = at(&values(), "sweeper.affinity").unwrap().clone();
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        both["nodeAffinity"][required] = affinity()["nodeAffinity"][required].clone();
        cases.push(expecting(whole("sweeper.affinity", affinity(), under, objects, &pod("affinity")), both));
        cases.push(whole("sweeper.resources", resources(), under, objects, &pod("containers/0/resources")));
    }
    cases
}

/// Values that the comparison with the kustomizations covers, or a test of their own.
const ELSEWHERE: [&str; 15] = [
    "configuration",
    "createNamespace",
    "evict",
    "grafana",
    "image.pullPolicy",
    "image.repository",
    "image.tag",
    "openshift",
    "ownNode",
    "ownNodeEvictions",
    "privileged",
    "prometheus",
    "prometheusRule.runbookUrl",
    "removal",
    "tls",
];

fn values() -> Value {
    documents::read(&root().join(CHART).join("values.yaml")).unwrap().remove(0)
}

fn schema() -> Value {
    serde_json::from_str(&fs::read_to_string(root().join(CHART).join("values.schema.json")).unwrap()).unwrap()
}

/// Returns the paths of the schema's properties that have no properties of their own here.
fn described(of: &Value, at: &str, into: &mut BTreeSet<String>) {
    let Some(properties) = of.get("properties").and_then(Value::as_object) else {
        into.insert(at.to_owned());
        return;
    };
    assert_eq!(of.get("additionalProperties"), Some(&json!(false)), "{at:?} takes any property");
    for (key, of) in properties {
        let path = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
        described(of, &path, into);
    }
}

fn all_described() -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    described(&schema(), "", &mut paths);
    // Helm itself sets `global`.
    assert!(paths.remove("global"));
    paths
}

fn at<'v>(values: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(values, |value, key| value.get(key))
}

#[test]
fn the_schema_has_the_values_and_no_others() {
    let values = values();
    let schema = schema();
    let errors: Vec<String> =
        jsonschema::validator_for(&schema).unwrap().iter_errors(&values).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "the defaults are not valid: {errors:#?}");
    for path in all_described() {
        assert!(at(&values, &path).is_some(), "{path} has no default");
    }
}

#[test]
fn the_schema_refuses_misspelt_and_impossible_values() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    for wrong in [
        json!({"serviceMonitors": {}}),
        json!({"serviceMonitor": {"additionalLabels": {}}}),
        json!({"serviceMonitor": {"labels": {"release": 1}}}),
        json!({"serviceMonitor": {"interval": "15"}}),
        json!({"prometheusRule": {"runbookUrl": "config/runbooks"}}),
        json!({"dashboards": {"namespace": ""}}),
        json!({"imagePullSecrets": ["registry"]}),
        json!({"resources": {"limit": {"memory": "1Gi"}}}),
        json!({"tolerations": [{"operator": "Exist"}]}),
        json!({"sweeper": {"affinity": {"node": {}}}}),
        json!({"nodeSelector": ["linux"]}),
        json!({"prometheus": "yes"}),
    ] {
        assert!(!validator.is_valid(&wrong), "{wrong} is valid");
    }
}

#[test]
fn the_document_describes_each_value() {
    let document = fs::read_to_string(root().join("config/README.md")).unwrap();
    let (_, section) = document.split_once("\n## Helm\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    for path in all_described() {
        let is_there = section.contains(&format!("`{path}`")) || section.contains(&format!("`{path}="));
        assert!(is_there, "config/README.md, Helm, does not describe {path}");
    }
}

#[test]
fn each_value_has_a_test_of_what_it_renders() {
    let tested: BTreeSet<String> = cases().iter().map(|case| case.value).chain(ELSEWHERE).map(str::to_owned).collect();
    assert_eq!(tested, all_described());
}

/// Takes a field out of an object, and the map that it leaves empty.
fn take(object: &mut Value, field: &str) -> Value {
    let (parent, key) = field.rsplit_once('/').unwrap();
    let Some(map) = object.pointer_mut(parent).and_then(Value::as_object_mut) else { return Value::Null };
    let taken = map.remove(key).unwrap_or_default();
    if map.is_empty() {
        take(object, parent);
    }
    taken
}

/// The field has what the value says, and nothing else changes.
#[test]
fn each_value_changes_its_field_alone() {
    for Case { value, set, under, objects, field, expected } in cases() {
        let assignment = format!("{value}={set}");
        let options = ["--set", under, "--set-json", &assignment];
        let (Some(default), Some(changed)) = (rendered(&options[..2]), rendered(&options)) else {
            skip("each_value_changes_its_field_alone");
            return;
        };
        assert_eq!(default.len(), changed.len(), "{assignment}");
        let mut found = 0;
        for (mut default, mut changed) in default.into_iter().zip(changed) {
            let name = documents::name(&changed);
            if objects.contains(&name.as_str()) {
                let before = take(&mut default, &field);
                assert_eq!(take(&mut changed, &field), expected, "{assignment}: {field} of {name}");
                assert_ne!(before, expected, "{assignment}: {field} of {name} has it by default");
                found += 1;
            }
            assert_eq!(default, changed, "{assignment} changes more than {field}: {name}");
        }
        assert_eq!(found, objects.len(), "{assignment}");
    }
}

#[test]
fn alerts_link_their_runbooks_below_an_address() {
    let annotations = |options: &[&str]| -> Option<Vec<Value>> {
        let objects = rendered(&[&["--set", "prometheus=true"], options].concat())?;
        let rules = objects.into_iter().find(|object| object["kind"] == "PrometheusRule").unwrap();
        let groups = documents::list(&rules, &["spec", "groups"]).iter();
        let rules = groups.flat_map(|group| documents::list(group, &["rules"]).to_vec());
        Some(rules.filter(|rule| rule.get("alert").is_some()).collect())
    };
    let base = "prometheusRule.runbookUrl=https://git.test/repository/config/runbooks/";
    let (Some(paths), Some(links)) = (annotations(&[]), annotations(&["--set", base])) else {
        skip("alerts_link_their_runbooks_below_an_address");
        return;
    };
    assert!(paths.len() > 20, "{}", paths.len());
    for (path, link) in paths.iter().zip(&links) {
        let page = format!("config/runbooks/{}.md", path["alert"].as_str().unwrap());
        assert_eq!(path["annotations"]["runbook"], page);
        assert_eq!(path["annotations"].get("runbook_url"), None, "{path}");
        assert_eq!(link["annotations"]["runbook_url"], format!("https://git.test/repository/{page}"));
        assert_eq!(link["annotations"].get("runbook"), None, "{link}");
    }
}

#[test]
fn the_namespace_is_left_out_on_request() {
    let Some(objects) = rendered(&["--set", "createNamespace=false"]) else {
        skip("the_namespace_is_left_out_on_request");
        return;
    };
    assert!(objects.iter().all(|object| object["kind"] != "Namespace"));
}

#[test]
fn helm_refuses_an_unknown_value() {
    let Some(output) = run(&["template", CHART, "--set", "serviceMonitor.additionalLabels.release=p"]) else {
        skip("helm_refuses_an_unknown_value");
        return;
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("additionalLabels"), "{errors}");
}

#[test]
fn helm_lint_finds_nothing_wrong() {
    for values in ["", "evict=first,tls=true,prometheus=true,grafana=true,openshift=true", "removal=true"] {
        if printed_by(&["lint", "--strict", CHART, "--set", values]).is_none() {
            skip("helm_lint_finds_nothing_wrong");
            return;
        }
    }
}

/// Returns the notes that an installation prints.
fn notes(values: &str) -> Option<String> {
    let printed = printed_by(&["install", "x", CHART, "--dry-run=client", "--set", values])?;
    Some(printed.split_once("\nNOTES:\n").unwrap().1.to_owned())
}

#[test]
fn the_notes_name_the_label_of_the_scraping_namespace() {
    let policy = documents::read(&root().join("config/kubernetes/base/network-policy.yaml")).unwrap().remove(0);
    let labels = policy.pointer("/spec/ingress/0/from/0/namespaceSelector/matchLabels").unwrap().as_object().unwrap();
    let (key, value) = labels.iter().next().unwrap();
    let command = format!("kubectl label namespace monitoring {key}={}", value.as_str().unwrap());
    for values in ["", "prometheus=true", "openshift=true"] {
        let Some(notes) = notes(values) else {
            skip("the_notes_name_the_label_of_the_scraping_namespace");
            return;
        };
        assert!(notes.contains(&command), "{values}: {notes}");
    }
}

#[test]
fn the_notes_tell_that_no_selector_matches() {
    let told = "serviceMonitor.labels.release=NAME,prometheusRule.labels.release=NAME";
    for (values, is_told) in [
        ("", false),
        ("prometheus=true", true),
        ("prometheus=true,serviceMonitor.labels.release=p", true),
        ("prometheus=true,serviceMonitor.labels.release=p,prometheusRule.labels.release=p", false),
        ("prometheus=true,openshift=true", false),
    ] {
        let Some(notes) = notes(values) else {
            skip("the_notes_tell_that_no_selector_matches");
            return;
        };
        assert_eq!(notes.contains(told), is_told, "{values}: {notes}");
    }
}
