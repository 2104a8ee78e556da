//! Checks the Prometheus rules, their object for the operator, their runbooks and their unit tests.
#![expect(clippy::unwrap_used, reason = "a file that cannot be read fails its test")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::process::Command;

use node_pressure_manifests::documents::{list, read, text};
use node_pressure_manifests::root;
use serde_json::Value;

const RULES: &str = "config/prometheus/rules.yaml";
const OBJECT: &str = "config/kubernetes/prometheus/rules.yaml";
const TESTS: &str = "tests/prometheus/alerts.yaml";

fn alerts() -> Vec<Value> {
    let documents = read(&root().join(RULES)).unwrap();
    let rules = list(&documents[0], &["groups"]).iter().flat_map(|group| list(group, &["rules"]).to_vec());
    rules.filter(|rule| rule.get("alert").is_some()).collect()
}

/// The object is the rules' text below its own head, two columns to the right.
#[test]
fn the_object_has_the_rules_of_the_file() {
    let rules = fs::read_to_string(root().join(RULES)).unwrap();
    let (_, groups) = rules.split_once("\ngroups:\n").unwrap();
    let path = root().join(OBJECT);
    let object = fs::read_to_string(&path).unwrap();
    let (head, _) = object.split_once("\n  groups:\n").unwrap();
    let indented: String = groups.lines().map(|line| format!("  {line}\n")).collect();
    let expected = format!("{head}\n  groups:\n{indented}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, expected).unwrap();
        return;
    }
    let command = "UPDATE_DOCS=1 cargo test -p node-pressure-manifests --test prometheus";
    assert_eq!(object, expected, "{OBJECT} is not up to date; run: {command}");
}

#[test]
fn every_alert_has_a_severity_a_text_and_a_runbook() {
    let mut names = BTreeSet::new();
    for alert in alerts() {
        let name = text(&alert, &["alert"]);
        let severity = text(&alert, &["labels", "severity"]);
        assert!(["critical", "warning", "info"].contains(&severity), "{name}: severity {severity:?}");
        assert!(!text(&alert, &["annotations", "summary"]).is_empty(), "{name}: no summary");
        let description = text(&alert, &["annotations", "description"]);
        assert!(description.contains("kubectl "), "{name}: the description has no command: {description}");
        assert_eq!(text(&alert, &["annotations", "runbook"]), format!("config/runbooks/{name}.md"));
        assert!(names.insert(name.to_owned()), "{name} is there twice");
    }
    let pages = fs::read_dir(root().join("config/runbooks")).unwrap();
    let pages: BTreeSet<String> =
        pages.map(|page| page.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(names, pages);
}

/// Values of the labels, as the runbooks name them.
const FILLED: [(&str, &str); 4] = [
    ("{{ $labels.node }}", "NODE"),
    ("{{ $labels.namespace }}", "NAMESPACE"),
    ("{{ $labels.pod }}", "POD"),
    (" and then the budget: ", "{{ end }}See the budget: "),
];

/// Returns the commands of an alert's description. A command ends a sentence, or a branch of the template.
fn commands(description: &str) -> Vec<String> {
    let filled = FILLED.iter().fold(description.to_owned(), |text, (from, to)| text.replace(from, to));
    let sentences = filled.split("{{ else }}").flat_map(|branch| branch.split("{{ end }}"));
    let command = |sentence: &str| {
        let start = ["kubectl ", "node-pressure-monitor "].map(|program| sentence.find(&format!(": {program}")));
        let start = start.into_iter().flatten().min()?;
        Some(sentence[start + 2..].to_owned())
    };
    sentences.filter_map(command).collect()
}

/// A command that an operator can copy has no other command inside, and fits a line of a message.
#[test]
fn every_alert_has_commands_of_one_line() {
    for alert in alerts() {
        let name = text(&alert, &["alert"]);
        let commands = commands(text(&alert, &["annotations", "description"]));
        assert!(!commands.is_empty(), "{name}: no command");
        for command in commands {
            let is_simple = command.len() <= 120 && !command.contains(['$', '{', '&', ';']);
            assert!(is_simple, "{name}: not a single short command: {command}");
        }
    }
}

#[test]
fn the_runbook_has_the_commands_of_its_alert() {
    for alert in alerts() {
        let name = text(&alert, &["alert"]);
        let page = fs::read_to_string(root().join(format!("config/runbooks/{name}.md"))).unwrap();
        for command in commands(text(&alert, &["annotations", "description"])) {
            let is_there = page.contains(&format!("\n{command}\n")) || page.contains(&format!("`{command}`"));
            assert!(is_there, "{name}: the runbook has no {command:?}");
        }
    }
}

/// The events that an operator has to hear of, with their alerts.
const NEEDED: [(&str, &str); 11] = [
    ("an OOM kill, also of an unknown constraint", "NodeOOMKill"),
    ("an OOM kill at the limit of a pod", "PodOOMKilledAtLimit"),
    ("a pod that stalls at its limit", "PodStallsAtLimit"),
    ("refused evictions", "NodePressureEvictionRefused"),
    ("put-off evictions", "NodePressureEvictionPutOff"),
    ("lost probes", "NodePressureProbesLost"),
    ("a signal with a lower source", "NodePressureLowerSource"),
    ("a restart that the configuration needs", "NodePressureRestartNeeded"),
    ("a journal that cannot be written", "NodePressureJournalFailing"),
    ("a container runtime that does not answer", "NodePressureRuntimeAway"),
    ("a node without an agent", "NodePressureMonitorMissing"),
];

#[test]
fn what_an_operator_has_to_hear_of_has_an_alert() {
    let alerts = alerts();
    for (what, name) in NEEDED {
        let alert = alerts.iter().find(|alert| text(alert, &["alert"]) == name);
        assert!(alert.is_some(), "no alert for {what}");
    }
    let oom_kill = alerts.iter().find(|alert| text(alert, &["alert"]) == "NodeOOMKill").unwrap();
    assert!(text(oom_kill, &["expr"]).contains("unknown"));
}

#[test]
fn every_alert_is_tested_firing_and_silent() {
    let tests = fs::read_to_string(root().join(TESTS)).unwrap();
    for alert in alerts() {
        let name = text(&alert, &["alert"]);
        for how in ["fires", "is silent"] {
            assert!(tests.contains(&format!("- name: {name} {how}\n")), "{TESTS}: no test that {name} {how}");
        }
    }
    for arguments in [["check", "rules", RULES], ["test", "rules", TESTS]] {
        let Ok(output) = Command::new("promtool").args(arguments).current_dir(root()).output() else {
            // Only a direct write reaches the summary of the suite: the output of a passing test is not shown.
            let line =
                "\nSKIPPED every_alert_is_tested_firing_and_silent: promtool is missing: run `cargo xtask setup`\n";
            std::io::stdout().write_all(line.as_bytes()).unwrap();
            return;
        };
        let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "promtool {}\n{printed}", arguments.join(" "));
    }
}
