//! The report for people: a table with a line a matrix, the groups that were checked, what failed.
//!
//! A view of the model: nothing is decided here.

use std::fmt::Write as _;
use std::time::Duration;

use comfy_table::{CellAlignment, LineStyle, Table, presets};
use muster_comm::types::Collective;

use crate::out::{BAD, GOOD, STRONG, escaped, terminal_width};
use crate::report::cause::listed;
use crate::verify::model::{Case, GroupCount, MatrixSummary, Outcome, Report};

/// Columns between two columns of a table.
const GAP: usize = 2;
/// Failures shown in full below the table; the JSON report holds all of them.
const FAILURES_SHOWN: usize = 12;

/// Renders a report, with colours; the printer strips them where they do not belong.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut text = String::new();
    if report.emulated {
        let _ = writeln!(
            text,
            "{STRONG}emulated device: nothing below was measured on hardware{STRONG:#}"
        );
    }
    let _ = writeln!(text, "{}", matrices(report));
    if report
        .matrices
        .iter()
        .any(|matrix| !matrix.groups.is_empty())
    {
        let _ = writeln!(
            text,
            "\nGroups of each kind, and how many of the collectives made in them passed:\n{}",
            groups(report, terminal_width())
        );
        let names = collectives(report, |_| true)
            .into_iter()
            .map(|(name, _)| name);
        let names: Vec<&str> = names.collect();
        let _ = writeln!(text, "\nCollectives: {}", names.join(", "));
    }
    not_applicable(report, &mut text);
    failures(report, &mut text);
    closing(report, &mut text);
    text
}

/// What the devices do not have, a line a type and reduction.
fn not_applicable(report: &Report, text: &mut String) {
    let mut lines: Vec<(String, Vec<&str>, u64)> = Vec::new();
    for row in &report.not_applicable {
        let what = match (&row.dtype, &row.op) {
            (Some(dtype), Some(op)) => format!("{dtype} by {op}"),
            (Some(dtype), None) => dtype.clone(),
            (None, _) => "all types".to_owned(),
        };
        let call = row.collective.as_deref().unwrap_or_default();
        match lines.iter_mut().find(|(known, ..)| *known == what) {
            Some((_, calls, cases)) => {
                calls.push(call);
                *cases += row.cases;
            }
            None => lines.push((what, vec![call], row.cases)),
        }
    }
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\nNot applicable on these devices, neither passed nor failed:"
    );
    for (what, calls, cases) in lines {
        let _ = writeln!(text, "  {what}: {} ({cases} cases)", calls.join(", "));
    }
}

fn matrices(report: &Report) -> Table {
    let mut table = Table::new();
    // A terminal of 80 columns shows it whole.
    table.load_style(presets::NOTHING.header_separator(LineStyle::none().fill('─')));
    table.set_header([
        "Matrix",
        "World size",
        "TP",
        "EP",
        "DP",
        "CP",
        "PP",
        "Groups",
        "Checks passed",
        "Time",
        "Verdict",
    ]);
    for matrix in &report.matrices {
        table.add_row(row(matrix));
    }
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 1));
        if (1..10).contains(&at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn row(matrix: &MatrixSummary) -> [String; 11] {
    let groups: u32 = matrix.groups.iter().map(|group| group.count).sum();
    [
        escaped(&matrix.matrix),
        matrix.world_size.to_string(),
        matrix.tp.to_string(),
        matrix.ep.to_string(),
        matrix.dp.to_string(),
        matrix.cp.to_string(),
        matrix.pp.to_string(),
        groups.to_string(),
        format!("{}/{}", matrix.cases_passed, matrix.cases),
        seconds(matrix.elapsed_us),
        matrix.outcome.word().to_owned(),
    ]
}

/// One line a kind of group, one column a matrix; several tables where the terminal is too narrow for one.
fn groups(report: &Report, width: Option<usize>) -> String {
    let mut kinds: Vec<&str> = Vec::new();
    for group in report.matrices.iter().flat_map(|matrix| &matrix.groups) {
        if !kinds.contains(&group.kind.as_str()) {
            kinds.push(&group.kind);
        }
    }
    let counts = |matrix: &MatrixSummary| {
        let of = |kind: &&str| {
            let mut groups = matrix.groups.iter();
            let group = groups.find(|group| group.kind == **kind);
            group.map_or_else(|| "-".to_owned(), |group| cell(report, matrix, group))
        };
        let cells: Vec<String> = kinds.iter().map(of).collect();
        (escaped(&matrix.matrix), cells)
    };
    let columns: Vec<(String, Vec<String>)> = report.matrices.iter().map(counts).collect();
    let wide = |(name, cells): &(String, Vec<String>)| {
        cells
            .iter()
            .map(String::len)
            .max()
            .unwrap_or(0)
            .max(name.len())
            + GAP
    };
    let kind_width = kinds.iter().map(|kind| kind.len()).max().unwrap_or(0) + 2 * GAP;
    let mut tables: Vec<String> = Vec::new();
    let mut rest = columns.as_slice();
    while !rest.is_empty() {
        let mut room = width.unwrap_or(usize::MAX).saturating_sub(kind_width);
        let fits = |column: &&(String, Vec<String>)| {
            let left = room.checked_sub(wide(column));
            room = left.unwrap_or(0);
            left.is_some()
        };
        let (block, others) = rest.split_at(rest.iter().take_while(fits).count().max(1));
        tables.push(block_of(&kinds, block));
        rest = others;
    }
    tables.join("\n\n")
}

/// A table of some matrices.
fn block_of(kinds: &[&str], block: &[(String, Vec<String>)]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let names = block.iter().map(|(name, _)| name.clone());
    table.set_header(std::iter::once(String::new()).chain(names));
    for (at, kind) in kinds.iter().enumerate() {
        let counts = block.iter().map(|(_, cells)| cells[at].clone());
        table.add_row(std::iter::once(format!("  {kind}")).chain(counts));
    }
    for column in 1..=block.len() {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

/// How many groups, and how many of their collectives passed everywhere: `4 x 19/19`.
fn cell(report: &Report, matrix: &MatrixSummary, group: &GroupCount) -> String {
    let calls = collectives(report, |case| {
        case.matrix == matrix.matrix && case.group == group.kind
    });
    let passed = calls.iter().filter(|(_, passed)| *passed).count();
    format!("{} x {passed}/{}", group.count, calls.len())
}

/// The collectives of the cases that are wanted, in the order of the vocabulary, and whether all
/// of their cases passed.
fn collectives(report: &Report, wanted: impl Fn(&Case) -> bool) -> Vec<(&'static str, bool)> {
    let mut passed: [Option<bool>; Collective::ALL.len()] = [None; Collective::ALL.len()];
    for case in report.cases.iter().filter(|case| wanted(case)) {
        let name = case.collective.as_deref();
        let place = Collective::ALL
            .iter()
            .position(|one| Some(one.name()) == name);
        if let Some(place) = place {
            passed[place] = Some(passed[place].unwrap_or(true) && case.passed);
        }
    }
    let seen = Collective::ALL.into_iter().zip(passed);
    seen.filter_map(|(one, passed)| Some((one.name(), passed?)))
        .collect()
}

fn failures(report: &Report, text: &mut String) {
    for matrix in &report.matrices {
        if let Some(reason) = &matrix.reason {
            let _ = writeln!(
                text,
                "\n{STRONG}{} {}{STRONG:#}: {}",
                matrix.matrix,
                matrix.outcome.word(),
                escaped(reason)
            );
        }
    }
    // Cases that never ran because their matrix was aborted say nothing that the cause does not.
    let is_aborted = |case: &Case| {
        report
            .matrices
            .iter()
            .any(|matrix| matrix.outcome == Outcome::Aborted && matrix.matrix == case.matrix)
    };
    let is_told = |case: &&Case| {
        !is_aborted(case)
            || case
                .detail
                .as_ref()
                .is_some_and(|detail| detail.first_wrong.is_some())
    };
    let total = report.failures().filter(is_told).count();
    if total == 0 {
        return;
    }
    let _ = writeln!(text, "\n{BAD}{total} failed{BAD:#}");
    for case in report.failures().filter(is_told).take(FAILURES_SHOWN) {
        failure(case, text);
    }
    if total > FAILURES_SHOWN {
        let _ = writeln!(
            text,
            "  … and {} more; --format json lists all of them",
            total - FAILURES_SHOWN
        );
    }
}

fn failure(case: &Case, text: &mut String) {
    let _ = write!(
        text,
        "  {STRONG}{}{STRONG:#}  group {} [{}]  {}",
        case.matrix,
        case.group,
        listed(&case.ranks),
        case.collective.as_deref().unwrap_or(&case.check)
    );
    if let Some(dtype) = &case.dtype {
        let _ = write!(text, "  {dtype}");
    }
    if let Some(count) = case.count {
        let _ = write!(text, "  count {count}");
    }
    text.push('\n');
    let Some(detail) = &case.detail else {
        return;
    };
    let _ = writeln!(text, "      {}", escaped(&detail.text));
    if let (Some(element), Some(expected), Some(got)) =
        (detail.first_wrong, &detail.expected, &detail.got)
    {
        let _ = writeln!(
            text,
            "      first wrong element {element}: expected {}, got {}, seen by rank {}",
            escaped(expected),
            escaped(got),
            listed(&detail.seen_by_all)
        );
    }
    if !detail.blamed.is_empty() {
        let _ = writeln!(text, "      blamed: rank {}", listed(&detail.blamed));
    }
}

fn closing(report: &Report, text: &mut String) {
    let passed: u64 = report
        .matrices
        .iter()
        .map(|matrix| matrix.cases_passed)
        .sum();
    let planned: u64 = report.matrices.iter().map(|matrix| matrix.cases).sum();
    let ran = report
        .matrices
        .iter()
        .filter(|matrix| matrix.outcome != Outcome::Skipped)
        .count();
    let summary = format!(
        "{passed}/{planned} checks on {ran} {} in {}, backend {}{}",
        if ran == 1 { "matrix" } else { "matrices" },
        seconds(report.elapsed_us),
        report.backend,
        if report.emulated { " (emulated)" } else { "" },
    );
    let Some(verdict) = &report.verdict else {
        let _ = writeln!(text, "\n{GOOD}passed{GOOD:#}: {summary}");
        return;
    };
    let _ = writeln!(text, "\n{BAD}not passed{BAD:#}: {summary}");
    if let Some(found) = &verdict.found {
        // The one line that every rank prints too; what only the launcher knows follows.
        let _ = writeln!(text, "{BAD}{}{BAD:#}", escaped(&found.line()));
    }
    let class = verdict.class.class();
    match &verdict.found {
        Some(_) => text.push_str("  seen by the launcher:"),
        None => {
            let _ = write!(text, "{BAD}VERDICT {class}{BAD:#}");
        }
    }
    if !verdict.blamed.is_empty() {
        let _ = write!(text, " rank {}", listed(&verdict.blamed));
    }
    if let Some(matrix) = &verdict.matrix {
        let _ = write!(text, " in {matrix}");
    }
    let _ = writeln!(text, ": {}", escaped(&verdict.text));
    for line in &verdict.evidence {
        if *line != verdict.text {
            let _ = writeln!(text, "  evidence: {}", escaped(line));
        }
    }
    if let Some(next) = verdict.next.as_ref().filter(|_| verdict.found.is_none()) {
        let _ = writeln!(text, "  next: {}", escaped(next));
    }
}

/// A time as people read it.
#[must_use]
pub fn seconds(elapsed_us: u64) -> String {
    let elapsed = Duration::from_micros(elapsed_us);
    if elapsed < Duration::from_millis(1) {
        format!("{elapsed_us} us")
    } else if elapsed < Duration::from_secs(1) {
        format!("{} ms", elapsed.as_millis())
    } else {
        format!("{:.1} s", elapsed.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;
    use crate::report::cause::Cause;
    use crate::verify::fixtures;
    use crate::verify::model::{Detail, GroupCount};

    fn report(outcome: Outcome) -> Report {
        let mut report = Report::new("host", false, 1);
        report.matrices.push(MatrixSummary {
            groups: vec![
                GroupCount {
                    kind: "tp".to_owned(),
                    count: 4,
                },
                GroupCount {
                    kind: "ep".to_owned(),
                    count: 2,
                },
            ],
            cases: 1,
            cases_passed: u64::from(outcome == Outcome::Passed),
            elapsed_us: 1_250_000,
            bring_up_us: None,
            ..fixtures::summary(outcome)
        });
        report
    }

    fn plain(report: &Report) -> String {
        anstream::adapter::strip_str(&render(report)).to_string()
    }

    #[test]
    fn a_pass_says_so_in_words_that_users_know() {
        let mut report = report(Outcome::Passed);
        report.close();
        let text = plain(&report);
        for word in [
            "World size",
            "TP",
            "EP",
            "DP",
            "1/1",
            "passed",
            "1.2 s",
            "  ep",
        ] {
            assert!(text.contains(word), "{word:?} is missing from\n{text}");
        }
        assert!(!text.contains("VERDICT"), "{text}");
    }

    #[test]
    fn the_table_fits_into_a_terminal_of_80_columns() {
        let mut report = report(Outcome::Passed);
        let wide = MatrixSummary {
            matrix: "tp2cp2ep2@256".to_owned(),
            world_size: 256,
            cases: 12_345,
            cases_passed: 12_345,
            ..report.matrices[0].clone()
        };
        report.matrices.push(wide);
        let text = matrices(&report).to_string();
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(longest.is_some_and(|longest| longest <= 80), "{text}");
    }

    #[test]
    fn a_failure_names_group_collective_type_element_values_and_rank() {
        let mut report = report(Outcome::Failed);
        report.cases.push(Case {
            collective: Some("all_gather".to_owned()),
            dtype: Some("bf16".to_owned()),
            detail: Some(Detail {
                blamed: vec![4],
                seen_by: 0,
                seen_by_all: vec![0, 2, 6],
                first_wrong: Some(2017),
                expected: Some("5".to_owned()),
                got: Some("-3".to_owned()),
                wrong: Some(1),
                text: "1 element wrong \x1b[2J".to_owned(),
            }),
            ..fixtures::case(false)
        });
        report.close();
        let text = plain(&report);
        for word in [
            "group ep [0, 2, 4, 6]",
            "all_gather",
            "bf16",
            "element 2017",
            "expected 5",
            "got -3",
            "rank 0, 2, 6",
            "VERDICT DATA rank 4 in tp2ep4",
        ] {
            assert!(text.contains(word), "{word:?} is missing from\n{text}");
        }
        assert!(!text.contains('\x1b'), "{text:?}");
    }

    #[test]
    fn a_death_is_told_with_its_evidence_and_the_next_step() {
        let mut report = report(Outcome::Aborted);
        let mut verdict = Cause::new(Exit::PeerDead, "rank 2 was killed by signal 9 (SIGKILL)");
        verdict.blamed = vec![2];
        verdict.evidence = vec!["rank 0: all_reduce failed".to_owned()];
        verdict.next = Some("look at the kernel log".to_owned());
        report.verdict = Some(verdict);
        report.close();
        let text = plain(&report);
        for word in [
            "not passed",
            "VERDICT PEER_DEAD rank 2: rank 2 was killed",
            "evidence: rank 0",
            "next: look",
        ] {
            assert!(text.contains(word), "{word:?} is missing from\n{text}");
        }
    }
}
