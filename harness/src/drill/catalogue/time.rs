//! G: time, and ranks that are slow.

use super::life::{CALLS, FOR_EVER};
use super::{Drill, FROZEN, blames, plan};
use crate::drill::plan::{Injection, Plan, Setting};
use crate::drill::script::{CallSpec, Kind, Step};
use crate::exit::Exit;
use crate::random::Draws;

pub(super) const DRILLS: &[Drill] = &[
    Drill::new(
        "G3",
        "starved",
        "a rank gets a tenth of a processor",
        starved,
    )
    .control(),
    Drill::new(
        "G5",
        "all-suspended",
        "all ranks are stopped for 3 s and go on: the machine slept",
        all_suspended,
    )
    .control(),
    Drill::new(
        "G6",
        "slow-rank",
        "a rank is 20 ms late for every call",
        slow_rank,
    )
    .control(),
    Drill::new("G8", "debugged", "a debugger holds a rank", debugged),
];

fn starved(setting: &Setting, draws: &mut Draws) -> Plan {
    let rank = setting.any_rank(draws);
    let injected = format!("rank {rank} gets 10 ms of every 100 ms");
    Plan {
        deed: Injection::Control {
            rank,
            controller: "cpu",
            settings: vec![
                (&["cpu.cfs_period_us", "cpu.max"], "100000".to_owned()),
                (&["cpu.cfs_quota_us", "cpu.max"], "10000".to_owned()),
            ],
        },
        ..plan(setting, injected, |_| {
            vec![Step::work(20), Step::WaitForGo, Step::work(CALLS)]
        })
    }
}

fn all_suspended(setting: &Setting, _: &mut Draws) -> Plan {
    let injected = "all ranks are stopped for 3 s and go on".to_owned();
    Plan {
        deed: Injection::Stall {
            ranks: setting.all(),
            ms: 3000,
        },
        ..plan(setting, injected, |_| vec![Step::work(CALLS)])
    }
}

fn slow_rank(setting: &Setting, draws: &mut Draws) -> Plan {
    let slow = setting.any_rank(draws);
    let injected = format!("rank {slow} is 20 ms late for every call");
    plan(setting, injected, |rank| {
        let step = move |_| {
            let pause = (rank == slow).then_some(Step::Pause { ms: 20 });
            pause
                .into_iter()
                .chain([Step::call(CallSpec::all_reduce(Kind::F32, 1000))])
        };
        (0..60).flat_map(step).collect()
    })
}

fn debugged(setting: &Setting, draws: &mut Draws) -> Plan {
    let rank = setting.any_rank(draws);
    Plan {
        deed: Injection::Tool {
            rank,
            words: &["gdb", "-q", "-batch", "-p", "PID", "-ex", "shell sleep 60"],
        },
        expect: blames(setting, Exit::PeerFrozen, rank, FROZEN),
        ..plan(setting, format!("gdb holds rank {rank}"), |_| {
            vec![Step::work(FOR_EVER)]
        })
    }
}
