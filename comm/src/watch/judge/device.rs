//! From what the ranks of a group say of a call on their devices to one verdict.
//!
//! Pure: stall reports in, verdict out; every rank that holds the same stall reports comes to the same
//! verdict. In this order: a device that reports more than a timeout; ranks that enqueued different
//! calls; ranks that did not enqueue the call; ranks that say nothing; devices that neither complete
//! nor complain while their peers report that they waited too long (the rank *without* the vendor's
//! timeout is its cause).

mod stall_report;
mod verdicts;

pub(crate) use self::stall_report::{Ask, Deed, Stage, Words, mismatch};

use self::stall_report::describe;
use super::Scene;
use crate::error::ErrorKind;
use crate::error::verdict::{Class, Confidence, Verdict};
use crate::types::Rank;
use crate::vendor::{self, Fault};

/// What there is to judge by.
#[derive(Debug)]
pub(crate) struct Case<'a> {
    /// Hosts and processes of the ranks.
    pub(crate) scene: &'a Scene,
    /// Name of the group over which the ranks speak.
    pub(crate) group: &'a str,
    /// Name of its calls on devices, as boards show it, and its key there.
    pub(crate) on_device: &'a str,
    pub(crate) key: u64,
    /// World ranks of its members.
    pub(crate) members: &'a [Rank],
    /// What each said, by index; `None` where one said nothing.
    pub(crate) said: &'a [Option<Words>],
}

/// What the stall reports show.
struct Shown {
    /// The error, as it is to the ranks that have not met it themselves.
    kind: ErrorKind,
    blamed: Vec<u32>,
    confidence: Confidence,
}

impl Case<'_> {
    /// The verdict.
    pub(crate) fn judge(&self) -> Verdict {
        let stuck = self.stuck();
        let shown = self.shown(stuck);
        self.tell(stuck, shown)
    }

    fn shown(&self, stuck: Option<u64>) -> Shown {
        if let Some(shown) = self.broken_device() {
            return shown;
        }
        let differs = stuck.and_then(|seq| self.differs(seq));
        if differs.is_none()
            && let Some(shown) = self.inconsistent()
        {
            return shown;
        }
        match stuck {
            Some(seq) => differs
                .or_else(|| self.absent(seq))
                .or_else(|| self.silent())
                .unwrap_or_else(|| self.hung(seq)),
            None => self
                .lonely_message()
                .or_else(|| self.silent())
                .unwrap_or_else(|| self.hung_message()),
        }
    }

    /// A device that reports an error which is no mere timeout: the earliest of these.
    fn broken_device(&self) -> Option<Shown> {
        let mut broken: Vec<(u8, u64, usize, &ErrorKind)> = Vec::new();
        for (index, words) in self.spoken() {
            if let Some((kind, age_ms)) = &words.fault
                && let Some(gravity) = gravity(kind)
            {
                broken.push((gravity, u64::MAX - age_ms, index, kind));
            }
        }
        let (_, _, index, kind) = broken
            .into_iter()
            .min_by_key(|(gravity, earlier, index, _)| (*gravity, *earlier, *index))?;
        Some(self.reported_by(index, kind))
    }

    /// Ranks whose calls differ in what stall reports do not hold, as the vendor noticed.
    fn inconsistent(&self) -> Option<Shown> {
        let (index, kind) = self.spoken().find_map(|(index, words)| {
            let (kind, _) = words.fault.as_ref()?;
            is_inconsistency(kind).then_some((index, kind))
        })?;
        Some(self.reported_by(index, kind))
    }

    /// An error that the device of a member reports.
    fn reported_by(&self, index: usize, kind: &ErrorKind) -> Shown {
        let origin = self.members[index];
        Shown {
            blamed: Class::of(kind, origin.0).1,
            kind: ErrorKind::PeerAborted {
                origin,
                reason: kind.to_string(),
                cause: Box::new(kind.clone()),
            },
            confidence: Confidence::Certain,
        }
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

    /// Ranks that made different calls of one number.
    fn differs(&self, seq: u64) -> Option<Shown> {
        let made = (0..self.members.len())
            .filter_map(|index| Some((self.members[index], &self.deed_of(index, seq)?.ask)));
        let (kind, odd) = mismatch(&made.collect::<Vec<_>>())?;
        Some(Shown {
            kind,
            blamed: odd.into_iter().map(|rank| rank.0).collect(),
            confidence: Confidence::Certain,
        })
    }

    /// Ranks that did not enqueue a collective.
    fn absent(&self, seq: u64) -> Option<Shown> {
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
        Some(self.stalled(&absent, what, Confidence::Certain))
    }

    /// Ranks that said nothing at all.
    fn silent(&self) -> Option<Shown> {
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
        Some(self.stalled(&silent, what, Confidence::Likely))
    }

    /// All enqueued a collective and some device did not complete it.
    fn hung(&self, seq: u64) -> Shown {
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
            return self.stalled(&[], what, Confidence::Likely);
        }
        let what = format!(
            "the device of {} never completed {call} on group {group:?}{} and reports no error{}",
            self.ranks(quiet.iter().copied()),
            self.since(&quiet, seq),
            self.complaint(&complaining),
        );
        self.stalled(&quiet, what, Confidence::Likely)
    }

    /// A message whose other side was never enqueued.
    fn lonely_message(&self) -> Option<Shown> {
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
                return Some(self.stalled(&[peer], what, Confidence::Certain));
            }
        }
        None
    }

    fn hung_message(&self) -> Shown {
        let complaining = self.complaining();
        let open = self.deeds().find(|(_, deed)| deed.is_open());
        let Some((index, deed)) = open else {
            let what = format!(
                "a call on group {:?} did not end, and no rank has one open any more{}",
                self.group,
                self.complaint(&complaining)
            );
            return self.stalled(&[], what, Confidence::Likely);
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
        self.stalled(blamed, what, Confidence::Likely)
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
        format!(
            ", while {} {} {code} ({name}{})",
            self.ranks(complaining.iter().copied()),
            if complaining.len() == 1 {
                "reports"
            } else {
                "report"
            },
            remark_in(detail),
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

    fn stalled(&self, blamed: &[usize], what: String, confidence: Confidence) -> Shown {
        let mut blamed: Vec<Rank> = blamed.iter().map(|index| self.members[*index]).collect();
        blamed.sort_unstable();
        Shown {
            blamed: blamed.iter().map(|rank| rank.0).collect(),
            kind: ErrorKind::DeviceStalled { blamed, what },
            confidence,
        }
    }
}

/// How grave an error is among the causes, the gravest first; `None` for a mere timeout, which says that
/// somebody else is the cause.
fn gravity(kind: &ErrorKind) -> Option<u8> {
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

/// Whether an error of the vendor is more than a timeout: a device or a link that is broken.
pub(in crate::watch) fn is_grave(kind: &ErrorKind) -> bool {
    gravity(kind).is_some()
}

/// `, EI0002`: the code in the vendor's words, where they hold one.
fn remark_in(detail: &str) -> String {
    vendor::remark_in(detail).map_or_else(String::new, |remark| format!(", {}", remark.code))
}

/// Whether the vendor says that ranks made one call with different arguments: the stall reports say
/// it better, with both sides.
fn is_inconsistency(kind: &ErrorKind) -> bool {
    kind.vendor_remark()
        .is_some_and(|remark| remark.code == "EI0005")
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
