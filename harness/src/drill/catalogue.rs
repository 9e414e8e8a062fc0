//! The drills: what is done, and what must come of it. A file holds a family of faults, with the table of
//! its drills.
//!
//! Numbers are those of the catalogue of faults: A processes and launcher, B calls that do not fit, C how
//! ranks find each other, D network, E data, F strangers and resources, G time.

mod contract;
mod data;
mod groups;
pub(super) mod life;
mod network;
mod rendezvous;
mod strangers;
mod time;

use std::time::Duration;

use super::plan::{
    BRING_UP, Blamed, DEADLINE_LONG, Expect, Injection, Launch, Outcome, Plan, Setting, Transport,
};
use super::script::{Part, Step};
use crate::exit::Exit;
use crate::random::Draws;

/// Death of a process, seen on the same host.
const DEATH: Duration = Duration::from_millis(250);
/// A process that does not run.
const FROZEN: Duration = Duration::from_millis(1500);
/// A connection that breaks. Whether the rank at its other end has died is waited for.
const RESET: Duration = Duration::from_secs(1);
/// A message that does not fit.
const WAITS: Duration = Duration::from_millis(250);
/// A circle, after its last edge has appeared.
const CIRCLE: Duration = Duration::from_secs(1);
/// What a verdict at a deadline may take beyond it.
const AFTER_DEADLINE: Duration = Duration::from_millis(500);

/// Ranks of a drill unless said otherwise.
const RANKS: u32 = 4;
/// Seconds that `muster run` gives ranks after a failure: enough to return, and no more.
const GRACE_S: u32 = 2;

/// One drill.
#[derive(Clone, Copy, Debug)]
pub struct Drill {
    /// Its number in the catalogue of faults.
    pub id: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What is done, in words.
    pub title: &'static str,
    /// Whether it belongs to the first wave.
    pub first_wave: bool,
    /// Whether it is a control: nothing is wrong, and nobody may say so.
    pub is_control: bool,
    /// Over what it makes sense.
    pub transports: &'static [Transport],
    /// The smallest world in which it does.
    pub world_min: u32,
    /// Ranks where nothing else is asked for.
    pub ranks: u32,
    /// What is done and what must come of it, in a setting.
    pub plan: fn(&Setting, &mut Draws) -> Plan,
}

type Planner = fn(&Setting, &mut Draws) -> Plan;

impl Drill {
    const fn new(id: &'static str, name: &'static str, title: &'static str, plan: Planner) -> Self {
        Self {
            id,
            name,
            title,
            first_wave: false,
            is_control: false,
            transports: &Transport::ALL,
            world_min: 2,
            ranks: RANKS,
            plan,
        }
    }

    const fn first(self) -> Self {
        Self {
            first_wave: true,
            ..self
        }
    }

    const fn control(self) -> Self {
        Self {
            is_control: true,
            ..self
        }
    }

    /// Over TCP only.
    const fn tcp(self) -> Self {
        Self {
            transports: &[Transport::Tcp],
            ..self
        }
    }

    /// Over shared memory only, between two ranks where nothing else is asked for.
    const fn shm_pair(self) -> Self {
        Self {
            transports: &[Transport::Shm],
            ranks: 2,
            ..self
        }
    }

    /// In worlds of this size and larger ones.
    const fn from(self, world_min: u32) -> Self {
        Self { world_min, ..self }
    }

    /// Whether it is done where nothing else is asked for: the first wave, and controls.
    #[must_use]
    pub fn is_usual(&self) -> bool {
        self.first_wave || self.is_control
    }

    /// Whether this is its name or its number.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.id.eq_ignore_ascii_case(name)
    }

    /// Whether it makes sense there.
    #[must_use]
    pub fn fits(&self, setting: &Setting) -> bool {
        self.transports.contains(&setting.transport) && setting.world_size >= self.world_min
    }
}

/// Calls that differ, after the last rank has come: in shared memory, and as between hosts.
fn mismatch(setting: &Setting) -> Duration {
    Duration::from_millis(match setting.transport {
        Transport::Shm => 50,
        Transport::Tcp => 100,
    })
}

/// All drills, family by family.
pub fn drills() -> impl Iterator<Item = &'static Drill> {
    [
        life::DRILLS,
        contract::DRILLS,
        groups::DRILLS,
        rendezvous::DRILLS,
        network::DRILLS,
        data::DRILLS,
        strangers::DRILLS,
        time::DRILLS,
    ]
    .into_iter()
    .flatten()
}

/// An honest rank with these steps.
fn part(rank: u32, steps: Vec<Step>) -> Part {
    Part {
        rank,
        bring_up_ms: u64::try_from(BRING_UP.as_millis()).unwrap_or(u64::MAX),
        steps,
        ..Part::default()
    }
}

/// Ranks of `muster run`, each with its steps; nothing is wrong so far.
fn plan(setting: &Setting, injected: String, steps: impl Fn(u32) -> Vec<Step>) -> Plan {
    Plan {
        launch: Launch::Run { grace_s: GRACE_S },
        parts: setting
            .all()
            .into_iter()
            .map(|rank| part(rank, steps(rank)))
            .collect(),
        deadline: DEADLINE_LONG,
        deed: Injection::None,
        squatter: false,
        injected,
        expect: well(setting),
    }
}

/// Nothing is said, and everything comes out right.
fn well(setting: &Setting) -> Expect {
    Expect {
        outcome: Outcome::Well,
        exit: Some(Exit::Ok),
        survivors: setting.all(),
        ..nobody()
    }
}

/// Nobody is asked anything.
fn nobody() -> Expect {
    Expect {
        outcome: Outcome::Gone,
        exit: None,
        bound: Duration::ZERO,
        survivors: Vec::new(),
        words: Vec::new(),
        usable: false,
        shared: true,
        turned_away: Vec::new(),
    }
}

/// A verdict on all survivors.
fn verdict(class: Exit, blamed: Blamed, bound: Duration, survivors: Vec<u32>) -> Expect {
    Expect {
        outcome: Outcome::Verdict { class, blamed },
        exit: Some(class),
        bound,
        survivors,
        ..nobody()
    }
}

/// A verdict that blames one rank, on all the others.
fn blames(setting: &Setting, class: Exit, rank: u32, bound: Duration) -> Expect {
    let survivors = setting.others(rank);
    verdict(class, Blamed::Exactly(vec![rank]), bound, survivors)
}

impl Expect {
    fn with_words(self, words: &[&str]) -> Self {
        Self {
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            ..self
        }
    }

    /// Survivors that cannot tell each other say it each in its own words.
    fn apart(self) -> Self {
        Self {
            shared: false,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The thirty of the first wave.
    const FIRST_WAVE: [&str; 30] = [
        "A1", "A2", "A3", "A4", "A8", "A10", "A11", "B1", "B2", "B3", "B4", "B5", "B6", "B7", "B8",
        "B9", "B10", "B12", "B15", "C1", "C2", "C4", "C6", "C7", "D1", "D2", "E1", "E2", "F1",
        "F10",
    ];

    #[test]
    fn the_first_wave_is_complete_and_names_are_unique() {
        let first: Vec<&str> = drills()
            .filter(|drill| drill.first_wave)
            .map(|drill| drill.id)
            .collect();
        assert_eq!(first, FIRST_WAVE);
        for (at, drill) in drills().enumerate() {
            assert!(!drill.title.is_empty(), "{}", drill.name);
            assert!(!drill.transports.is_empty(), "{}", drill.name);
            let same = |other: &Drill| other.name == drill.name;
            assert!(!drills().take(at).any(same), "{} twice", drill.name);
        }
    }

    #[test]
    fn there_are_enough_drills_and_a_quarter_of_the_usual_ones_are_controls() {
        assert!(drills().count() >= 75, "{}", drills().count());
        let usual = drills().filter(|drill| drill.is_usual()).count();
        let controls = drills().filter(|drill| drill.is_control).count();
        assert!(4 * controls >= usual, "{controls} of {usual}");
    }

    #[test]
    fn the_page_lists_every_drill() {
        let page = include_str!("../../../docs/drills.md");
        for drill in drills() {
            let row = format!("| {} | `{}` | {} |", drill.id, drill.name, drill.title);
            assert!(page.contains(&row), "docs/drills.md lacks the row\n{row}");
        }
    }

    #[test]
    fn every_plan_can_be_made_wherever_it_fits_and_names_ranks_of_its_world() {
        for drill in drills() {
            for transport in drill.transports {
                for world_size in drill.world_min..=9 {
                    let setting = Setting {
                        world_size,
                        transport: *transport,
                    };
                    for seed in 0..4 {
                        let plan = (drill.plan)(&setting, &mut Draws::of(&[seed]));
                        let is_rank = |rank: &u32| *rank < world_size;
                        assert!(
                            plan.expect.survivors.iter().all(is_rank),
                            "{} in a world of {world_size}",
                            drill.name
                        );
                        assert!(!plan.injected.is_empty(), "{}", drill.name);
                        let says_well = plan.expect.outcome == Outcome::Well;
                        assert!(says_well || !drill.is_control, "{}", drill.name);
                    }
                }
            }
        }
    }
}
