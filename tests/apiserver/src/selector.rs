//! Field and label selectors.

use serde_json::Value;

use crate::answer::Failure;
use crate::resource::Resource;

/// The selectors of a request.
#[derive(Debug, Clone, Default)]
pub struct Selector {
    fields: Vec<(String, bool, String)>,
    labels: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

/// Returns the fields that requests may select by, besides name and namespace.
fn fields_of(resource: &Resource) -> &'static [&'static str] {
    match resource.plural {
        "pods" => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        "nodes" => &["spec.unschedulable"],
        "namespaces" => &["status.phase"],
        "secrets" => &["type"],
        "events" => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        _ => &[],
    }
}

impl Selector {
    /// Parses both selectors of a request.
    pub fn read(resource: &Resource, fields: Option<&str>, labels: Option<&str>) -> Result<Self, Failure> {
        let mut selector = Self::default();
        for term in fields.unwrap_or_default().split(',').filter(|term| !term.is_empty()) {
            let (field, equal, value) = if let Some((field, value)) = term.split_once("!=") {
                (field, false, value)
            } else if let Some((field, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
                (field, true, value)
            } else {
                return Err(Failure::bad_request(format!("invalid selector: '{term}'; can't understand '{term}'")));
            };
            let known = matches!(field, "metadata.name" | "metadata.namespace");
            if !known && !fields_of(resource).contains(&field) {
                return Err(Failure::bad_request(format!(
                    "Unable to find {:?} that match label selector \"\", field selector {term:?}: field label not \
                     supported: {field}",
                    resource.plural
                )));
            }
            selector.fields.push((field.to_owned(), equal, value.to_owned()));
        }
        selector.labels = read_labels(labels.unwrap_or_default())?;
        Ok(selector)
    }

    /// Parses the selector of an object: `matchLabels` and `matchExpressions`.
    #[must_use]
    pub fn of_object(selector: &Value) -> Self {
        let mut labels = Vec::new();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            labels.push(Requirement::In(key.clone(), vec![value.as_str().unwrap_or_default().to_owned()]));
        }
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            let key = expression["key"].as_str().unwrap_or_default().to_owned();
            let values = expression["values"].as_array().into_iter().flatten();
            let values = values.filter_map(|value| value.as_str().map(str::to_owned)).collect();
            labels.push(match expression["operator"].as_str() {
                Some("In") => Requirement::In(key, values),
                Some("NotIn") => Requirement::NotIn(key, values),
                Some("Exists") => Requirement::Exists(key),
                _ => Requirement::Absent(key),
            });
        }
        Self { fields: Vec::new(), labels }
    }

    /// Returns whether an object matches.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        let fields = self.fields.iter().all(|(field, equal, value)| (field_of(object, field) == *value) == *equal);
        fields && self.labels.iter().all(|requirement| requirement.holds(&object["metadata"]["labels"]))
    }
}

fn field_of(object: &Value, field: &str) -> String {
    // An event's source is selected by its component.
    let pointer =
        if field == "source" { "/source/component".to_owned() } else { format!("/{}", field.replace('.', "/")) };
    match object.pointer(&pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(value)) => value.to_string(),
        Some(Value::Number(value)) => value.to_string(),
        // Objects omit a field whose value is false.
        _ if matches!(field, "spec.unschedulable" | "spec.hostNetwork") => "false".to_owned(),
        _ => String::new(),
    }
}

impl Requirement {
    fn holds(&self, labels: &Value) -> bool {
        let value = |key: &String| labels.get(key).and_then(Value::as_str);
        match self {
            Self::In(key, values) => value(key).is_some_and(|value| values.iter().any(|wanted| wanted == value)),
            Self::NotIn(key, values) => !value(key).is_some_and(|value| values.iter().any(|barred| barred == value)),
            Self::Exists(key) => value(key).is_some(),
            Self::Absent(key) => value(key).is_none(),
        }
    }
}

/// Parses a label selector such as `a=b,c!=d,e in (f,g),h notin (i),j,!k`.
fn read_labels(text: &str) -> Result<Vec<Requirement>, Failure> {
    let mut terms = Vec::new();
    let (mut depth, mut start) = (0_u32, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms.into_iter().map(str::trim).filter(|term| !term.is_empty()).map(read_label).collect()
}

fn read_label(term: &str) -> Result<Requirement, Failure> {
    let set = |values: &str| -> Option<Vec<String>> {
        let inner = values.trim().strip_prefix('(')?.strip_suffix(')')?;
        Some(inner.split(',').map(|value| value.trim().to_owned()).collect())
    };
    let bad = || Failure::bad_request(format!("unable to parse requirement: {term}"));
    let owned = |text: &str| text.trim().to_owned();
    if let Some((key, values)) = term.split_once(" notin ") {
        return Ok(Requirement::NotIn(owned(key), set(values).ok_or_else(bad)?));
    }
    if let Some((key, values)) = term.split_once(" in ") {
        return Ok(Requirement::In(owned(key), set(values).ok_or_else(bad)?));
    }
    if let Some((key, value)) = term.split_once("!=") {
        return Ok(Requirement::NotIn(owned(key), vec![owned(value)]));
    }
    if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return Ok(Requirement::In(owned(key), vec![owned(value)]));
    }
    Ok(term.strip_prefix('!').map_or_else(|| Requirement::Exists(owned(term)), |key| Requirement::Absent(owned(key))))
}
