//! E: data that is not what was sent.

use std::time::Duration;

use super::life::FOR_EVER;
use super::{Drill, GRACE_S, nobody, plan, verdict};
use crate::drill::plan::{Blamed, Expect, Injection, Launch, Outcome, Plan, Setting};
use crate::drill::script::Step;
use crate::drill::wire::WireFault;
use crate::exit::Exit;
use crate::random::Draws;

pub(super) const DRILLS: &[Drill] = &[
    Drill::new(
        "E1",
        "bit-flip-on-wire",
        "one bit of data is wrong on the wire; messages have checksums",
        bit_flip_on_wire,
    )
    .first()
    .tcp(),
    Drill::new(
        "E2",
        "bit-flip-before-send",
        "one bit of a rank's contribution is wrong before it is sent",
        bit_flip_before_send,
    )
    .first(),
    Drill::new(
        "E3",
        "header-flip",
        "one bit of a header is wrong on the wire",
        header_flip,
    )
    .tcp(),
    Drill::new(
        "E4",
        "cut-message",
        "a connection ends in the middle of a message",
        cut_message,
    )
    .tcp(),
    Drill::new(
        "E5",
        "repeated-bytes",
        "a piece of what was sent comes a second time",
        repeated_bytes,
    )
    .tcp(),
    Drill::new(
        "E6",
        "contribution-dropped",
        "a rank contributes zeroes",
        contribution_dropped,
    ),
    Drill::new(
        "E6",
        "blocks-swapped",
        "two parts of a rank's contribution have changed places",
        blocks_swapped,
    ),
    Drill::new(
        "-",
        "memory-order",
        "pairs of ranks use slots, bells and rings for 3 s; every word is checked",
        memory_order,
    )
    .control()
    .shm_pair(),
];

/// How long memory is looked at.
const LITMUS: Duration = Duration::from_secs(3);

/// In the same collective: an exchange and the way of the news.
const SAME_CALL: Duration = Duration::from_millis(250);

/// The wire of a rank is spoilt. Whose links they are is known when it strikes.
fn spoilt(setting: &Setting, injected: &str, fault: WireFault, class: Exit) -> Plan {
    // Links lead from lower to higher ranks, so the last one's door has some.
    let rank = setting.world_size - 1;
    let mut base = plan(setting, format!("{injected} of rank {rank}"), |_| {
        vec![Step::work(FOR_EVER)]
    });
    for part in &mut base.parts {
        part.checksum = true;
    }
    Plan {
        launch: Launch::Wired { grace_s: GRACE_S },
        deed: Injection::Wire { rank, fault },
        expect: verdict(
            class,
            Blamed::Among(setting.all()),
            SAME_CALL,
            setting.all(),
        ),
        ..base
    }
}

fn bit_flip_on_wire(setting: &Setting, _: &mut Draws) -> Plan {
    spoilt(
        setting,
        "one bit is wrong on the wire",
        WireFault::Flip,
        Exit::Data,
    )
}

fn header_flip(setting: &Setting, _: &mut Draws) -> Plan {
    let injected = "one bit of a header is wrong on the wire";
    spoilt(setting, injected, WireFault::FlipHeader, Exit::Data)
}

fn cut_message(setting: &Setting, _: &mut Draws) -> Plan {
    let injected = "a connection ends in the middle of a message on the wire";
    let mut plan = spoilt(setting, injected, WireFault::Truncate, Exit::Link);
    plan.expect.bound = super::RESET;
    plan
}

fn repeated_bytes(setting: &Setting, _: &mut Draws) -> Plan {
    let injected = "a piece comes a second time over the wire";
    spoilt(setting, injected, WireFault::Repeat, Exit::Data)
}

/// `muster verify` with a rank whose contribution is spoilt: data is wrong and no rank knows, so it takes
/// the oracle.
fn verify(setting: &Setting, draws: &mut Draws, kind: &str, how: &str) -> Plan {
    let rank = setting.any_rank(draws);
    let words = [
        "--inject",
        &format!("{kind}:rank={rank},collective=all_reduce"),
        "--dtypes",
        "f32",
        "--sizes",
        "1000",
    ];
    let expect = Expect {
        outcome: Outcome::Report {
            class: Exit::Data,
            blamed: Blamed::Exactly(vec![rank]),
        },
        exit: Some(Exit::Data),
        ..nobody()
    };
    Plan {
        launch: Launch::Verify {
            words: words.map(str::to_owned).to_vec(),
        },
        expect,
        ..plan(setting, format!("rank {rank} {how}"), |_| Vec::new())
    }
}

fn bit_flip_before_send(setting: &Setting, draws: &mut Draws) -> Plan {
    let how = "sends one wrong bit in each all_reduce";
    verify(setting, draws, "bitflip", how)
}

fn contribution_dropped(setting: &Setting, draws: &mut Draws) -> Plan {
    let how = "sends zeroes in each all_reduce";
    verify(setting, draws, "drop-contribution", how)
}

/// Ranks 0 and 1, 2 and 3 and so on; one that is left over does nothing.
fn memory_order(setting: &Setting, _: &mut Draws) -> Plan {
    let injected = "nothing; a processor may show stores and loads in another order".to_owned();
    plan(setting, injected, |rank| {
        let first = rank - rank % 2;
        if first + 1 == setting.world_size {
            return Vec::new();
        }
        let group = format!("pair{first}");
        let ms = u64::try_from(LITMUS.as_millis()).unwrap_or(u64::MAX);
        let members = vec![first, first + 1];
        vec![
            Step::Make {
                name: group.clone(),
                members,
            },
            Step::Litmus { group, ms },
        ]
    })
}

fn blocks_swapped(setting: &Setting, draws: &mut Draws) -> Plan {
    let how = "swaps two parts in each all_reduce";
    verify(setting, draws, "swap-blocks", how)
}
