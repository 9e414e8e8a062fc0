//! A comparison as a document.

use maud::Markup;
use serde_json::json;

use crate::compare::judge::{Compared, Fate};
use crate::compare::report::{CompareReport, SCHEMA_VERSION};
use crate::compare::view;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::report::document::{
    About, Document, Headline, Metric, Model, Suite, SuiteCase, SuiteResult, sheet,
};
use crate::report::html::parts::counted;
use crate::report::json;

/// The columns of the sheet.
const SHEET: &str = "row=name fate base_us new_us base_rounds=rounds.0 new_rounds=rounds.1 ratio \
    ratio_low=ratio_interval.0 ratio_high=ratio_interval.1 p sentence";

/// All fates, worst first, with their words and signs.
pub(super) const FATES: [(Fate, &str); 11] = [
    (Fate::WrongData, "wrong data"),
    (Fate::Regressed, "slower"),
    (Fate::Failed, "failed"),
    (Fate::Missing, "missing"),
    (Fate::MachineSlower, "machine slower"),
    (Fate::Undecided, "undecided"),
    (Fate::StillWrong, "still wrong"),
    (Fate::New, "new"),
    (Fate::Repaired, "repaired"),
    (Fate::Improved, "faster"),
    (Fate::Same, "same"),
];

impl Model for CompareReport {
    const COMMAND: &'static str = "compare";
    const VERSION: u32 = SCHEMA_VERSION;
}

impl Document for CompareReport {
    fn about(&self) -> About<'_> {
        About {
            command: "compare",
            tool: &self.tool,
            schema_version: self.schema_version,
            exit: self.comparison.class,
            partial: false,
            backend: None,
            emulated: false,
            seed: None,
            elapsed_us: 0,
            verdict: None,
            machine: self.machine.as_ref(),
            origin: self.origin.as_ref(),
        }
    }

    fn headline(&self) -> Headline {
        let exit = self.comparison.class;
        let worst = self.comparison.rows.first().filter(|row| is_bad(row.fate));
        let rows = counted(self.comparison.rows.len() as u64, "row", "rows");
        let sentence = match (exit, worst) {
            (Exit::Ok, _) => format!("nothing became worse: {}", self.tally()),
            (_, Some(row)) => format!("{}: {}", row.name, row.sentence),
            (_, None) => match self.comparison.remarks.first() {
                Some(remark) => remark.clone(),
                None => format!("{rows} compared: {}", self.tally()),
            },
        };
        let headline = Headline::of(exit, sentence);
        if exit == Exit::Ok {
            let word = "no regression".to_owned();
            return Headline { word, ..headline };
        }
        headline
    }

    fn json(&self) -> Result<String, Failure> {
        json::line(self)
    }

    fn body(&self) -> Markup {
        super::page::body(self)
    }

    fn suites(&self) -> Vec<Suite> {
        let case = |row: &Compared| SuiteCase {
            class: format!("compare.{}", self.compared),
            name: row.name.clone(),
            elapsed_us: 0,
            result: match row.fate {
                Fate::WrongData | Fate::Regressed | Fate::Failed | Fate::StillWrong => {
                    let line = format!("{}: {}", fate_word(row.fate), row.sentence);
                    SuiteResult::Failed(line, row.sentence.clone())
                }
                Fate::Missing | Fate::Undecided | Fate::MachineSlower => {
                    SuiteResult::Skipped(format!("{}: {}", fate_word(row.fate), row.sentence))
                }
                Fate::New | Fate::Repaired | Fate::Improved | Fate::Same => SuiteResult::Passed,
            },
        };
        vec![Suite {
            name: format!("compare {}", self.compared),
            cases: self.comparison.rows.iter().map(case).collect(),
        }]
    }

    fn sheet(&self) -> Vec<Vec<String>> {
        let fate = |row: &Compared| json!({"fate": fate_word(row.fate)});
        sheet(&self.comparison.rows, SHEET, fate)
    }

    fn metrics(&self) -> Vec<Metric> {
        let by_fate = FATES.iter().map(|(fate, word)| {
            let label = vec![("fate", (*word).to_owned())];
            (label, self.of(*fate).count() as f64)
        });
        let ratios = self.comparison.rows.iter();
        let ratios = ratios.filter_map(|row| Some((vec![("row", row.name.clone())], row.ratio?)));
        vec![
            Metric {
                name: "muster_compare_rows",
                help: "Rows by what became of them",
                samples: by_fate.collect(),
            },
            Metric {
                name: "muster_compare_ratio",
                help: "Median of all ratios of a new round to an old one",
                samples: ratios.collect(),
            },
            Metric::one(
                "muster_compare_machine_ratio",
                "How many times slower the machine itself was",
                self.comparison.machine_ratio,
            ),
        ]
    }

    fn markdown(&self) -> String {
        view::tables(&self.comparison)
    }

    fn text(&self) -> String {
        view::text(&self.comparison)
    }
}

impl CompareReport {
    pub(super) fn of(&self, fate: Fate) -> impl Iterator<Item = &Compared> {
        self.comparison
            .rows
            .iter()
            .filter(move |row| row.fate == fate)
    }

    /// How many rows there are of each fate.
    fn tally(&self) -> String {
        let parts = FATES.iter().filter_map(|(fate, word)| {
            let count = self.of(*fate).count();
            (count > 0).then(|| {
                if *fate == Fate::Same {
                    format!("{} the same", counted(count as u64, "row", "rows"))
                } else {
                    format!("{count} {word}")
                }
            })
        });
        let mut parts: Vec<String> = parts.collect();
        parts.reverse();
        parts.join(", ")
    }
}

const fn is_bad(fate: Fate) -> bool {
    matches!(
        fate,
        Fate::WrongData | Fate::Regressed | Fate::Failed | Fate::Missing
    )
}

/// The word for what became of a row.
pub(super) fn fate_word(fate: Fate) -> &'static str {
    let found = FATES.iter().find(|(known, _)| *known == fate);
    found.map_or("", |(_, word)| word)
}
