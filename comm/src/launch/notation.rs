//! Slurm's two compressed notations: host lists (`n[01-04,7]`) and task counts (`4(x2),3`).
//!
//! Read in-process, because `scontrol` is missing in most containers. Both are bounded: a text of
//! a few bytes must not become a list that fills memory.

use crate::config::{decimal, is_host};

/// Most hosts a list may name: well above the largest Slurm cluster.
pub const HOSTS_MAX: usize = 1 << 17;
/// Digits of the largest number that a range may count to.
const DIGITS_MAX: usize = 18;

/// Why a notation cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotationError {
    /// A bracket is opened and not closed, or closed and not opened.
    #[error("unbalanced bracket in {0:?}")]
    Bracket(String),
    /// An item that is no count, as in `4` or `4(x2)`.
    #[error("{0:?} is no task count; allowed: 4 or 4(x2)")]
    Count(String),
    /// An item that is no host name.
    #[error("{0:?} is no host name")]
    Host(String),
    /// An item between brackets that is no number or range, as in `7` or `01-04`.
    #[error("{0:?} is no range; allowed: 7 or 01-04")]
    Range(String),
    /// More items than [`HOSTS_MAX`].
    #[error("more than {HOSTS_MAX} hosts")]
    TooMany,
}

/// All hosts of a list, in its order.
///
/// # Errors
/// If the text is no host list, or names more than [`HOSTS_MAX`] hosts.
pub fn expand_hosts(list: &str) -> Result<Vec<String>, NotationError> {
    let mut hosts = Vec::new();
    for item in split_items(list)? {
        hosts.extend(expand_item(item)?);
        if hosts.len() > HOSTS_MAX {
            return Err(NotationError::TooMany);
        }
    }
    Ok(hosts)
}

/// The counts of a compressed list, one a node: `4(x2),3` is 4, 4, 3.
///
/// # Errors
/// If the text is no list of counts, or stands for more than [`HOSTS_MAX`] nodes.
pub fn expand_counts(list: &str) -> Result<Vec<u32>, NotationError> {
    let mut counts = Vec::new();
    for item in list.split(',') {
        let (count, times) = parse_count(item).ok_or_else(|| NotationError::Count(shown(item)))?;
        if times > HOSTS_MAX - counts.len() {
            return Err(NotationError::TooMany);
        }
        counts.resize(counts.len() + times, count);
    }
    Ok(counts)
}

fn parse_count(item: &str) -> Option<(u32, usize)> {
    let (count, times) = match item.split_once("(x") {
        Some((count, times)) => (count, decimal(times.strip_suffix(')')?)?),
        None => (item, 1),
    };
    let count = u32::try_from(decimal(count)?).ok()?;
    let times = usize::try_from(times).ok().filter(|times| *times > 0)?;
    Some((count, times))
}

/// Splits at commas outside brackets.
fn split_items(list: &str) -> Result<Vec<&str>, NotationError> {
    let unbalanced = || NotationError::Bracket(shown(list));
    let mut items = Vec::new();
    let mut start = 0;
    let mut inside = false;
    for (at, letter) in list.char_indices() {
        match letter {
            '[' if inside => return Err(unbalanced()),
            '[' => inside = true,
            ']' if !inside => return Err(unbalanced()),
            ']' => inside = false,
            ',' if !inside => {
                items.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(unbalanced());
    }
    items.push(&list[start..]);
    Ok(items)
}

/// Expands one item with any number of bracket groups, the last one running fastest.
fn expand_item(item: &str) -> Result<Vec<String>, NotationError> {
    let mut hosts = vec![String::new()];
    let mut rest = item;
    while let Some((text, behind)) = rest.split_once('[') {
        let (ranges, tail) = behind
            .split_once(']')
            .ok_or_else(|| NotationError::Bracket(shown(item)))?;
        let numbers = expand_ranges(ranges)?;
        if hosts.len().saturating_mul(numbers.len()) > HOSTS_MAX {
            return Err(NotationError::TooMany);
        }
        hosts = hosts
            .iter()
            .flat_map(|host| {
                numbers
                    .iter()
                    .map(move |number| format!("{host}{text}{number}"))
            })
            .collect();
        rest = tail;
    }
    for host in &mut hosts {
        host.push_str(rest);
        if !is_host(host) {
            return Err(NotationError::Host(shown(host)));
        }
    }
    Ok(hosts)
}

/// Expands `01-04,7`; a range is as wide as its first number.
fn expand_ranges(ranges: &str) -> Result<Vec<String>, NotationError> {
    let mut numbers = Vec::new();
    for range in ranges.split(',') {
        let wrong = || NotationError::Range(shown(range));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let width = first.len();
        if width > DIGITS_MAX || last.len() > DIGITS_MAX {
            return Err(wrong());
        }
        let from = decimal(first).ok_or_else(wrong)?;
        let to = decimal(last).filter(|to| *to >= from).ok_or_else(wrong)?;
        if to - from >= (HOSTS_MAX - numbers.len()) as u64 {
            return Err(NotationError::TooMany);
        }
        numbers.extend((from..=to).map(|number| format!("{number:0width$}")));
    }
    Ok(numbers)
}

fn shown(text: &str) -> String {
    crate::config::shown(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn expanded(list: &str) -> Vec<String> {
        expand_hosts(list).expect(list)
    }

    #[test]
    fn brackets_keep_leading_zeros_order_and_single_numbers() {
        assert_eq!(
            expanded("n[01-04,7],login"),
            ["n01", "n02", "n03", "n04", "n7", "login"]
        );
        assert_eq!(expanded("n[9-11]"), ["n9", "n10", "n11"]);
        assert_eq!(expanded("n[3,1]"), ["n3", "n1"]);
        assert_eq!(
            expanded("r[0-1]-n[1-2].x"),
            ["r0-n1.x", "r0-n2.x", "r1-n1.x", "r1-n2.x"]
        );
        assert_eq!(expanded("a.b-c_d"), ["a.b-c_d"]);
    }

    #[test]
    fn broken_and_gigantic_lists_are_refused_without_being_built() {
        for wrong in [
            "",
            "n[1-3",
            "n1]",
            "n[[1]]",
            "n[]",
            "n[3-1]",
            "n[1-]",
            "n[a]",
            "a,,b",
            "a b",
            "n[-1]",
            "n[0-99999999999999999999]",
        ] {
            assert!(expand_hosts(wrong).is_err(), "{wrong}");
        }
        for huge in [
            "n[0-999999999999999999]",
            "n[0-99999]x[0-99999]",
            "n[1-131073]",
            "n[1-131072],m",
        ] {
            assert_eq!(expand_hosts(huge), Err(NotationError::TooMany), "{huge}");
        }
    }

    #[test]
    fn counts_are_repeated_as_often_as_they_say() {
        assert_eq!(expand_counts("4(x2),3"), Ok(vec![4, 4, 3]));
        assert_eq!(expand_counts("8"), Ok(vec![8]));
        for wrong in ["", "4(x", "4(x0)", "x2", "4,,3", "-1", "4(x2)3", "4(2)"] {
            assert!(expand_counts(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            expand_counts("1(x999999999999)"),
            Err(NotationError::TooMany)
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn hosts_without_brackets_stay_as_they_are_and_in_order(
            hosts in prop::collection::vec("[a-c]{1,2}-?[0-1]{0,2}[0-9]{0,2}(\\.x)?", 1..40)
        ) {
            prop_assert_eq!(expand_hosts(&hosts.join(",")), Ok(hosts));
        }

        #[test]
        fn a_range_expands_to_its_hosts_with_their_leading_zeros(first in 0_u32..2000, more in 1_u32..200) {
            let hosts: Vec<String> = (first..=first + more).map(|n| format!("n{n:04}")).collect();
            prop_assert_eq!(expand_hosts(&format!("n[{first:04}-{:04}]", first + more)), Ok(hosts));
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text in "[n0-9,\\[\\]()x-]{0,40}") {
            let _ = expand_hosts(&text);
            let _ = expand_counts(&text);
        }
    }
}
