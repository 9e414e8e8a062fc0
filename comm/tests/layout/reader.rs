//! Reads the notation of the fixtures that `compact.py` writes.

use std::collections::HashMap;

use muster_comm::types::Rank;

/// The lines of each `[section]`, without comments.
pub(crate) fn sections(text: &'static str) -> HashMap<&'static str, Vec<&'static str>> {
    let mut sections: HashMap<_, Vec<_>> = HashMap::new();
    let mut name = "";
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            Some(section) => name = section,
            None => sections.entry(name).or_default().push(line),
        }
    }
    sections
}

/// A rank list: `0,4-7,0-14/2`.
pub(crate) fn runs(text: &str) -> Vec<Rank> {
    let mut ranks = Vec::new();
    for run in text.split(',').filter(|run| !run.is_empty()) {
        let (range, step) = run.split_once('/').unwrap_or((run, "1"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let parse = |word: &str| word.parse::<u32>().expect("a rank");
        let step = usize::try_from(parse(step)).expect("a step");
        ranks.extend((parse(first)..=parse(last)).step_by(step).map(Rank));
    }
    ranks
}

/// Groups of one shape: `firsts;offsets`.
pub(crate) fn shape(text: &str) -> Vec<Vec<Rank>> {
    let (firsts, offsets) = text.split_once(';').expect("firsts;offsets");
    let offsets = runs(offsets);
    runs(firsts)
        .into_iter()
        .map(|first| {
            offsets
                .iter()
                .map(|offset| Rank(first.0 + offset.0))
                .collect()
        })
        .collect()
}

/// A row of two-digit base-36 numbers.
pub(crate) fn table_row(line: &str) -> Vec<usize> {
    line.as_bytes()
        .chunks(2)
        .map(|digits| {
            let text = std::str::from_utf8(digits).expect("ASCII");
            usize::from_str_radix(text, 36).expect("base 36")
        })
        .collect()
}

pub(crate) fn number(word: &str) -> i64 {
    word.parse()
        .unwrap_or_else(|_| panic!("not a number: {word:?}"))
}

pub(crate) fn optional(word: &str) -> Option<i64> {
    (word != "-").then(|| number(word))
}
