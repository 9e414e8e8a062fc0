//! The schema of a result file, made from the type that is written: `docs/schema/` holds them, and a
//! check of the repository compares. Only that check makes schemas: the tool is built without the
//! feature `schema`.

#[cfg(feature = "schema")]
use schemars::{JsonSchema, Schema, generate::SchemaSettings};
#[cfg(feature = "schema")]
use serde_json::{Value, json};

/// A type with a schema; every type, where none are made.
#[cfg(feature = "schema")]
pub trait Described: JsonSchema {}
#[cfg(feature = "schema")]
impl<T: JsonSchema> Described for T {}

/// A type with a schema; every type, where none are made.
#[cfg(not(feature = "schema"))]
pub trait Described {}
#[cfg(not(feature = "schema"))]
impl<T> Described for T {}

/// The schema of a type as it is written, whose version is the one that is told. `texts` has
/// descriptions by field; that of the whole has no name.
#[cfg(feature = "schema")]
#[must_use]
pub fn of<T: JsonSchema>(command: &str, version: u32, texts: &[(&str, &str)]) -> String {
    let generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    let mut schema: Schema = generator.into_root_schema_for::<T>();
    schema.insert(
        "title".to_owned(),
        format!("result of muster {command}, version {version}").into(),
    );
    let own = format!("`{command}`.");
    for (name, text) in [("command", own.as_str())].iter().chain(texts) {
        if name.is_empty() {
            schema.insert("description".to_owned(), json!(text));
        } else if let Some(field) = field(&mut schema, name) {
            field.insert("description".to_owned(), json!(text));
        }
    }
    if let Some(field) = field(&mut schema, "schema_version") {
        field.insert("const".to_owned(), json!(version));
    }
    // A schema is JSON by its making; `{:#}` writes it with line breaks.
    format!("{:#}\n", schema.as_value())
}

#[cfg(feature = "schema")]
fn field<'a>(schema: &'a mut Schema, name: &str) -> Option<&'a mut serde_json::Map<String, Value>> {
    schema.get_mut("properties")?.get_mut(name)?.as_object_mut()
}
