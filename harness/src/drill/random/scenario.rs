//! One random run: what a seed and the options make of it.

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use super::fault::{Fault, Planted, Strike, plant};
use super::mpi::Mpi;
use super::program::{LARGE, Program, generate};
use super::truth::Truth;
use crate::drill::plan::{Expect, Injection, Launch, Outcome, Plan, Setting, Transport};
use crate::drill::script::Part;
use crate::random::Draws;

/// Most ranks in namespaces: each costs half a dozen calls of `ip`.
const NET_MAX: u32 = 16;
/// Busy loops from which on everything takes longer.
const LOAD_HEAVY: u32 = 8;
/// Seconds that `muster run` gives ranks after a failure.
const GRACE_S: u32 = 2;
/// Programs that are tried for a fault that does not fit everywhere.
const TRIES: u64 = 40;
/// Longer than any run, in milliseconds.
const FOR_EVER_MS: u64 = 600_000;

/// Who starts the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Launcher {
    /// `muster run`
    Run,
    /// Each rank by itself, by environment variables; rank 0 serves the rendezvous
    Env,
    /// The mpirun of Open MPI or MPICH; rank 0 serves the rendezvous
    Mpirun,
}

/// What carries bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// Shared memory
    Shm,
    /// TCP
    Tcp,
    /// TCP between network namespaces, one for each rank
    Net,
}

/// What runs may be like; an empty list stands for a mixture.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Launchers to choose from.
    pub launchers: Vec<Launcher>,
    /// Transports to choose from.
    pub ways: Vec<Way>,
    /// World sizes to choose from.
    pub worlds: Vec<u32>,
    /// Faults to choose from.
    pub faults: Vec<Fault>,
    /// Busy loops beside the run.
    pub load: u32,
    /// What there is of MPI.
    pub mpi: Vec<Mpi>,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its seed.
    pub seed: u64,
    /// Its name, where it is a case that stays.
    pub case: Option<&'static str>,
    /// Who starts the ranks.
    pub launcher: Launcher,
    /// What carries their bytes.
    pub way: Way,
    /// Whose mpirun.
    pub mpi: Option<Mpi>,
    /// Busy loops beside it.
    pub load: u32,
    /// What each rank does, the fault included where ranks do it themselves.
    pub program: Program,
    /// Deadline of calls.
    pub deadline: Duration,
    /// Time for the ranks to find each other.
    pub bring_up: Duration,
    /// The row of the table.
    pub fault: Fault,
    /// What was planted.
    pub planted: Vec<Planted>,
    /// What is done from outside, one after the other.
    pub strikes: Vec<Strike>,
    /// A rank that never comes.
    pub missing: Option<u32>,
}

/// What a sequence of draws is for: each choice has one of its own, so that restricting one option changes
/// nothing else.
#[derive(Clone, Copy)]
enum For {
    World = 1,
    Launcher,
    Way,
    Fault,
    Program,
    Place,
    Mpi,
}

impl Scenario {
    /// What a seed means under these options.
    #[must_use]
    pub fn of(seed: u64, options: &Options) -> Self {
        let draws = |what: For| Draws::of(&[seed, what as u64]);
        let way = *pick(
            &options.ways,
            &[
                Way::Shm,
                Way::Tcp,
                Way::Shm,
                Way::Tcp,
                Way::Shm,
                Way::Tcp,
                Way::Net,
            ],
            &mut draws(For::Way),
        );
        let launcher = match way {
            Way::Net => Launcher::Env,
            Way::Shm | Way::Tcp => *pick(
                &options.launchers,
                &[
                    Launcher::Run,
                    Launcher::Env,
                    Launcher::Run,
                    Launcher::Env,
                    Launcher::Mpirun,
                ],
                &mut draws(For::Launcher),
            ),
        };
        let world_size = world_size(options, way, &mut draws(For::World));
        let mut mpi = None;
        if launcher == Launcher::Mpirun {
            mpi = options
                .mpi
                .get(draws(For::Mpi).below(options.mpi.len().max(1)))
                .cloned();
        }
        let fault = chosen_fault(options, &mut draws(For::Fault));
        // Where many ranks share few processors a late one is no fault.
        let is_slow = options.load >= LOAD_HEAVY || world_size >= LARGE;
        let slow = if is_slow { 4 } else { 1 };
        let bring_up = if fault.is_of_bring_up() { 3 } else { 20 };
        let mut scenario = Self {
            seed,
            case: None,
            launcher,
            way,
            mpi,
            load: options.load,
            program: Vec::new(),
            deadline: Duration::from_millis(2500 * slow),
            bring_up: Duration::from_secs(bring_up * slow),
            fault: Fault::Healthy,
            planted: Vec::new(),
            strikes: Vec::new(),
            missing: None,
        };
        for attempt in 0..TRIES {
            let program = Draws::of(&[seed, For::Program as u64, attempt]);
            scenario.program = generate(world_size, program);
            let mut place = Draws::of(&[seed, For::Place as u64, attempt]);
            if plant(&mut scenario, fault, &mut place) {
                scenario.fault = fault;
                break;
            }
            scenario.planted.clear();
            scenario.strikes.clear();
        }
        scenario
    }

    /// Number of ranks.
    #[must_use]
    pub fn world_size(&self) -> u32 {
        u32::try_from(self.program.len()).unwrap_or(u32::MAX)
    }

    /// How much longer than on a quiet machine things may take.
    #[must_use]
    pub const fn is_starved(&self) -> bool {
        self.load >= LOAD_HEAVY
    }

    /// Where it takes place.
    #[must_use]
    pub fn setting(&self) -> Setting {
        Setting {
            world_size: self.world_size(),
            transport: match self.way {
                Way::Shm => Transport::Shm,
                Way::Tcp | Way::Net => Transport::Tcp,
            },
        }
    }

    /// The processes of it. What must come of it is not the plan's matter here.
    #[must_use]
    pub fn plan(&self) -> Plan {
        let apart = self.launcher == Launcher::Env;
        let is_missing = |rank: u32| self.missing == Some(rank);
        let ranks = 0..self.world_size();
        let parts = ranks.filter(|rank| !(apart && is_missing(*rank)));
        let parts = parts.map(|rank| Part {
            rank,
            late_ms: if is_missing(rank) { FOR_EVER_MS } else { 0 },
            bring_up_ms: u64::try_from(self.bring_up.as_millis()).unwrap_or(u64::MAX),
            traced: true,
            steps: self.program[rank as usize].clone(),
            ..Part::default()
        });
        Plan {
            launch: match (self.launcher, self.way) {
                (Launcher::Run, _) => Launch::Run { grace_s: GRACE_S },
                (Launcher::Env, Way::Net) => Launch::Network,
                (Launcher::Env, Way::Shm | Way::Tcp) => Launch::Apart,
                (Launcher::Mpirun, _) => Launch::Mpirun {
                    words: self.mpi.as_ref().map(Mpi::words).unwrap_or_default(),
                },
            },
            parts: parts.collect(),
            deadline: self.deadline,
            deed: Injection::None,
            squatter: false,
            injected: String::new(),
            expect: Expect {
                outcome: Outcome::Well,
                exit: None,
                bound: Duration::ZERO,
                survivors: Vec::new(),
                words: Vec::new(),
                usable: false,
                shared: true,
                turned_away: Vec::new(),
            },
        }
    }

    /// What was done, and what is true of it.
    #[must_use]
    pub fn in_words(&self, truth: &Truth) -> String {
        let mut faults: Vec<String> = self
            .planted
            .iter()
            .map(|one| match one.halt {
                Some(step) => format!("{} rank {} at step {step}", one.fault.name(), one.victim),
                None => format!("{} rank {}", one.fault.name(), one.victim),
            })
            .collect();
        faults.extend(
            self.strikes
                .iter()
                .map(|one| format!("{:?} {} us after {:?}", one.act, one.delay_us, one.when)),
        );
        if faults.is_empty() {
            faults.push("nothing is wrong".to_owned());
        }
        let mpi = self.mpi.as_ref().map_or("", |mpi| mpi.name);
        format!(
            "{} in a world of {} ({:?} {mpi}, {:?}); {truth}",
            faults.join(", "),
            self.world_size(),
            self.launcher,
            self.way
        )
    }

    /// The command that does it again.
    #[must_use]
    pub fn command(&self) -> String {
        let word = |value: Option<clap::builder::PossibleValue>| {
            value.map_or_else(String::new, |value| value.get_name().to_owned())
        };
        let load = match self.load {
            0 => String::new(),
            load => format!(" --load {load}"),
        };
        if let Some(case) = self.case {
            return format!("muster drill --case {case}{load}");
        }
        format!(
            "muster drill --random 1 --seed {} --launcher {} --transport {} --world {} --faults {}{load}",
            self.seed,
            word(self.launcher.to_possible_value()),
            word(self.way.to_possible_value()),
            self.world_size(),
            self.fault.name(),
        )
    }
}

fn pick<'a, T>(wanted: &'a [T], mixture: &'a [T], draws: &mut Draws) -> &'a T {
    let from = if wanted.is_empty() { mixture } else { wanted };
    &from[draws.below(from.len())]
}

fn world_size(options: &Options, way: Way, draws: &mut Draws) -> u32 {
    let world_size = if options.worlds.is_empty() {
        let (first, count) = match draws.below(100) {
            0..70 => (2, 7),
            70..97 => (9, 8),
            _ => (65, 192),
        };
        first + u32::try_from(draws.below(count)).unwrap_or(0)
    } else {
        options.worlds[draws.below(options.worlds.len())]
    };
    if way == Way::Net {
        world_size.min(NET_MAX)
    } else {
        world_size
    }
}

fn chosen_fault(options: &Options, draws: &mut Draws) -> Fault {
    if !options.faults.is_empty() {
        return options.faults[draws.below(options.faults.len())];
    }
    // A third of all runs are those in which a false alarm shows, or two causes meet.
    match draws.below(100) {
        0..20 => Fault::Healthy,
        20..25 => Fault::Stalled,
        25..35 => Fault::TwoFaults,
        _ => {
            let single: Vec<Fault> = Fault::value_variants()
                .iter()
                .copied()
                .filter(|fault| !fault.is_harmless() && *fault != Fault::TwoFaults)
                .collect();
            single[draws.below(single.len())]
        }
    }
}
