//! From two sides' rows to what is different, what is worse, and an exit code.
//!
//! JUDGE-1: a row is a regression only if the rank test over rounds says so, corrected for the number
//! of rows, and the effect is above the threshold, and neither what all rows have in common nor what
//! the machine itself did explains it.
//! JUDGE-2: what cannot be decided is said, and never counts as the same: neither a row nor all of them together.
//! JUDGE-3: wrong data outranks every time.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::compare::common::common;
use crate::compare::conditions::{is_enough, middle, usual, without};
use crate::compare::machine::machine_ratio;
use crate::compare::margin::{Margin, may_be_two_states};
use crate::compare::rank_test::{self, Effect};
use crate::compare::states::in_pairs;
use crate::exit::Exit;
use crate::report::document::Row;
use crate::report::machine::Pulse;

/// Probability of any false alarm in a comparison, if nothing has changed and rounds are independent.
pub const LEVEL: f64 = 0.05;

/// What the caller wants to hear of.
#[derive(Clone, Copy, Debug)]
pub struct Wishes {
    /// Least effect that counts, as a part: 0.05.
    pub threshold: f64,
    /// How much slower a row may be at most to count as the same, as a part: 0.1.
    pub margin: f64,
    /// Whether rows that are not in the new file are no failure.
    pub allow_missing: bool,
    /// Whether each round of the new side was taken beside the round of the base with its number.
    pub pairs: bool,
}

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// The new data is wrong, the old was right.
    WrongData,
    /// Slower.
    Regressed,
    /// Passed before and does not now, for another reason than wrong data.
    Failed,
    /// Only in the base.
    Missing,
    /// Slower in these figures, but so was the machine.
    MachineSlower,
    /// Neither a difference that counts nor its absence is shown.
    Undecided,
    /// Wrong or failed on both sides.
    StillWrong,
    /// Only in the new file.
    New,
    /// Was wrong or failed, and is right now.
    Repaired,
    /// Faster.
    Improved,
    /// No difference that counts.
    Same,
}

/// One row of the comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Compared {
    /// What it is about.
    pub name: String,
    /// What became of it.
    pub fate: Fate,
    /// Median of the rounds before, in microseconds.
    pub base_us: Option<f64>,
    /// Median of the rounds now.
    pub new_us: Option<f64>,
    /// Rounds before and now.
    pub rounds: (usize, usize),
    /// Median of all ratios of new rounds to old ones.
    pub ratio: Option<f64>,
    /// The 95 % interval of the ratio.
    pub ratio_interval: Option<(f64, f64)>,
    /// Probability of a difference like this by chance, corrected for all rows.
    pub p: Option<f64>,
    /// About how many rounds of each side would decide, where the row is undecided.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rounds_wanted: Option<usize>,
    /// What is to be said, one sentence.
    pub sentence: String,
}

/// The outcome of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Comparison {
    /// The rows, worst first.
    pub rows: Vec<Compared>,
    /// Median ratio of all rows; 1 where there are too few to tell.
    pub common_ratio: f64,
    /// How many times slower the machine itself was, by its worst figure; 1 for no change.
    pub machine_ratio: f64,
    /// What is to be said about all rows together.
    pub remarks: Vec<String>,
    /// The class of the outcome.
    pub class: Exit,
    /// Its number.
    pub exit_code: u8,
}

/// Compares two sides. `base_pulses` and `new_pulses` are looks at the machine during the runs.
#[must_use]
pub fn judge(
    base: &[Row],
    new: &[Row],
    base_pulses: &[Pulse],
    new_pulses: &[Pulse],
    wishes: &Wishes,
) -> Comparison {
    // Whether everything became slower is asked of all rounds, one row of the usual ones.
    let everything = common(&measured(base, new), wishes.pairs);
    let (base, new, unusual) = usual_rows(base, new, wishes.pairs);
    let (base, new) = (&base[..], &new[..]);
    let news: HashMap<&str, &Row> = new.iter().map(|row| (row.name.as_str(), row)).collect();
    let known: HashSet<&str> = base.iter().map(|row| row.name.as_str()).collect();
    let pairs: Vec<(&Row, Option<&Row>)> = base
        .iter()
        .map(|row| (row, news.get(row.name.as_str()).copied()))
        .collect();
    let measured = measured(base, new);
    let common = common(&measured, wishes.pairs).ratio;
    let (machine, mut remarks) = machine_ratio(base_pulses, new_pulses);
    let mut times = times(&measured, common, machine, wishes);
    let mut rows: Vec<Compared> = pairs
        .iter()
        .map(|(base, new)| one(base, *new, times.remove(base.name.as_str())))
        .collect();
    rows.extend(
        new.iter()
            .filter(|row| !known.contains(row.name.as_str()))
            .map(|row| bare(row, Fate::New, "only in the new file".to_owned())),
    );
    rows.sort_by(|a, b| {
        let ratio = |row: &Compared| row.ratio.unwrap_or(1.0);
        a.fate.cmp(&b.fate).then(ratio(b).total_cmp(&ratio(a)))
    });
    let is_common =
        everything.p_slower <= LEVEL && everything.ratio > (1.0 + 2.0 * wishes.threshold) * machine;
    remarks.extend(unusual);
    let shown = if is_common { everything.ratio } else { common };
    let is_open = !is_common && common > 1.0 + wishes.margin;
    remarks.extend(common_remark(shown, machine, is_common, measured.len()));
    remarks.extend(is_open.then(|| {
        format!(
            "all rows together are slower than the margin of {:.0} %, and neither the program nor the machine is shown to be the cause: \
             measure again",
            wishes.margin * 100.0
        )
    }));
    let class = class_of(&rows, is_common, is_open, wishes);
    Comparison {
        rows,
        common_ratio: common,
        machine_ratio: machine,
        remarks,
        class,
        exit_code: class.code(),
    }
}

/// The rows that were timed on both sides.
fn measured<'a>(base: &'a [Row], new: &'a [Row]) -> Vec<(&'a Row, &'a Row)> {
    let news: HashMap<&str, &Row> = new.iter().map(|row| (row.name.as_str(), row)).collect();
    let both = base
        .iter()
        .filter_map(|base| Some((base, *news.get(base.name.as_str())?)));
    both.filter(|(base, new)| !base.rounds_us.is_empty() && !new.rounds_us.is_empty())
        .collect()
}

/// The rows of both sides without their unusual rounds, and how many of these there were, if any. Of pairs both rounds are left out where one is.
fn usual_rows(base: &[Row], new: &[Row], pairs: bool) -> (Vec<Row>, Vec<Row>, Option<String>) {
    let (mut of_base, mut of_new) = (usual(base), usual(new));
    if pairs {
        in_pairs(&mut of_base, &mut of_new);
        if !is_enough(&of_base) {
            of_base.fill(true);
            of_new.fill(true);
        }
    }
    let out = |kept: &[bool]| kept.iter().filter(|kept| !**kept).count();
    let left_out = (out(&of_base), out(&of_new));
    let remark = (left_out != (0, 0)).then(|| {
        format!(
            "rounds in which everything was a quarter slower or faster than in the rest of their side are left out: \
             {} of {} of the base, {} of {} of the new run",
            left_out.0,
            of_base.len(),
            left_out.1,
            of_new.len()
        )
    });
    (without(base, &of_base), without(new, &of_new), remark)
}

/// What the times of a row show.
struct Timed {
    fate: Fate,
    effect: Effect,
    /// Corrected for all rows.
    p: f64,
    /// Rounds that would decide.
    wanted: Option<usize>,
}

/// The ratio of the medians of both sides, or the median of the ratios of pairs.
fn of_medians(base: &Row, new: &Row, pairs: bool) -> f64 {
    let (base, new) = (&base.rounds_us, &new.rounds_us);
    if pairs && base.len() == new.len() {
        let ratios = new.iter().zip(base).map(|(new, base)| new / base);
        return middle(&ratios.collect::<Vec<_>>()).unwrap_or(1.0);
    }
    let both = middle(new).zip(middle(base));
    both.map_or(1.0, |(new, base)| new / base)
}

/// Of every row that was timed on both sides, what its times show.
fn times<'a>(
    measured: &[(&'a Row, &Row)],
    common: f64,
    machine: f64,
    wishes: &Wishes,
) -> HashMap<&'a str, Timed> {
    // What all rows have in common is no fault of one. A row that stayed while others got faster has
    // not become slower.
    let scale = common.max(1.0);
    let effects: Vec<Option<Effect>> = measured
        .iter()
        .map(|(base, new)| {
            let scaled: Vec<f64> = base.rounds_us.iter().map(|time| time * scale).collect();
            rank_test::compare_rounds(&scaled, &new.rounds_us, wishes.pairs)
        })
        .collect();
    let p_of = |p: fn(&Effect) -> f64| -> Vec<f64> {
        let all: Vec<f64> = effects
            .iter()
            .map(|effect| effect.as_ref().map_or(1.0, p))
            .collect();
        rank_test::holm(&all)
    };
    let (slower, faster) = (
        p_of(|effect| effect.p_slower),
        p_of(|effect| effect.p_faster),
    );
    let limit = 1.0 + wishes.threshold;
    let margin = Margin {
        margin: wishes.margin,
        rows: measured.len(),
        pairs: wishes.pairs,
    };
    let mut fates = HashMap::new();
    for (index, (base, new)) in measured.iter().enumerate() {
        let Some(effect) = effects[index] else {
            continue;
        };
        let is_slower = slower[index] <= LEVEL && effect.ratio >= limit;
        let (fate, p) = if is_slower && !may_be_two_states(&effect, limit) {
            let is_machine = effect.ratio * scale <= machine * limit;
            let fate = if is_machine {
                Fate::MachineSlower
            } else {
                Fate::Regressed
            };
            (fate, slower[index])
        } else if faster[index] <= LEVEL && effect.ratio * scale <= 1.0 / limit {
            (Fate::Improved, faster[index])
        } else {
            let fate = if margin.holds(&effect, of_medians(base, new, wishes.pairs) / scale) {
                Fate::Same
            } else {
                Fate::Undecided
            };
            (fate, slower[index].min(faster[index]))
        };
        let rounds = base.rounds_us.len().min(new.rounds_us.len());
        let wanted = (fate == Fate::Undecided)
            .then(|| margin.rounds_wanted(&effect, rounds))
            .flatten();
        let absolute = Effect {
            ratio: effect.ratio * scale,
            low: effect.low * scale,
            high: effect.high * scale,
            ..effect
        };
        let timed = Timed {
            fate,
            effect: absolute,
            p,
            wanted,
        };
        fates.insert(base.name.as_str(), timed);
    }
    fates
}

fn one(base: &Row, new: Option<&Row>, time: Option<Timed>) -> Compared {
    let Some(new) = new else {
        return bare(base, Fate::Missing, "not in the new file".to_owned());
    };
    let words = |row: &Row| {
        let text = row.failed.as_ref().or(row.detail.as_ref());
        text.map_or_else(String::new, |text| format!(": {text}"))
    };
    let (was_bad, is_bad) = (
        base.wrong > 0 || base.failed.is_some(),
        new.wrong > 0 || new.failed.is_some(),
    );
    let mut row = match (was_bad, is_bad) {
        (_, true) if new.wrong > 0 && base.wrong == 0 => bare(
            new,
            Fate::WrongData,
            format!("wrong data now, right before{}", words(new)),
        ),
        (true, true) => bare(
            new,
            Fate::StillWrong,
            format!("as bad as before{}", words(new)),
        ),
        (false, true) => bare(new, Fate::Failed, format!("fails now{}", words(new))),
        (true, false) => bare(new, Fate::Repaired, "right now, was not before".to_owned()),
        (false, false) => bare(new, Fate::Same, "as before".to_owned()),
    };
    row.base_us = middle(&base.rounds_us);
    row.new_us = middle(&new.rounds_us);
    row.rounds = (base.rounds_us.len(), new.rounds_us.len());
    if let Some(timed) = time {
        let effect = timed.effect;
        row.ratio = Some(effect.ratio);
        row.ratio_interval = effect.high.is_finite().then_some((effect.low, effect.high));
        row.p = Some(timed.p);
        if row.fate == Fate::Same {
            row.fate = timed.fate;
            row.rounds_wanted = timed.wanted;
            row.sentence = in_words(&row, timed.fate);
        }
    }
    row
}

/// What the figures of a row say.
fn in_words(row: &Compared, fate: Fate) -> String {
    let time = |time: Option<f64>| crate::report::html::parts::short(time.unwrap_or(0.0));
    let times = format!("{} us, was {} us", time(row.new_us), time(row.base_us));
    let ratio = row.ratio.unwrap_or(1.0);
    let percent = |ratio: f64| format!("{:+.1} %", (ratio - 1.0) * 100.0);
    let interval = row.ratio_interval.map_or_else(String::new, |(low, high)| {
        format!(" (95 %: {} to {})", percent(low), percent(high))
    });
    let p = row.p.map_or_else(String::new, |p| format!(", p {p:.2e}"));
    match fate {
        Fate::Undecided => {
            let wanted = row.rounds_wanted.map_or_else(
                || "more rounds are not likely to decide".to_owned(),
                |wanted| format!("about {wanted} on each side would decide"),
            );
            format!(
                "{times}: {}{interval} in {} against {} rounds; {wanted}",
                percent(ratio),
                row.rounds.1,
                row.rounds.0
            )
        }
        Fate::MachineSlower => format!(
            "{times}: {}{interval}, but so was the machine",
            percent(ratio)
        ),
        Fate::Failed
        | Fate::Improved
        | Fate::Missing
        | Fate::New
        | Fate::Regressed
        | Fate::Repaired
        | Fate::Same
        | Fate::StillWrong
        | Fate::WrongData => format!("{times}: {}{interval}{p}", percent(ratio)),
    }
}

fn bare(row: &Row, fate: Fate, sentence: String) -> Compared {
    Compared {
        name: row.name.clone(),
        fate,
        base_us: None,
        new_us: None,
        rounds: (0, 0),
        ratio: None,
        ratio_interval: None,
        p: None,
        rounds_wanted: None,
        sentence,
    }
}

fn common_remark(common: f64, machine: f64, is_common: bool, rows: usize) -> Option<String> {
    let percent = (common - 1.0) * 100.0;
    if is_common {
        return Some(format!(
            "everything became slower: {percent:+.1} % in the median of {rows} rows, and the machine does not explain it"
        ));
    }
    (percent.abs() >= 3.0).then(|| {
        format!(
            "all {rows} rows together: {percent:+.1} % in the median, the machine itself {:+.1} %; rows are judged beside that",
            (machine - 1.0) * 100.0
        )
    })
}

/// `is_common`: everything became slower. `is_open`: it looks so, and neither that nor the opposite is shown.
fn class_of(rows: &[Compared], is_common: bool, is_open: bool, wishes: &Wishes) -> Exit {
    let has = |fate: Fate| rows.iter().any(|row| row.fate == fate);
    if has(Fate::WrongData) {
        Exit::Data
    } else if has(Fate::Regressed) || is_common {
        Exit::Slow
    } else if has(Fate::Failed) {
        Exit::FailedCell
    } else if (has(Fate::Missing) && !wishes.allow_missing)
        || rows.is_empty()
        || has(Fate::Undecided)
        || has(Fate::MachineSlower)
        || is_open
    {
        Exit::Internal
    } else {
        Exit::Ok
    }
}

#[cfg(test)]
mod tests;
