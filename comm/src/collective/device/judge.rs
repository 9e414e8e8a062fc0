//! From what the ranks of a group say to one cause.
//!
//! Pure: testimonies in, verdict out; every rank that holds the same testimonies comes to the same
//! verdict. In this order: a device that reports more than a timeout; ranks that enqueued different
//! calls; ranks that did not enqueue the call; ranks that say nothing; devices that neither complete
//! nor complain while their peers report that they waited too long (the rank *without* the vendor's
//! timeout is its cause).

use super::ledger::{Ask, Deed, Stage, Words};
use crate::error::{ErrorKind, Field};
use crate::types::{Collective, Rank};
use crate::vendor::{self, Fault};

/// What there is to judge by.
#[derive(Debug)]
pub(super) struct Case<'a> {
    /// Name of the group.
    pub(super) group: &'a str,
    /// World ranks of its members.
    pub(super) members: &'a [Rank],
    /// What each said, by index; `None` where one said nothing.
    pub(super) said: &'a [Option<Words>],
}

/// A cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// The rank whose error it is, where it is one rank's own.
    pub(super) origin: Option<Rank>,
    /// The error.
    pub(super) kind: ErrorKind,
}

impl Case<'_> {
    /// The verdict.
    pub(super) fn judge(&self) -> Verdict {
        if let Some(verdict) = self.broken_device() {
            return verdict;
        }
        let stuck = self.stuck();
        if stuck.is_none_or(|seq| self.mismatch(seq).is_none())
            && let Some(verdict) = self.inconsistent()
        {
            return verdict;
        }
        let kind = match stuck {
            Some(seq) => self
                .mismatch(seq)
                .or_else(|| self.absent(seq))
                .or_else(|| self.silent())
                .unwrap_or_else(|| self.hung(seq)),
            None => self
                .lonely_message()
                .or_else(|| self.silent())
                .unwrap_or_else(|| self.hung_message()),
        };
        Verdict { origin: None, kind }
    }

    /// A device that reports an error which is no mere timeout: the earliest of these.
    fn broken_device(&self) -> Option<Verdict> {
        let mut broken: Vec<(u8, u64, usize, &ErrorKind)> = Vec::new();
        for (index, words) in self.spoken() {
            if let Some((kind, age_ms)) = &words.fault
                && let Some(rank) = kind_rank(kind)
            {
                broken.push((rank, u64::MAX - age_ms, index, kind));
            }
        }
        let (_, _, index, kind) = broken
            .into_iter()
            .min_by_key(|(rank, earlier, index, _)| (*rank, *earlier, *index))?;
        Some(Verdict {
            origin: Some(self.members[index]),
            kind: kind.clone(),
        })
    }

    /// Ranks whose calls differ in what testimonies do not hold, as the vendor noticed.
    fn inconsistent(&self) -> Option<Verdict> {
        let (index, kind) = self.spoken().find_map(|(index, words)| {
            let (kind, _) = words.fault.as_ref()?;
            is_inconsistency(kind).then_some((index, kind))
        })?;
        Some(Verdict {
            origin: Some(self.members[index]),
            kind: kind.clone(),
        })
    }

    /// The first collective that some device has not completed.
    fn stuck(&self) -> Option<u64> {
        self.deeds()
            .filter(|(_, deed)| {
                !deed.is_message() && !matches!(deed.stage, Stage::Completed { .. })
            })
            .map(|(_, deed)| deed.seq)
            .min()
    }

    fn deeds(&self) -> impl Iterator<Item = (usize, &Deed)> {
        self.said
            .iter()
            .enumerate()
            .filter_map(|(index, words)| Some((index, words.as_ref()?)))
            .flat_map(|(index, words)| words.deeds.iter().map(move |deed| (index, deed)))
    }

    /// A member's collective of this number; the last one, since a refused call gives its number
    /// back.
    fn deed_of(&self, index: usize, seq: u64) -> Option<&Deed> {
        self.deeds()
            .filter(|(member, deed)| *member == index && deed.seq == seq && !deed.is_message())
            .map(|(_, deed)| deed)
            .last()
    }

    /// Two ranks that made different calls of one number.
    fn mismatch(&self, seq: u64) -> Option<ErrorKind> {
        let mut made =
            (0..self.members.len()).filter_map(|index| Some((index, self.deed_of(index, seq)?)));
        let (first, reference) = made.next()?;
        made.find_map(|(other, deed)| {
            let (field, mine, theirs) = difference(&reference.ask, &deed.ask)?;
            Some(ErrorKind::Mismatch {
                field,
                rank: self.members[first],
                mine,
                peer: self.members[other],
                theirs,
            })
        })
    }

    /// Ranks that did not enqueue a collective.
    fn absent(&self, seq: u64) -> Option<ErrorKind> {
        let absent: Vec<usize> = (0..self.members.len())
            .filter(|index| {
                self.said[*index]
                    .as_ref()
                    .is_some_and(|words| words.made < seq)
            })
            .collect();
        let first = *absent.first()?;
        let call = self.name_of(seq);
        let waiting = self.ranks(
            self.deeds()
                .filter(|(_, deed)| deed.seq == seq && deed.is_open())
                .map(|(index, _)| index),
        );
        let what = format!(
            "{} never enqueued {call} on group {:?}; {}{}",
            self.ranks(absent.iter().copied()),
            self.group,
            self.last_act(first),
            if waiting.is_empty() {
                String::new()
            } else {
                format!("; {waiting} waited for it")
            },
        );
        Some(self.stalled(&absent, what))
    }

    /// Ranks that said nothing at all.
    fn silent(&self) -> Option<ErrorKind> {
        let silent: Vec<usize> = (0..self.members.len())
            .filter(|index| self.said[*index].is_none())
            .collect();
        if silent.is_empty() {
            return None;
        }
        let open = self.deeds().find(|(_, deed)| deed.is_open()).map_or_else(
            String::new,
            |(index, deed)| {
                format!(
                    " while rank {} waits in {}",
                    self.members[index],
                    describe(deed)
                )
            },
        );
        let what = format!(
            "{} of group {:?} does not answer{open}",
            self.ranks(silent.iter().copied()),
            self.group
        );
        Some(self.stalled(&silent, what))
    }

    /// All enqueued a collective and some device did not complete it.
    fn hung(&self, seq: u64) -> ErrorKind {
        let open: Vec<usize> = (0..self.members.len())
            .filter(|index| self.deed_of(*index, seq).is_some_and(Deed::is_open))
            .collect();
        let complaining = self.complaining();
        let quiet: Vec<usize> = open
            .iter()
            .copied()
            .filter(|index| !complaining.contains(index))
            .collect();
        let call = self.name_of(seq);
        let group = self.group;
        let others_know = !complaining.is_empty() || quiet.len() < self.members.len();
        if quiet.is_empty() || !others_know {
            let what = if complaining.is_empty() {
                format!(
                    "all ranks enqueued {call} on group {group:?}, no device completed it, and none reports an error{}",
                    self.since(&open, seq)
                )
            } else {
                format!(
                    "all ranks enqueued {call} on group {group:?} and every device that waits reports a timeout{}",
                    self.complaint(&complaining)
                )
            };
            return self.stalled(&[], what);
        }
        let what = format!(
            "the device of {} never completed {call} on group {group:?}{} and reports no error{}",
            self.ranks(quiet.iter().copied()),
            self.since(&quiet, seq),
            self.complaint(&complaining),
        );
        self.stalled(&quiet, what)
    }

    /// A message whose other side was never enqueued.
    fn lonely_message(&self) -> Option<ErrorKind> {
        for (index, words) in self.spoken() {
            let Some(deed) = words.deeds.iter().find(|deed| deed.is_open()) else {
                continue;
            };
            for peer in 0..self.members.len() {
                let Some(theirs) = self.said[peer].as_ref().filter(|_| peer != index) else {
                    continue;
                };
                let (me, them) = (number(index), number(peer));
                let count = |counts: &std::collections::BTreeMap<u32, u64>, at: u32| {
                    counts.get(&at).copied().unwrap_or(0)
                };
                let lacks = if count(&words.sent, them) > count(&theirs.received, me) {
                    "the receive"
                } else if count(&words.received, them) > count(&theirs.sent, me) {
                    "the send"
                } else {
                    continue;
                };
                let what = format!(
                    "rank {} never enqueued {lacks} that fits {} of rank {} on group {:?}; {}",
                    self.members[peer],
                    describe(deed),
                    self.members[index],
                    self.group,
                    self.last_act(peer),
                );
                return Some(self.stalled(&[peer], what));
            }
        }
        None
    }

    fn hung_message(&self) -> ErrorKind {
        let complaining = self.complaining();
        let open = self.deeds().find(|(_, deed)| deed.is_open());
        let Some((index, deed)) = open else {
            let what = format!(
                "a call on group {:?} did not end, and no rank has one open any more{}",
                self.group,
                self.complaint(&complaining)
            );
            return self.stalled(&[], what);
        };
        let what = format!(
            "the device of rank {} never completed {} on group {:?}, enqueued {} ago{}",
            self.members[index],
            describe(deed),
            self.group,
            seconds(deed.age_ms),
            self.complaint(&complaining),
        );
        let blamed: &[usize] = if complaining.contains(&index) {
            &[]
        } else {
            &[index]
        };
        self.stalled(blamed, what)
    }

    fn spoken(&self) -> impl Iterator<Item = (usize, &Words)> {
        self.said
            .iter()
            .enumerate()
            .filter_map(|(index, words)| Some((index, words.as_ref()?)))
    }

    /// Members whose device reports a timeout.
    fn complaining(&self) -> Vec<usize> {
        self.spoken()
            .filter(|(_, words)| words.fault.is_some())
            .map(|(index, _)| index)
            .collect()
    }

    /// `, while rank 0 reports 507048 (…): EI0002, …`, or nothing.
    fn complaint(&self, complaining: &[usize]) -> String {
        let first = complaining.first().and_then(|index| {
            let (kind, _) = self.said[*index].as_ref()?.fault.as_ref()?;
            Some(kind)
        });
        let Some(ErrorKind::Vendor {
            code, name, detail, ..
        }) = first
        else {
            return String::new();
        };
        let remark = vendor::remark_in(detail)
            .map_or_else(String::new, |remark| format!(", {}", remark.code));
        format!(
            ", while {} {} {code} ({name}{remark})",
            self.ranks(complaining.iter().copied()),
            if complaining.len() == 1 {
                "reports"
            } else {
                "report"
            },
        )
    }

    /// `, enqueued 5.0 s ago`: the longest of these members.
    fn since(&self, members: &[usize], seq: u64) -> String {
        members
            .iter()
            .filter_map(|index| self.deed_of(*index, seq))
            .map(|deed| deed.age_ms)
            .max()
            .map_or_else(String::new, |age| {
                format!(", enqueued {} ago,", seconds(age))
            })
    }

    fn last_act(&self, index: usize) -> String {
        let last = self.said[index]
            .as_ref()
            .and_then(|words| words.deeds.last());
        let Some(deed) = last else {
            return "it has made no call of this group yet".to_owned();
        };
        let fate = match deed.stage {
            Stage::Completed { after_ms } => {
                format!(
                    "completed {} ago",
                    seconds(deed.age_ms.saturating_sub(after_ms))
                )
            }
            Stage::Enqueued => format!("enqueued {} ago and not completed", seconds(deed.age_ms)),
            Stage::Entering => format!("which it entered {} ago", seconds(deed.age_ms)),
            Stage::Failed => "which failed".to_owned(),
        };
        format!("its last act was {}, {fate}", describe(deed))
    }

    /// `all_gather #17 (f32[1000])`, as some rank made it.
    fn name_of(&self, seq: u64) -> String {
        (0..self.members.len())
            .find_map(|index| self.deed_of(index, seq))
            .map_or_else(|| format!("call #{seq}"), describe)
    }

    fn ranks(&self, members: impl Iterator<Item = usize>) -> String {
        let mut list: Vec<Rank> = members.map(|index| self.members[index]).collect();
        list.sort_unstable();
        list.dedup();
        let words: Vec<String> = list.iter().map(ToString::to_string).collect();
        match words.len() {
            0 => String::new(),
            1 => format!("rank {}", words[0]),
            _ => format!("ranks {}", words.join(", ")),
        }
    }

    fn stalled(&self, blamed: &[usize], what: String) -> ErrorKind {
        let mut blamed: Vec<Rank> = blamed.iter().map(|index| self.members[*index]).collect();
        blamed.sort_unstable();
        ErrorKind::DeviceStalled { blamed, what }
    }
}

/// Rank of an error among the causes, the gravest first; `None` for a mere timeout, which says that
/// somebody else is the cause.
fn kind_rank(kind: &ErrorKind) -> Option<u8> {
    let ErrorKind::Vendor { code, detail, .. } = kind else {
        return Some(0);
    };
    if is_inconsistency(kind) {
        return None;
    }
    match vendor::fault_of(*code, detail) {
        Fault::DeviceLost => Some(1),
        Fault::Memory => Some(2),
        Fault::Link => Some(3),
        Fault::Resource => Some(4),
        Fault::Argument | Fault::Internal | Fault::Unsupported => Some(5),
        Fault::Timeout => None,
    }
}

/// Whether the vendor says that ranks made one call with different arguments: the testimonies say
/// it better, with both sides.
fn is_inconsistency(kind: &ErrorKind) -> bool {
    kind.vendor_remark()
        .is_some_and(|remark| remark.code == "EI0005")
}

/// In checked mode: what the calls of two ranks differ in, given every rank's call by index.
pub(super) fn compare(members: &[Rank], all: &[Ask]) -> Option<ErrorKind> {
    let reference = all.first()?;
    let (other, (field, mine, theirs)) = all
        .iter()
        .enumerate()
        .find_map(|(other, ask)| Some((other, difference(reference, ask)?)))?;
    Some(ErrorKind::Mismatch {
        field,
        rank: members[0],
        mine,
        peer: *members.get(other)?,
        theirs,
    })
}

/// What two calls of one number differ in, with both sides in words.
fn difference(mine: &Ask, theirs: &Ask) -> Option<(Field, String, String)> {
    let text = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());
    if mine.collective != theirs.collective {
        let both = |ask: &Ask| format!("{}{}", ask.collective, shape(ask));
        return Some((Field::Collective, both(mine), both(theirs)));
    }
    if mine.dtype != theirs.dtype {
        let both = |ask: &Ask| text(ask.dtype.map(|dtype| dtype.to_string()));
        return Some((Field::Dtype, both(mine), both(theirs)));
    }
    if mine.op != theirs.op {
        let both = |ask: &Ask| text(ask.op.map(|op| op.to_string()));
        return Some((Field::Op, both(mine), both(theirs)));
    }
    if mine.root != theirs.root {
        let both = |ask: &Ask| text(ask.root.map(|root| root.to_string()));
        return Some((Field::Root, both(mine), both(theirs)));
    }
    if counts_alike(mine.collective) && mine.count != theirs.count {
        return Some((
            Field::Count,
            mine.count.to_string(),
            theirs.count.to_string(),
        ));
    }
    None
}

/// Whether all ranks of a call have the same count.
fn counts_alike(collective: Collective) -> bool {
    matches!(
        collective,
        Collective::AllGather
            | Collective::AllReduce
            | Collective::AllToAll
            | Collective::Broadcast
            | Collective::Gather
            | Collective::Reduce
            | Collective::ReduceScatter
            | Collective::Scatter
    )
}

/// `all_gather #17 (f32[1000])`.
fn describe(deed: &Deed) -> String {
    if deed.is_message() {
        return format!("{}{}", deed.ask.collective, shape(&deed.ask));
    }
    format!("{} #{}{}", deed.ask.collective, deed.seq, shape(&deed.ask))
}

fn shape(ask: &Ask) -> String {
    ask.dtype
        .map_or_else(String::new, |dtype| format!(" ({dtype}[{}])", ask.count))
}

/// `12.4 s`, from whole milliseconds.
fn seconds(millis: u64) -> String {
    format!("{}.{} s", millis / 1000, millis % 1000 / 100)
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
