//! Large worlds.

use super::{KILL, STAYS_AWAY_MS, STOP, all_reduce, base, program, work};
use crate::drill::random::fault::{Act, Fault, When};
use crate::drill::random::scenario::{Launcher, Scenario, Way};
use crate::drill::script::{CallSpec, Kind, Step};

/// A large world, of which the last rank is the victim.
pub(super) fn large(world_size: u32, fault: Fault) -> Scenario {
    let victim = world_size - 1;
    let make = |name: &str| Step::Make {
        name: name.to_owned(),
        members: (0..world_size).collect(),
    };
    let on = |name: &str| Step::call_on(name, all_reduce());
    let program = program(world_size, |rank| {
        let pause = |ms| vec![Step::Mark, Step::Pause { ms }, on("a"), on("b")];
        let own: Vec<Step> = if rank != victim {
            vec![Step::Mark, on("a"), on("b")]
        } else if fault == Fault::Sleeps {
            pause(STAYS_AWAY_MS)
        } else if fault == Fault::OtherCount {
            let call = CallSpec::all_reduce(Kind::F32, 65);
            vec![Step::Mark, Step::call_on("a", call), on("b")]
        } else if fault == Fault::Inverts {
            vec![Step::Mark, on("b"), on("a")]
        } else {
            pause(1000)
        };
        [make("a"), make("b"), work()]
            .into_iter()
            .chain(own)
            .collect()
    });
    let scenario = Scenario {
        deadline: super::DEADLINE_LARGE,
        ..base(Launcher::Run, Way::Shm, program)
    };
    let begins = When::Begins {
        rank: victim,
        step: 4,
    };
    let signal = |signal| Act::Signal {
        rank: victim,
        signal,
    };
    let halt = (fault == Fault::Sleeps).then_some(4);
    let scenario = scenario.planting(fault, victim, halt);
    if fault == Fault::Killed {
        scenario.striking(begins, signal(KILL))
    } else if fault == Fault::Stopped {
        scenario.striking(begins, signal(STOP))
    } else {
        scenario
    }
}
