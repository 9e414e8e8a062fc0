//! Whether a document is as its schema in `docs/schema` says: the part of JSON Schema that those
//! files use, written apart from what makes them.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

/// Fails the test where the document of a command differs from its schema.
pub(super) fn check(command: &str, document: &Value) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace");
    let path = root.join(format!("docs/schema/{command}.json"));
    let text = fs::read_to_string(&path).expect("the schema is there");
    let schema: Value = serde_json::from_str(&text).expect("the schema is JSON");
    let mut wrong = Vec::new();
    fits(&schema, &schema, document, "", &mut wrong);
    assert!(
        wrong.is_empty(),
        "{command}: {:#?}",
        &wrong[..wrong.len().min(10)]
    );
    // A check that cannot fail proves nothing.
    let mut broken = document.clone();
    broken["schema_version"] = "one".into();
    fits(&schema, &schema, &broken, "", &mut wrong);
    assert!(!wrong.is_empty(), "{command}: a broken document was taken");
}

fn fits(root: &Value, schema: &Value, value: &Value, at: &str, wrong: &mut Vec<String>) {
    let Some(schema) = schema.as_object() else {
        return;
    };
    for (word, rule) in schema {
        let ok = match word.as_str() {
            "$ref" => {
                let pointer = rule.as_str().and_then(|text| text.strip_prefix('#'));
                let target = pointer
                    .and_then(|pointer| root.pointer(pointer))
                    .expect("a definition");
                fits(root, target, value, at, wrong);
                true
            }
            "type" => is_type(rule, value),
            "const" => rule == value,
            "enum" => rule.as_array().is_some_and(|all| all.contains(value)),
            "anyOf" | "oneOf" => fits_some(root, word, rule, value),
            "required" => rule.as_array().is_some_and(|all| {
                let has = |name: &Value| value.get(name.as_str().unwrap_or_default()).is_some();
                !value.is_object() || all.iter().all(has)
            }),
            "properties" => {
                properties(root, rule.as_object(), value, at, wrong);
                true
            }
            "items" => {
                for (number, item) in value.as_array().into_iter().flatten().enumerate() {
                    fits(root, rule, item, &format!("{at}/{number}"), wrong);
                }
                true
            }
            "prefixItems" => {
                let rules = rule.as_array().into_iter().flatten();
                for (rule, item) in rules.zip(value.as_array().into_iter().flatten()) {
                    fits(root, rule, item, at, wrong);
                }
                true
            }
            "additionalProperties" => {
                let known = schema.get("properties").and_then(Value::as_object);
                let others = value.as_object().into_iter().flatten();
                for (name, inner) in
                    others.filter(|(name, _)| known.is_none_or(|all| !all.contains_key(*name)))
                {
                    fits(root, rule, inner, &format!("{at}/{name}"), wrong);
                }
                true
            }
            "minimum" => value
                .as_f64()
                .zip(rule.as_f64())
                .is_none_or(|(value, least)| value >= least),
            "maximum" => value
                .as_f64()
                .zip(rule.as_f64())
                .is_none_or(|(value, most)| value <= most),
            "minItems" => value
                .as_array()
                .is_none_or(|all| all.len() as u64 >= rule.as_u64().unwrap_or(0)),
            "maxItems" => value
                .as_array()
                .is_none_or(|all| all.len() as u64 <= rule.as_u64().unwrap_or(0)),
            // What describes and does not judge.
            "$schema" | "$defs" | "title" | "description" | "default" | "format" => true,
            // What this check does not know is wrong: it would pass unseen.
            _ => false,
        };
        if !ok {
            wrong.push(format!("{at}: {word} {rule} does not hold for {value:.80}"));
        }
    }
}

/// Whether one of some schemas fits, and for `oneOf` no second one.
fn fits_some(root: &Value, word: &str, rule: &Value, value: &Value) -> bool {
    let all = rule.as_array().into_iter().flatten();
    let count = all.filter(|one| is_fit(root, one, value)).count();
    count == 1 || (word == "anyOf" && count > 0)
}

fn is_fit(root: &Value, schema: &Value, value: &Value) -> bool {
    let mut wrong = Vec::new();
    fits(root, schema, value, "", &mut wrong);
    wrong.is_empty()
}

fn properties(
    root: &Value,
    rules: Option<&Map<String, Value>>,
    value: &Value,
    at: &str,
    wrong: &mut Vec<String>,
) {
    for (name, rule) in rules.into_iter().flatten() {
        if let Some(inner) = value.get(name) {
            fits(root, rule, inner, &format!("{at}/{name}"), wrong);
        }
    }
    // Every field that is written is in the schema: otherwise nobody would know of it.
    for name in value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name)
    {
        if !rules.is_some_and(|rules| rules.contains_key(name)) {
            wrong.push(format!("{at}: {name} is not in the schema"));
        }
    }
}

fn is_type(rule: &Value, value: &Value) -> bool {
    match rule {
        Value::Array(all) => all.iter().any(|one| is_type(one, value)),
        Value::String(name) => match name.as_str() {
            "array" => value.is_array(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_u64() || value.is_i64(),
            "null" => value.is_null(),
            "number" => value.is_number(),
            "object" => value.is_object(),
            "string" => value.is_string(),
            _ => false,
        },
        Value::Bool(_) | Value::Null | Value::Number(_) | Value::Object(_) => false,
    }
}
