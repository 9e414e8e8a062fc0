//! How the groups of two layouts differ.

use std::fmt::Write as _;
use std::io::{self, Write};

use clap::Args;
use muster_comm::layout::{FrameworkLayout, Groups, Matrix, NamedGroups, Preset};
use muster_comm::types::Rank;

use super::table::in_a_line;
use super::{GroupsError, Lists};

/// Two layouts.
#[derive(Args, Clone, Debug)]
pub(super) struct DiffArgs {
    /// A matrix (tp2ep4, vllm0.18:tp4dp4) or a phase of a preset (mindspeed-rl-12/train)
    #[arg(value_name = "A")]
    before: String,
    /// The layout that it is compared with
    #[arg(value_name = "B")]
    after: String,
}

/// How two layouts differ, name by name.
pub(super) struct Difference {
    names: [String; 2],
    same: Vec<&'static str>,
    /// The same groups in another sequence.
    reordered: Vec<&'static str>,
    /// Other ranks in a group, or in another order within it.
    changed: Vec<(&'static str, [Groups; 2])>,
    /// In one of the two only.
    only: [Vec<&'static str>; 2],
    /// The names that both have, where they make them in different sequences.
    sequences: Option<[Vec<&'static str>; 2]>,
}

impl Difference {
    /// Compares two layouts.
    pub(super) fn of(args: &DiffArgs) -> Result<Self, GroupsError> {
        let layouts = [layout(&args.before)?, layout(&args.after)?];
        let [before, after] = [&layouts[0].1, &layouts[1].1];
        let worlds = [before.world_size(), after.world_size()];
        if worlds[0] != worlds[1] {
            return Err(GroupsError::WorldsDiffer(worlds));
        }
        let sides = [before.named_groups(), after.named_groups()];
        // Kinds of Megatron are listed as in reports, and not in the sequence in which they are made.
        let is_megatron = [before, after].map(|layout| layout.megatron().is_some());
        let mut difference = Self::between(layouts.map(|(name, _)| name), &sides);
        difference.sequences = difference
            .sequences
            .filter(|_| is_megatron == [false, false]);
        Ok(difference)
    }

    fn between(names: [String; 2], sides: &[Vec<NamedGroups>; 2]) -> Self {
        let [before, after] = sides;
        let missing_in = |side: &[NamedGroups], other: &[NamedGroups]| -> Vec<&'static str> {
            let names = side.iter().map(|groups| groups.name);
            names
                .filter(|name| other.iter().all(|groups| groups.name != *name))
                .collect()
        };
        let only = [missing_in(before, after), missing_in(after, before)];
        let common = |side: &[NamedGroups], only: &[&str]| -> Vec<&'static str> {
            let names = side.iter().map(|groups| groups.name);
            names.filter(|name| !only.contains(name)).collect()
        };
        let sequences = [common(before, &only[0]), common(after, &only[1])];
        let mut difference = Self {
            names,
            same: Vec::new(),
            reordered: Vec::new(),
            changed: Vec::new(),
            sequences: (sequences[0] != sequences[1]).then_some(sequences),
            only,
        };
        for groups in before {
            let Some(other) = after.iter().find(|other| other.name == groups.name) else {
                continue;
            };
            let both = [&groups.groups, &other.groups];
            let [one, two] = both.map(sorted);
            if both[0] == both[1] {
                difference.same.push(groups.name);
            } else if one == two {
                difference.reordered.push(groups.name);
            } else {
                let both = both.map(Groups::clone);
                difference.changed.push((groups.name, both));
            }
        }
        difference
    }

    /// Whether every name has the same groups in the same sequence in both.
    pub(super) fn is_none(&self) -> bool {
        self.reordered.is_empty()
            && self.changed.is_empty()
            && self.only.iter().all(Vec::is_empty)
            && self.sequences.is_none()
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let [before, after] = &self.names;
        let mut text = format!("A = {before}\nB = {after}\n");
        let mut line = |what: &str, names: &[&str]| {
            if !names.is_empty() {
                let _ = writeln!(text, "{what}: {}", names.join(" "));
            }
        };
        line("same in both", &self.same);
        line("same groups, made in another sequence", &self.reordered);
        line("only in A", &self.only[0]);
        line("only in B", &self.only[1]);
        if let Some([before, after]) = &self.sequences {
            line("A makes these in the sequence", before);
            line("B makes these in the sequence", after);
        }
        for (name, [before, after]) in &self.changed {
            for (side, groups) in [("A", before), ("B", after)] {
                let groups = in_a_line(&Lists::Groups(groups.clone()));
                let _ = writeln!(text, "{name} in {side}: {groups}");
            }
        }
        out.write_all(text.as_bytes())
    }
}

fn sorted(groups: &Groups) -> Vec<Vec<Rank>> {
    let mut groups = groups.to_vecs();
    groups.sort();
    groups
}

/// A matrix or the phase of a preset, with its full name.
fn layout(text: &str) -> Result<(String, FrameworkLayout), GroupsError> {
    if let Some((preset, phase)) = text.split_once('/') {
        let preset = Preset::find(preset)?;
        let phases = preset.phases()?;
        let known = phases.iter().map(|phase| phase.name).collect();
        let found = phases.iter().find(|known| known.name == phase);
        let found = found.ok_or_else(|| muster_comm::types::UnknownName {
            what: "phase",
            got: phase.to_owned(),
            known,
        })?;
        return Ok((text.to_owned(), found.layout.clone()));
    }
    let matrix: Matrix = text.parse()?;
    Ok((matrix.to_string(), matrix.layout()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(before: &str, after: &str) -> (Difference, String) {
        let args = DiffArgs {
            before: before.to_owned(),
            after: after.to_owned(),
        };
        let difference = Difference::of(&args).expect("legal layouts");
        let mut text = Vec::new();
        difference.write(&mut text).expect("memory");
        (difference, String::from_utf8(text).expect("text"))
    }

    #[test]
    fn a_layout_does_not_differ_from_itself() {
        let (same, _) = difference("tp2ep4@8", "TP=2,EP=4");
        assert!(same.is_none());
    }

    #[test]
    fn what_a_version_changed_is_named_with_the_groups_of_both() {
        let (_, text) = difference("vllm0.13:tp2pp2dp2", "vllm0.18:tp2pp2dp2+eplb");
        for line in [
            "same in both: world tp dcp pcp pp dp ep",
            "only in B: eplb",
            "mc2 in A: [0,1,2,3] [4,5,6,7]",
            "mc2 in B: [0,1,4,5] [2,3,6,7]",
        ] {
            assert!(text.contains(&format!("\n{line}\n")), "{text}");
        }
    }

    /// With pp vLLM lists its dp groups by tp first, and Megatron by lowest rank. Without an ep Megatron has no experts, and vLLM
    /// spreads them over tp.
    #[test]
    fn another_sequence_of_the_same_groups_is_told_apart_from_other_groups() {
        let (difference, text) = difference("tp2pp2@4", "vllm:tp2pp2");
        let changed = difference.changed.iter().map(|(name, _)| *name);
        assert_eq!(changed.collect::<Vec<_>>(), ["ep"], "{text}");
        assert_eq!(difference.reordered, ["dp"], "{text}");
    }

    #[test]
    fn another_sequence_of_kinds_is_told_where_both_are_listed_as_they_are_made() {
        let option = "multistream_overlap_gate+lmhead=2";
        let (_, text) = difference(
            &format!("vllm0.13:dp4+{option}"),
            &format!("vllm0.18:dp4+{option}"),
        );
        assert!(
            text.contains("A makes these in the sequence: world"),
            "{text}"
        );
        assert!(text.contains("mc2 lmheadtp fc3_quant_x"), "{text}");
        assert!(text.contains("mc2 fc3_quant_x lmheadtp"), "{text}");
        let (_, text) = difference("tp2pp2@4", "vllm:tp2pp2");
        assert!(!text.contains("in the sequence:"), "{text}");
    }

    #[test]
    fn layouts_of_different_worlds_and_unknown_phases_are_refused() {
        let refuse = |before: &str, after: &str| {
            let args = DiffArgs {
                before: before.to_owned(),
                after: after.to_owned(),
            };
            Difference::of(&args).err().expect("refused").to_string()
        };
        assert!(refuse("tp2", "tp4").contains("2 and 4 ranks"));
        assert!(refuse("relax-4/tran", "tp4").contains("unknown phase"));
    }
}
