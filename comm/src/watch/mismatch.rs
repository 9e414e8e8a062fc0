//! What the boards of all ranks say of one call: who made it, and who made another one. Pure.
//!
//! Ranks that exchange messages compare only with those that send to them. Boards show all sides, so
//! the verdict names all of them, and also calls that differ between ranks that never exchange anything.

use super::judge::Scene;
use super::process::Sight;
use super::report::{CallCode, CallRecord, GroupState, InFlight};
use crate::error::verdict::{CallId, ranks};
use crate::error::{ErrorKind, Field};
use crate::types::{Collective, Rank};

/// A call as one rank made it.
#[derive(Clone, Debug)]
struct Made<'a> {
    rank: u32,
    code: CallCode,
    site: &'a str,
    row: &'a [u64],
    /// The rank waits in it, or is past it.
    stands: bool,
}

/// What the sides have in common, and who is the odd one out.
#[derive(Clone, Debug)]
pub(super) struct Comparison {
    /// World ranks that made another call than most.
    pub(super) blamed: Vec<u32>,
    /// Both sides, with all their ranks and call sites.
    pub(super) place: String,
    /// The error that the calls return.
    pub(super) kind: ErrorKind,
}

/// Ranks that made call `call` together, by what they made.
struct Side<'a> {
    made: Vec<Made<'a>>,
}

impl Side<'_> {
    fn ranks(&self) -> Vec<u32> {
        self.made.iter().map(|made| made.rank).collect()
    }

    fn sites(&self) -> String {
        let mut sites: Vec<&str> = self.made.iter().map(|made| made.site).collect();
        sites.sort_unstable();
        sites.dedup();
        sites.join(" and ")
    }

    fn words(&self, text: &str) -> String {
        let verb = if self.made.len() == 1 { "has" } else { "have" };
        let site = self.sites();
        format!("{} {verb} {text} at {site}", ranks(&self.ranks()))
    }
}

/// Compares call `call` over all ranks whose boards show it; `None` where nothing differs.
pub(super) fn compare(scene: &Scene, call: CallId) -> Option<Comparison> {
    let made = made(scene, call);
    let sides = sides(&made, |made| face(made.code));
    if sides.len() > 1 {
        let field = differing(sides[0].made[0].code, sides[1].made[0].code);
        let text = |side: &Side<'_>| describe(side.made[0].code);
        let mut comparison = told(field, &sides, text);
        // Where as many are known of both sides, and not all members are, any side may be the odd one.
        let is_tie = sides[0].made.len() == sides[1].made.len();
        let is_whole = group_of(scene, call)
            .is_some_and(|group| crate::types::index(group.size.into()) == made.len());
        if is_tie && !is_whole {
            comparison.blamed = made.iter().map(|made| made.rank).collect();
        }
        return Some(comparison);
    }
    if made
        .first()?
        .code
        .collective()
        .is_some_and(Collective::has_splits)
    {
        return splits(scene, call, made);
    }
    let rows: Vec<Made<'_>> = made
        .into_iter()
        .filter(|made| !made.row.is_empty())
        .collect();
    let sides = self::sides(&rows, |made| made.row.to_vec());
    (sides.len() > 1).then(|| {
        told(Field::Splits, &sides, |side| {
            format!(
                "{} with counts {:?}",
                side.made[0].code.name(),
                side.made[0].row
            )
        })
    })
}

/// The one of two ranks that met in a call and differ whose call nobody else is known to have made, where others are known to
/// have made that of the other one.
pub(super) fn odd_of(scene: &Scene, call: CallId, pair: [u32; 2]) -> Option<u32> {
    let made = made(scene, call);
    let [side] = sides(&made, |made| face(made.code)).try_into().ok()?;
    let is_there = |rank: &u32| side.made.iter().any(|made| made.rank == *rank);
    match pair.map(|rank| is_there(&rank)) {
        _ if side.made.len() < 2 => None,
        [true, false] => Some(pair[1]),
        [false, true] => Some(pair[0]),
        [true, true] | [false, false] => None,
    }
}

/// The first of the last calls of a group, up to number `up_to`, that ranks made differently and of which nobody was told: after
/// one that all were told of, the group may have gone on.
pub(super) fn earliest(
    scene: &Scene,
    call: CallId,
    up_to: u64,
    is_told: &dyn Fn(CallId) -> bool,
) -> Option<(CallId, Comparison)> {
    let all = scene
        .members
        .iter()
        .filter_map(|member| member.report.as_ref());
    let of_group = all
        .flat_map(|report| &report.calls)
        .filter(|made| made.key == call.key && made.seq <= up_to && !made.call.is_point_to_point());
    let mut seqs: Vec<u64> = of_group.map(|made| made.seq).collect();
    seqs.sort_unstable();
    seqs.dedup();
    let calls = seqs.into_iter().map(|seq| CallId { seq, ..call });
    let mut untold = calls.filter(|earlier| !is_told(*earlier));
    untold.find_map(|earlier| Some((earlier, compare(scene, earlier)?)))
}

/// A call that ranks made differently and in which nobody can go on: each member is past it, or waits.
///
/// Ranks that share memory never get there: the last one to come sees the calls of all.
pub(super) fn find(scene: &Scene) -> Option<(u32, CallId, Comparison)> {
    let waiting = (0_u32..).zip(&scene.members).flat_map(|(rank, member)| {
        let groups = member.report.iter().flat_map(|report| &report.groups);
        groups.filter_map(move |group| {
            let call = group.call.as_ref().filter(|call| call.wait.is_some())?;
            let id = CallId {
                key: group.key,
                seq: call.seq,
            };
            Some((rank, id))
        })
    });
    let mut seen: Vec<CallId> = Vec::new();
    for (rank, id) in waiting {
        if !seen.contains(&id) {
            seen.push(id);
            if !is_stuck(scene, id) {
                continue;
            }
            if let Some(found) = compare(scene, id) {
                return Some((rank, id, found));
            }
        }
    }
    None
}

fn is_stuck(scene: &Scene, call: CallId) -> bool {
    let Some(group) = group_of(scene, call) else {
        return false;
    };
    let made = made(scene, call);
    group.names_all()
        && made.iter().all(|made| made.stands)
        && group
            .members
            .iter()
            .all(|member| made.iter().any(|made| made.rank == *member))
}

/// Whether a member that answers, or is seen to run and is late with that, has not come to the call yet, so that more may be known
/// soon.
pub(super) fn is_incomplete(scene: &Scene, call: CallId) -> bool {
    if call.seq == 0 {
        return false;
    }
    let known = made(scene, call);
    group_of(scene, call).is_some_and(|group| {
        group.members.iter().any(|rank| {
            let may_come = scene.member(*rank).is_some_and(|member| {
                let facts = member.process.as_ref().and_then(Sight::facts);
                let runs = facts.is_some() && member.stopped_ms.is_none();
                member.fate.is_none() && (member.silent_ms == 0 || runs)
            });
            may_come && !known.iter().any(|made| made.rank == *rank)
        })
    })
}

/// Where each rank that made this call did so, as words that follow a description of it.
pub(super) fn places(scene: &Scene, call: CallId) -> String {
    let made = made(scene, call);
    let sides = sides(&made, |made| made.site.to_owned());
    let parts: Vec<String> = sides
        .iter()
        .map(|side| format!("{} at {}", ranks(&side.ranks()), side.sites()))
        .collect();
    parts.join(", ")
}

/// A hint where the odd rank is further on in the same file: it may have left the call out.
pub(super) fn hint(scene: &Scene, call: CallId, blamed: &[u32]) -> Option<String> {
    let made = made(scene, call);
    let place = |is_odd: bool| {
        let one = made
            .iter()
            .find(|made| blamed.contains(&made.rank) == is_odd)?;
        let (file, line) = one.site.rsplit_once(':')?;
        Some((one.site, file, line.parse::<u32>().ok()?))
    };
    let ((odd, odd_file, odd_line), (usual, file, line)) = (place(true)?, place(false)?);
    (file == odd_file && odd_line > line).then(|| {
        format!(
            "see whether {} left out the call at {usual} on its way to {odd}",
            ranks(blamed)
        )
    })
}

fn group_of(scene: &Scene, call: CallId) -> Option<&GroupState> {
    let mut reports = scene
        .members
        .iter()
        .filter_map(|member| member.report.as_ref());
    reports.find_map(|report| report.group(call.key))
}

fn made(scene: &Scene, call: CallId) -> Vec<Made<'_>> {
    let mut all = Vec::new();
    for (rank, member) in (0_u32..).zip(&scene.members) {
        let Some(report) = &member.report else {
            continue;
        };
        let group: Option<&GroupState> = report.group(call.key);
        let under_way: Option<&InFlight> = group
            .and_then(|group| group.call.as_ref())
            .filter(|made| made.seq == call.seq && !made.call.is_point_to_point());
        let past = || -> Option<&CallRecord> {
            report.calls.iter().rfind(|made| {
                made.key == call.key && made.seq == call.seq && !made.call.is_point_to_point()
            })
        };
        if let Some(made) = under_way {
            all.push(Made {
                rank,
                code: made.call,
                site: &made.site,
                row: &made.row,
                stands: made.wait.is_some(),
            });
        } else if let Some(made) = past() {
            all.push(Made {
                rank,
                code: made.call,
                site: &made.site,
                row: &[],
                stands: true,
            });
        }
    }
    all
}

/// Ranks by what they made, the largest side first; of equal ones that of the lowest rank.
fn sides<'a, F: PartialEq>(made: &[Made<'a>], face: impl Fn(&Made<'a>) -> F) -> Vec<Side<'a>> {
    let mut sides: Vec<(F, Side<'a>)> = Vec::new();
    for one in made {
        let face = face(one);
        match sides.iter_mut().find(|(known, _)| *known == face) {
            Some((_, side)) => side.made.push(one.clone()),
            None => sides.push((
                face,
                Side {
                    made: vec![one.clone()],
                },
            )),
        }
    }
    sides.sort_by_key(|(_, side)| std::cmp::Reverse(side.made.len()));
    sides.into_iter().map(|(_, side)| side).collect()
}

/// What must be equal on all ranks.
fn face(code: CallCode) -> (u64, u64) {
    let varies = code.collective().is_none_or(Collective::has_lengths);
    (code.word, if varies { 0 } else { code.count })
}

fn differing(one: CallCode, other: CallCode) -> Field {
    if one.collective() != other.collective() {
        Field::Collective
    } else if one.dtype() != other.dtype() {
        Field::Dtype
    } else if one.op() != other.op() {
        Field::Op
    } else if one.root() != other.root() {
        Field::Root
    } else {
        Field::Count
    }
}

/// A call in words: `all_reduce(f32[1024], sum)`.
fn describe(code: CallCode) -> String {
    let details = code.details();
    let details: Vec<&str> = details.split_whitespace().collect();
    match details.as_slice() {
        [] => code.name().to_owned(),
        [dtype] => format!("{}({dtype})", code.name()),
        [dtype, rest @ ..] => format!("{}({dtype}, {})", code.name(), rest.join(" ")),
    }
}

fn told(field: Field, sides: &[Side<'_>], text: impl Fn(&Side<'_>) -> String) -> Comparison {
    let (usual, odd) = (&sides[0], &sides[1]);
    let mut blamed: Vec<u32> = sides[1..].iter().flat_map(Side::ranks).collect();
    blamed.sort_unstable();
    let parts: Vec<String> = sides.iter().map(|side| side.words(&text(side))).collect();
    Comparison {
        blamed,
        place: format!("{field} differs: {}", parts.join(", ")),
        kind: ErrorKind::Mismatch {
            field,
            rank: Rank(usual.made[0].rank),
            mine: text(usual),
            peer: Rank(odd.made[0].rank),
            theirs: text(odd),
        },
    }
}

fn splits(scene: &Scene, call: CallId, mut made: Vec<Made<'_>>) -> Option<Comparison> {
    // Rows count by index in the group.
    let members = group_of(scene, call)?.members.as_slice();
    let index = |made: &Made<'_>| members.iter().position(|member| *member == made.rank);
    made.sort_by_key(index);
    let rows: Vec<&[u64]> = made.iter().map(|made| made.row).collect();
    let n = rows.iter().map(|row| row.len() / 2).max()?;
    if made.len() != n || members.len() != n || rows.iter().any(|row| row.len() != 2 * n) {
        // Somebody's row is not known.
        return None;
    }
    let fault = fault_of(n, |member| rows[member])?;
    let (odd, other) = if fault.odd == fault.sender {
        (fault.sender, fault.receiver)
    } else {
        (fault.receiver, fault.sender)
    };
    let side = |at: usize| {
        if at == fault.sender {
            format!(
                "{} elements for rank {}",
                fault.sends, made[fault.receiver].rank
            )
        } else {
            format!(
                "{} expected from rank {}",
                fault.expects, made[fault.sender].rank
            )
        }
    };
    let words = |at: usize| {
        format!(
            "rank {} has {} at {}",
            made[at].rank,
            side(at),
            made[at].site
        )
    };
    let more = match fault.pairs {
        1 => String::new(),
        pairs => format!(
            " ({pairs} pairs differ, {} of them with rank {})",
            fault.of_odd, made[odd].rank
        ),
    };
    Some(Comparison {
        blamed: vec![made[odd].rank],
        place: format!(
            "{} differs: {}, {}{more}",
            Field::Splits,
            words(other),
            words(odd)
        ),
        kind: ErrorKind::Mismatch {
            field: Field::Splits,
            rank: Rank(made[other].rank),
            mine: side(other),
            peer: Rank(made[odd].rank),
            theirs: side(odd),
        },
    })
}

/// A pair of members of an exchange of splits that do not agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SplitsFault {
    /// Index of the member that sends.
    pub(crate) sender: usize,
    /// Index of the member that receives.
    pub(crate) receiver: usize,
    /// What it sends.
    pub(crate) sends: u64,
    /// What the other expects.
    pub(crate) expects: u64,
    /// The member to blame: that of most pairs that differ; of two equal ones, who sends.
    pub(crate) odd: usize,
    /// How many pairs differ, and in how many of them the odd one is.
    pub(crate) pairs: usize,
    pub(crate) of_odd: usize,
}

/// Compares what each member sends with what its peer expects. A row holds what a member sends to each,
/// then what it receives from each.
pub(crate) fn fault_of<'r>(n: usize, row: impl Fn(usize) -> &'r [u64]) -> Option<SplitsFault> {
    // Nothing is allocated where all agree: every exchange of splits begins with this.
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    for sender in 0..n {
        for (receiver, sent) in row(sender)[..n].iter().enumerate() {
            if *sent != row(receiver)[n + sender] {
                pairs.push((sender, receiver));
            }
        }
    }
    let (first, _) = pairs.first()?;
    let involved = |member: usize| {
        let is_in = |(sender, receiver): &&(usize, usize)| *sender == member || *receiver == member;
        pairs.iter().filter(is_in).count()
    };
    let most = (0..n).map(involved).max()?;
    let mut suspects = (0..n).filter(|member| involved(*member) == most);
    let odd = match (suspects.next()?, suspects.next()) {
        (one, None) => one,
        (_, Some(_)) => *first,
    };
    let (sender, receiver) = *pairs
        .iter()
        .find(|(sender, receiver)| *sender == odd || *receiver == odd)?;
    Some(SplitsFault {
        sender,
        receiver,
        sends: row(sender)[receiver],
        expects: row(receiver)[n + sender],
        odd,
        pairs: pairs.len(),
        of_odd: involved(odd),
    })
}

#[cfg(test)]
mod tests;
