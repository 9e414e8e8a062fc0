//! The report as one JSON document, ended by a newline.

use serde::Serialize;

use crate::fail::Failure;

/// Any result as one line of JSON.
///
/// # Errors
/// A failure of class INTERNAL if the model cannot be written as JSON, which none can cause.
pub fn line<T: Serialize + ?Sized>(result: &T) -> Result<String, Failure> {
    let mut text = serde_json::to_string(result).map_err(|error| {
        Failure::internal(format!("the report cannot be written as JSON: {error}"))
    })?;
    text.push('\n');
    Ok(text)
}
