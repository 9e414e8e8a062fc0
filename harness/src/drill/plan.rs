//! What a drill is: how its ranks are started, what is done to them, and what must come of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::script::Part;
use super::wire::WireFault;
use crate::exit::Exit;
use crate::random::Draws;

/// Time that ranks of a drill may take to find each other unless the drill is about that.
pub const BRING_UP: Duration = Duration::from_secs(20);
/// Deadline of calls in drills where nothing may be found by it.
pub const DEADLINE_LONG: Duration = Duration::from_secs(30);
/// Deadline of calls in drills that are about it.
pub const DEADLINE_SHORT: Duration = Duration::from_secs(2);

/// What carries bytes between the ranks of a drill.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    clap::ValueEnum,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Shared memory.
    Shm,
    /// TCP.
    Tcp,
}

impl Transport {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Shm, Self::Tcp];

    /// The word for it, as `MUSTER_TRANSPORT` has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Tcp => "tcp",
        }
    }
}

/// Where a drill takes place.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Number of ranks.
    pub world_size: u32,
    /// What carries their bytes.
    pub transport: Transport,
}

impl Setting {
    /// All ranks.
    #[must_use]
    pub fn all(&self) -> Vec<u32> {
        (0..self.world_size).collect()
    }

    /// All ranks but one.
    #[must_use]
    pub fn others(&self, odd: u32) -> Vec<u32> {
        (0..self.world_size).filter(|rank| *rank != odd).collect()
    }

    /// Some rank.
    #[must_use]
    pub fn any_rank(&self, draws: &mut Draws) -> u32 {
        self.rank_from(0, draws)
    }

    /// Some rank from this one upwards.
    #[must_use]
    pub fn rank_from(&self, first: u32, draws: &mut Draws) -> u32 {
        let choice = draws.below((self.world_size - first) as usize);
        first + u32::try_from(choice).unwrap_or(0)
    }
}

/// One drill in one setting.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Who starts the ranks.
    pub launch: Launch,
    /// The processes and what each does.
    pub parts: Vec<Part>,
    /// Deadline of calls.
    pub deadline: Duration,
    /// What is done from outside.
    pub deed: Injection,
    /// Whether a stranger holds the port at which the ranks are to meet.
    pub squatter: bool,
    /// What was done, in words, for people.
    pub injected: String,
    /// What must come of it.
    pub expect: Expect,
}

/// Who starts the ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launch {
    /// Each by the drill itself, as a foreign launcher would; rank 0 serves the rendezvous.
    Apart,
    /// An `mpirun`; rank 0 serves the rendezvous.
    Mpirun {
        /// The program and its options, up to the number of ranks.
        words: Vec<String>,
    },
    /// Each in a network namespace of its own; rank 0 serves the rendezvous.
    Network,
    /// `muster run`.
    Run {
        /// Its `--grace`, in seconds.
        grace_s: u32,
    },
    /// `muster verify` of one group of all ranks, with these further words.
    Verify {
        /// The words.
        words: Vec<String>,
    },
    /// `muster run`, with a wire that can be spoilt between the ranks.
    Wired {
        /// Its `--grace`, in seconds.
        grace_s: u32,
    },
}

/// Settings of a control group: the names that one may have, and its value.
pub type Settings = Vec<(&'static [&'static str], String)>;

/// What is done from outside, once all ranks are at work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Injection {
    /// A control group is set so; the ranks are told to go on.
    Control {
        /// Whose.
        rank: u32,
        /// The controller.
        controller: &'static str,
        /// What is set once the rank has been moved into it.
        settings: Settings,
    },
    /// Strangers talk to every port on which somebody listens; the ranks are told to go on afterwards.
    Garbage {
        /// What each says.
        said: Vec<Vec<u8>>,
        /// How many of each at once.
        at_once: usize,
    },
    /// SIGKILL to the launcher and all ranks; then all of it is started again.
    KillAll,
    /// Something is done to the network of the ranks.
    Net(NetFault),
    /// Nothing: the ranks do it themselves.
    None,
    /// A connection between a rank and another one is reset.
    Reset {
        /// The rank.
        rank: u32,
    },
    /// A tool of the system is run against a rank's process and stays until the end.
    Tool {
        /// The rank.
        rank: u32,
        /// The tool and its arguments; `PID` stands for the process.
        words: &'static [&'static str],
    },
    /// The wire of a rank is spoilt.
    Wire {
        /// Whose.
        rank: u32,
        /// How.
        fault: WireFault,
    },
    /// A signal to a rank, at a moment by chance.
    Signal {
        /// Whom.
        rank: u32,
        /// What.
        signal: i32,
    },
    /// Ranks are stopped, and go on after a while.
    Stall {
        /// Whom.
        ranks: Vec<u32>,
        /// For how long, in milliseconds.
        ms: u64,
    },
    /// Signals to the launcher, with a pause after each.
    Launcher {
        /// The signals' numbers.
        signals: Vec<i32>,
        /// The pause, in milliseconds.
        pause_ms: u64,
    },
}

/// What is done to the network of a drill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetFault {
    /// Nothing reaches a rank, and it reaches nobody.
    Cut(u32),
    /// What is sent to a rank is lost.
    Deafen(u32),
    /// A rank's interface goes down.
    Down(u32),
    /// Long frames to a rank are lost.
    Narrow(u32),
    /// Nothing at all.
    None,
    /// These ranks reach each other, and none of the rest.
    Split(Vec<u32>),
    /// What goes to a rank is slow.
    Throttle(u32),
}

/// What must come of a drill.
#[derive(Clone, Debug)]
pub struct Expect {
    /// What the survivors say.
    pub outcome: Outcome,
    /// Exit code of the launcher, and of the survivors where there is none; `None` where the launcher
    /// itself is killed.
    pub exit: Option<Exit>,
    /// From the moment of the fault to the last survivor's return.
    pub bound: Duration,
    /// Who must return.
    pub survivors: Vec<u32>,
    /// Words that the line must have.
    pub words: Vec<String>,
    /// Whether the calls after it must come out right.
    pub usable: bool,
    /// Whether all survivors say the same line; where they cannot tell each other, each has its own.
    pub shared: bool,
    /// Processes that are turned away besides, and with which code.
    pub turned_away: Vec<(u32, Exit)>,
}

/// What the survivors say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing: the ranks end, and are not asked.
    Gone,
    /// The launcher ends, and says that it was asked to.
    Interrupted,
    /// The document of `muster verify` has this verdict.
    Report {
        /// Its class.
        class: Exit,
        /// Whom it must blame.
        blamed: Blamed,
    },
    /// Nothing: all is well, to the end.
    Well,
    /// A verdict.
    Verdict {
        /// Its class.
        class: Exit,
        /// Whom it must blame.
        blamed: Blamed,
    },
}

/// Whom a verdict must blame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blamed {
    /// One of these or several, and nobody else: the two sides of a disagreement.
    Among(Vec<u32>),
    /// These, and nobody else.
    Exactly(Vec<u32>),
    /// The ranks of a circle, which goes through this one: itself and at least one of the others.
    CircleThrough(u32),
    /// This one and one of the others: both ends of a link.
    LinkOf(u32),
    /// This one; where there are only two to compare, either or both.
    Odd(u32),
}

impl Blamed {
    /// Whether a verdict blames whom it must, in a world of this size.
    #[must_use]
    pub fn is_met_by(&self, blamed: &[u32], world_size: u32) -> bool {
        match self {
            Self::Among(ranks) => {
                !blamed.is_empty() && blamed.iter().all(|rank| ranks.contains(rank))
            }
            Self::Exactly(ranks) => blamed == ranks.as_slice(),
            Self::CircleThrough(rank) => blamed.contains(rank) && blamed.len() > 1,
            Self::LinkOf(rank) => blamed.contains(rank) && blamed.len() == 2,
            Self::Odd(_) if world_size == 2 => !blamed.is_empty(),
            Self::Odd(rank) => blamed == [*rank],
        }
    }
}

impl std::fmt::Display for Blamed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Among(ranks) => write!(f, "one of {}", ranks_in_words(ranks)),
            Self::Exactly(ranks) => f.write_str(&ranks_in_words(ranks)),
            Self::CircleThrough(rank) => write!(f, "a circle through rank {rank}"),
            Self::LinkOf(rank) => write!(f, "rank {rank} and one other"),
            Self::Odd(rank) => write!(f, "rank {rank}"),
        }
    }
}

/// `rank 2`, `ranks 0,1`, or `nobody`.
#[must_use]
pub fn ranks_in_words(ranks: &[u32]) -> String {
    let list: Vec<String> = ranks.iter().map(ToString::to_string).collect();
    match list.as_slice() {
        [] => "nobody".to_owned(),
        [rank] => format!("rank {rank}"),
        _ => format!("ranks {}", list.join(",")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blame_must_be_exact() {
        let exact = Blamed::Exactly(vec![2]);
        assert!(exact.is_met_by(&[2], 4));
        for wrong in [vec![], vec![1], vec![1, 2]] {
            assert!(!exact.is_met_by(&wrong, 4), "{wrong:?}");
        }
        let circle = Blamed::CircleThrough(1);
        assert!(circle.is_met_by(&[1, 3], 4));
        assert!(!circle.is_met_by(&[1], 4));
        assert!(!circle.is_met_by(&[0, 3], 4));
        let sides = Blamed::Among(vec![0, 2]);
        assert!(sides.is_met_by(&[2], 4));
        assert!(!sides.is_met_by(&[1, 2], 4));
        assert!(!sides.is_met_by(&[], 4));
        let link = Blamed::LinkOf(3);
        assert!(link.is_met_by(&[1, 3], 4));
        assert!(!link.is_met_by(&[1, 2], 4));
        assert!(!link.is_met_by(&[3], 4));
        assert!(!link.is_met_by(&[1, 2, 3], 4));
        let odd = Blamed::Odd(1);
        assert!(odd.is_met_by(&[0], 2));
        assert!(!odd.is_met_by(&[0], 3));
        assert!(!odd.is_met_by(&[], 2));
    }
}
