//! Random programs: groups, calls, sizes and pauses at random, in an order that all ranks agree on.
//!
//! A program is a function of its seed. A failure prints it; `MUSTER_SEED` replays it.

use std::collections::HashMap;
use std::time::Duration;

use muster_comm::collective::{Communicator, PointToPoint};
use muster_comm::error::CommError;
use muster_comm::sync::Clock;
use muster_comm::types::{DType, ReduceOp};
use muster_comm::world::World;

use crate::check::{Case, Lens, UNEVEN, UNIFORM, any_op, check, uneven};
use crate::support::{Random, Setup, group, ranks, seed};

/// One step that all ranks agree on.
#[derive(Clone, Debug)]
enum Step {
    /// A collective of the members of a group.
    Call { group: usize, case: Case },
    /// The members give the group up; the next use makes it again.
    Destroy { group: usize },
    /// Everybody sends to the next member.
    Shift { group: usize, count: usize },
    /// One rank does nothing for a while.
    Pause { rank: usize, us: u64 },
    /// A call with another count on one member.
    Quarrel {
        group: usize,
        odd: usize,
        count: usize,
    },
}

#[derive(Clone, Debug)]
struct Program {
    n: usize,
    groups: Vec<Vec<usize>>,
    steps: Vec<Step>,
}

fn case(n: usize, random: &mut Random) -> Case {
    let all: Vec<_> = UNIFORM.into_iter().chain(UNEVEN).collect();
    let collective = random.pick(&all);
    let count = random.pick(&[0, 1, 3, n + 1, 100, 2049, 5000, 40_000]);
    let is_uneven = UNEVEN.contains(&collective);
    let lens = if is_uneven {
        uneven(collective, n, count, random)
    } else {
        Lens::Same(count)
    };
    let dtype = random.pick(&DType::ALL);
    let case = Case::new(collective, dtype, lens, random.next());
    Case {
        op: any_op(collective, dtype, random),
        root: random.below(n),
        in_place: !is_uneven && random.below(2) == 0,
        ..case
    }
}

fn program(seed: u64) -> Program {
    let mut random = Random::new(seed);
    let n = 1 + random.below(6);
    let mut groups = vec![(0..n).collect::<Vec<_>>()];
    for _ in 0..random.below(5) {
        let mut members: Vec<usize> = (0..n).collect();
        random.shuffle(&mut members);
        members.truncate(1 + random.below(n));
        groups.push(members);
    }
    let mut steps = Vec::new();
    for _ in 0..20 + random.below(80) {
        let group = random.below(groups.len());
        let size = groups[group].len();
        steps.push(match random.below(20) {
            0 => Step::Destroy { group },
            1 | 2 => Step::Pause {
                rank: random.below(n),
                // Now and then so long that the others fall asleep.
                us: random.next() % random.pick(&[300, 3000, 12_000]),
            },
            3 | 4 => Step::Shift {
                group,
                count: random.pick(&[0, 1, 100, 90_000]),
            },
            5 => Step::Quarrel {
                group,
                odd: random.below(size),
                count: random.pick(&[1, 2048, 60_000]),
            },
            _ => Step::Call {
                group,
                case: case(size, &mut random),
            },
        });
    }
    Program { n, groups, steps }
}

/// One rank's way through a program.
struct Player<'a> {
    world: &'a World,
    program: &'a Program,
    comms: HashMap<usize, Communicator>,
}

impl Player<'_> {
    /// The communicator of a group, if this rank belongs to it.
    fn comm(&mut self, at: usize) -> Option<&Communicator> {
        let (world, members) = (self.world, &self.program.groups[at]);
        if !members.contains(&world.rank().index()) {
            return None;
        }
        let make = || group(world, &format!("group {at}"), members);
        Some(self.comms.entry(at).or_insert_with(make))
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Destroy { group } => drop(self.comms.remove(group)),
            Step::Pause { rank, us } => {
                if *rank == self.world.rank().index() {
                    Clock::pause(Duration::from_micros(*us));
                }
            }
            Step::Call { group, case } => {
                if let Some(comm) = self.comm(*group) {
                    let inputs = case.inputs(comm.size());
                    let expected = case.expected(&inputs);
                    let me = comm.rank();
                    check(comm, case, &inputs[me], &expected[me])?;
                }
            }
            Step::Shift { group, count } => {
                if let Some(comm) = self.comm(*group) {
                    shift(comm, *count).map_err(|error| error.to_string())?;
                }
            }
            Step::Quarrel { group, odd, count } => {
                if let Some(comm) = self.comm(*group) {
                    quarrel(comm, *odd, *count)?;
                }
            }
        }
        Ok(())
    }
}

fn shift(comm: &Communicator, count: usize) -> Result<(), CommError> {
    let (n, me) = (comm.size(), comm.rank());
    let (to, from) = ((me + 1) % n, (me + n - 1) % n);
    let mine = vec![me as u64; count];
    let mut got = vec![0_u64; count];
    comm.batch_send_recv(&[
        PointToPoint::send(&mine, to),
        PointToPoint::recv(&mut got, from),
    ])?;
    assert!(got.iter().all(|number| *number == from as u64));
    Ok(())
}

/// All ranks must find out that `odd` makes another call.
fn quarrel(comm: &Communicator, odd: usize, count: usize) -> Result<(), String> {
    let mine = count + usize::from(comm.rank() == odd);
    let result = comm.all_reduce_in_place(&mut vec![1_u32; mine], ReduceOp::Max);
    match (comm.size(), result) {
        (1, Ok(())) => Ok(()),
        (2.., Err(error)) if error.is_recoverable() => Ok(()),
        (_, other) => Err(format!("a quarrel came to {other:?}")),
    }
}

fn play(seed: u64, setup: &Setup) {
    let program = program(seed);
    let n = program.n;
    // Over messages alone a mismatch ends the group.
    let quarrels = setup.transport != muster_comm::world::Transport::Tcp;
    let findings = ranks(n, setup, move |world| {
        let mut player = Player {
            world: &world,
            program: &program,
            comms: HashMap::new(),
        };
        for (at, step) in program.steps.iter().enumerate() {
            if !quarrels && matches!(step, Step::Quarrel { .. }) {
                continue;
            }
            if let Err(what) = player.step(step) {
                return Some(format!(
                    "rank {}: step {at}: {step:?}: {what}",
                    world.rank()
                ));
            }
        }
        None
    });
    let findings: Vec<String> = findings.into_iter().flatten().collect();
    assert!(
        findings.is_empty(),
        "MUSTER_SEED={seed}, {n} ranks, {setup:?}:\n{}",
        findings.join("\n")
    );
}

#[test]
fn random_programs_end_as_the_reference_says() {
    let first = seed();
    eprintln!("programs from seed {first} on");
    for seed in first..first + 60 {
        play(seed, &Setup::shm());
    }
}

#[test]
fn random_programs_over_other_algorithms_and_links_end_as_the_reference_says() {
    let first = seed() ^ 0x100;
    eprintln!("programs from seed {first} on");
    let rules = [
        ("all_reduce", "halving_doubling"),
        ("all_gather", "recursive_doubling"),
        ("all_to_all", "bruck"),
        ("reduce_scatter_v", "pairwise"),
        ("broadcast", "scatter_ring"),
    ];
    let rule = |(collective, algorithm)| format!("{collective} n>=3 -> {algorithm}\n");
    let table = rules.map(rule).concat();
    let mixed = Setup {
        table,
        checksum: true,
        ..Setup::shm()
    };
    for seed in first..first + 15 {
        play(seed, &mixed);
        play(seed, &Setup::tcp());
    }
}
