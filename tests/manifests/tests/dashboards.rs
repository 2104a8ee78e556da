//! Checks the dashboards: their panels have ids of their own, their queries parse, and their metrics exist.
#![expect(clippy::unwrap_used, reason = "a file that cannot be read fails its test")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::process::Command;

use node_pressure_manifests::root;
use serde_json::{Value, json};

const OWN: &str = "node_pressure_monitor_";

fn dashboards() -> Vec<(String, Value)> {
    let files = ["fleet", "node", "agent"].map(|name| format!("config/grafana/{name}.json"));
    let read = |file: String| {
        let json = serde_json::from_str(&fs::read_to_string(root().join(&file)).unwrap()).unwrap();
        (file, json)
    };
    files.into_iter().map(read).collect()
}

/// Collects the values of this field, however deep they are.
fn all<'v>(value: &'v Value, field: &str, found: &mut Vec<&'v Value>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get(field));
            fields.values().for_each(|inner| all(inner, field, found));
        }
        Value::Array(items) => items.iter().for_each(|inner| all(inner, field, found)),
        _ => {}
    }
}

fn queries(dashboard: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    all(dashboard, "expr", &mut found);
    found.into_iter().filter_map(Value::as_str).collect()
}

#[test]
fn panels_have_ids_of_their_own_and_queries_name_metrics_that_exist() {
    let metrics = fs::read_to_string(root().join("config/METRICS.md")).unwrap();
    for (file, dashboard) in dashboards() {
        let ids: Vec<i64> =
            dashboard["panels"].as_array().unwrap().iter().map(|it| it["id"].as_i64().unwrap()).collect();
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{file}: {ids:?}");
        let queries = queries(&dashboard);
        assert!(queries.len() >= 10, "{file}: {} queries", queries.len());
        for query in queries {
            for name in query.split(OWN).skip(1) {
                let end =
                    name.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(name.len());
                let name = name.get(..end).unwrap();
                let family =
                    ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
                assert!(metrics.contains(&format!("`{family}`")), "{file}: METRICS.md has no {name}: {query}");
            }
        }
    }
}

#[test]
fn queries_parse() {
    let dashboards = dashboards();
    let all = dashboards.iter().flat_map(|(_, dashboard)| queries(dashboard));
    let rule = |(number, query): (usize, &str)| {
        let mut query = query.to_owned();
        for (variable, value) in
            [("$__rate_interval", "5m"), ("$__interval", "1m"), ("$__range", "1h"), ("${node}", "n"), ("$node", "n")]
        {
            query = query.replace(variable, value);
        }
        json!({"record": format!("query:{number}"), "expr": query})
    };
    let rules: Vec<Value> = all.enumerate().map(rule).collect();
    let file = tempfile_of(&json!({"groups": [{"name": "dashboards", "rules": rules}]}));
    let Ok(checked) = Command::new("promtool").args(["check", "rules", &file]).output() else {
        // Only a direct write reaches the summary of the suite: the output of a passing test is not shown.
        let line = "\nSKIPPED queries_parse: promtool is missing: run `cargo xtask setup`\n";
        std::io::stdout().write_all(line.as_bytes()).unwrap();
        return;
    };
    fs::remove_file(&file).unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

fn tempfile_of(rules: &Value) -> String {
    let path = std::env::temp_dir().join(format!("dashboards-{}.json", std::process::id()));
    fs::write(&path, rules.to_string()).unwrap();
    path.display().to_string()
}

const CONFIG_MAPS: &str = "config/kubernetes/grafana";

/// The ConfigMap of a dashboard. Grafana's sidecar looks for the label.
fn config_map(name: &str, json: &str) -> String {
    let indented: String = json.lines().map(|line| format!("    {line}\n")).collect();
    format!(
        "# Written from config/grafana/{name}.json by `UPDATE_DOCS=1 cargo test -p node-pressure-manifests --test dashboards`.\n\
         apiVersion: v1\n\
         kind: ConfigMap\n\
         metadata:\n  \
           name: node-pressure-monitor-dashboard-{name}\n  \
           labels:\n    \
             app.kubernetes.io/name: node-pressure-monitor\n    \
             grafana_dashboard: \"1\"\n\
         data:\n  \
           node-pressure-{name}.json: |\n{indented}"
    )
}

#[test]
fn the_config_maps_have_the_dashboards() {
    let kustomization = fs::read_to_string(root().join(CONFIG_MAPS).join("kustomization.yaml")).unwrap();
    for name in ["fleet", "node", "agent"] {
        let json = fs::read_to_string(root().join(format!("config/grafana/{name}.json"))).unwrap();
        let path = root().join(CONFIG_MAPS).join(format!("{name}.yaml"));
        let expected = config_map(name, &json);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&path, &expected).unwrap();
        }
        let command = "UPDATE_DOCS=1 cargo test -p node-pressure-manifests --test dashboards";
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert!(found == expected, "{} is not up to date; run: {command}", path.display());
        assert!(kustomization.contains(&format!("- {name}.yaml\n")), "the kustomization does not name {name}.yaml");
        // Grafana gets the dashboard byte for byte.
        let object = node_pressure_manifests::documents::read(&path).unwrap().remove(0);
        assert_eq!(object["data"][format!("node-pressure-{name}.json")], json, "{name}");
    }
}
