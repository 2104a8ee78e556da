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
        let _unheard = writeln!(
            std::io::stderr(),
            "SKIPPED queries_parse: promtool is not installed (apt-get install prometheus)"
        );
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
