//! Programs in which two ranks end, one after the other.

use super::{KILL, all_reduce, base, paused, program, work};
use crate::drill::random::fault::{Act, Fault, When};
use crate::drill::random::scenario::{Launcher, Scenario, Way};
use crate::drill::script::{CallSpec, Kind, Step};

pub(super) fn two_killed() -> Scenario {
    killing(base(Launcher::Run, Way::Shm, paused(4, 2)), 2, 3)
}

/// Neither of the two is in the call, and the others look for the part of rank 0 first.
pub(super) fn server_killed_beside() -> Scenario {
    let exchange = || Step::call(CallSpec::all_to_all_v(vec![32; 6], vec![32; 6]));
    let program = program(6, |rank| {
        let pause = (rank % 3 == 0).then_some(Step::Pause { ms: 300 });
        let steps = [exchange()].into_iter().chain(pause);
        steps.chain([exchange()]).collect()
    });
    killing(base(Launcher::Env, Way::Tcp, program), 3, 0)
}

/// Rank 3 goes on with another group for longer than a failure counts as the consequence of an earlier one. Then it
/// gets the verdict, and ends.
pub(super) fn told_late() -> Scenario {
    let make = |name: &str, members: &[u32]| Step::Make {
        name: name.to_owned(),
        members: members.to_vec(),
    };
    let program = program(4, |rank| {
        let make_first = make("first", &[1, 2, 3]);
        let make_other = make("other", &[0, 3]);
        let first = || Step::call_on("first", all_reduce());
        let other = || Step::call_on("other", all_reduce());
        let pause = || Step::Pause { ms: 300 };
        match rank {
            0 => [make_other]
                .into_iter()
                .chain((0..=OTHERS).map(|_| other()))
                .collect(),
            1 => vec![make_first, pause(), first()],
            2 => vec![make_first, first()],
            _ => [make_first, make_other]
                .into_iter()
                .chain((0..OTHERS).flat_map(|_| [other(), pause()]))
                .chain([first(), other()])
                .collect(),
        }
    });
    base(Launcher::Env, Way::Shm, program)
        .planting(Fault::Killed, 1, None)
        .striking(
            When::Begins { rank: 1, step: 1 },
            Act::Signal {
                rank: 1,
                signal: KILL,
            },
        )
}

/// Rank 1 makes another call of the group before it waits for the one that differs, and so gets the verdict.
pub(super) fn told_behind_async() -> Scenario {
    let program = program(3, |rank| {
        let start = Step::Start {
            group: "pair".to_owned(),
            call: CallSpec::all_reduce(Kind::F32, 64 + rank as usize),
            work: 1,
        };
        let mut steps = vec![
            Step::Make {
                name: "pair".to_owned(),
                members: vec![0, 1],
            },
            start,
            Step::call_on("pair", all_reduce()),
            Step::Pause { ms: 100 },
        ];
        match rank {
            0 => steps.extend([work(), Step::Wait { work: 1 }]),
            1 => {
                steps.insert(1, Step::Mark);
                steps.extend([Step::Wait { work: 1 }, work()]);
            }
            _ => steps = vec![work()],
        }
        steps
    });
    let mut scenario = base(Launcher::Env, Way::Shm, program).planting(Fault::OtherCount, 1, None);
    scenario.planted[0].group = vec![0, 1];
    scenario
}

/// Calls that rank 3 makes before it gets the verdict, one in 300 ms.
const OTHERS: u32 = 36;

/// Kills two ranks, one after the other, when the first of them pauses.
fn killing(scenario: Scenario, first: u32, second: u32) -> Scenario {
    let kill = |rank| Act::Signal { rank, signal: KILL };
    let begins = When::Begins {
        rank: first,
        step: 1,
    };
    let mut scenario = scenario
        .planting(Fault::Killed, first, None)
        .planting(Fault::Killed, second, None)
        .striking(begins, kill(first))
        .striking(When::AtOnce, kill(second));
    scenario.strikes[0].delay_us = 100_000;
    scenario.fault = Fault::TwoFaults;
    scenario
}
