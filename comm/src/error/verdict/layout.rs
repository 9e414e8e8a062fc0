//! The line of a verdict as a terminal shows it: its fields one below the other.

use std::fmt::Write as _;

use super::Class;

/// Columns of a terminal that is not asked for its width.
pub const COLUMNS: usize = 80;
/// Columns before the value of a field: two, the longest name, two.
const INDENT: usize = 14;

/// The fields of a verdict's line, as they stand in it.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    pub(super) class: Class,
    pub(super) who: &'a str,
    pub(super) what: &'a str,
    pub(super) place: &'a str,
    pub(super) since: &'a str,
    pub(super) confidence: &'a str,
    pub(super) evidence: &'a str,
    pub(super) others: &'a str,
    pub(super) next: &'a str,
}

impl<'a> Fields<'a> {
    /// Those of a line; `None` where it is no verdict.
    pub(super) fn of(line: &'a str) -> Option<Self> {
        let (class, rest) = line.strip_prefix("VERDICT ")?.split_once(" who=")?;
        let (who, rest) = rest.split_once(" what=")?;
        let (what, rest) = rest.split_once(" where=")?;
        let (place, rest) = rest.split_once(" since=")?;
        let (since, rest) = rest.split_once(" confidence=")?;
        let (confidence, rest) = rest.split_once(" evidence=")?;
        let (evidence, rest) = rest.split_once(" others=")?;
        let (others, next) = rest.split_once(" next=")?;
        Some(Self {
            class: Class::named(class)?,
            who,
            what,
            place,
            since,
            confidence,
            evidence,
            others,
            next,
        })
    }
}

/// A verdict's line over several lines of a terminal, without a newline at the end; `None` where the line is no verdict.
#[must_use]
pub fn lay_out(line: &str) -> Option<String> {
    let fields = Fields::of(line)?;
    let mut text = format!("VERDICT {}", fields.class.name());
    field(&mut text, "who", fields.who);
    field(&mut text, "what", fields.what);
    field(&mut text, "where", fields.place);
    field(&mut text, "since", fields.since);
    field(&mut text, "confidence", fields.confidence);
    for (index, seen) in fields.evidence.split("; ").enumerate() {
        field(&mut text, if index == 0 { "evidence" } else { "" }, seen);
    }
    field(&mut text, "others", fields.others);
    field(&mut text, "next", fields.next);
    Some(text)
}

/// Appends a field, its value broken between words.
fn field(text: &mut String, name: &str, value: &str) {
    // Writing to a string cannot fail.
    let _ = write!(text, "\n  {name:<12}");
    wrap(text, value, COLUMNS, [INDENT; 2], |word| {
        word.chars().count()
    });
}

/// Appends words to a text whose last line has `begun` columns, and lines of `indent` columns before what follows; none is longer than
/// `columns`, but a word that is stays whole. `width` says how many columns a word takes.
pub fn wrap(
    text: &mut String,
    words: &str,
    columns: usize,
    [begun, indent]: [usize; 2],
    width: impl Fn(&str) -> usize,
) {
    let mut column = begun;
    for (index, word) in words.split(' ').enumerate() {
        let length = width(word);
        if column > indent && column + 1 + length > columns {
            text.push('\n');
            text.push_str(&" ".repeat(indent));
            column = indent;
        } else if index > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::*;

    #[test]
    fn a_terminal_shows_every_field_of_a_verdict_below_the_other() {
        let mut verdict = example();
        verdict.place = "running user code, last finished all_reduce #183 on tp0 f32[1048576] sum \
                         at training/parallel/optimizer_step_of_the_model_with_a_long_name.rs:62"
            .to_owned();
        assert_eq!(
            lay_out(&verdict.line()).unwrap(),
            "VERDICT NOT_JOINED\n\
             \x20 who         rank 2 (n1, pid 4711; tp0 ep1)\n\
             \x20 what        all_reduce #184 on tp0 f32[1048576] sum\n\
             \x20 where       running user code, last finished all_reduce #183 on tp0\n\
             \x20             f32[1048576] sum at\n\
             \x20             training/parallel/optimizer_step_of_the_model_with_a_long_name.rs:62\n\
             \x20 since       12:03:04.512Z (+5.0 s)\n\
             \x20 confidence  certain\n\
             \x20 evidence    state R\n\
             \x20             answers\n\
             \x20 others      3 waiting: ranks 0,1,3\n\
             \x20 next        look at rank 2's stack"
        );
    }

    #[test]
    fn other_lines_stay_as_they_are() {
        for line in ["", "VERDICT DATA rank 4 in tp2ep4: wrong", "error: no"] {
            assert_eq!(lay_out(line), None, "{line}");
        }
    }
}
