//! What call sites tell of calls that were left out, where the calls themselves look alike. Pure.
//!
//! Ranks may reach one collective from different lines of the program by right (`if rank == 0`), so
//! that sites differ means nothing by itself. What a rank has always done means something: a *chain*
//! remembers for each site which one always came next. A rank that has always gone from `a` over
//! `b` to `c`, and now comes to `c` straight from `a`, while others are at `b` as ever, has left `b` out.
//!
//! - TRAIL-1: the same sites in the same order lead to the same slips, so all members of a group that
//!   see all sites come to the same verdict in the same call.
//! - TRAIL-2: nothing is said of a program whose members have always been at odds in the same way.

use super::site::Spot;

/// Bits of a site's mark. It must fit what a frame has left.
const MARK_BITS: u32 = 24;
/// Set in marks of ranks that want every difference to be an error.
const STRICT: u32 = 1 << (MARK_BITS - 1);
/// Places of a chain; a power of two. Sites that share one forget each other.
const PLACES: usize = 64;
/// How often a step must have been the only one, to be a habit.
const HABIT: u32 = 3;
/// Calls that may have been left out at once.
const LEAP_MAX: usize = 4;
/// Last sites of each member that are kept; a power of two.
const RECENT: usize = 8;
const _: () = assert!(WINDOW + SHIFT_MAX <= RECENT);
/// Calls in a row by which a member must be ahead of another.
const WINDOW: usize = 4;
/// By how many calls.
const SHIFT_MAX: usize = 3;
/// Sites that must be among those calls: two that take turns are no order.
const SITES_MIN: usize = 3;

/// What is made of the sites that calls come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallSites {
    /// A call that is reached against the habit of the program, as if another had been left out, is a
    /// mismatch.
    #[default]
    Habit,
    /// Nothing.
    Off,
    /// Any difference between the sites of one call is a mismatch.
    Strict,
}

/// The mark of a site: equal on all ranks for the same place of the program, and never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark(pub(crate) u32);

impl Mark {
    /// The mark of a place. Of the file its length and the end of its name count.
    pub(crate) fn of(site: &std::panic::Location<'_>, sites: CallSites) -> Self {
        if sites == CallSites::Off {
            return Self(0);
        }
        let site = Spot::of(site);
        let file = site.file.as_bytes();
        let mut end = [0; 8];
        let most = file.len().min(8);
        end[8 - most..].copy_from_slice(&file[file.len() - most..]);
        let place = u64::from(site.line) << 32 | u64::from(site.column) << 16;
        let mixed = (u64::from_le_bytes(end) ^ place ^ file.len() as u64)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(31)
            .wrapping_mul(0xD6E8_FEB8_6659_FD93);
        let bits = u32::try_from(mixed >> (64 - MARK_BITS + 1)).unwrap_or(1);
        let strict = if sites == CallSites::Strict {
            STRICT
        } else {
            0
        };
        Self(bits.max(1) | strict)
    }

    /// The mark of one of several things that a place of the program does.
    pub(crate) fn with(self, kind: u8) -> Self {
        if self.0 == 0 {
            return self;
        }
        let bits = (self.0 ^ u32::from(kind) << 8) & (STRICT - 1);
        Self(bits.max(1) | self.0 & STRICT)
    }

    fn is_strict(self) -> bool {
        self.0 & STRICT != 0
    }
}

/// How one member is out of step with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It comes to a call that follows this one by so many.
    Skipped(usize),
    /// It has been ahead by so many calls for some time: it left them out.
    Ahead(usize),
    /// It has been behind by so many calls for some time: it made them besides.
    Behind(usize),
    /// It comes from elsewhere, where that is not allowed.
    Elsewhere,
}

/// Who is out of step, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slip {
    /// Who it is.
    pub odd: usize,
    /// One that goes on as ever.
    pub usual: usize,
    /// In which way.
    pub step: Step,
}

impl Slip {
    /// What the odd member has, in words that follow "rank 3 has", if its call is `call`.
    #[must_use]
    pub fn words(&self, call: &str) -> String {
        let calls = |count: usize| {
            if count == 1 {
                "1 call".to_owned()
            } else {
                format!("{count} calls")
            }
        };
        match self.step {
            Step::Skipped(1) => format!("skipped it: it is in a later call, {call}"),
            Step::Skipped(count) => {
                format!("skipped {count} calls: it is in a later one, {call}")
            }
            Step::Ahead(count) => format!(
                "been ahead by {} for {WINDOW} calls or more: it skipped what the others made; now {call}",
                calls(count)
            ),
            Step::Behind(count) => format!(
                "been behind by {} for {WINDOW} calls or more: it made what the others did not; now {call}",
                calls(count)
            ),
            Step::Elsewhere => format!("{call} at another place of the program"),
        }
    }
}

/// The sites of some members, call by call.
#[derive(Debug)]
pub(crate) struct CallsiteHistory {
    members: usize,
    /// One chain for all while all have gone the same way; then one a member.
    chains: Vec<Chain>,
}

impl CallsiteHistory {
    pub(crate) fn new(members: usize) -> Self {
        Self {
            members,
            chains: vec![Chain::default()],
        }
    }

    /// All members came from the same site.
    pub(crate) fn together(&mut self, mark: Mark) {
        if mark == Mark::default() {
            return;
        }
        for chain in &mut self.chains {
            chain.follow(mark);
        }
    }

    /// The members came from these sites, and `differs` says whether their calls differ besides.
    /// `is_barrier` where the call carries nothing that could be mistaken for something else.
    pub(crate) fn apart(
        &mut self,
        marks: impl Iterator<Item = Mark> + Clone,
        differs: bool,
        is_barrier: bool,
    ) -> Option<Slip> {
        if self.chains.len() == 1 && self.members > 1 {
            let shared = self.chains.remove(0);
            self.chains = vec![shared; self.members];
        }
        let is_known = marks.clone().all(|mark| mark != Mark::default());
        let habit = if differs { 1 } else { HABIT };
        let left_out = if is_known && (differs || !is_barrier) {
            self.left_out(marks.clone(), habit)
        } else {
            None
        };
        for (chain, mark) in self.chains.iter_mut().zip(marks.clone()) {
            chain.follow(mark);
        }
        if !is_known || left_out.is_some() {
            return left_out;
        }
        if marks.clone().any(Mark::is_strict) {
            return elsewhere(marks);
        }
        if differs || is_barrier {
            return None;
        }
        self.shifted(marks)
    }

    /// A member that comes to a later call than its chain says, while another one keeps to its own.
    fn left_out(&self, marks: impl Iterator<Item = Mark> + Clone, habit: u32) -> Option<Slip> {
        let steps = || self.chains.iter().zip(marks.clone()).enumerate();
        let (odd, count) =
            steps().find_map(|(at, (chain, mark))| Some((at, chain.leap(mark, habit)?)))?;
        let (usual, _) = steps().find(|(_, (chain, mark))| chain.next(habit) == Some(*mark))?;
        Some(Slip {
            odd,
            usual,
            step: Step::Skipped(count),
        })
    }

    /// A member whose last calls are those of another one, shifted.
    fn shifted(&self, marks: impl Iterator<Item = Mark> + Clone) -> Option<Slip> {
        let usual = usual_of(marks)?;
        let reference = &self.chains[usual];
        self.chains.iter().enumerate().find_map(|(odd, chain)| {
            let found = (1..=SHIFT_MAX).find_map(|by| {
                if is_ahead(chain, reference, by) {
                    Some(Step::Ahead(by))
                } else if is_ahead(reference, chain, by) {
                    Some(Step::Behind(by))
                } else {
                    None
                }
            });
            found.map(|step| Slip { odd, usual, step })
        })
    }
}

/// The first member of the largest set that is at one site.
fn usual_of(marks: impl Iterator<Item = Mark> + Clone) -> Option<usize> {
    let votes = |mark: Mark| marks.clone().filter(|other| *other == mark).count();
    let most = marks.clone().map(votes).max()?;
    marks.clone().position(|mark| votes(mark) == most)
}

fn elsewhere(marks: impl Iterator<Item = Mark> + Clone) -> Option<Slip> {
    let usual = usual_of(marks.clone())?;
    let mark = marks.clone().nth(usual)?;
    let odd = marks.clone().position(|other| other != mark)?;
    Some(Slip {
        odd,
        usual,
        step: Step::Elsewhere,
    })
}

/// Whether the last calls of `one` are those that `other` has made `by` calls later.
fn is_ahead(one: &Chain, other: &Chain, by: usize) -> bool {
    let mut sites = other.window(0);
    if one.calls < WINDOW + by || one.window(by) != sites {
        return false;
    }
    let now = one.window(0);
    let differ_now = now.iter().zip(&sites).all(|(mine, theirs)| mine != theirs);
    sites.sort_unstable_by_key(|mark| mark.0);
    let kinds = 1 + sites.windows(2).filter(|pair| pair[0] != pair[1]).count();
    differ_now && kinds >= SITES_MIN
}

/// What came after what, of one member.
#[derive(Clone, Debug, Default)]
struct Chain {
    last: Mark,
    places: Places,
    /// The last sites, by the number of the call.
    recent: [Mark; RECENT],
    calls: usize,
}

#[derive(Clone, Debug)]
struct Places(Box<[Follower; PLACES]>);

impl Default for Places {
    fn default() -> Self {
        Self(Box::new([Follower::default(); PLACES]))
    }
}

/// What came after one site.
#[derive(Clone, Copy, Debug, Default)]
struct Follower {
    site: Mark,
    next: Mark,
    /// How often; 0 where different sites did.
    times: u32,
}

impl Chain {
    fn follow(&mut self, mark: Mark) {
        let last = std::mem::replace(&mut self.last, mark);
        let place = &mut self.places.0[place_of(last)];
        if place.site != last {
            *place = Follower {
                site: last,
                next: mark,
                times: 1,
            };
        } else if place.next != mark {
            place.times = 0;
        } else if place.times > 0 {
            place.times = place.times.saturating_add(1);
        }
        self.recent[self.calls % RECENT] = mark;
        self.calls += 1;
    }

    /// The last sites, but for the newest `by`; oldest first.
    fn window(&self, by: usize) -> [Mark; WINDOW] {
        let end = self.calls.saturating_sub(by);
        std::array::from_fn(|at| self.recent[(end + RECENT - WINDOW + at) % RECENT])
    }

    /// What has always come after `site`.
    fn after(&self, site: Mark, habit: u32) -> Option<Mark> {
        let place = &self.places.0[place_of(site)];
        (place.site == site && site != Mark::default() && place.times >= habit)
            .then_some(place.next)
    }

    /// What should come now.
    fn next(&self, habit: u32) -> Option<Mark> {
        self.after(self.last, habit)
    }

    /// How many calls were left out if this one is made now.
    fn leap(&self, mark: Mark, habit: u32) -> Option<usize> {
        let mut at = self.next(habit)?;
        if at == mark {
            return None;
        }
        for count in 1..=LEAP_MAX {
            at = self.after(at, habit)?;
            if at == mark {
                return Some(count);
            }
        }
        None
    }
}

fn place_of(site: Mark) -> usize {
    crate::types::index(u64::from(site.0)) % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::Location;

    fn step(trail: &mut CallsiteHistory, marks: &[u32]) -> Option<Slip> {
        let marks: Vec<Mark> = marks.iter().map(|mark| Mark(*mark)).collect();
        if marks.iter().all(|mark| *mark == marks[0]) {
            trail.together(marks[0]);
            return None;
        }
        trail.apart(marks.into_iter(), false, false)
    }

    /// The calls of all members, in turn; the first slip, and the call in which it shows.
    fn first_slip(members: &[Vec<u32>]) -> Option<(usize, Slip)> {
        let mut trail = CallsiteHistory::new(members.len());
        let calls = members.iter().map(Vec::len).min()?;
        (0..calls).find_map(|call| {
            let marks: Vec<u32> = members.iter().map(|sites| sites[call]).collect();
            Some((call, step(&mut trail, &marks)?))
        })
    }

    fn rounds(of: &[u32], times: usize) -> Vec<u32> {
        of.repeat(times)
    }

    #[test]
    fn a_call_left_out_of_a_loop_shows_at_once() {
        for odd in 0..3 {
            for left_out in 16..20 {
                let mut members = vec![rounds(&[1, 2, 3, 4], 9); 3];
                members[odd].remove(left_out);
                let (call, slip) = first_slip(&members).unwrap();
                assert_eq!(
                    (call, slip.odd, slip.step),
                    (left_out, odd, Step::Skipped(1))
                );
                assert_ne!(slip.usual, odd);
            }
        }
    }

    #[test]
    fn several_calls_left_out_at_once_are_counted() {
        let mut members = vec![rounds(&[1, 2, 3, 4, 5], 9); 2];
        members[1].drain(22..24);
        let (call, slip) = first_slip(&members).unwrap();
        assert_eq!((call, slip.odd, slip.step), (22, 1, Step::Skipped(2)));
    }

    #[test]
    fn a_program_without_a_loop_shows_it_some_calls_later() {
        let mut members = vec![(1..30).collect::<Vec<u32>>(); 3];
        members[2].remove(5);
        let (call, slip) = first_slip(&members).unwrap();
        assert_eq!((slip.odd, slip.step), (2, Step::Ahead(1)));
        assert!(call < 5 + WINDOW + 1, "{call}");
        let mut members = vec![(1..30).collect::<Vec<u32>>(); 3];
        members[1].insert(7, 99);
        let (_, slip) = first_slip(&members).unwrap();
        assert_eq!((slip.odd, slip.step), (1, Step::Behind(1)));
    }

    /// TRAIL-2.
    #[test]
    fn programs_whose_ranks_differ_by_right_are_left_alone() {
        // `if rank == 0 { .. } else { .. }`, in each of its shapes.
        let branches = vec![
            rounds(&[1, 10, 3], 40),
            rounds(&[1, 11, 3], 40),
            rounds(&[1, 11, 3], 40),
        ];
        assert_eq!(first_slip(&branches), None);
        // Something rare, from two sites.
        let mut rare = vec![rounds(&[1, 2, 3], 10), rounds(&[1, 2, 3], 10)];
        rare[0].extend([7, 1, 2, 3]);
        rare[1].extend([8, 1, 2, 3]);
        assert_eq!(first_slip(&rare), None);
        // All leave a call out together.
        let mut together = vec![rounds(&[1, 2, 3], 10), rounds(&[1, 2, 3], 10)];
        for one in &mut together {
            one.extend([1, 3, 1, 2, 3]);
        }
        assert_eq!(first_slip(&together), None);
        // Two sites in the other order, for ever.
        let swapped = vec![rounds(&[1, 2, 3], 40), rounds(&[2, 1, 3], 40)];
        assert_eq!(first_slip(&swapped), None);
        // Each rank takes one of two sites, as its data want it.
        let mut seed = 7_u32;
        let mut random = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            5 + (seed >> 16 & 1)
        };
        let mut data = vec![Vec::new(); 2];
        for _ in 0..400 {
            for one in &mut data {
                one.extend([1, random(), 2]);
            }
        }
        assert_eq!(first_slip(&data), None);
    }

    #[test]
    fn barriers_and_unknown_sites_are_left_alone_and_strict_ones_are_not() {
        let mut trail = CallsiteHistory::new(2);
        for _ in 0..9 {
            for site in [1, 2, 3] {
                trail.together(Mark(site));
            }
        }
        let marks = [Mark(1), Mark(2)];
        assert_eq!(trail.apart(marks.into_iter(), false, true), None);
        let mut trail = CallsiteHistory::new(2);
        assert_eq!(
            trail.apart([Mark(0), Mark(9)].into_iter(), false, false),
            None
        );
        let strict = [Mark(STRICT | 4), Mark(STRICT | 5)].into_iter();
        let slip = trail.apart(strict, false, false).unwrap();
        assert_eq!((slip.odd, slip.step), (1, Step::Elsewhere));
    }

    #[test]
    fn marks_tell_places_apart_and_say_who_is_strict() {
        let (a, b) = (Location::caller(), here());
        let mark = |site| Mark::of(site, CallSites::Habit);
        assert_ne!(mark(a), mark(b));
        assert_eq!(mark(b).0 >> MARK_BITS, 0);
        assert!(!mark(a).is_strict());
        assert!(Mark::of(a, CallSites::Strict).is_strict());
        assert_eq!(Mark::of(a, CallSites::Off), Mark::default());
    }

    #[track_caller]
    fn here() -> &'static Location<'static> {
        Location::caller()
    }
}
