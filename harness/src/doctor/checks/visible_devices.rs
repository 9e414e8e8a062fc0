//! Whether the device masks say what they seem to say.

use super::super::mask::{DEVICES_MAX, RUNTIME, Visible};
use super::super::system::{count, listed};
use super::super::{Finding, Problem, System};
use super::containers::container;

const CONTAINER: &str = "ASCEND_VISIBLE_DEVICES";

pub(super) fn judge(system: &System) -> Finding {
    let mut problems = Vec::new();
    let mut seen = Vec::new();
    let visible = system.visible_devices();
    if let Some((text, visible)) = system.text(RUNTIME).zip(visible.as_ref()) {
        seen.push(format!("{RUNTIME}={text}"));
        problems.extend(wrong_order(text, visible));
        problems.extend(too_few(system, text, visible));
    }
    if let Some(text) = system.text(CONTAINER) {
        seen.push(format!("{CONTAINER}={text}"));
        if !["void", "none", "all"].contains(&text) && !container_form(text) {
            problems.push(Problem::fail(
                format!("{CONTAINER} is {text:?}, which is no list of devices"),
                format!("{CONTAINER}={text}"),
                "write ids, ranges or names: 0,2-5 or Ascend910-0,Ascend910-1",
            ));
        } else if let Some(visible) = &visible {
            problems.extend(beyond(system, text, visible));
        }
    }
    if seen.is_empty() {
        return Finding::skip("no device mask is set");
    }
    Finding::of(problems, || {
        let what = visible.map_or_else(
            || "the device mask of the container is well formed".to_owned(),
            |visible| {
                format!(
                    "logical devices 0 to {} are the physical {}",
                    visible.ids.len().saturating_sub(1),
                    listed(&visible.ids)
                )
            },
        );
        Finding::ok(what, seen.join("; "))
    })
}

/// A mask that the runtime cuts short or may renumber.
fn wrong_order(text: &str, visible: &Visible) -> Option<Problem> {
    let evidence = format!("{RUNTIME}={text}");
    let remedy = format!("export {RUNTIME}={}", repaired(text));
    if let Some(stop) = &visible.stop {
        let kept = if visible.ids.is_empty() {
            "none".to_owned()
        } else {
            listed(&visible.ids)
        };
        let what = format!("{RUNTIME} is cut short without a word: {stop}, so only {kept} is kept");
        return Some(Problem::fail(what, evidence, remedy));
    }
    (!visible.ids.is_sorted()).then(|| {
        let what =
            format!("{RUNTIME} is not ascending, which the runtime does not promise to keep");
        Problem::warn(what, evidence, remedy)
    })
}

/// A mask that leaves fewer devices than there are ranks.
fn too_few(system: &System, text: &str, visible: &Visible) -> Option<Problem> {
    let devices = visible.ids.len();
    let ranks = system.ranks()?;
    // A mask of one device is what launchers give to each rank by itself.
    let is_wrong = devices > 1 && u64::from(ranks.count) > devices as u64;
    is_wrong.then(|| {
        Problem::fail(
            format!(
                "{RUNTIME} leaves {devices} devices to {} ranks",
                ranks.count
            ),
            format!("{RUNTIME}={text}; ranks by {}", ranks.how),
            format!("start {devices} ranks, or name more devices"),
        )
    })
}

/// A mask that names devices which the container does not get.
fn beyond(system: &System, given: &str, visible: &Visible) -> Option<Problem> {
    container(system)?;
    let given_ids = ids(given)?;
    let devices = given_ids.len() as u64;
    let is_beyond = |id: &&u32| u64::from(**id) >= devices && !given_ids.contains(id);
    let id = visible.ids.iter().find(is_beyond)?;
    Some(Problem::fail(
        format!(
            "{RUNTIME} names device {id}, and {CONTAINER} gives this container {}",
            count(devices, "device")
        ),
        format!(
            "{CONTAINER}={given}; {RUNTIME} has {}",
            listed(&visible.ids)
        ),
        format!(
            "name devices from 0 to {} in {RUNTIME}, or give the container more",
            devices - 1
        ),
    ))
}

/// The same list as the runtime wants it: numbers once each, ascending.
fn repaired(text: &str) -> String {
    let ids: Vec<String> = ids(text)
        .unwrap_or_else(|| vec![0])
        .iter()
        .map(ToString::to_string)
        .collect();
    ids.join(",")
}

/// The ids in a list of numbers, ranges and names such as `Ascend910-0`, ascending; `None` where there are none.
fn ids(text: &str) -> Option<Vec<u32>> {
    let mut ids: Vec<u32> = Vec::new();
    for item in text.split([',', ' ', ';']) {
        let (first, last) = match item.split_once('-') {
            Some((kind, id)) if kind.starts_with(|c: char| c.is_ascii_alphabetic()) => (id, id),
            Some(range) => range,
            None => (item, item),
        };
        if let (Ok(first), Ok(last)) = (first.trim().parse::<u32>(), last.trim().parse::<u32>())
            && last < DEVICES_MAX
        {
            ids.extend(first..=last);
        }
    }
    ids.sort_unstable();
    ids.dedup();
    (!ids.is_empty()).then_some(ids)
}

fn container_form(text: &str) -> bool {
    let number = |text: &str| text.parse::<u32>().is_ok_and(|id| id < DEVICES_MAX);
    text.split(',')
        .all(|item| match item.trim().rsplit_once('-') {
            None => number(item.trim()),
            Some((kind, id)) if kind.starts_with(|c: char| c.is_ascii_alphabetic()) => number(id),
            Some((first, last)) => number(first) && number(last),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_list_is_repaired_to_what_was_meant() {
        assert_eq!(repaired("0, 1,2"), "0,1,2");
        assert_eq!(repaired("4-7"), "4,5,6,7");
        assert_eq!(repaired("3,1,1"), "1,3");
        assert_eq!(repaired("x"), "0");
    }
}
