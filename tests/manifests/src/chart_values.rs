//! The fields of the chart's templates that values give: resources, labels, namespaces and the like.
//!
//! `mark` puts marks in the place of the fields, so that the writer of YAML and the comparison of the variants treat them as texts.
//! `expand` then replaces the marks by what Helm interprets.

use serde_json::{Map, Value};

use crate::documents::name;

/// A field of an object, and the value that gives it.
struct Setting {
    /// The way to the field, as keys and indices.
    path: &'static str,
    form: Form,
    value: &'static str,
}

#[derive(Clone, Copy)]
enum Form {
    /// The value is the field. An empty value leaves the field out.
    Whole,
    /// The same for a text.
    Text,
    /// The value has further entries of the field. The named entries of the kustomization are in the value's default.
    More(&'static [&'static str]),
}

use Form::{More, Text, Whole};

const fn setting(path: &'static str, form: Form, value: &'static str) -> Setting {
    Setting { path, form, value }
}

const POD: [Setting; 3] = [
    setting("spec template metadata annotations", More(&[]), "podAnnotations"),
    setting("spec template metadata labels", More(&[]), "podLabels"),
    setting("spec template spec imagePullSecrets", Whole, "imagePullSecrets"),
];
const AGENT: [Setting; 5] = [
    setting("spec template spec affinity", Whole, "affinity"),
    setting("spec template spec containers 0 resources", Whole, "resources"),
    setting("spec template spec nodeSelector", Whole, "nodeSelector"),
    setting("spec template spec priorityClassName", Text, "priorityClassName"),
    setting("spec template spec tolerations", Whole, "tolerations"),
];
/// The Job of the removal runs where the sweeper runs.
const SWEEPER: [Setting; 4] = [
    setting("spec template spec affinity", Whole, "sweeper.affinity"),
    setting("spec template spec containers 0 resources", Whole, "sweeper.resources"),
    setting("spec template spec nodeSelector", Whole, "sweeper.nodeSelector"),
    setting("spec template spec tolerations", Whole, "sweeper.tolerations"),
];
const SWEEPER_ALONE: [Setting; 1] =
    [setting("spec template spec priorityClassName", Text, "sweeper.priorityClassName")];
const SERVICE_MONITOR: [Setting; 3] = [
    setting("metadata labels", More(&[]), "serviceMonitor.labels"),
    setting("spec endpoints 0 interval", Text, "serviceMonitor.interval"),
    setting("spec endpoints 0 scrapeTimeout", Text, "serviceMonitor.scrapeTimeout"),
];
const RULES: [Setting; 1] = [setting("metadata labels", More(&[]), "prometheusRule.labels")];
const DASHBOARD: [Setting; 3] = [
    setting("metadata annotations", More(&[]), "dashboards.annotations"),
    setting("metadata labels", More(&["grafana_dashboard"]), "dashboards.labels"),
    setting("metadata namespace", Text, "dashboards.namespace"),
];

/// The settings of the objects whose kind and name begin with a text.
const SETTINGS: [(&str, &[&[Setting]]); 6] = [
    ("DaemonSet node-pressure-monitor", &[&POD, &AGENT]),
    ("Deployment node-pressure-monitor-sweeper", &[&POD, &SWEEPER, &SWEEPER_ALONE]),
    ("Job node-pressure-monitor-removal", &[&POD, &SWEEPER]),
    ("ServiceMonitor node-pressure-monitor", &[&SERVICE_MONITOR]),
    ("PrometheusRule node-pressure-monitor", &[&RULES]),
    ("ConfigMap node-pressure-monitor-dashboard-", &[&DASHBOARD]),
];

const WHOLE_MARK: &str = "@whole.";
const TEXT_MARK: &str = "@text.";
const MORE_MARK: &str = "@more.";

/// Replaces the fields that values give by marks.
pub(crate) fn mark(object: &mut Value) {
    let name = name(object);
    let settings = SETTINGS.iter().filter(|(begin, _)| name.starts_with(begin)).flat_map(|(_, groups)| *groups);
    for Setting { path, form, value } in settings.copied().flatten() {
        let Some((parent, field)) = parent_of(object, path) else { continue };
        let mark = match form {
            Whole => Value::from(format!("{WHOLE_MARK}{value}@")),
            Text => Value::from(format!("{TEXT_MARK}{value}@")),
            More(moved) => match parent.get_mut(field).and_then(Value::as_object_mut) {
                Some(entries) => {
                    entries.retain(|key, _| !moved.contains(&key.as_str()));
                    entries.insert(format!("{MORE_MARK}{value}@"), Value::Null);
                    continue;
                }
                None => Value::from(format!("{WHOLE_MARK}{value}@")),
            },
        };
        parent.insert(field.to_owned(), mark);
    }
}

/// Returns the object that has, or may have, the field at the end of a path.
fn parent_of<'o, 'p>(object: &'o mut Value, path: &'p str) -> Option<(&'o mut Map<String, Value>, &'p str)> {
    let (parents, field) = path.rsplit_once(' ')?;
    let parent = object.pointer_mut(&format!("/{}", parents.replace(' ', "/")))?;
    Some((parent.as_object_mut()?, field))
}

/// Replaces the lines with marks by templates.
pub(crate) fn expand(text: &str) -> String {
    let mut written = String::new();
    for line in text.lines() {
        let body = line.trim_start();
        let indent = &line[..line.len() - body.len()];
        let marked = |mark: &str| {
            body.split_once(mark).map(|(key, value)| (key, value.trim_end_matches("@: null").trim_end_matches('@')))
        };
        let expanded = if let Some((key, value)) = marked(WHOLE_MARK) {
            let key = key.trim_end();
            let depth = indent.len() + 2;
            with(value, &format!("{indent}{key}\n{indent}  {{{{- toYaml . | nindent {depth} }}}}"))
        } else if let Some((key, value)) = marked(TEXT_MARK) {
            with(value, &format!("{indent}{key}{{{{ . | quote }}}}"))
        } else if let Some((_, value)) = marked(MORE_MARK) {
            with(value, &format!("{indent}{{{{- toYaml . | nindent {} }}}}", indent.len()))
        } else if let Some(page) = body.strip_prefix(RUNBOOK) {
            format!(
                "{indent}{{{{ with $.Values.prometheusRule.runbookUrl }}}}runbook_url: \"{{{{ . | trimSuffix \"/\" }}}}/{page}\"{{{{ else }}}}{body}{{{{ end }}}}"
            )
        } else {
            line.to_owned()
        };
        written.push_str(&expanded);
        written.push('\n');
    }
    written
}

/// The annotation of an alert with the path of its page. The base of an address makes it a link.
const RUNBOOK: &str = "runbook: config/runbooks/";

/// Returns lines that are rendered if the value is not empty.
fn with(value: &str, lines: &str) -> String {
    format!("{{{{- with .Values.{value} }}}}\n{lines}\n{{{{- end }}}}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::yaml;

    #[test]
    fn marks_become_templates_of_their_values() {
        let mut object = json!({
            "kind": "ServiceMonitor",
            "metadata": {"name": "node-pressure-monitor", "labels": {"a": "b"}},
            "spec": {"endpoints": [{"honorLabels": true, "interval": "15s"}]},
        });
        mark(&mut object);
        let expected = "kind: ServiceMonitor\nmetadata:\n  labels:\n{{- with .Values.serviceMonitor.labels }}\n    {{- toYaml . | nindent 4 }}\n{{- end }}\n    \
                        a: b\n  name: node-pressure-monitor\nspec:\n  endpoints:\n    - honorLabels: true\n\
                        {{- with .Values.serviceMonitor.interval }}\n      interval: {{ . | quote }}\n{{- end }}\n\
                        {{- with .Values.serviceMonitor.scrapeTimeout }}\n      scrapeTimeout: {{ . | quote }}\n{{- end }}\n";
        assert_eq!(expand(&yaml::write(&object)), expected);
    }

    #[test]
    fn a_field_that_is_missing_has_the_value_alone() {
        let mut object = json!({
            "kind": "ConfigMap",
            "metadata": {"name": "node-pressure-monitor-dashboard-fleet", "labels": {"grafana_dashboard": "1"}, "namespace": "x"},
        });
        mark(&mut object);
        let written = expand(&yaml::write(&object));
        assert!(
            written.contains(
                "{{- with .Values.dashboards.annotations }}\n  annotations:\n    {{- toYaml . | nindent 4 }}\n"
            ),
            "{written}"
        );
        assert!(!written.contains("grafana_dashboard"), "{written}");
    }

    #[test]
    fn a_runbook_becomes_a_link_below_its_base() {
        let written = expand("  runbook: config/runbooks/A.md\n");
        let expected = "  {{ with $.Values.prometheusRule.runbookUrl }}runbook_url: \"{{ . | trimSuffix \"/\" }}/A.md\"{{ else }}\
                        runbook: config/runbooks/A.md{{ end }}\n";
        assert_eq!(written, expected);
    }
}
