//! Reading the lines of a selection table.

use super::{
    Compare, Condition, MAX_LINES, Rule, SEGMENT_BYTES, TableError, TableErrorKind, parse_bytes,
};
use crate::algo::plan::Links;
use crate::algo::registry::{Algorithm, ENTRY, find_choice, planned};
use crate::types::{Collective, UnknownName, closest};

pub(super) fn parse(text: &str, is_built_in: bool) -> Result<Vec<Rule>, TableError> {
    let mut rules = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let at = |kind| TableError {
            line: index + 1,
            kind,
        };
        if index >= MAX_LINES {
            return Err(at(TableErrorKind::Long));
        }
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let rule = parse_rule(line).map_err(at)?;
        rules.push(Rule {
            line: index + 1,
            is_built_in,
            ..rule
        });
    }
    Ok(rules)
}

/// A rule, without its line.
fn parse_rule(line: &str) -> Result<Rule, TableErrorKind> {
    let (left, right) = line.split_once("->").ok_or(TableErrorKind::NoAlgorithm)?;
    let mut words = left.split_whitespace();
    let collective = parse_collective(words.next().unwrap_or_default())?;
    let conditions = words.map(parse_condition).collect::<Result<Vec<_>, _>>()?;
    let mut names = right.split_whitespace();
    let (Some(name), segment, None) = (names.next(), names.next(), names.next()) else {
        return Err(TableErrorKind::NoAlgorithm);
    };
    let algorithm = find_choice(collective, name)?;
    let segment = segment.map(|word| parse_segment(algorithm, word));
    let by_bytes = conditions
        .iter()
        .any(|condition| matches!(condition, Condition::Bytes(..)));
    if by_bytes && collective.has_splits() {
        return Err(TableErrorKind::BytesUnknown);
    }
    let for_messages = conditions.contains(&Condition::Links(Links::Message));
    if for_messages && algorithm.links == Links::Direct {
        return Err(TableErrorKind::Links {
            algorithm: algorithm.name,
        });
    }
    Ok(Rule {
        collective,
        conditions,
        algorithm,
        segment: segment.transpose()?,
        line: 0,
        is_built_in: false,
    })
}

fn parse_segment(algorithm: &'static Algorithm, word: &str) -> Result<usize, TableErrorKind> {
    let is_staged = algorithm.links == Links::Direct && !std::ptr::eq(algorithm, &raw const ENTRY);
    word.strip_prefix("segment=")
        .and_then(parse_bytes)
        .filter(|bytes| is_staged && SEGMENT_BYTES.contains(bytes) && bytes.is_power_of_two())
        .and_then(|bytes| usize::try_from(bytes).ok())
        .ok_or_else(|| TableErrorKind::Segment {
            algorithm: algorithm.name,
            got: word.to_owned(),
        })
}

fn parse_collective(word: &str) -> Result<Collective, TableErrorKind> {
    planned()
        .find(|collective| collective.name() == word)
        .ok_or_else(|| {
            UnknownName {
                what: "collective",
                got: word.to_owned(),
                known: planned().map(Collective::name).collect(),
            }
            .into()
        })
}

fn parse_condition(word: &str) -> Result<Condition, TableErrorKind> {
    let unknown = || TableErrorKind::Condition {
        got: word.to_owned(),
        suggestion: closest(
            word.split(['=', '<', '>']).next().unwrap_or_default(),
            ["bytes", "hosts", "links", "n"],
        ),
    };
    if let Some(name) = word.strip_prefix("links=") {
        return Links::ALL
            .into_iter()
            .find(|links| links.name() == name)
            .map(Condition::Links)
            .ok_or_else(unknown);
    }
    let subjects = ["bytes", "hosts", "n"];
    let (subject, rest) = subjects
        .into_iter()
        .find_map(|subject| Some((subject, word.strip_prefix(subject)?)))
        .ok_or_else(unknown)?;
    let (compare, number) = Compare::SIGNS
        .into_iter()
        .find_map(|(sign, compare)| Some((compare, rest.strip_prefix(sign)?)))
        .ok_or_else(unknown)?;
    if subject == "bytes" {
        let limit = parse_bytes(number).ok_or_else(unknown)?;
        Ok(Condition::Bytes(compare, limit))
    } else if subject == "hosts" {
        let limit = (number != "n").then(|| number.parse()).transpose();
        Ok(Condition::Hosts(compare, limit.map_err(|_| unknown())?))
    } else {
        let limit = number.parse().map_err(|_| unknown())?;
        Ok(Condition::Ranks(compare, limit))
    }
}
