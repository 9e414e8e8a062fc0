//! A: the life of processes, and the launcher.

use std::time::Duration;

use super::{DEATH, Drill, FROZEN, blames, nobody, plan};
use crate::drill::plan::{Expect, Injection, Outcome, Plan, Setting};
use crate::drill::script::{CallSpec, Kind, Step};
use crate::exit::Exit;
use crate::random::Draws;

pub(super) const DRILLS: &[Drill] = &[
    Drill::new("A1", "killed", "SIGKILL to a rank at work", killed).first(),
    Drill::new("A2", "stopped", "SIGSTOP to a rank", stopped).first(),
    Drill::new(
        "A3",
        "stalled",
        "a rank is stopped for 0.8 s and goes on",
        stalled,
    )
    .first()
    .control(),
    Drill::new(
        "A4",
        "returns-early",
        "a rank ends with code 0 before its work is done",
        returns_early,
    )
    .first(),
    Drill::new("A5", "exits-7", "a rank ends with code 7", exits_7),
    Drill::new("A6", "panics", "a rank panics", panics),
    Drill::new(
        "A6",
        "panics-in-thread",
        "a thread of a rank panics, and the rank with it",
        panics_in_thread,
    ),
    Drill::new("A7", "segfault", "SIGSEGV in a rank", segfault),
    Drill::new("A7", "bus-error", "SIGBUS in a rank", bus_error),
    Drill::new("A7", "aborts", "SIGABRT in a rank", aborts),
    Drill::new(
        "A8",
        "out-of-memory",
        "a rank takes more memory than its control group has",
        out_of_memory,
    )
    .first(),
    Drill::new(
        "A9",
        "frozen-group",
        "the control group of a rank is frozen",
        frozen_group,
    ),
    Drill::new(
        "A10",
        "launcher-killed",
        "SIGKILL to the launcher",
        launcher_killed,
    )
    .first(),
    Drill::new("A11", "interrupted", "SIGINT to the launcher", interrupted).first(),
    Drill::new(
        "A11",
        "interrupted-twice",
        "SIGINT to the launcher, twice; the ranks ignore requests to end",
        interrupted_twice,
    ),
    Drill::new(
        "A12",
        "asked-to-end",
        "SIGTERM to the launcher",
        asked_to_end,
    ),
    Drill::new("A13", "hung-up", "SIGHUP to the launcher", hung_up),
    Drill::new(
        "A14",
        "grandchildren",
        "ranks start processes and leave them behind",
        grandchildren,
    )
    .control(),
    Drill::new(
        "A15",
        "early-goodbye",
        "a rank leaves as soon as the last call is over",
        early_goodbye,
    )
    .control(),
    Drill::new("-", "quiet", "nothing is wrong", quiet).control(),
    Drill::new(
        "-",
        "quiet-groups",
        "groups are made, used and destroyed",
        quiet_groups,
    )
    .control(),
];

/// Calls of ranks that work until something happens to them.
pub(super) const FOR_EVER: u32 = u32::MAX;
/// Calls of ranks that end well.
pub(super) const CALLS: u32 = 200;
/// Calls before a rank does something by itself, at most.
const CALLS_BEFORE: usize = 30;
/// Memory of a rank that takes too much, in bytes.
const MEMORY_BYTES: u64 = 128 << 20;

const HUP: i32 = 1;
const INT: i32 = 2;
const ABRT: i32 = 6;
const BUS: i32 = 7;
const KILL: i32 = 9;
const SEGV: i32 = 11;
const TERM: i32 = 15;
const STOP: i32 = 19;

fn at_work(setting: &Setting, injected: String, deed: Injection, expect: Expect) -> Plan {
    Plan {
        deed,
        expect,
        ..plan(setting, injected, |_| vec![Step::work(FOR_EVER)])
    }
}

pub(in crate::drill) fn quiet(setting: &Setting, _: &mut Draws) -> Plan {
    plan(setting, "nothing".to_owned(), |_| vec![Step::work(CALLS)])
}

fn killed(setting: &Setting, draws: &mut Draws) -> Plan {
    let rank = setting.any_rank(draws);
    at_work(
        setting,
        format!("SIGKILL to rank {rank} at work"),
        Injection::Signal { rank, signal: KILL },
        blames(setting, Exit::PeerDead, rank, DEATH).with_words(&["signal 9"]),
    )
}

fn stopped(setting: &Setting, draws: &mut Draws) -> Plan {
    let rank = setting.any_rank(draws);
    at_work(
        setting,
        format!("SIGSTOP to rank {rank} at work"),
        Injection::Signal { rank, signal: STOP },
        blames(setting, Exit::PeerFrozen, rank, FROZEN).with_words(&["state T"]),
    )
}

fn stalled(setting: &Setting, draws: &mut Draws) -> Plan {
    let rank = setting.any_rank(draws);
    let injected = format!("rank {rank} is stopped for 0.8 s and goes on");
    Plan {
        deed: Injection::Stall {
            ranks: vec![rank],
            ms: 800,
        },
        ..plan(setting, injected, |_| vec![Step::work(CALLS)])
    }
}

/// A rank that does `end` by itself after some work, while the others go on.
fn ends_itself(
    setting: &Setting,
    draws: &mut Draws,
    how: &str,
    end: &Step,
    words: &[&str],
) -> Plan {
    let rank = setting.any_rank(draws);
    let calls = 3 + u32::try_from(draws.below(CALLS_BEFORE)).unwrap_or(0);
    let injected = format!("rank {rank} {how} after {calls} calls");
    let base = plan(setting, injected, |one| {
        if one == rank {
            vec![Step::work(calls), Step::Mark, end.clone()]
        } else {
            vec![Step::work(FOR_EVER)]
        }
    });
    Plan {
        expect: blames(setting, Exit::PeerDead, rank, DEATH).with_words(words),
        ..base
    }
}

fn returns_early(setting: &Setting, draws: &mut Draws) -> Plan {
    let end = Step::Exit { code: 0 };
    ends_itself(
        setting,
        draws,
        "ends with code 0",
        &end,
        &["exited with code 0 before its work was done"],
    )
}

fn exits_7(setting: &Setting, draws: &mut Draws) -> Plan {
    let end = Step::Exit { code: 7 };
    ends_itself(setting, draws, "ends with code 7", &end, &["code 7"])
}

fn panics(setting: &Setting, draws: &mut Draws) -> Plan {
    let end = Step::Panic { in_thread: false };
    ends_itself(
        setting,
        draws,
        "panics",
        &end,
        &["panicked at", "breaks an assertion"],
    )
}

fn panics_in_thread(setting: &Setting, draws: &mut Draws) -> Plan {
    let end = Step::Panic { in_thread: true };
    ends_itself(
        setting,
        draws,
        "panics in a thread",
        &end,
        &["panicked at", "breaks an assertion"],
    )
}

fn raises(setting: &Setting, draws: &mut Draws, signal: i32, name: &str) -> Plan {
    let how = format!("gets {name}");
    ends_itself(setting, draws, &how, &Step::Raise { signal }, &[name])
}

fn segfault(setting: &Setting, draws: &mut Draws) -> Plan {
    raises(setting, draws, SEGV, "SIGSEGV")
}

fn bus_error(setting: &Setting, draws: &mut Draws) -> Plan {
    raises(setting, draws, BUS, "SIGBUS")
}

fn aborts(setting: &Setting, draws: &mut Draws) -> Plan {
    raises(setting, draws, ABRT, "SIGABRT")
}

fn out_of_memory(setting: &Setting, draws: &mut Draws) -> Plan {
    let rank = setting.any_rank(draws);
    let injected = format!(
        "rank {rank} takes more than the {} MiB of its control group",
        MEMORY_BYTES >> 20
    );
    let base = plan(setting, injected, |one| {
        if one == rank {
            vec![Step::work(10), Step::WaitForGo, Step::Hoard, Step::Mark]
        } else {
            vec![Step::work(FOR_EVER)]
        }
    });
    Plan {
        deed: Injection::Control {
            rank,
            controller: "memory",
            settings: vec![(
                &["memory.limit_in_bytes", "memory.max"],
                MEMORY_BYTES.to_string(),
            )],
        },
        expect: blames(setting, Exit::PeerDead, rank, Duration::from_millis(500))
            .with_words(&["memory"]),
        ..base
    }
}

fn frozen_group(setting: &Setting, draws: &mut Draws) -> Plan {
    let rank = setting.any_rank(draws);
    at_work(
        setting,
        format!("the control group of rank {rank} is frozen"),
        Injection::Control {
            rank,
            controller: "freezer",
            settings: vec![(&["freezer.state"], "FROZEN".to_owned())],
        },
        blames(setting, Exit::PeerFrozen, rank, FROZEN),
    )
}

/// All processes go, and nobody is asked.
pub(super) fn gone() -> Expect {
    Expect {
        outcome: Outcome::Gone,
        exit: None,
        bound: Duration::from_secs(2),
        ..nobody()
    }
}

/// The launcher ends with everything, and says why.
fn stopped_by_request(bound: Duration) -> Expect {
    Expect {
        outcome: Outcome::Interrupted,
        exit: Some(Exit::Interrupted),
        bound,
        ..nobody()
    }
}

fn launcher(setting: &Setting, name: &str, signal: i32, expect: Expect) -> Plan {
    at_work(
        setting,
        format!("{name} to the launcher"),
        Injection::Launcher {
            signals: vec![signal],
            pause_ms: 0,
        },
        expect,
    )
}

fn launcher_killed(setting: &Setting, _: &mut Draws) -> Plan {
    launcher(setting, "SIGKILL", KILL, gone())
}

fn interrupted(setting: &Setting, _: &mut Draws) -> Plan {
    let expect = stopped_by_request(Duration::from_secs(1));
    launcher(setting, "SIGINT", INT, expect)
}

fn asked_to_end(setting: &Setting, _: &mut Draws) -> Plan {
    let expect = stopped_by_request(Duration::from_secs(4));
    launcher(setting, "SIGTERM", TERM, expect)
}

fn hung_up(setting: &Setting, _: &mut Draws) -> Plan {
    let expect = stopped_by_request(Duration::from_secs(4));
    launcher(setting, "SIGHUP", HUP, expect)
}

fn interrupted_twice(setting: &Setting, _: &mut Draws) -> Plan {
    let injected =
        "SIGINT to the launcher, and again after 0.3 s; no rank ends by itself".to_owned();
    Plan {
        deed: Injection::Launcher {
            signals: vec![INT, INT],
            pause_ms: 300,
        },
        expect: stopped_by_request(Duration::from_secs(1)),
        ..plan(setting, injected, |_| {
            vec![Step::Resist, Step::work(FOR_EVER)]
        })
    }
}

fn grandchildren(setting: &Setting, _: &mut Draws) -> Plan {
    let injected = "each rank starts a process and leaves it behind".to_owned();
    plan(setting, injected, |_| vec![Step::Child, Step::work(50)])
}

fn early_goodbye(setting: &Setting, draws: &mut Draws) -> Plan {
    let early = setting.any_rank(draws);
    let injected = format!("rank {early} leaves at once, the others 0.5 s after the last call");
    plan(setting, injected, |rank| {
        let pause = (rank != early).then_some(Step::Pause { ms: 500 });
        [Step::work(50)].into_iter().chain(pause).collect()
    })
}

fn quiet_groups(setting: &Setting, _: &mut Draws) -> Plan {
    let injected = "nothing".to_owned();
    let reversed: Vec<u32> = setting.all().into_iter().rev().collect();
    plan(setting, injected, |_| {
        let round = |number: u32| {
            let name = format!("g{}", number % 3);
            let members = if number.is_multiple_of(2) {
                setting.all()
            } else {
                reversed.clone()
            };
            [
                Step::Make {
                    name: name.clone(),
                    members,
                },
                Step::call_on(&name, CallSpec::all_reduce(Kind::I32, 33)),
                Step::Destroy { group: name },
            ]
        };
        (0..12).flat_map(round).chain([Step::work(20)]).collect()
    })
}
