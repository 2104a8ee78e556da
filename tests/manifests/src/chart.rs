//! The templates of the Helm chart, generated from the kustomizations: `cargo xtask manifests --chart` writes them, and a test compares.
//!
//! Each object is written as YAML for every variant. Lines that a variant changes become conditional on the value that selects it, so one
//! source describes both ways of deploying.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::documents::{name, text};
use crate::{chart_values, kustomize, yaml};

/// The chart's directory below the root of the repository.
pub const CHART: &str = "config/helm/node-pressure-monitor";

/// A kustomization that changes objects of the default one, and the condition on the chart's values under which the chart does the same.
#[derive(Debug)]
pub struct Variant {
    pub directory: &'static str,
    pub condition: &'static str,
    /// Values, as `helm template --set` takes them, for which the chart must render the objects of the directory.
    pub values: &'static str,
}

const fn variant(directory: &'static str, condition: &'static str, values: &'static str) -> Variant {
    Variant { directory, condition, values }
}

/// The variants of the agent. The first is the default.
pub const VARIANTS: [Variant; 9] = [
    variant("kubernetes", "", ""),
    variant("kubernetes/base", "", "ownNode=false"),
    variant("kubernetes/first", "eq .Values.evict \"first\"", "evict=first"),
    variant("kubernetes/instead", "eq .Values.evict \"instead\"", "evict=instead"),
    variant("kubernetes/privileged", ".Values.privileged", "privileged=true,ownNode=false"),
    variant("kubernetes/tls", ".Values.tls", "tls=true"),
    variant("openshift", ".Values.openshift", "openshift=true"),
    variant("openshift/first", "", "evict=first,openshift=true"),
    variant("openshift/instead", "", "evict=instead,openshift=true"),
];

/// A kustomization that is applied beside the agent.
#[derive(Debug)]
pub struct Addition {
    pub directory: &'static str,
    pub condition: &'static str,
    pub values: &'static str,
    /// A directory that changes the objects of this one, and under which further condition.
    pub changed: Option<(&'static str, &'static str)>,
}

pub const ADDITIONS: [Addition; 3] = [
    Addition {
        directory: "kubernetes/prometheus",
        condition: ".Values.prometheus",
        values: "prometheus=true",
        changed: Some(("kubernetes/prometheus-tls", ".Values.tls")),
    },
    Addition {
        directory: "kubernetes/own-node-evictions",
        condition: ".Values.ownNodeEvictions",
        values: "ownNodeEvictions=true",
        changed: None,
    },
    Addition { directory: "kubernetes/grafana", condition: ".Values.grafana", values: "grafana=true", changed: None },
];

/// The kustomizations that are applied in place of the agent.
pub const REMOVALS: [(&str, &str, &str); 2] = [
    ("kubernetes/removal", ".Values.removal", "removal=true"),
    ("openshift/removal", ".Values.openshift", "removal=true,openshift=true"),
];

/// The condition of everything but the removal.
const UNLESS_REMOVED: &str = "not .Values.removal";
const HEADER: &str = "{{- /* Generated from config/kubernetes by `cargo xtask manifests --chart`. The comments there give the reasons. */ -}}\n";
/// The directory with the admission policy that limits an agent to its own node.
const OWN_NODE: &str = "kubernetes/own-node";

/// An object with the YAML of each variant that has it; the first has no condition.
struct Template {
    guard: Vec<String>,
    base: String,
    changes: Vec<(String, String)>,
}

/// Returns the generated files of the chart, by their path below the chart's directory.
///
/// # Errors
/// When a kustomization cannot be built, or changes an object in a way that has no template.
pub fn files(root: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut files = BTreeMap::new();
    for (name, template) in templates(root)? {
        let body = conditional(&template.base, &template.changes).with_context(|| format!("the template of {name}"))?;
        let guard = match &template.guard[..] {
            [] => body,
            [one] => format!("{{{{- if {one} }}}}\n{body}{{{{- end }}}}\n"),
            all => {
                let all: Vec<String> = all.iter().map(|one| format!("({one})")).collect();
                format!("{{{{- if and {} }}}}\n{body}{{{{- end }}}}\n", all.join(" "))
            }
        };
        files.insert(PathBuf::from(format!("templates/{}.yaml", file_name(&name))), format!("{HEADER}{guard}"));
    }
    files.insert(PathBuf::from("Chart.yaml"), chart());
    Ok(files)
}

/// Writes the generated files, and removes templates of objects that are gone.
///
/// # Errors
/// When a file cannot be written.
pub fn write(root: &Path) -> Result<usize> {
    let files = files(root)?;
    let templates = root.join(CHART).join("templates");
    fs::create_dir_all(&templates).with_context(|| format!("creating {}", templates.display()))?;
    for entry in fs::read_dir(&templates).with_context(|| format!("reading {}", templates.display()))? {
        let path = entry.with_context(|| format!("reading {}", templates.display()))?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    for (path, content) in &files {
        let path = root.join(CHART).join(path);
        fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(files.len())
}

fn chart() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let (name, email) = env!("CARGO_PKG_AUTHORS").trim_end_matches('>').split_once(" <").unwrap_or_default();
    format!(
        "# Generated from Cargo.toml by `cargo xtask manifests --chart`.\napiVersion: v2\nname: node-pressure-monitor\ndescription: Evicts the right \
         workload before the OOM killer kills the wrong one\ntype: application\nversion: {version}\nappVersion: \"{version}\"\nkubeVersion: \
         \">=1.30.0-0\"\nmaintainers:\n  - name: {name}\n    email: {email}\n"
    )
}

fn templates(root: &Path) -> Result<BTreeMap<String, Template>> {
    let build = |directory: &str| -> Result<BTreeMap<String, Value>> {
        let objects = kustomize::build(&root.join("config").join(directory))?;
        Ok(objects.into_iter().map(|object| (name(&object), object)).collect())
    };
    let [default, others @ ..] = &VARIANTS;
    let base = build(default.directory)?;
    let own_node = build(OWN_NODE)?;
    let mut templates = BTreeMap::new();
    for (name, object) in &base {
        let mut guard = vec![UNLESS_REMOVED.to_owned()];
        if own_node.contains_key(name) {
            guard.push(".Values.ownNode".to_owned());
        }
        if text(object, &["kind"]) == "Namespace" {
            guard.push(".Values.createNamespace".to_owned());
        }
        templates.insert(name.clone(), Template { guard, base: source(object), changes: Vec::new() });
    }
    for Variant { directory, condition, .. } in others.iter().filter(|variant| !variant.condition.is_empty()) {
        for (name, object) in build(directory)? {
            match templates.get_mut(&name) {
                Some(template) => template.change(condition, &source(&object)),
                None => {
                    let guard = vec![UNLESS_REMOVED.to_owned(), (*condition).to_owned()];
                    templates.insert(name, Template { guard, base: source(&object), changes: Vec::new() });
                }
            }
        }
    }
    let additions = ADDITIONS.iter().map(|addition| {
        (addition.directory, vec![UNLESS_REMOVED.to_owned(), addition.condition.to_owned()], addition.changed)
    });
    let [(directory, condition, _), (of_openshift, on_openshift, _)] = REMOVALS;
    let removals = [(directory, vec![condition.to_owned()], Some((of_openshift, on_openshift)))];
    for (directory, guard, changed) in additions.chain(removals) {
        for (name, object) in build(directory)? {
            let template = Template { guard: guard.clone(), base: source(&object), changes: Vec::new() };
            if templates.insert(name.clone(), template).is_some() {
                bail!("{directory} has {name}, which another kustomization has, too");
            }
        }
        let Some((changed, condition)) = changed else { continue };
        for (name, object) in build(changed)? {
            if let Some(template) = templates.get_mut(&name)
                && template.guard == guard
            {
                template.change(condition, &source(&object));
            }
        }
    }
    Ok(templates)
}

impl Template {
    fn change(&mut self, condition: &str, source: &str) {
        if source != self.base {
            self.changes.push((condition.to_owned(), source.to_owned()));
        }
    }
}

/// Returns an object as YAML for a template: with the texts that the values replace, and with braces that Helm does not interpret.
fn source(object: &Value) -> String {
    let mut object = object.clone();
    let is_configuration = text(&object, &["kind"]) == "ConfigMap";
    replace_image(&mut object);
    chart_values::mark(&mut object);
    let text = yaml::write(&object).replace("{{", "{{ \"{{\" }}");
    let text = text.replace(IMAGE_MARK, IMAGE).replace(PULL_MARK, "{{ .Values.image.pullPolicy }}");
    let text = chart_values::expand(&text);
    if is_configuration { with_configuration(&text) } else { text }
}

/// Lets a configuration among the values replace the text of the variants.
fn with_configuration(text: &str) -> String {
    const KEY: &str = "  monitor.yaml: |";
    let mut written = String::new();
    let mut is_inside = false;
    for line in text.lines() {
        if is_inside && !line.is_empty() && !line.starts_with("    ") {
            append(&mut written, &["    {{- end }}"]);
            is_inside = false;
        }
        append(&mut written, &[line]);
        if line == KEY {
            let head = ["    {{- with .Values.configuration }}", "    {{- . | trim | nindent 4 }}", "    {{- else }}"];
            append(&mut written, &head);
            is_inside = true;
        }
    }
    written
}

const IMAGE_MARK: &str = "@image@";
const PULL_MARK: &str = "@pullPolicy@";
const IMAGE: &str = "\"{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}\"";

/// Replaces the agent's image in every container.
fn replace_image(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let is_of_agent =
                fields.get("image").and_then(Value::as_str).is_some_and(|it| it.contains("/node-pressure-monitor:"));
            if is_of_agent {
                fields.insert("image".to_owned(), IMAGE_MARK.into());
                fields.insert("imagePullPolicy".to_owned(), PULL_MARK.into());
            }
            fields.values_mut().for_each(replace_image);
        }
        Value::Array(items) => items.iter_mut().for_each(replace_image),
        _ => {}
    }
}

/// Conditions, with the lines that apply under each.
type Alternatives<'a> = Vec<(&'a str, Vec<&'a str>)>;

/// Returns `base` with conditional lines, so that under each condition the text of its change results.
fn conditional(base: &str, changes: &[(String, String)]) -> Result<String> {
    let lines: Vec<&str> = base.lines().collect();
    // By the first line that they replace and the number of lines: the conditions with their lines.
    let mut hunks: BTreeMap<(usize, usize), Alternatives<'_>> = BTreeMap::new();
    for (condition, changed) in changes {
        for Hunk { start, end, new } in difference(&lines, &changed.lines().collect::<Vec<_>>()) {
            hunks.entry((start, end)).or_default().push((condition, new));
        }
    }
    let mut written = String::new();
    let mut at = 0;
    for ((start, end), alternatives) in hunks {
        if start < at {
            bail!("two variants change line {start} ({:?}) and others: no template has both", lines.get(start));
        }
        append(&mut written, &lines[at..start]);
        for (index, (condition, new)) in alternatives.iter().enumerate() {
            let word = if index == 0 { "if" } else { "else if" };
            written.push_str(&format!("{{{{- {word} {condition} }}}}\n"));
            append(&mut written, new);
        }
        if start < end {
            written.push_str("{{- else }}\n");
            append(&mut written, &lines[start..end]);
        }
        written.push_str("{{- end }}\n");
        at = end;
    }
    append(&mut written, &lines[at..]);
    Ok(written)
}

fn append(text: &mut String, lines: &[&str]) {
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
}

/// The lines from `start` to before `end`, and those that replace them.
struct Hunk<'a> {
    start: usize,
    end: usize,
    new: Vec<&'a str>,
}

/// Returns the lines of `old` that differ, by the longest common subsequence.
fn difference<'a>(old: &[&str], new: &[&'a str]) -> Vec<Hunk<'a>> {
    let mut common = vec![vec![0_u32; new.len() + 1]; old.len() + 1];
    for (i, before) in old.iter().enumerate().rev() {
        for (j, after) in new.iter().enumerate().rev() {
            common[i][j] =
                if before == after { common[i + 1][j + 1] + 1 } else { common[i + 1][j].max(common[i][j + 1]) };
        }
    }
    let mut hunks: Vec<Hunk<'_>> = Vec::new();
    let (mut i, mut j) = (0, 0);
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            (i, j) = (i + 1, j + 1);
            continue;
        }
        let is_new = j < new.len() && (i == old.len() || common[i][j + 1] > common[i + 1][j]);
        if hunks.last().is_none_or(|hunk| hunk.end != i) {
            hunks.push(Hunk { start: i, end: i, new: Vec::new() });
        }
        if let Some(hunk) = hunks.last_mut() {
            if is_new {
                hunk.new.push(new[j]);
                j += 1;
            } else {
                hunk.end = i + 1;
                i += 1;
            }
        }
    }
    hunks
}

/// Returns `daemon-set-node-pressure-monitor` for `DaemonSet node-pressure-monitor`.
fn file_name(name: &str) -> String {
    let mut file = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && file.ends_with(|last: char| last.is_ascii_lowercase()) {
            file.push('-');
        }
        file.push(if c == ' ' { '-' } else { c.to_ascii_lowercase() });
    }
    file.trim_end_matches("-node-pressure-monitor").replace("-node-pressure-monitor", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_lines_become_conditional() {
        let changes = |all: &[(&str, &str)]| -> Vec<(String, String)> {
            all.iter().map(|(condition, text)| ((*condition).to_owned(), (*text).to_owned())).collect()
        };
        let base = "a\nb\nc\nd\n";
        for (name, changed, expected) in [
            ("nothing", changes(&[]), base.to_owned()),
            ("replaced", changes(&[("x", "a\nB\nc\nd\n")]), "a\n{{- if x }}\nB\n{{- else }}\nb\n{{- end }}\nc\nd\n".to_owned()),
            ("added", changes(&[("x", "a\nb\nc\nd\ne\n")]), "a\nb\nc\nd\n{{- if x }}\ne\n{{- end }}\n".to_owned()),
            (
                "two conditions",
                changes(&[("x", "a\n1\nc\nd\n"), ("y", "a\n2\nc\nD\n")]),
                "a\n{{- if x }}\n1\n{{- else if y }}\n2\n{{- else }}\nb\n{{- end }}\nc\n{{- if y }}\nD\n{{- else }}\nd\n{{- end }}\n".to_owned(),
            ),
        ] {
            assert_eq!(conditional(base, &changed).unwrap(), expected, "{name}");
        }
        let overlapping = changes(&[("x", "a\n1\n2\nd\n"), ("y", "a\nb\n3\nd\n")]);
        assert!(conditional(base, &overlapping).is_err());
    }

    #[test]
    fn files_are_named_after_kind_and_name() {
        assert_eq!(file_name("DaemonSet node-pressure-monitor"), "daemon-set");
        assert_eq!(file_name("ClusterRole node-pressure-monitor-sweeper"), "cluster-role-sweeper");
        assert_eq!(file_name("ResourceQuota system-critical"), "resource-quota-system-critical");
    }
}
