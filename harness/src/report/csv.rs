//! A report as comma-separated values, as RFC 4180 has them: a line of names, then a row each.

use crate::report::document::Document;

/// The rows.
#[must_use]
pub fn render(document: &dyn Document) -> String {
    let mut text = String::new();
    for row in document.sheet() {
        let fields: Vec<String> = row.iter().map(|field| quoted(field)).collect();
        text.push_str(&fields.join(","));
        text.push('\n');
    }
    text
}

/// A field that may hold commas or quotes.
#[must_use]
pub fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_commas_are_quoted() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a \"b\", c"), "\"a \"\"b\"\", c\"");
    }
}
