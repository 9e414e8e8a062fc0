//! The schema of every result file, made from the types that are written: `docs/schema/` holds them,
//! and a check of the repository compares.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

use crate::bench::model::{self as bench, BenchReport};
use crate::bench::tune::{self, TuneReport};
use crate::drill::model as drill;
use crate::moe::report::{self as moe, MoeReport};
use crate::report::compared::{self, CompareReport};
use crate::report::model as verify;

/// The schema of results of `verify`.
#[must_use]
pub fn of_verify() -> String {
    document::<verify::Report>("verify", verify::SCHEMA_VERSION)
}

/// The schema of results of `bench`.
#[must_use]
pub fn of_bench() -> String {
    document::<BenchReport>("bench", bench::SCHEMA_VERSION)
}

/// The schema of results of `tune`.
#[must_use]
pub fn of_tune() -> String {
    document::<TuneReport>("tune", tune::SCHEMA_VERSION)
}

/// The schema of results of `moe`.
#[must_use]
pub fn of_moe() -> String {
    document::<MoeReport>("moe", moe::SCHEMA_VERSION)
}

/// The schema of results of `compare`.
#[must_use]
pub fn of_compare() -> String {
    document::<CompareReport>("compare", compared::SCHEMA_VERSION)
}

/// The schema of results of `drill`.
#[must_use]
pub fn of_drill() -> String {
    document::<drill::Report>("drill", drill::SCHEMA_VERSION)
}

/// The schema of a type as it is written, whose version is the one that is told.
fn document<T: JsonSchema>(command: &str, version: u32) -> String {
    let generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    let mut schema: Schema = generator.into_root_schema_for::<T>();
    schema.insert(
        "title".to_owned(),
        format!("result of muster {command}, version {version}").into(),
    );
    let told = schema
        .get_mut("properties")
        .and_then(|all| all.get_mut("schema_version"));
    if let Some(Value::Object(told)) = told {
        told.insert("const".to_owned(), json!(version));
    }
    // A schema is JSON by its making; `{:#}` writes it with line breaks.
    format!("{:#}\n", schema.as_value())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_pins_its_version_and_requires_it() {
        for text in [of_verify(), of_bench(), of_moe(), of_compare(), of_drill()] {
            let schema: Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(schema["properties"]["schema_version"]["const"], 1, "{text}");
            let required = schema["required"].as_array().expect("a list");
            for name in ["schema_version", "tool", "passed"] {
                assert!(required.iter().any(|one| one == name), "{name} in {text}");
            }
        }
    }
}
