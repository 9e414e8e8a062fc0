//! From options to plans: what each word may be, and what does not go together.

use muster_comm::algo::find_choice;
use muster_comm::algo::select::SEGMENT_BYTES;
use muster_comm::config::Environment;
use muster_comm::launch::Identity;
use muster_comm::layout::FrameworkLayout;
use muster_comm::types::{Collective, ReduceOp, closest};

use super::{BenchArgs, DEADLINE_DEFAULT};
use crate::bench::map;
use crate::bench::sweep::{CELLS_MAX, Memory, Sweep, What, parse_size, sweep};
use crate::check::cases::WORLD_KIND;
use crate::cmd::values::{Named, did_you_mean, layout_of, matrix_of};
use crate::fail::Failure;
use crate::run::job::{Job, MatrixSpec, Transport};
use crate::run::work::Work;

/// What one word of the command line stands for.
#[derive(Clone, Debug)]
pub(super) struct Whats(pub(super) Vec<What>);

/// Largest size: no machine without an accelerator has buffers of this size for several ranks.
const SIZE_MAX: u64 = 64 << 30;

/// Calls that can be measured.
fn measurable() -> impl Iterator<Item = What> {
    Collective::ALL
        .into_iter()
        // A send without its receive cannot be repeated; the pair is batch_send_recv. Coalesced buffers are copied, then reduced.
        .filter(|call| !matches!(call, Collective::Send | Collective::Recv) && !call.is_coalesced())
        .map(What::Collective)
        .chain([What::GroupCreate, What::BringUp])
}

/// What can be measured, by its names.
pub(super) fn whats() -> Named<Whats> {
    Named::new(parse_what, measurable().map(What::name).chain(["all"]))
}

/// A collective, another thing that can be measured, or `all`.
///
/// # Errors
/// In words: what there is, and what may have been meant.
fn parse_what(word: &str) -> Result<Whats, String> {
    let word = word.trim();
    if word == "all" {
        let is_numeric = |what: &What| match what {
            What::Collective(call) => !call.is_of_objects(),
            What::BringUp | What::GroupCreate => false,
        };
        return Ok(Whats(measurable().filter(is_numeric).collect()));
    }
    let found = measurable().find(|what| what.name() == word);
    found.map(|what| Whats(vec![what])).ok_or_else(|| {
        let names: Vec<&str> = measurable().map(What::name).chain(["all"]).collect();
        let meant = did_you_mean(closest(word, names.iter().copied()));
        format!("there is {}{meant}", names.join(", "))
    })
}

pub(super) fn size(text: &str) -> Result<u64, String> {
    let size = parse_size(text)?;
    if size > SIZE_MAX {
        return Err("a size is at most 64G".to_owned());
    }
    Ok(size)
}

pub(super) fn op(text: &str) -> Result<ReduceOp, String> {
    text.trim()
        .parse()
        .map_err(|error: muster_comm::types::UnknownName| {
            let meant = did_you_mean(error.suggestion());
            format!("{error}{meant}")
        })
}

/// A word whose meaning depends on other options.
#[expect(clippy::unnecessary_wraps, reason = "what clap takes")]
pub(super) fn trimmed(text: &str) -> Result<String, String> {
    Ok(text.trim().to_owned())
}

/// A kind of groups that a layout has.
///
/// # Errors
/// In words: what there is, and what may have been meant.
fn check_group(name: &str, layout: &FrameworkLayout) -> Result<(), String> {
    if name == WORLD_KIND || layout.groups(name).is_some_and(|groups| !groups.is_empty()) {
        return Ok(());
    }
    let kinds = layout.named_groups();
    let names = || std::iter::once(WORLD_KIND).chain(kinds.iter().map(|kind| kind.name));
    let meant = did_you_mean(closest(name, names()));
    let all: Vec<&str> = names().collect();
    Err(format!("there is {}{meant}", all.join(", ")))
}

pub(super) fn memory(text: &str) -> Result<Memory, String> {
    match text.trim() {
        "private" => Ok(Memory::Private),
        "region" => Ok(Memory::Region),
        _ => Err(
            "there is private, ordinary memory, and region, memory shared with local ranks"
                .to_owned(),
        ),
    }
}

/// Bytes of a segment: a power of two that staging can hold.
pub(super) fn segment(text: &str) -> Result<u32, String> {
    parse_size(text)?
        .try_into()
        .ok()
        .filter(|bytes: &u32| SEGMENT_BYTES.contains(&u64::from(*bytes)) && bytes.is_power_of_two())
        .ok_or_else(|| "a segment is a power of two from 16K to 1M".to_owned())
}

pub(super) fn percent(text: &str) -> Result<f64, String> {
    text.trim_end_matches('%')
        .parse()
        .ok()
        .filter(|percent: &f64| (0.0..=50.0).contains(percent))
        .ok_or_else(|| "a number of percent is 0 to 50".to_owned())
}

impl BenchArgs {
    /// One job a number of ranks, each with its layout.
    pub(super) fn jobs(
        &self,
        environment: &Environment,
        identity: Option<&Identity>,
    ) -> Result<Vec<(Job, FrameworkLayout)>, Failure> {
        let (deadline, seed) = self.common.settings(environment, DEADLINE_DEFAULT)?;
        let plan = self.plan()?;
        let of_world = |layout: &FrameworkLayout| Sweep {
            groups: if self.is_map() {
                map::pairs(layout)
            } else {
                plan.groups.clone()
            },
            ..plan.clone()
        };
        let bind = self.binding.of(self.pin, environment)?;
        let rules = self.common.rules.of(environment)?.text;
        self.worlds(identity)?
            .into_iter()
            .map(|(name, layout)| {
                let plan = of_world(&layout);
                for group in &self.group {
                    check_group(group, &layout).map_err(|there| {
                        Failure::usage(format!("{name} has no groups {group}: {there}"))
                    })?;
                }
                let cells = plan.cells(&layout);
                self.check_cells(&plan, &layout, cells.len(), &name)?;
                let matrix = MatrixSpec::of(name, &layout);
                let job = Job {
                    transport: self.common.transport,
                    inject: self.inject.clone(),
                    seed,
                    bind,
                    rules: rules.clone(),
                    ..Job::new(matrix, Work::Bench(plan), deadline)
                };
                Ok((job, layout))
            })
            .collect()
    }

    fn plan(&self) -> Result<Sweep, Failure> {
        let sizes = if self.is_map() {
            self.map.clone()
        } else {
            sweep(self.begin, self.end, self.factor, self.step)
        };
        if sizes.is_empty() {
            return Err(Failure::usage(format!(
                "the smallest size {} is above the largest size {}",
                self.begin, self.end
            ))
            .with_help("give -b a size that is not above that of -e"));
        }
        if self.step == Some(0) {
            return Err(Failure::usage("a step of 0 leads nowhere"));
        }
        let whats = self.whats();
        self.check_algorithms(&whats)?;
        self.check_ops(&whats)?;
        Ok(Sweep {
            what: whats,
            sizes,
            dtypes: self.dtypes.clone(),
            ops: self.ops.clone(),
            root: self.root as usize,
            algos: self.algo.clone(),
            segments: self.segment.clone(),
            places: self.place,
            memories: self.memory.clone(),
            split: self.split,
            groups: self.group.clone(),
            warm_ups: self.warmup,
            stop: self.stop(),
            rounds: self.rounds(),
            round: None,
            checks: self.check,
            direct: self.common.transport != Transport::Tcp,
        })
    }

    /// Each call that reduces must take one of the reductions.
    fn check_ops(&self, whats: &[What]) -> Result<(), Failure> {
        for what in whats {
            let What::Collective(call) = what else {
                continue;
            };
            let ops = call.ops();
            if !ops.is_empty() && !self.ops.iter().any(|op| ops.contains(op)) {
                let names = |ops: &[ReduceOp]| {
                    ops.iter()
                        .map(|op| op.name())
                        .collect::<Vec<_>>()
                        .join(", ")
                };
                return Err(
                    Failure::usage(format!("{call} does not take {}", names(&self.ops)))
                        .with_help(format!("it takes {}", names(ops))),
                );
            }
        }
        Ok(())
    }

    /// A name that no call has would be left out in silence.
    fn check_algorithms(&self, whats: &[What]) -> Result<(), Failure> {
        for name in &self.algo {
            if name == "auto" || name == "all" {
                continue;
            }
            let calls = whats.iter().filter_map(|what| match what {
                What::Collective(call) => Some(*call),
                What::BringUp | What::GroupCreate => None,
            });
            let mut unknown = None;
            let mut is_known = false;
            for call in calls {
                match find_choice(call, name) {
                    Ok(_) => is_known = true,
                    Err(error) => unknown = unknown.or(Some((call, error))),
                }
            }
            if let (Some((call, error)), false) = (unknown, is_known) {
                let help = error.suggestion().map_or_else(
                    || "or auto, or all".to_owned(),
                    |m| format!("did you mean {m}?"),
                );
                return Err(Failure::usage(format!("{call}: {error}")).with_help(help));
            }
        }
        Ok(())
    }

    /// Name and layout of each world.
    fn worlds(
        &self,
        identity: Option<&Identity>,
    ) -> Result<Vec<(String, FrameworkLayout)>, Failure> {
        if let Some(matrix) = &self.matrix {
            let layout = layout_of(matrix, identity, "bench")?;
            return Ok(vec![(matrix.to_string(), layout)]);
        }
        let axes = [
            ("tp", self.tp),
            ("cp", self.cp),
            ("pp", self.pp),
            ("ep", self.ep),
            ("etp", self.etp),
        ];
        let named: Vec<String> = axes
            .into_iter()
            .filter_map(|(axis, size)| Some(format!("{axis}{}", size?)))
            .collect();
        let axes = if named.is_empty() {
            "tp1".to_owned()
        } else {
            named.concat()
        };
        let sizes: Vec<Option<u32>> = match (identity, &self.ranks[..]) {
            (Some(identity), ranks) => {
                if let Some(other) = ranks.iter().find(|n| **n != identity.world_size) {
                    return Err(Failure::usage(format!(
                        "{} started {} ranks, so --ranks {other} cannot be had",
                        identity.source.contract, identity.world_size
                    )));
                }
                vec![Some(identity.world_size)]
            }
            (None, []) if named.is_empty() => {
                let cpus = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
                let least = if self.is_map() { 4 } else { 2 };
                vec![u32::try_from(cpus.clamp(least, 8)).ok()]
            }
            (None, []) => vec![None],
            (None, ranks) => ranks.iter().copied().map(Some).collect(),
        };
        let world = |size: Option<u32>| {
            let name = size.map_or_else(|| axes.clone(), |size| format!("{axes}@{size}"));
            let (matrix, layout) = matrix_of(&name, "bench")?;
            Ok((matrix.to_string(), layout))
        };
        sizes.into_iter().map(world).collect()
    }

    fn check_cells(
        &self,
        plan: &Sweep,
        layout: &FrameworkLayout,
        cells: usize,
        name: &str,
    ) -> Result<(), Failure> {
        if cells > CELLS_MAX {
            return Err(Failure::usage(format!(
                "{cells} lines are asked for, allowed are {CELLS_MAX}"
            ))
            .with_help("choose fewer sizes, element types or algorithms"));
        }
        if self.is_map() && layout.world_size() < 2 {
            return Err(Failure::usage("--map needs two ranks or more"));
        }
        let is_empty = cells == 0 && !plan.what.contains(&What::BringUp);
        if is_empty {
            return Err(Failure::usage(format!(
                "nothing is left to measure on {name}: none of {} carries it out there",
                self.algo.join(", ")
            ))
            .with_help("choose --algo auto, or another --transport"));
        }
        for fault in &self.inject {
            let world_size = layout.dims().world;
            if fault.rank >= world_size {
                return Err(Failure::usage(format!(
                    "the fault {fault} strikes none of the {world_size} ranks of {name}"
                )));
            }
        }
        for kind in plan.kinds(layout) {
            let n = kind.groups.iter().map(Vec::len).min().unwrap_or(0);
            if self.root as usize >= n.max(1) {
                return Err(Failure::usage(format!(
                    "the root is {}, and groups {} of {name} have the indices 0 to {}",
                    self.root,
                    kind.kind,
                    n.saturating_sub(1)
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_understood_or_answered_with_what_there_is() {
        assert_eq!(parse_what("barrier").expect("known").0.len(), 1);
        assert!(parse_what("all").expect("known").0.len() > 10);
        let error = parse_what("allreduce").expect_err("unknown");
        assert!(error.contains("did you mean all_reduce?"), "{error}");
        assert!(parse_what("send").is_err());
        let group = |name: &str, matrix: &str| {
            let (_, layout) = matrix_of(matrix, "bench").expect("a matrix");
            check_group(name, &layout)
        };
        assert_eq!(group("ep", "tp2ep2"), Ok(()));
        assert_eq!(group("world", "vllm0.18:tp2dp2"), Ok(()));
        assert_eq!(group("mc2", "vllm0.18:tp2dp2"), Ok(()));
        let error = group("mc2", "tp2ep2").expect_err("Megatron-LM has none");
        assert!(error.contains("there is world, dp, "), "{error}");
        let error = group("epp", "tp2ep2").expect_err("unknown");
        assert!(error.contains("did you mean ep?"), "{error}");
        assert_eq!(percent("2.5%"), Ok(2.5));
        assert!(percent("-1").is_err());
        assert!(percent("NaN").is_err());
        assert!(size("65G").is_err());
    }
}
