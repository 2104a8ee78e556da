//! Schemas of kinds that are no part of Kubernetes, copied from their projects (openshift/api `security/v1`, prometheus-operator
//! `monitoring/v1` 0.9x) as far as our manifests could use them. The crates with generated types need other releases of `kube`, and are
//! many times larger.

use serde_json::{Map, Value};

/// The type of a field.
enum Shape {
    Text,
    Boolean,
    Whole,
    /// A text or a whole number.
    Either,
    /// Any keys with texts.
    Texts,
    List(&'static Shape),
    Fields(&'static [Field]),
    /// A field that may be null but must be present.
    Nullable(&'static Shape),
}
use Shape::{Boolean, Either, Fields, List, Nullable, Text, Texts, Whole};

struct Field {
    name: &'static str,
    is_required: bool,
    shape: Shape,
}

const fn may(name: &'static str, shape: Shape) -> Field {
    Field { name, is_required: false, shape }
}

const fn must(name: &'static str, shape: Shape) -> Field {
    Field { name, is_required: true, shape }
}

const METADATA: Shape =
    Fields(&[must("name", Text), may("namespace", Text), may("labels", Texts), may("annotations", Texts)]);
/// The fields of every object.
const OBJECT: &[Field] = &[must("apiVersion", Text), must("kind", Text), must("metadata", METADATA)];

const RANGES: Shape = List(&Fields(&[may("min", Whole), may("max", Whole)]));
const STRATEGY: Shape = Fields(&[must("type", Text), may("ranges", RANGES)]);
const SECURITY_CONTEXT_CONSTRAINTS: &[Field] = &[
    must("allowHostDirVolumePlugin", Boolean),
    must("allowHostIPC", Boolean),
    must("allowHostNetwork", Boolean),
    must("allowHostPID", Boolean),
    must("allowHostPorts", Boolean),
    may("allowPrivilegeEscalation", Boolean),
    must("allowPrivilegedContainer", Boolean),
    must("allowedCapabilities", Nullable(&List(&Text))),
    may("allowedUnsafeSysctls", Nullable(&List(&Text))),
    must("defaultAddCapabilities", Nullable(&List(&Text))),
    may("defaultAllowPrivilegeEscalation", Boolean),
    may("forbiddenSysctls", Nullable(&List(&Text))),
    may("fsGroup", STRATEGY),
    may("groups", List(&Text)),
    must("priority", Nullable(&Whole)),
    must("readOnlyRootFilesystem", Boolean),
    must("requiredDropCapabilities", Nullable(&List(&Text))),
    may(
        "runAsUser",
        Fields(&[must("type", Text), may("uid", Whole), may("uidRangeMin", Whole), may("uidRangeMax", Whole)]),
    ),
    may(
        "seLinuxContext",
        Fields(&[
            must("type", Text),
            may(
                "seLinuxOptions",
                Fields(&[may("level", Text), may("role", Text), may("type", Text), may("user", Text)]),
            ),
        ]),
    ),
    may("seccompProfiles", List(&Text)),
    may("supplementalGroups", STRATEGY),
    may("userNamespaceLevel", Text),
    may("users", List(&Text)),
    must("volumes", Nullable(&List(&Text))),
];

const KEY: Shape = Fields(&[must("key", Text), may("name", Text), may("optional", Boolean)]);
const FILE_OR_KEY: Shape = Fields(&[may("configMap", KEY), may("secret", KEY)]);
const RELABELINGS: Shape = List(&Fields(&[
    may("action", Text),
    may("modulus", Whole),
    may("regex", Text),
    may("replacement", Text),
    may("separator", Text),
    may("sourceLabels", List(&Text)),
    may("targetLabel", Text),
]));
const ENDPOINT: Shape = Fields(&[
    may("authorization", Fields(&[may("type", Text), may("credentials", KEY)])),
    may("bearerTokenFile", Text),
    may("honorLabels", Boolean),
    may("interval", Text),
    may("metricRelabelings", RELABELINGS),
    may("path", Text),
    may("port", Text),
    may("relabelings", RELABELINGS),
    may("scheme", Text),
    may("scrapeTimeout", Text),
    may(
        "tlsConfig",
        Fields(&[
            may("ca", FILE_OR_KEY),
            may("caFile", Text),
            may("insecureSkipVerify", Boolean),
            may("serverName", Text),
        ]),
    ),
]);
const SELECTOR: Shape = Fields(&[may("matchLabels", Texts)]);
const SERVICE_MONITOR: &[Field] = &[must(
    "spec",
    Fields(&[
        must("endpoints", List(&ENDPOINT)),
        may("jobLabel", Text),
        may("namespaceSelector", Fields(&[may("any", Boolean), may("matchNames", List(&Text))])),
        may("podTargetLabels", List(&Text)),
        may("sampleLimit", Whole),
        must("selector", SELECTOR),
        may("targetLabels", List(&Text)),
    ]),
)];

const PROMETHEUS_RULE: &[Field] = &[must(
    "spec",
    Fields(&[may(
        "groups",
        List(&Fields(&[
            must("name", Text),
            may("interval", Text),
            may(
                "rules",
                List(&Fields(&[
                    may("alert", Text),
                    may("record", Text),
                    must("expr", Either),
                    may("for", Text),
                    may("keep_firing_for", Text),
                    may("labels", Texts),
                    may("annotations", Texts),
                ])),
            ),
        ])),
    )]),
)];

/// Returns the problems with an object; `None` without a schema for its kind.
#[must_use]
pub fn check(version: &str, kind: &str, object: &Value) -> Option<Vec<String>> {
    let fields = match (version, kind) {
        ("security.openshift.io/v1", "SecurityContextConstraints") => SECURITY_CONTEXT_CONSTRAINTS,
        ("monitoring.coreos.com/v1", "ServiceMonitor") => SERVICE_MONITOR,
        ("monitoring.coreos.com/v1", "PrometheusRule") => PROMETHEUS_RULE,
        _ => return None,
    };
    let mut problems = Vec::new();
    match object {
        Value::Object(values) => compare_fields(values, &[OBJECT, fields], "", &mut problems),
        _ => problems.push("is not an object".to_owned()),
    }
    Some(problems)
}

fn compare(value: &Value, shape: &Shape, path: &str, problems: &mut Vec<String>) {
    let fits = match (shape, value) {
        (Text, Value::String(_)) | (Boolean, Value::Bool(_)) | (Nullable(_), Value::Null) => true,
        (Whole, value) => value.is_i64(),
        (Either, value) => value.is_string() || value.is_i64(),
        (Nullable(inner), value) => return compare(value, inner, path, problems),
        (Texts, Value::Object(fields)) => fields.values().all(Value::is_string),
        (List(inner), Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                compare(item, inner, &format!("{path}[{index}]"), problems);
            }
            true
        }
        (Fields(fields), Value::Object(values)) => {
            compare_fields(values, &[*fields], path, problems);
            true
        }
        _ => false,
    };
    if !fits {
        problems.push(format!("{path}: {value} is not of the right type"));
    }
}

fn compare_fields(values: &Map<String, Value>, known: &[&[Field]], path: &str, problems: &mut Vec<String>) {
    let place = |name: &str| format!("{path}.{name}").trim_start_matches('.').to_owned();
    let fields = || known.iter().copied().flatten();
    for field in fields() {
        match values.get(field.name) {
            Some(value) => compare(value, &field.shape, &place(field.name), problems),
            None if field.is_required => problems.push(format!("missing field {}", place(field.name))),
            None => {}
        }
    }
    for name in values.keys().filter(|name| fields().all(|field| field.name != *name)) {
        problems.push(format!("unknown field {}", place(name)));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_missing_and_mistyped_fields_are_named() {
        let rule = json!({"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": {"name": "a"},
            "spec": {"groups": [{"name": "g", "rules": [{"alert": "A", "for": 5, "severity": "x"}]}]}});
        let problems = check("monitoring.coreos.com/v1", "PrometheusRule", &rule).unwrap();
        let place = "spec.groups[0].rules[0]";
        let expected = [
            format!("missing field {place}.expr"),
            format!("{place}.for: 5 is not of the right type"),
            format!("unknown field {place}.severity"),
        ];
        assert_eq!(problems, expected);
        assert_eq!(check("v1", "Pod", &rule), None);
    }
}
