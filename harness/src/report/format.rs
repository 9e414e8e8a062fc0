//! In which form a report is written: the ending of the file's name says it.

use std::path::Path;

use crate::fail::Failure;
use crate::report::document::Document;
use crate::report::{csv, html, junit, markdown, prometheus};

/// A form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated values, a row for each case or line.
    Csv,
    /// One page that needs nothing else.
    Html,
    /// The whole result.
    Json,
    /// JUnit XML.
    Junit,
    /// Markdown.
    Markdown,
    /// The text format of Prometheus.
    Prometheus,
}

/// Endings and what they stand for.
const ENDINGS: [(&str, Format); 6] = [
    ("html", Format::Html),
    ("xml", Format::Junit),
    ("md", Format::Markdown),
    ("csv", Format::Csv),
    ("prom", Format::Prometheus),
    ("json", Format::Json),
];

/// What is allowed, for messages.
pub const ALLOWED: &str = ".html, .xml (JUnit), .md, .csv, .prom (Prometheus) or .json";

impl Format {
    /// The form that the ending of a name asks for.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_str()?;
        let found = ENDINGS
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(ending));
        found.map(|(_, format)| *format)
    }

    /// The report in this form.
    ///
    /// # Errors
    /// A failure of class INTERNAL where it cannot be written in this form, which nothing known
    /// causes.
    pub fn render(self, document: &dyn Document) -> Result<String, Failure> {
        match self {
            Self::Csv => Ok(csv::render(document)),
            Self::Html => Ok(html::page(document)),
            Self::Json => document.json(),
            Self::Junit => junit::render(document),
            Self::Markdown => Ok(markdown::render(document)),
            Self::Prometheus => prometheus::render(document),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_decides_whatever_its_case() {
        for (ending, format) in ENDINGS {
            assert_eq!(
                Format::of(Path::new(&format!("a.b.{ending}"))),
                Some(format)
            );
            assert!(ALLOWED.contains(&format!(".{ending}")), "{ending}");
        }
        assert_eq!(Format::of(Path::new("OUT.HTML")), Some(Format::Html));
        for none in ["html", ".html", "a.htm", "a.", "dir.html/file", ""] {
            assert_eq!(Format::of(Path::new(none)), None, "{none}");
        }
    }
}
