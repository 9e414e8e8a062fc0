//! Whether the device masks say what they seem to say.

use super::super::system::listed;
use super::super::{Finding, Problem, System};

/// Devices of one host that any mask may name.
const DEVICES_MAX: u32 = 1024;
const RUNTIME: &str = "ASCEND_RT_VISIBLE_DEVICES";
const CONTAINER: &str = "ASCEND_VISIBLE_DEVICES";

pub(super) fn judge(system: &System) -> Finding {
    let mut problems = Vec::new();
    let mut seen = Vec::new();
    let mut visible = None;
    if let Some(text) = system.text(RUNTIME) {
        seen.push(format!("{RUNTIME}={text}"));
        let (ids, stop) = taken(text, system);
        let kept = if ids.is_empty() {
            "none".to_owned()
        } else {
            listed(&ids)
        };
        if let Some(stop) = stop {
            problems.push(Problem::fail(
                format!("{RUNTIME} is cut short without a word: {stop}, so only {kept} is kept"),
                format!("{RUNTIME}={text}"),
                format!("export {RUNTIME}={}", repaired(text)),
            ));
        } else if !ids.is_sorted() {
            problems.push(Problem::warn(
                format!("{RUNTIME} is not ascending, which the runtime does not promise to keep"),
                format!("{RUNTIME}={text}"),
                format!("export {RUNTIME}={}", repaired(text)),
            ));
        }
        if let Some(ranks) = system.ranks().filter(|ranks| {
            // A mask of one device is what launchers give to each rank by itself.
            ids.len() > 1 && u64::from(ranks.count) > ids.len() as u64
        }) {
            problems.push(Problem::fail(
                format!(
                    "{RUNTIME} leaves {} devices to {} ranks",
                    ids.len(),
                    ranks.count
                ),
                format!("{RUNTIME}={text}; ranks by {}", ranks.how),
                format!("start {} ranks, or name more devices", ids.len()),
            ));
        }
        visible = Some(ids);
    }
    if let Some(text) = system.text(CONTAINER) {
        seen.push(format!("{CONTAINER}={text}"));
        if !["void", "none", "all"].contains(&text) && !container_form(text) {
            problems.push(Problem::fail(
                format!("{CONTAINER} is {text:?}, which is no list of devices"),
                format!("{CONTAINER}={text}"),
                "write ids, ranges or names: 0,2-5 or Ascend910-0,Ascend910-1",
            ));
        }
    }
    if seen.is_empty() {
        return Finding::skip("no device mask is set");
    }
    Finding::of(problems, || {
        let what = visible.map_or_else(
            || "the device mask of the container is well formed".to_owned(),
            |ids| {
                format!(
                    "logical devices 0 to {} are the physical {}",
                    ids.len().saturating_sub(1),
                    listed(&ids)
                )
            },
        );
        Finding::ok(what, seen.join("; "))
    })
}

/// The ids that the runtime takes, and what made it stop.
fn taken(text: &str, system: &System) -> (Vec<u32>, Option<String>) {
    let devices = system.devices();
    let mut ids = Vec::new();
    for item in text.split(',') {
        let stop = if item.contains(|c: char| c.is_ascii_whitespace()) {
            Some(format!("it stops at the space in {item:?}"))
        } else if item.is_empty() {
            Some("it stops at an empty item".to_owned())
        } else if !item.bytes().all(|byte| byte.is_ascii_digit()) {
            Some(format!("it stops at {item:?}, which is no number"))
        } else {
            None
        };
        if stop.is_some() {
            return (ids, stop);
        }
        let id = item.parse().ok().filter(|id| *id < DEVICES_MAX);
        let absent = |id: &u32| !devices.is_empty() && !devices.contains(id);
        match id {
            Some(id) if ids.contains(&id) => {
                return (ids, Some(format!("it stops at the second {id}")));
            }
            Some(id) if absent(&id) => {
                return (
                    ids,
                    Some(format!("it stops at {id}, there is no /dev/davinci{id}")),
                );
            }
            Some(id) => ids.push(id),
            None => return (ids, Some(format!("it stops at {item}, which is no device"))),
        }
    }
    (ids, None)
}

/// The same list as the runtime wants it: numbers once each, ascending.
fn repaired(text: &str) -> String {
    let mut ids: Vec<u32> = Vec::new();
    for item in text.split([',', ' ', ';']) {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<u32>(), last.trim().parse::<u32>())
            && last < DEVICES_MAX
        {
            ids.extend(first..=last);
        }
    }
    ids.sort_unstable();
    ids.dedup();
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    if ids.is_empty() {
        "0".to_owned()
    } else {
        ids.join(",")
    }
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
