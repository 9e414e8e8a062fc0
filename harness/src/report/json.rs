//! The report as one JSON document, ended by a newline.

use serde::Serialize;

use crate::fail::Failure;
use crate::report::model::Report;

/// Renders a report.
///
/// # Errors
/// As [`line()`].
pub fn render(report: &Report) -> Result<String, Failure> {
    line(report)
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::{Outcome, fixtures};

    #[test]
    fn the_document_has_exactly_the_promised_fields() {
        let mut report = Report::new("host", false, 7);
        report.matrices.push(fixtures::summary(Outcome::Failed));
        report.cases.push(fixtures::wrong(&[1]));
        report.close();
        let text = render(&report).expect("renders");
        assert!(text.ends_with("}\n"));
        let value: serde_json::Value = serde_json::from_str(&text).expect("one document");
        let keys = |value: &serde_json::Value| -> Vec<String> {
            value
                .as_object()
                .expect("an object")
                .keys()
                .cloned()
                .collect()
        };
        assert_eq!(
            keys(&value),
            [
                "schema_version",
                "tool",
                "backend",
                "emulated",
                "passed",
                "partial",
                "seed",
                "elapsed_us",
                "matrices",
                "cases",
                "verdict"
            ]
        );
        assert_eq!(
            keys(&value["cases"][0]),
            [
                "matrix",
                "world_size",
                "group",
                "ranks",
                "check",
                "collective",
                "dtype",
                "count",
                "passed",
                "elapsed_us",
                "detail",
                "algo"
            ]
        );
        assert_eq!(
            keys(&value["verdict"]),
            [
                "class",
                "exit_code",
                "matrix",
                "blamed",
                "text",
                "evidence",
                "next"
            ]
        );
        assert_eq!(value["verdict"]["class"], "DATA");
        assert_eq!(value["passed"], false);
    }
}
