//! F: strangers at the door, floods, and what a crash leaves.

use super::life::{CALLS, FOR_EVER, gone};
use super::{Drill, plan};
use crate::drill::plan::{Injection, Plan, Setting};
use crate::drill::script::{PrintSpec, Step};
use crate::random::Draws;

pub(super) const DRILLS: &[Drill] = &[
    Drill::new(
        "F1",
        "garbage",
        "4 KiB of garbage, HTTP and TLS at every port",
        garbage,
    )
    .first()
    .control(),
    Drill::new(
        "F2",
        "slow-strangers",
        "60 connections to every port that say one byte each",
        slow_strangers,
    )
    .control(),
    Drill::new(
        "F3",
        "oversized",
        "openings that promise more than any memory holds",
        oversized,
    )
    .control(),
    Drill::new(
        "F10",
        "killed-and-again",
        "launcher and ranks are killed at once, and started again",
        killed_and_again,
    )
    .first(),
    Drill::new("F14", "flood", "a rank prints 40 MiB", flood).control(),
    Drill::new(
        "F15",
        "control-characters",
        "ranks print control characters and what is no text",
        control_characters,
    )
    .control(),
];

/// Bytes of garbage.
const GARBAGE_BYTES: usize = 4096;

fn strangers(setting: &Setting, injected: &str, said: Vec<Vec<u8>>, at_once: usize) -> Plan {
    Plan {
        deed: Injection::Garbage { said, at_once },
        ..plan(setting, injected.to_owned(), |_| {
            vec![Step::work(20), Step::WaitForGo, Step::work(CALLS)]
        })
    }
}

fn garbage(setting: &Setting, draws: &mut Draws) -> Plan {
    let noise = (0..GARBAGE_BYTES)
        .map(|_| draws.next_u64().to_le_bytes()[0])
        .collect();
    let http = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec();
    // The beginning of a ClientHello of TLS 1.2.
    let tls = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec();
    strangers(
        setting,
        "garbage, HTTP and TLS at every port",
        vec![noise, http, tls],
        1,
    )
}

fn slow_strangers(setting: &Setting, _: &mut Draws) -> Plan {
    let injected = "60 connections to every port that say one byte each";
    strangers(setting, injected, vec![vec![0]], 60)
}

fn oversized(setting: &Setting, _: &mut Draws) -> Plan {
    let injected = "lengths of 2^32 and 2^64 bytes at every port";
    let said = vec![vec![0xff; 4], vec![0xff; 8], vec![0xff; 64]];
    strangers(setting, injected, said, 2)
}

fn killed_and_again(setting: &Setting, _: &mut Draws) -> Plan {
    let injected = "SIGKILL to the launcher and all ranks; then the same again, undisturbed";
    Plan {
        deed: Injection::KillAll,
        expect: gone(),
        ..plan(setting, injected.to_owned(), |_| vec![Step::work(FOR_EVER)])
    }
}

fn flood(setting: &Setting, draws: &mut Draws) -> Plan {
    let rank = setting.any_rank(draws);
    let injected = format!("rank {rank} prints 40 MiB");
    plan(setting, injected, |one| {
        let what = PrintSpec::Flood;
        // What it says afterwards must not drown in what it said before.
        let flood = [Step::Print { what }, Step::Pause { ms: 1500 }];
        let flood = flood.into_iter().filter(|_| one == rank);
        [Step::work(20)]
            .into_iter()
            .chain(flood)
            .chain([Step::work(20)])
            .collect()
    })
}

fn control_characters(setting: &Setting, _: &mut Draws) -> Plan {
    let injected = "all ranks print control characters and bytes that are no text".to_owned();
    plan(setting, injected, |_| {
        let what = PrintSpec::Control;
        vec![Step::work(5), Step::Print { what }, Step::work(20)]
    })
}
