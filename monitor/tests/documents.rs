//! Checks every Markdown file of the repository: its examples, links, commands, flags, paths, metrics and configurations.
//!
//! `UPDATE_DOCS=1 cargo test -p node-pressure-monitor --test documents` rewrites what is generated: `config/METRICS.md`, and the output of
//! each example that shows it in full.

#![expect(clippy::unwrap_used, reason = "a document that cannot be read fails its test")]

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use node_pressure_monitor::report::series::SeriesLimits;
use node_pressure_monitor::report::{Family, Metrics};

#[path = "documents/markdown.rs"]
mod markdown;

use markdown::{Document, Example, matches};

const BINARY: &str = env!("CARGO_BIN_EXE_node-pressure-monitor");
const NAME: &str = "node-pressure-monitor";
const PREFIX: &str = "node_pressure_monitor_";
const METRICS: &str = "config/METRICS.md";
const GENERATED: [&str; 2] = ["<!-- generated -->", "<!-- end of generated -->"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn is_update() -> bool {
    std::env::var_os("UPDATE_DOCS").is_some()
}

/// Runs a command line in the fixtures' directory, with the agent in PATH. Returns stderr before stdout, as a terminal shows notes first.
fn output_of(command: &str) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    let directory = Path::new(BINARY).parent().unwrap().display().to_string();
    let output = Command::new("sh")
        .args(["-c", command])
        .env("PATH", format!("{directory}:{path}"))
        .current_dir(root().join("tests/fixtures"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8(output.stderr).unwrap() + &String::from_utf8(output.stdout).unwrap()
}

/// The age of the fixtures grows every day.
const AGE: &str = "node-pressure-monitor: the statistics are … days old";

fn without_age(line: &str) -> &str {
    let (before, after) = AGE.split_once('…').unwrap();
    if line.starts_with(before) && line.ends_with(after) { AGE } else { line }
}

fn help(arguments: &[&str]) -> String {
    let output = Command::new(BINARY).args(arguments).arg("--help").output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the subcommands that `--help` lists.
fn subcommands() -> BTreeSet<String> {
    let help = help(&[]);
    let list = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    list.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

fn metrics() -> BTreeSet<String> {
    let metrics = Metrics::new("0", SeriesLimits::default()).unwrap();
    metrics.families().into_iter().map(|family| family.name).collect()
}

/// Fails if there is a problem, and prints all.
fn none(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn examples_print_what_the_documents_show() {
    let mut problems = Vec::new();
    let mut count = 0;
    for document in Document::all(&root()) {
        let mut lines: Vec<String> = document.text.lines().map(str::to_owned).collect();
        // The examples are rewritten from the last to the first, so that a rewrite does not move later ones.
        for Example { command, shown, first_line } in document.examples().into_iter().rev() {
            count += 1;
            let printed = output_of(&command);
            let printed: Vec<&str> = printed.trim_end().lines().map(|line| without_age(line.trim_end())).collect();
            let is_whole = !shown.iter().any(|line| line.contains('…') && *line != AGE);
            if is_update() && is_whole {
                lines.splice(first_line..first_line + shown.len(), printed.iter().map(|&line| line.to_owned()));
            } else if !matches(&shown, &printed) {
                let (printed, shown) = (printed.join("\n"), shown.join("\n"));
                problems.push(format!("{document}: {command}\n\nprinted\n{printed}\n\nshown\n{shown}\n"));
            }
        }
        let text = lines.join("\n") + "\n";
        if is_update() && text != document.text {
            std::fs::write(root().join(&document.path), text).unwrap();
        }
    }
    none(&problems);
    assert!(count >= 8, "{count} examples");
}

#[test]
fn links_lead_to_files_and_headings() {
    let documents = Document::all(&root());
    let mut problems = Vec::new();
    for document in &documents {
        for link in document.links() {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let path = if file.is_empty() { document.path.clone() } else { document.directory().join(file) };
            let Ok(found) = root().join(&path).canonicalize() else {
                problems.push(format!("{document}: {link}: there is no {}", path.display()));
                continue;
            };
            let target = documents.iter().find(|it| root().join(&it.path).canonicalize().unwrap() == found);
            if !anchor.is_empty() && !target.is_some_and(|target| target.anchors().iter().any(|it| it == anchor)) {
                problems.push(format!("{document}: {link}: there is no such heading"));
            }
        }
    }
    none(&problems);
}

#[test]
fn named_commands_and_flags_exist() {
    let subcommands = subcommands();
    let mut problems = Vec::new();
    for document in Document::all(&root()) {
        for line in document.code() {
            let mut words = line.split_whitespace();
            let Some(subcommand) = words.by_ref().skip_while(|word| !is_program(word)).nth(1) else { continue };
            if !subcommands.contains(subcommand) {
                // `kubectl -n node-pressure-monitor delete …` names the namespace.
                if line.starts_with(NAME)
                    && !subcommand.starts_with('-')
                    && subcommand.chars().all(|c| c.is_ascii_lowercase() || c == '-')
                {
                    problems.push(format!("{document}: there is no command {subcommand}: {line}"));
                }
                continue;
            }
            // A subcommand may have its own subcommand: `incidents export`.
            let nested = line.split_whitespace().skip_while(|word| *word != subcommand).nth(1);
            let help = help(&[subcommand]) + &nested.map_or_else(String::new, |nested| help(&[subcommand, nested]));
            let is_known =
                |flag: &str| help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').any(|it| it == flag);
            for word in words.take_while(|word| !["|", ">", "#", ";", "&&"].contains(word)) {
                let flag = word.split('=').next().unwrap_or(word).trim_matches(|c| c == '[' || c == ']');
                if flag.starts_with("--") && flag.len() > 2 && !is_known(flag) {
                    problems.push(format!("{document}: {subcommand} has no {flag}: {line}"));
                }
            }
        }
    }
    none(&problems);
}

fn is_program(word: &str) -> bool {
    word == NAME || word.ends_with("/node-pressure-monitor")
}

#[test]
fn every_command_is_documented() {
    let text = std::fs::read_to_string(root().join("monitor/COMMANDS.md")).unwrap();
    for subcommand in subcommands().iter().filter(|it| *it != "help") {
        assert!(text.contains(&format!("\n## {subcommand}\n")), "{subcommand}");
        assert!(text.contains(&format!("\n$ {NAME} {subcommand} --help\n")), "{subcommand}");
    }
}

#[test]
fn named_chores_exist() {
    let source = std::fs::read_to_string(root().join("xtask/src/main.rs")).unwrap();
    let variants = source.split("enum Command {").nth(1).unwrap().split("\n}").next().unwrap();
    let chores: BTreeSet<String> =
        variants.lines().filter_map(|line| line.trim().split_once('(')).map(|(name, _)| kebab(name)).collect();
    let mut problems = Vec::new();
    for document in Document::all(&root()) {
        for line in document.code() {
            for rest in line.split("cargo xtask ").skip(1) {
                let chore: String = rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
                if !chore.is_empty() && !chore.starts_with('-') && !chores.contains(&chore) {
                    problems.push(format!("{document}: there is no cargo xtask {chore}"));
                }
            }
        }
    }
    none(&problems);
}

#[test]
fn named_scenarios_and_benches_exist() {
    let read = |path| std::fs::read_to_string(root().join(path)).unwrap();
    let scenarios = read("tests/src/catalogue.rs") + &read("xtask/src/vm/scenario.rs");
    let sources = [("cargo xtask vm ", scenarios), ("cargo xtask bench ", read("xtask/src/bench.rs"))];
    let mut problems = Vec::new();
    for document in Document::all(&root()) {
        for line in document.code() {
            for (chore, source) in &sources {
                let Some((_, rest)) = line.split_once(chore) else { continue };
                let mut is_value = false;
                // Brackets mark what may be left out.
                let words = rest.split_whitespace().map(|word| word.trim_matches(['[', ']']));
                for word in words.take_while(|word| *word != "#") {
                    let name = word.trim_matches('\'').split('*').next().unwrap();
                    if !is_value && !word.starts_with("--") && !source.contains(&format!("\"{name}\"")) {
                        problems.push(format!("{document}: {chore}knows no {name}"));
                    }
                    let with_value = [
                        "--arch",
                        "--kernel",
                        "--cgroup",
                        "--runtime",
                        "--memory",
                        "--seconds",
                        "--seed",
                        "--first",
                        "--nodes",
                    ];
                    is_value = with_value.contains(&word);
                }
            }
        }
    }
    none(&problems);
}

/// Converts a name to kebab case: `BuildEbpf` → `build-ebpf`.
fn kebab(name: &str) -> String {
    let mut kebab = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !kebab.is_empty() {
            kebab.push('-');
        }
        kebab.push(c.to_ascii_lowercase());
    }
    kebab
}

#[test]
fn named_paths_of_the_repository_exist() {
    let tops = ["config/", "monitor/", "monitor-ebpf/", "tests/", "xtask/"];
    let mut problems = Vec::new();
    for document in Document::all(&root()) {
        for code in document.inline_code() {
            let is_path = !code.contains(['*', ' ', '…', '<', '{']) && !code.chars().any(|c| c.is_ascii_uppercase());
            let is_there = || root().join(&code).exists() || root().join(document.directory()).join(&code).exists();
            if is_path && tops.iter().any(|top| code.starts_with(top)) && !is_there() {
                problems.push(format!("{document}: there is no {code}"));
            }
        }
    }
    none(&problems);
}

#[test]
fn named_metrics_exist() {
    let metrics = metrics();
    let mut problems = Vec::new();
    for document in Document::all(&root()) {
        for word in document.text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            let bare =
                ["_bucket", "_sum", "_count"].iter().find_map(|suffix| word.strip_suffix(suffix)).unwrap_or(word);
            let is_metric = word.starts_with(PREFIX) && word != PREFIX;
            if is_metric && !metrics.contains(word) && !metrics.contains(bare) {
                problems.push(format!("{document}: the agent has no metric {word}"));
            }
        }
    }
    none(&problems);
}

#[test]
fn shown_configurations_are_accepted() {
    let ours = "apiVersion: node-pressure-monitor/v1alpha1\n";
    let mut count = 0;
    for document in Document::all(&root()) {
        for yaml in document.blocks("yaml") {
            if yaml.contains("apiVersion:") && !yaml.contains(ours) {
                continue;
            }
            count += 1;
            let header = format!("{ours}kind: MonitorConfiguration\n");
            let whole = if yaml.contains(ours) { yaml } else { header + &yaml };
            let mut check = Command::new(BINARY);
            check.args(["check-config", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = check.spawn().unwrap();
            child.stdin.take().unwrap().write_all(whole.as_bytes()).unwrap();
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{document}\n{whole}\n{}", String::from_utf8_lossy(&output.stderr));
        }
    }
    assert!(count >= 2, "{count} configurations");
}

#[test]
fn the_kubelets_figure_by_hand_is_a_number() {
    let text = std::fs::read_to_string(root().join("config/README.md")).unwrap();
    let commands: Vec<&str> = text.lines().filter(|line| line.starts_with("awk ")).collect();
    assert_eq!(commands.len(), 3);
    for command in commands {
        let files = command.rsplit('\'').next().unwrap();
        if let Some(missing) = files.split_whitespace().find(|file| !Path::new(file).exists()) {
            // Only one of the two cgroup layouts is there.
            assert!(missing.starts_with("/sys/fs/cgroup/"), "{missing}");
            continue;
        }
        let printed = output_of(command);
        assert!(printed.trim().parse::<f64>().is_ok_and(|bytes| bytes > 0.0), "{command}: {printed}");
    }
}

#[test]
fn metrics_are_documented_as_registered() {
    let path = root().join(METRICS);
    let text = std::fs::read_to_string(&path).unwrap();
    let [before, after] = GENERATED.map(|mark| text.find(mark).unwrap_or_else(|| panic!("{METRICS} has no {mark}")));
    let updated = format!("{}\n\n{}\n{}", &text[..before + GENERATED[0].len()], metrics_table(), &text[after..]);
    if is_update() {
        std::fs::write(&path, updated).unwrap();
        return;
    }
    let command = "UPDATE_DOCS=1 cargo test -p node-pressure-monitor --test documents";
    assert_eq!(text, updated, "{METRICS} is not up to date; run: {command}");
}

fn metrics_table() -> String {
    let mut table = "| metric | type | labels | series | meaning |\n|---|---|---|---|---|\n".to_owned();
    let families = Metrics::new("0", SeriesLimits::default()).unwrap().families();
    for family in &families {
        let name = family.name.strip_prefix(PREFIX).unwrap_or(&family.name);
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        let (help, most) = (family.help.replace('|', "\\|"), family.most_series());
        table += &format!("| `{name}` | {} | {} | {most} | {help} |\n", family.kind, labels.join(", "));
    }
    let all: usize = families.iter().map(Family::most_series).sum();
    table + &format!("\nAll families together have at most {all} series.\n")
}

#[test]
fn capabilities_are_those_of_the_daemon_set() {
    let manifest = std::fs::read_to_string(root().join("config/kubernetes/base/daemon-set.yaml")).unwrap();
    let added = manifest.split("add:\n").nth(1).unwrap();
    let added = added.lines().map(str::trim).take_while(|line| line.starts_with(['-', '#']));
    let added: BTreeSet<String> = added.filter_map(|line| Some(format!("CAP_{}", line.strip_prefix("- ")?))).collect();
    let text = std::fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| `CAP_")).filter_map(|line| line.split('|').nth(1));
    let documented: BTreeSet<String> =
        rows.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect();
    assert_eq!(documented, added);
}

#[test]
fn the_readme_is_short() {
    let lines = std::fs::read_to_string(root().join("README.md")).unwrap().lines().count();
    assert!(lines <= 110, "README.md has {lines} lines; move what is detail beside what it describes");
}

/// These documents name a test for each public report, attack and boundary.
#[test]
fn every_test_that_a_table_names_exists() {
    for (document, least) in [("tests/FIELD.md", 50), ("tests/SECURITY-CASES.md", 50), ("SECURITY.md", 20)] {
        let missing = tests_that_are_missing(document, least);
        assert!(missing.is_empty(), "{document}: {missing:?}");
    }
}

/// Returns the tests that the document's tables name and no source has. The tables name at least so many.
fn tests_that_are_missing(document: &str, least: usize) -> Vec<String> {
    let text = std::fs::read_to_string(root().join(document)).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| "));
    let is_test = |name: &&str| {
        name.matches('_').count() > 2
            && name.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'_')
    };
    let quoted = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    let named: BTreeSet<&str> = quoted.filter_map(|name| name.rsplit("::").next()).filter(is_test).collect();
    assert!(named.len() >= least, "{document}: {} tests", named.len());
    let sources = Command::new("git")
        .args(["grep", "-hE", "^ *(async )?fn [a-z0-9_]+\\(\\)", "--", "*.rs"])
        .current_dir(root())
        .output()
        .unwrap();
    let sources = String::from_utf8(sources.stdout).unwrap();
    let is_missing = |name: &&str| !sources.contains(&format!("fn {name}()"));
    named.into_iter().filter(is_missing).map(str::to_owned).collect()
}

/// At least 25 reports are tried as nodes made of files, and as many as inputs of commands.
#[test]
fn the_tried_reports_are_as_many_as_the_log_says() {
    const OF_NODES: [&str; 5] =
        ["identity_tests", "corrected_nodes_host", "nodes_of_files_host", "rank_live_cli", "asked_host"];
    const OF_INPUTS: [&str; 10] = [
        "field_reports",
        "rank_views_cli",
        "distributions_tests",
        "layers_tests",
        "foreign_tests",
        "check_config_cli",
        "migrate_cli",
        "at_capacity",
        "rank::",
        "tolerations::",
    ];
    let text = std::fs::read_to_string(root().join("tests/FIELD.md")).unwrap();
    let is_row =
        |line: &&str| line.starts_with("| ") && !line.starts_with("| reference") && !line.starts_with("| report ");
    let mut before = String::new();
    let (mut nodes, mut inputs) = (0, 0);
    for row in text.lines().filter(is_row) {
        let cell = row.split('|').nth(4).unwrap().trim();
        // "the same" and "as above" are the test of the row above.
        let test = if cell.starts_with("the same") { format!("{before}{cell}") } else { cell.to_owned() };
        let is_of = |words: &[&str]| words.iter().any(|word| test.contains(word));
        if is_of(&OF_NODES) {
            nodes += 1;
        } else if is_of(&OF_INPUTS) {
            inputs += 1;
        }
        before = test;
    }
    assert!(nodes >= 25 && inputs >= 25, "{nodes} nodes, {inputs} inputs");
    let said = format!("Of the rows {nodes} are nodes made of files, and {inputs} are inputs of commands.");
    assert!(text.contains(&said), "tests/FIELD.md has to say: {said}");
}
