//! Programs that once got a wrong verdict, or none: written in the language of random drills, and kept.

mod large;
mod messages;
mod two;

use std::time::Duration;

use self::large::large;
use self::messages::{link_never_taken, recv_left_out, sent_to_an_ended_group};
use self::two::{server_killed_beside, told_behind_async, told_late, two_killed};
use super::fault::{Act, Fault, Planted, Strike, When};
use super::program::Program;
use super::scenario::{Launcher, Scenario, Way};
use crate::drill::script::{CallKind, CallSpec, Kind, ObjectSpec, Step};

const KILL: i32 = 9;
const CONT: i32 = 18;
const STOP: i32 = 19;
/// Longer than the deadline of a case's calls, in milliseconds.
const STAYS_AWAY_MS: u64 = 60_000;
/// Longer than a silence that used to count as a death.
const DEADLINE: Duration = Duration::from_secs(4);

/// The same in a large world, whose ranks need some seconds to come to their first call.
const DEADLINE_LARGE: Duration = Duration::from_secs(12);

/// A case.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// What it is, in words.
    pub title: &'static str,
    make: fn() -> Scenario,
}

impl Case {
    /// Its run.
    #[must_use]
    pub fn scenario(&self) -> Scenario {
        Scenario {
            case: Some(self.name),
            ..(self.make)()
        }
    }
}

/// All cases.
pub const CASES: &[Case] = &[
    Case {
        name: "blocking-behind-async",
        title: "a blocking call waits behind an asynchronous one that a rank never enters",
        make: blocking_behind_async,
    },
    Case {
        name: "server-ends-by-verdict",
        title: "a rank is killed; rank 0, which serves the rendezvous, ends by the verdict before the others ask",
        make: server_ends_by_verdict,
    },
    Case {
        name: "server-leaves-early",
        title: "rank 0, which serves the rendezvous, leaves while others wait for it",
        make: server_leaves_early,
    },
    Case {
        name: "root-of-async-reduce",
        title: "an asynchronous reduce over TCP with two roots: everybody only sends",
        make: root_of_async_reduce,
    },
    Case {
        name: "object-of-another-type",
        title: "a rank gives an object of another type",
        make: object_of_another_type,
    },
    Case {
        name: "frozen-in-bring-up",
        title: "a rank is stopped as it begins to join",
        make: || in_bring_up(Launcher::Run, Fault::BringUpStopped),
    },
    Case {
        name: "frozen-in-bring-up-alone",
        title: "a rank is stopped as it begins to join, without a launcher of ours",
        make: || in_bring_up(Launcher::Env, Fault::BringUpStopped),
    },
    Case {
        name: "killed-in-bring-up-alone",
        title: "a rank is killed as it begins to join, without a launcher of ours",
        make: || in_bring_up(Launcher::Env, Fault::BringUpKilled),
    },
    Case {
        name: "launcher-stopped-rank-killed",
        title: "the launcher is stopped, then a rank is killed; the launcher goes on later",
        make: || launcher_stopped(Fault::Killed),
    },
    Case {
        name: "launcher-stopped-rank-frozen",
        title: "the launcher is stopped, then a rank is stopped; the launcher goes on later",
        make: || launcher_stopped(Fault::Stopped),
    },
    Case {
        name: "stopped-after-last-call",
        title: "a rank is stopped after its last call; nobody waits for it but the launcher",
        make: stopped_after_last_call,
    },
    Case {
        name: "stopped-before-links",
        title: "a rank is stopped before the others connect to it; the kernel accepts for it",
        make: stopped_before_links,
    },
    Case {
        name: "descriptors-held",
        title: "a rank is killed while another process holds its descriptors, without a launcher of ours",
        make: descriptors_held,
    },
    Case {
        name: "recv-left-out",
        title: "a rank leaves the receive out of a batch",
        make: recv_left_out,
    },
    Case {
        name: "sent-to-an-ended-group",
        title: "a message is sent to a rank that has ended the group and leaves a moment after the sender",
        make: sent_to_an_ended_group,
    },
    Case {
        name: "link-never-taken",
        title: "a rank leaves out the first call of a group, in which the others connect to it over TCP",
        make: link_never_taken,
    },
    Case {
        name: "server-killed-beside",
        title: "a rank is killed, and rank 0, which serves the rendezvous, at once after it",
        make: server_killed_beside,
    },
    Case {
        name: "made-again-unused",
        title: "a rank leaves out its call of a group, destroys it, makes it again, and closes a circle elsewhere",
        make: made_again_unused,
    },
    Case {
        name: "two-killed",
        title: "two ranks are killed at once",
        make: two_killed,
    },
    Case {
        name: "told-late",
        title: "a rank is killed; another one works on in other groups, gets the verdict 11 s later, and ends",
        make: told_late,
    },
    Case {
        name: "told-behind-async",
        title: "an asynchronous call differs; a rank makes another one of the group before it waits, and ends",
        make: told_behind_async,
    },
    Case {
        name: "killed-65",
        title: "a rank of 65 is killed",
        make: || large(65, Fault::Killed),
    },
    Case {
        name: "stopped-128",
        title: "a rank of 128 is stopped",
        make: || large(128, Fault::Stopped),
    },
    Case {
        name: "sleeps-65",
        title: "the last of 65 ranks never comes",
        make: || large(65, Fault::Sleeps),
    },
    Case {
        name: "sleeps-256",
        title: "the last of 256 ranks never comes",
        make: || large(256, Fault::Sleeps),
    },
    Case {
        name: "mismatch-128",
        title: "the last of 128 ranks has another count",
        make: || large(128, Fault::OtherCount),
    },
    Case {
        name: "circle-128",
        title: "the last of 128 ranks uses two groups in the other order",
        make: || large(128, Fault::Inverts),
    },
];

/// The case of this name.
#[must_use]
pub fn case(name: &str) -> Option<&'static Case> {
    CASES.iter().find(|case| case.name == name)
}

fn all_reduce() -> CallSpec {
    CallSpec::all_reduce(Kind::F32, 64)
}

fn work() -> Step {
    Step::call(all_reduce())
}

/// A run with nothing wrong in it.
fn base(launcher: Launcher, way: Way, program: Program) -> Scenario {
    Scenario {
        seed: 0,
        case: None,
        launcher,
        way,
        mpi: None,
        load: 0,
        program,
        deadline: DEADLINE,
        bring_up: Duration::from_secs(20),
        fault: Fault::Healthy,
        planted: Vec::new(),
        strikes: Vec::new(),
        missing: None,
    }
}

/// Ranks that do `steps` of their number.
fn program(world_size: u32, steps: impl Fn(u32) -> Vec<Step>) -> Program {
    (0..world_size).map(steps).collect()
}

impl Scenario {
    fn planting(mut self, fault: Fault, victim: u32, halt: Option<usize>) -> Self {
        let group = (0..self.world_size()).collect();
        self.fault = fault;
        self.planted.push(Planted {
            fault,
            victim,
            halt,
            group,
        });
        self
    }

    fn striking(mut self, when: When, act: Act) -> Self {
        self.strikes.push(Strike {
            when,
            delay_us: 0,
            act,
        });
        self
    }
}

/// Ranks that make a call, and another one, which is where the victim is struck: it pauses between them.
fn paused(world_size: u32, victim: u32) -> Program {
    program(world_size, |rank| {
        let pause = Step::Pause { ms: 300 };
        let between = (rank == victim).then_some(pause);
        [work()]
            .into_iter()
            .chain(between)
            .chain([work(), work()])
            .collect()
    })
}

fn blocking_behind_async() -> Scenario {
    let start = |work| Step::Start {
        group: "world".to_owned(),
        call: all_reduce(),
        work,
    };
    let wait = |work| Step::Wait { work };
    // The time of the blocking call is up before that of the second asynchronous one, which began later.
    let program = program(3, |rank| {
        if rank == 2 {
            vec![
                work(),
                Step::Pause { ms: 2_000 },
                start(1),
                wait(1),
                Step::Mark,
                Step::Pause { ms: STAYS_AWAY_MS },
                start(2),
                work(),
                wait(2),
            ]
        } else {
            vec![work(), start(1), start(2), work(), wait(1), wait(2)]
        }
    });
    // Without a launcher of ours each rank's own exit code counts.
    base(Launcher::Env, Way::Shm, program).planting(Fault::Sleeps, 2, Some(5))
}

fn server_ends_by_verdict() -> Scenario {
    let make = || Step::Make {
        name: "pair".to_owned(),
        members: vec![0, 3],
    };
    let later = || Step::Make {
        name: "later".to_owned(),
        members: vec![0, 1, 2],
    };
    // Rank 0 waits for the dead one; ranks 1 and 2 wait for rank 0, and come to that a little later.
    let program = program(4, |rank| match rank {
        0 => vec![
            make(),
            later(),
            work(),
            Step::call_on("pair", all_reduce()),
            Step::call_on("later", all_reduce()),
        ],
        3 => vec![
            make(),
            work(),
            Step::Pause { ms: 300 },
            Step::call_on("pair", all_reduce()),
        ],
        _ => vec![
            later(),
            work(),
            Step::Pause {
                ms: 200 * u64::from(rank),
            },
            Step::call_on("later", all_reduce()),
        ],
    });
    base(Launcher::Env, Way::Shm, program)
        .planting(Fault::Killed, 3, None)
        .striking(
            When::Begins { rank: 3, step: 2 },
            Act::Signal {
                rank: 3,
                signal: KILL,
            },
        )
}

fn server_leaves_early() -> Scenario {
    let program = program(4, |rank| {
        if rank == 0 {
            vec![work(), Step::Mark]
        } else {
            vec![work(), work()]
        }
    });
    base(Launcher::Env, Way::Shm, program).planting(Fault::LeavesEarly, 0, None)
}

/// Rank 2 waits in the first `dp` for rank 0, which waits for rank 1, which waits for rank 2.
fn made_again_unused() -> Scenario {
    let make = |name: &str, members: &[u32]| Step::Make {
        name: name.to_owned(),
        members: members.to_vec(),
    };
    let dp = || make("dp", &[0, 2, 3]);
    let destroy = || Step::Destroy {
        group: "dp".to_owned(),
    };
    let work_on = |name| Step::call_on(name, all_reduce());
    let program = program(4, |rank| match rank {
        0 => vec![
            dp(),
            make("tp", &[0, 1]),
            Step::Mark,
            destroy(),
            dp(),
            work_on("tp"),
        ],
        1 => vec![
            make("tp", &[0, 1]),
            make("pair", &[1, 2]),
            work_on("pair"),
            work_on("tp"),
        ],
        2 => vec![
            dp(),
            make("pair", &[1, 2]),
            work_on("dp"),
            destroy(),
            dp(),
            work_on("pair"),
        ],
        _ => vec![dp(), work_on("dp"), destroy(), dp()],
    });
    let mut scenario = base(Launcher::Env, Way::Tcp, program).planting(Fault::Skips, 0, None);
    scenario.planted[0].group = vec![0, 2, 3];
    scenario
}

fn root_of_async_reduce() -> Scenario {
    let program = program(4, |rank| {
        let root = if rank == 3 { 1 } else { 2 };
        let call = all_reduce().of_kind(CallKind::Reduce).with_peer(root);
        let start = Step::Start {
            group: "world".to_owned(),
            call,
            work: 1,
        };
        vec![work(), Step::Mark, start, Step::Wait { work: 1 }]
    });
    base(Launcher::Run, Way::Tcp, program).planting(Fault::OtherRoot, 3, None)
}

fn object_of_another_type() -> Scenario {
    let program = program(4, |rank| {
        let object = if rank == 2 {
            ObjectSpec::Other
        } else {
            ObjectSpec::Usual
        };
        let call = all_reduce().of_kind(CallKind::AllGatherObject);
        vec![
            work(),
            Step::Mark,
            Step::call(call.with_object(object)),
            work(),
        ]
    });
    base(Launcher::Run, Way::Shm, program).planting(Fault::OtherObject, 2, None)
}

fn in_bring_up(launcher: Launcher, fault: Fault) -> Scenario {
    let signal = if fault == Fault::BringUpStopped {
        STOP
    } else {
        KILL
    };
    let scenario = base(launcher, Way::Shm, program(4, |_| vec![work()]));
    let scenario = Scenario {
        bring_up: Duration::from_secs(4),
        ..scenario
    };
    scenario
        .planting(fault, 2, None)
        .striking(When::Arrives(2), Act::Signal { rank: 2, signal })
}

fn launcher_stopped(fault: Fault) -> Scenario {
    let signal = if fault == Fault::Stopped { STOP } else { KILL };
    let mut scenario = base(Launcher::Run, Way::Shm, paused(4, 2))
        .planting(fault, 2, None)
        .striking(
            When::Begins { rank: 2, step: 1 },
            Act::Launcher { signal: STOP },
        )
        .striking(When::AtOnce, Act::Signal { rank: 2, signal })
        .striking(When::AtOnce, Act::Launcher { signal: CONT });
    scenario.strikes[1].delay_us = 50_000;
    scenario.strikes[2].delay_us = 5_000_000;
    scenario
}

fn stopped_after_last_call() -> Scenario {
    let program = program(4, |rank| {
        let pause = (rank == 1).then_some(Step::Pause { ms: 500 });
        [work()].into_iter().chain(pause).collect()
    });
    base(Launcher::Run, Way::Shm, program)
        .planting(Fault::Stopped, 1, None)
        .striking(
            When::Begins { rank: 1, step: 1 },
            Act::Signal {
                rank: 1,
                signal: STOP,
            },
        )
}

fn stopped_before_links() -> Scenario {
    let program = program(4, |rank| {
        let first = Step::Pause {
            ms: if rank == 2 { 2_000 } else { 500 },
        };
        vec![first, work()]
    });
    let begins = When::Begins { rank: 2, step: 0 };
    let signal = Act::Signal {
        rank: 2,
        signal: STOP,
    };
    // Longer than the launcher waits for ranks to end by a verdict.
    let scenario = Scenario {
        deadline: DEADLINE_LARGE,
        ..base(Launcher::Run, Way::Tcp, program)
    };
    scenario
        .planting(Fault::Stopped, 2, None)
        .striking(begins, signal)
}

fn descriptors_held() -> Scenario {
    let begins = When::Begins { rank: 2, step: 1 };
    base(Launcher::Env, Way::Shm, paused(4, 2))
        .planting(Fault::Killed, 2, None)
        .striking(begins, Act::HoldDescriptors { rank: 2 })
        .striking(
            When::AtOnce,
            Act::Signal {
                rank: 2,
                signal: KILL,
            },
        )
}
