//! Programs in which two ranks are killed.

use super::{KILL, base, paused, program};
use crate::drill::random::fault::{Act, Fault, When};
use crate::drill::random::scenario::{Launcher, Scenario, Way};
use crate::drill::script::{CallSpec, Step};

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
