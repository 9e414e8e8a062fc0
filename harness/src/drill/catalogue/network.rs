//! D: the network between hosts that live. Ranks have network namespaces of their own, as hosts would, or a
//! wire that can be spoilt.

use std::time::Duration;

use super::life::{CALLS, FOR_EVER};
use super::{AFTER_DEADLINE, Drill, GRACE_S, RESET, blames, plan, verdict};
use crate::drill::plan::{
    Blamed, DEADLINE_SHORT, Expect, Injection, Launch, NetFault, Plan, Setting,
};
use crate::drill::script::Step;
use crate::drill::wire::WireFault;
use crate::exit::Exit;
use crate::random::Draws;

pub(super) const DRILLS: &[Drill] = &[
    Drill::new(
        "D1",
        "reset",
        "a connection between two ranks is reset",
        reset,
    )
    .first()
    .tcp(),
    Drill::new(
        "D2",
        "cut-off",
        "nothing reaches a rank's host any more, and it reaches nobody",
        cut_off,
    )
    .first()
    .tcp(),
    Drill::new(
        "D3",
        "one-way",
        "what is sent to a rank's host is lost; what it sends arrives",
        one_way,
    )
    .tcp(),
    Drill::new("D6", "slow-link", "2 Mbit/s to one rank's host", slow_link)
        .control()
        .tcp(),
    Drill::new(
        "D7",
        "delay",
        "everything to and from one rank is 20 ms late",
        delay,
    )
    .control()
    .tcp(),
    Drill::new(
        "D8",
        "interface-down",
        "a rank's interface is taken down",
        interface_down,
    )
    .tcp(),
    Drill::new(
        "D10",
        "stalled-wire",
        "nothing goes over a rank's links; its other connections work",
        stalled_wire,
    )
    .tcp(),
    Drill::new(
        "-",
        "quiet-network",
        "ranks on hosts of their own; nothing is wrong",
        quiet_network,
    )
    .control()
    .tcp(),
];

/// Two hosts between which nothing passes.
const BLACKHOLE: Duration = Duration::from_secs(3);

fn reset(setting: &Setting, draws: &mut Draws) -> Plan {
    let rank = setting.any_rank(draws);
    let injected = format!("a connection between rank {rank} and another one is reset");
    Plan {
        deed: Injection::Reset { rank },
        // Which other one is known when it is done.
        expect: verdict(
            Exit::Link,
            Blamed::Among(setting.all()),
            RESET,
            setting.all(),
        ),
        ..plan(setting, injected, |_| vec![Step::work(FOR_EVER)])
    }
}

/// Ranks on hosts of their own; what is done to the network comes after `work`.
fn hosts(setting: &Setting, injected: String, fault: NetFault, steps: &[Step]) -> Plan {
    Plan {
        launch: Launch::Network,
        deed: Injection::Net(fault),
        ..plan(setting, injected, |_| steps.to_vec())
    }
}

/// A rank that nobody hears of any more. It cannot be asked, and ends when the others have.
fn unheard(setting: &Setting, injected: String, rank: u32, fault: NetFault) -> Plan {
    let expect = Expect {
        words: Vec::new(),
        ..blames(setting, Exit::Link, rank, BLACKHOLE)
    };
    Plan {
        expect,
        ..hosts(setting, injected, fault, &[Step::work(FOR_EVER)])
    }
}

fn cut_off(setting: &Setting, draws: &mut Draws) -> Plan {
    let rank = setting.rank_from(1, draws);
    let injected = format!("the host of rank {rank} is cut off");
    unheard(setting, injected, rank, NetFault::Cut(rank))
}

fn one_way(setting: &Setting, draws: &mut Draws) -> Plan {
    let rank = setting.rank_from(1, draws);
    let injected = format!("what is sent to the host of rank {rank} is lost");
    unheard(setting, injected, rank, NetFault::Deafen(rank))
}

fn interface_down(setting: &Setting, draws: &mut Draws) -> Plan {
    let rank = setting.rank_from(1, draws);
    let injected = format!("the interface of rank {rank}'s host is taken down");
    unheard(setting, injected, rank, NetFault::Down(rank))
}

fn slow_link(setting: &Setting, draws: &mut Draws) -> Plan {
    let rank = setting.any_rank(draws);
    let injected = format!("2 Mbit/s to the host of rank {rank}");
    let steps = [Step::work(20), Step::WaitForGo, Step::work(CALLS)];
    hosts(setting, injected, NetFault::Throttle(rank), &steps)
}

fn quiet_network(setting: &Setting, _: &mut Draws) -> Plan {
    let steps = [Step::work(20), Step::WaitForGo, Step::work(CALLS)];
    hosts(setting, "nothing".to_owned(), NetFault::None, &steps)
}

fn wired(setting: &Setting, injected: String, rank: u32, fault: WireFault) -> Plan {
    Plan {
        launch: Launch::Wired { grace_s: GRACE_S },
        deed: Injection::Wire { rank, fault },
        ..plan(setting, injected, |_| vec![Step::work(FOR_EVER)])
    }
}

fn delay(setting: &Setting, draws: &mut Draws) -> Plan {
    let rank = setting.rank_from(1, draws);
    let injected = format!("everything over the wire of rank {rank} is 20 ms late");
    Plan {
        parts: plan(setting, String::new(), |_| vec![Step::work(60)]).parts,
        ..wired(setting, injected, rank, WireFault::Delay(20))
    }
}

fn stalled_wire(setting: &Setting, _: &mut Draws) -> Plan {
    // Links lead from lower to higher ranks, so the last one's door has some.
    let rank = setting.world_size - 1;
    let injected = format!("nothing goes over the links of rank {rank} any more");
    let bound = DEADLINE_SHORT + AFTER_DEADLINE;
    Plan {
        deadline: DEADLINE_SHORT,
        expect: verdict(Exit::Link, Blamed::LinkOf(rank), bound, setting.all()),
        ..wired(setting, injected, rank, WireFault::Stall)
    }
}
