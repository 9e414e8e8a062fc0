//! Device masks: which physical devices a launcher left to this process.
//!
//! Under a mask logical ids count from 0 again, so a report has to name both (`5` under
//! `ASCEND_RT_VISIBLE_DEVICES=5` is logical 0).

use crate::config::{ConfigError, Environment};

/// Most devices one mask may list.
const DEVICES_MAX: usize = 1024;
/// The masks, nearest to the process first: the runtime's own, then the container's.
const MASKS: [&str; 2] = ["ASCEND_RT_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES"];

/// The devices that a mask leaves visible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VisibleDevices {
    /// The variable that says so.
    pub variable: &'static str,
    /// Physical ids, in logical order.
    pub physical: Vec<u32>,
    /// Whether the mask was made for this process alone, however many devices it leaves.
    pub is_own: bool,
}

/// Whether Ray has set the mask: it does so for each actor, unless it is told to leave it alone.
fn is_of_ray(environment: &Environment) -> bool {
    let is = |name: &str, words: &[&str]| {
        let text = environment.text(name).ok().flatten();
        text.is_some_and(|text| words.is_empty() || words.contains(&text))
    };
    let is_actor = is("WG_BACKEND", &["ray"]) || is("RAY_LOCAL_RANK", &[]) || is("RAY_JOB_ID", &[]);
    is_actor
        && !is(
            "RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES",
            &["1", "true", "True"],
        )
}

impl VisibleDevices {
    /// The physical id behind a logical one, where the mask has that many.
    #[must_use]
    pub fn physical_of(&self, logical: usize) -> Option<u32> {
        self.physical.get(logical).copied()
    }

    /// The mask in force, if one is set.
    ///
    /// A mask of a syntax we do not know is remarked upon in `notes`: it makes a report poorer, but
    /// it is no reason to refuse a rank.
    pub(super) fn detect(environment: &Environment, notes: &mut Vec<String>) -> Option<Self> {
        for variable in MASKS {
            let text = match environment.text(variable) {
                Ok(Some(text)) => text,
                Ok(None) => continue,
                Err(error) => {
                    notes.push(error.to_string());
                    continue;
                }
            };
            // Container runtimes use these words for "no mask here".
            if ["void", "none", "all"].contains(&text) {
                continue;
            }
            match parse(text) {
                Some(physical) => {
                    return Some(Self {
                        variable,
                        physical,
                        is_own: variable == MASKS[0] && is_of_ray(environment),
                    });
                }
                None => {
                    let allowed = "device ids as in 5 or 0,1,4-7, or names as in Ascend910-0";
                    notes.push(ConfigError::malformed(variable, text, allowed).to_string());
                }
            }
        }
        None
    }
}

/// Ids, ranges of ids and names that end in an id, separated by commas; no id twice.
fn parse(text: &str) -> Option<Vec<u32>> {
    let mut ids = Vec::new();
    for item in text.split(',') {
        let item = item.trim();
        match item.rsplit_once('-') {
            None => ids.push(number(item)?),
            // A name of a kind of device, as in `Ascend910-3`.
            Some((kind, id)) if kind.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                ids.push(number(id)?);
            }
            Some((first, last)) => {
                let first = number(first)?;
                let last = number(last).filter(|last| *last >= first)?;
                let fits = u64::from(last - first) < DEVICES_MAX as u64;
                ids.extend(fits.then_some(first..=last)?);
            }
        }
        if ids.len() > DEVICES_MAX {
            return None;
        }
    }
    let mut sorted = ids.clone();
    sorted.sort_unstable();
    sorted.dedup();
    (sorted.len() == ids.len()).then_some(ids)
}

fn number(text: &str) -> Option<u32> {
    crate::config::decimal(text).and_then(|number| u32::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_read_as_ids_ranges_and_names() {
        let cases: [(&str, &[u32]); 5] = [
            ("5", &[5]),
            ("0,1", &[0, 1]),
            ("4-7,1", &[4, 5, 6, 7, 1]),
            ("Ascend910-2,Ascend910-0", &[2, 0]),
            ("0, 1", &[0, 1]),
        ];
        for (text, ids) in cases {
            assert_eq!(parse(text).as_deref(), Some(ids), "{text}");
        }
        for wrong in [
            "",
            "x",
            "1,,2",
            "3-1",
            "1,1",
            "0-4294967295",
            "-1",
            "Ascend910-",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_runtime_mask_wins_over_the_one_of_the_container() {
        let environment = Environment::from_pairs([
            ("ASCEND_VISIBLE_DEVICES", "0-7"),
            ("ASCEND_RT_VISIBLE_DEVICES", "5"),
        ]);
        let mut notes = Vec::new();
        let devices = VisibleDevices::detect(&environment, &mut notes).expect("set");
        assert_eq!(devices.variable, "ASCEND_RT_VISIBLE_DEVICES");
        assert_eq!(devices.physical_of(0), Some(5));
        assert_eq!(devices.physical_of(5), None);
        assert!(notes.is_empty());
        let environment = Environment::from_pairs([("ASCEND_RT_VISIBLE_DEVICES", "the fifth")]);
        assert_eq!(VisibleDevices::detect(&environment, &mut notes), None);
        assert!(notes[0].contains("the fifth"), "{notes:?}");
    }
}
