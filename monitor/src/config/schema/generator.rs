//! Makes the schema: reads documents with every field, and records what the parser accepts in each place.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::descriptions;
use crate::config::document_walk::{Shape, Shapes, Walk};
use crate::config::file_kinds::Source;
use crate::config::pools;
use crate::config::yaml;

const COMMENTED: &str = include_str!("../../../../config/monitor.yaml");
const COMPLETE: &str = include_str!("complete.yaml");
/// Fields that have several forms, in another form than in the complete document.
const OTHERS: &str = "
apiVersion: node-pressure-monitor/v1alpha1
kind: MonitorConfiguration
ranking: qos
kubernetes: {taints: {noExecute: {after: 5m}}}
";

/// The fields of `kubernetes` that a pool cannot have.
const FIXED: [&str; 3] = ["api", "kubeconfig", "nodeName"];

const QUANTITY: &str = r"\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?";
const PERCENTAGE: &str = r"\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?%+";
const DURATION: &str = r"\+?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)";
const BOOLEANS: &str = "^([Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]|[Yy]([Ee][Ss])?|[Nn][Oo]?|[Oo][Nn]|[Oo][Ff][Ff])$";

struct Generator {
    shapes: Shapes,
    descriptions: BTreeMap<String, String>,
    defaults: yaml::Node,
    /// The schemas of values that many fields have.
    shared: Map<String, Value>,
    /// Fields that no document has.
    missing: Vec<String>,
}

fn generated() -> Value {
    let mut walk = Walk::new("");
    walk.shapes = Some(Shapes::default());
    for text in [COMPLETE, OTHERS] {
        let source = Source::locate("", text).unwrap();
        source.read(&mut walk).unwrap();
    }
    let shapes = walk.shapes.take().unwrap();
    let (errors, _) = walk.finish();
    assert!(errors.is_empty(), "{errors:#?}");
    let mut all = descriptions::of(COMPLETE);
    all.extend(descriptions::of(COMMENTED));
    all.retain(|path, _| !["apiVersion", "kind"].contains(&path.as_str()));
    let defaults = yaml::parse_document(COMMENTED).unwrap();
    let mut generator = Generator { shapes, descriptions: all, defaults, shared: Map::new(), missing: Vec::new() };
    let Value::Object(root) = generator.field("", "", None) else { panic!("the document is no map") };
    assert!(generator.missing.is_empty(), "complete.yaml lacks {:?}", generator.missing);
    let mut schema = Map::new();
    schema.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
    schema.insert("title".to_owned(), json!("MonitorConfiguration of node-pressure-monitor"));
    schema.extend(root);
    schema.insert("$defs".to_owned(), Value::Object(generator.shared));
    Value::Object(schema)
}

impl Generator {
    /// Returns the schema of a field. `default` is its value in `config/monitor.yaml`.
    fn field(&mut self, path: &str, name: &str, default: Option<&yaml::Node>) -> Value {
        let Some(mut shapes) = self.shapes.fields.get(path).cloned() else {
            let in_pool = path.strip_prefix("pools[].").filter(|name| pools::FIELDS.split(' ').any(|it| it == *name));
            match in_pool {
                Some("kubernetes") => {
                    let fixed: Map<String, Value> =
                        FIXED.iter().map(|name| ((*name).to_owned(), json!(false))).collect();
                    return json!({"$ref": "#/properties/kubernetes", "properties": fixed});
                }
                Some(name) => return json!({"$ref": format!("#/properties/{name}")}),
                None => self.missing.push(path.to_owned()),
            }
            return json!({});
        };
        // Readers of single values read text first.
        if shapes.len() > 1 {
            shapes.retain(|shape| *shape != Shape::Text);
        }
        let is_entry = shapes.iter().any(|shape| {
            matches!(shape, Shape::Threshold | Shape::MinimumReclaim | Shape::Amount | Shape::GracePeriod)
        });
        let is_required = path.is_empty() || ["apiVersion", "kind"].contains(&name) || path.ends_with(']');
        let mut forms: Vec<Value> = shapes.iter().map(|shape| self.form(path, shape)).collect();
        if !is_entry && !is_required {
            // An empty value stands for the default.
            forms.push(json!({"type": "null"}));
        }
        let mut schema = match forms.len() {
            1 => forms.remove(0),
            _ => json!({"anyOf": forms}),
        };
        if let Some(description) = self.descriptions.get(path) {
            schema["description"] = json!(description);
        }
        if let Some(yaml::Value::Scalar { text, quoted }) = default.map(|node| &node.value) {
            let plain =
                serde_json::from_str::<Value>(text).ok().filter(|it| !quoted && (it.is_boolean() || it.is_i64()));
            schema["default"] = plain.unwrap_or_else(|| json!(text));
        }
        schema
    }

    fn form(&mut self, path: &str, shape: &Shape) -> Value {
        let name = match shape {
            Shape::Text => "text",
            Shape::Boolean => "boolean",
            Shape::Bytes => "bytes",
            Shape::Amount => "amount",
            Shape::Duration | Shape::GracePeriod => "duration",
            Shape::PositiveDuration => "positiveDuration",
            Shape::Percentage => "percentage",
            Shape::Threshold => "threshold",
            Shape::MinimumReclaim => "minimumReclaim",
            Shape::Address => "address",
            Shape::AbsolutePath => "absolutePath",
            _ => return self.own_form(path, shape),
        };
        let form = self.own_form(path, shape);
        self.shared.insert(name.to_owned(), form);
        json!({"$ref": format!("#/$defs/{name}")})
    }

    fn own_form(&mut self, path: &str, shape: &Shape) -> Value {
        let text = |pattern: String| json!({"type": "string", "pattern": format!("^({pattern})$")});
        let whole = |text: &str| json!(text.parse::<i64>().unwrap());
        match shape {
            Shape::Map(known) => self.map(path, known),
            Shape::Names => {
                json!({"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}})
            }
            Shape::List => {
                let items = self.field(&format!("{path}[]"), "", None);
                json!({"type": "array", "items": items})
            }
            Shape::Text => json!({"type": ["string", "number", "boolean"]}),
            Shape::Choice(choices) if choices.len() == 1 => json!({"const": choices[0]}),
            Shape::Choice(choices) => json!({"enum": choices}),
            Shape::Boolean => json!({"anyOf": [{"type": "boolean"}, {"type": "string", "pattern": BOOLEANS}]}),
            Shape::WholeNumber(least, most) => {
                json!({"type": "integer", "minimum": whole(least), "maximum": whole(most)})
            }
            Shape::Bytes => {
                json!({"anyOf": [text(QUANTITY.to_owned()), {"type": "number", "exclusiveMinimum": 0}]})
            }
            Shape::Amount => json!({"anyOf": [text(QUANTITY.to_owned()), {"type": "number", "minimum": 0}]}),
            Shape::Duration | Shape::GracePeriod => json!({"anyOf": [text(DURATION.to_owned()), {"const": 0}]}),
            Shape::PositiveDuration => text(format!("(?=.*[1-9]){DURATION}")),
            Shape::Percentage => text(r"[0-9]*\.?[0-9]*%".to_owned()),
            Shape::Threshold => json!({"anyOf": [
                text(format!("{QUANTITY}|{PERCENTAGE}")), {"type": "number", "exclusiveMinimum": 0}]}),
            Shape::MinimumReclaim => json!({"anyOf": [
                text(format!("{QUANTITY}|{PERCENTAGE}")), {"type": "number", "minimum": 0}]}),
            Shape::Address => json!({"type": "string", "pattern": "^.+:[0-9]+$"}),
            Shape::AbsolutePath => json!({"type": "string", "pattern": "^/"}),
            Shape::Pattern(pattern) => json!({"type": "string", "pattern": pattern}),
        }
    }

    fn map(&mut self, path: &str, known: &[String]) -> Value {
        let mut properties = Map::new();
        for name in known {
            let inner = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let default = default_of(&self.defaults, &inner).cloned();
            let property = self.field(&inner, name, default.as_ref());
            properties.insert(name.clone(), property);
        }
        let mut map = json!({"type": "object", "properties": properties, "additionalProperties": false});
        if let Some(required) = self.shapes.required.get(path) {
            map["required"] = json!(required);
        }
        map
    }
}

/// Returns the value of a field that is not in a list.
fn default_of<'n>(document: &'n yaml::Node, path: &str) -> Option<&'n yaml::Node> {
    // Signals have dots in their names.
    let (outer, rest) = path.split_once('.').unwrap_or((path, ""));
    if rest.is_empty() || outer.starts_with("eviction") && outer != "evictions" {
        return document.field(outer).filter(|_| rest.is_empty());
    }
    default_of(document.field(outer)?, rest)
}

#[test]
fn the_committed_schema_is_that_of_the_parser() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/monitor.schema.json");
    let generated = generated();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, serde_json::to_string_pretty(&generated).unwrap() + "\n").unwrap();
    }
    let committed: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let command = "UPDATE_DOCS=1 cargo test -p node-pressure-monitor --lib schema";
    assert_eq!(committed, generated, "config/monitor.schema.json is not up to date; run: {command}");
}

/// An editor shows these sentences, so every field has one.
#[test]
fn every_field_has_a_description() {
    fn bare(path: &str, schema: &Value, found: &mut Vec<String>) {
        let forms = schema["anyOf"].as_array().cloned().unwrap_or_else(|| vec![schema.clone()]);
        for form in forms {
            for (name, property) in form["properties"].as_object().into_iter().flatten() {
                let path = format!("{path}.{name}");
                // The names of signals, resources and quirks say it, or the section does.
                let is_entry =
                    ["eviction", "systemReserved", "kubeReserved", "quirks", "pools[]"].iter().any(|section| {
                        path.starts_with(&format!(".{section}"))
                            && path.matches('.').count() > 1
                            && !path.starts_with(".evictions.")
                    });
                let is_map = property.to_string().contains("\"properties\"");
                if property["description"].is_null() && property["$ref"].is_null() && !is_map && !is_entry {
                    found.push(path.clone());
                }
                bare(&path, property, found);
            }
            if form["items"].is_object() {
                bare(&format!("{path}[]"), &form["items"], found);
            }
        }
    }
    let mut found = Vec::new();
    bare("", &generated(), &mut found);
    found.retain(|path| ![".apiVersion", ".kind"].contains(&path.as_str()));
    assert_eq!(found, [""; 0]);
}
