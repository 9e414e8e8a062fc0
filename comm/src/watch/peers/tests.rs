//! Ranks that judge without an arbiter, over processes and boards that are made up.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use super::{ArbiterState, Ends, Patience, Peers};
use crate::error::verdict::tests::example;
use crate::error::verdict::{CallId, Class, Verdict};
use crate::rendezvous::{Card, DownReason, ProcessId};
use crate::types::Rank;
use crate::watch::failure;
use crate::watch::probe::{Change, Probe};
use crate::watch::process::{Inside, ProcessFacts, Sight};
use crate::watch::report::{CallCode, GroupState, InFlight, Report, Wait};
use crate::watch::wire;

const CALL: CallId = CallId { key: 9, seq: 3 };

/// Processes in the states that their letters say; `X` has ended.
#[derive(Default)]
pub(crate) struct Host {
    pub(crate) crowd: Cell<u64>,
    states: RefCell<BTreeMap<u32, char>>,
    pub(crate) now_ms: Cell<u64>,
    bulletins: RefCell<BTreeMap<u32, Vec<u8>>>,
    /// Another process writes onto all boards.
    is_busy: Cell<bool>,
    /// How often a process was looked at.
    looks: Cell<usize>,
}

/// The process of a rank.
fn process(rank: u32) -> ProcessId {
    ProcessId {
        pid: rank + 1,
        ..ProcessId::default()
    }
}

impl Host {
    /// Processes of ranks in these states, by rank.
    pub(crate) fn of(states: &str) -> Self {
        Self {
            states: RefCell::new((0..).zip(states.chars()).collect()),
            ..Self::default()
        }
    }

    fn set(&self, rank: u32, state: char) {
        self.states.borrow_mut().insert(rank, state);
    }

    /// The world as this rank sees it; rank 0 serves it.
    pub(crate) fn peers(&self, me: u32) -> Peers {
        let card = |rank: &u32| Card {
            process: process(*rank),
            ..Card::default()
        };
        let roster: Vec<Card> = self.states.borrow().keys().map(card).collect();
        Peers::new(self, Rank(me), &roster, process(0), Some(Rank(0)))
    }
}

impl Probe for Host {
    fn now_ms(&self) -> u64 {
        self.now_ms.get()
    }

    fn crowd(&self) -> u64 {
        self.crowd.get()
    }

    fn look(&self, process: &ProcessId) -> Sight {
        self.looks.set(self.looks.get() + 1);
        match self.states.borrow().get(&(process.pid - 1)) {
            Some('X') | None => Sight::Ended,
            Some(state) => Sight::Seen(ProcessFacts {
                state: *state,
                ..ProcessFacts::default()
            }),
        }
    }

    fn inside(&self, _: &Card) -> Option<Inside> {
        None
    }

    /// Every rank waits for rank 0.
    fn board(&self, process: &ProcessId, rank: u32) -> Option<Report> {
        self.look(process).facts()?;
        let call = InFlight {
            seq: CALL.seq,
            call: CallCode { word: 4, count: 8 },
            age_ms: 2000,
            wait: Some(Wait {
                missing: vec![0],
                checks: 5,
                age_ms: 1990,
                ..Wait::default()
            }),
            ..InFlight::default()
        };
        let members: Vec<u32> = self.states.borrow().keys().copied().collect();
        let group = GroupState {
            key: CALL.key,
            name: "world".to_owned(),
            size: u32::try_from(members.len()).unwrap(),
            members,
            entered: CALL.seq,
            thread: 1,
            call: Some(call).filter(|_| rank != 0),
            ..GroupState::default()
        };
        Some(Report {
            rank,
            threads: 1,
            groups: vec![group],
            ..Report::default()
        })
    }

    fn bulletin(&self, process: &ProcessId, rank: u32, change: Change<'_>) -> io::Result<Vec<u8>> {
        if self.is_busy.get() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if self.look(process) == Sight::Ended {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut bulletins = self.bulletins.borrow_mut();
        let before = bulletins.get(&rank).filter(|bytes| !bytes.is_empty());
        let after = change(before.map(Vec::as_slice));
        bulletins.insert(rank, after.clone());
        Ok(after)
    }

    fn bulletins(&self, ranks: &[(u32, ProcessId)], change: Change<'_>) {
        for (rank, process) in ranks {
            // Whoever has ended needs none.
            let _ = self.bulletin(process, *rank, change);
        }
    }
}

/// Nobody was told of an end, and nobody knows whether who ended had left.
const UNKNOWN: Ends<'_> = Ends {
    told: &|_| None,
    unprovoked: &|_| None,
    heard: &|| None,
};

fn blamed(verdict: Option<Verdict>) -> Option<(Class, Vec<u32>)> {
    verdict.map(|verdict| (verdict.class, verdict.blamed))
}

#[test]
fn who_had_died_before_the_arbiter_was_found_stopped_is_named_beside_it() {
    let found = |ends: Ends<'_>, dies_first: bool| {
        let host = Host::of(if dies_first { "TSXS" } else { "TSSS" });
        let peers = host.peers(1);
        assert_eq!(peers.arbiter_state(&host), ArbiterState::Stopped);
        for ms in [0, 500, 1000] {
            host.now_ms.set(ms);
            peers.judge_early(&host, CALL, ends);
            host.set(2, 'X');
        }
        blamed(peers.judge_early(&host, CALL, ends))
    };
    let frozen = |ranks: &[u32]| Some((Class::PeerFrozen, ranks.to_vec()));
    assert_eq!(found(UNKNOWN, true), frozen(&[0, 2]));
    assert_eq!(found(UNKNOWN, false), frozen(&[0]));
    // It had left, or ended because it had heard of a failure.
    let left = Ends {
        unprovoked: &|_| Some(false),
        ..UNKNOWN
    };
    assert_eq!(found(left, true), frozen(&[0]));
    let goodbye = Ends {
        told: &|rank| (rank == 2).then(|| failure::goodbye(0)),
        ..UNKNOWN
    };
    assert_eq!(found(goodbye, true), frozen(&[0]));
}

#[test]
fn beside_a_rank_that_served_and_is_gone_only_those_are_named_that_did_not_leave() {
    let found = |ends: Ends<'_>| {
        let host = Host::of("XSXS");
        blamed(host.peers(1).judge_gone(&host, CALL, ends, Patience::Waits))
    };
    let dead = |ranks: &[u32]| Some((Class::PeerDead, ranks.to_vec()));
    let told = Ends {
        told: &|rank| (rank == 2).then(|| failure::fate(&DownReason::Killed { signal: 9 }, 0)),
        ..UNKNOWN
    };
    assert_eq!(found(told), dead(&[0, 2]));
    let is_first = |unprovoked| {
        found(Ends {
            unprovoked: &|_| Some(unprovoked),
            ..UNKNOWN
        })
    };
    assert_eq!(is_first(true), dead(&[0, 2]));
    assert_eq!(is_first(false), dead(&[0]));
}

#[test]
fn of_many_ranks_the_lowest_that_runs_looks_at_every_turn_and_others_at_one_of_sixteen() {
    let turns = |host: &Host, me: u32| {
        let peers = host.peers(me);
        (0..160).filter(|turn| peers.is_turn(host, *turn)).count()
    };
    let host = Host::of(&"S".repeat(256));
    assert_eq!(turns(&host, 0), 160);
    assert_eq!(turns(&host, 200), 10);
    host.set(0, 'X');
    host.set(1, 'T');
    assert_eq!(turns(&host, 2), 160);
    // A few look all the time.
    assert_eq!(turns(&Host::of("SSSS"), 3), 160);
}

#[test]
fn a_verdict_that_another_rank_is_telling_is_waited_for_until_patience_is_spent() {
    let host = Host::of("XSS");
    let peers = host.peers(1);
    host.is_busy.set(true);
    let judge = |patience| peers.judge_gone(&host, CALL, UNKNOWN, patience);
    assert_eq!(judge(Patience::Waits), None);
    let own = judge(Patience::Spent).unwrap();
    assert_eq!((own.class, &own.blamed[..]), (Class::PeerDead, &[0][..]));
    host.is_busy.set(false);
    let first = Verdict {
        blamed: vec![2],
        ends: vec![CallId { key: 1, seq: 1 }],
        ..example()
    };
    let told = wire::encode(&first);
    host.bulletins.borrow_mut().insert(1, told);
    // What was told first stays, and ends this call too.
    let told = judge(Patience::Waits).unwrap();
    assert_eq!(told.blamed, [2]);
    assert!(told.ends.contains(&CALL));
}

/// Rank 1 was the lowest, took the verdict of rank 2, and ended. Rank 3 looked at rank 2 first then, and found nothing.
#[test]
fn where_the_lowest_rank_ends_with_a_verdict_all_say_what_the_next_one_was_told() {
    let host = Host::of("XSSSS");
    let peers = host.peers(2);
    let told = |rank| Verdict {
        blamed: vec![rank],
        ..example()
    };
    host.bulletins
        .borrow_mut()
        .insert(2, wire::encode(&told(7)));
    let first = peers
        .judge_gone(&host, CALL, UNKNOWN, Patience::Waits)
        .unwrap();
    assert_eq!(first.blamed, [7]);
    assert!(first.ends.contains(&CALL));
    let stands = |rank: u32| wire::decode::<Verdict>(&host.bulletins.borrow()[&rank]).unwrap();
    for rank in [3, 4] {
        assert_eq!(stands(rank).blamed, [7], "rank {rank}");
    }
    // Rank 4 was told the other one before; it says what rank 2 was told too.
    host.bulletins
        .borrow_mut()
        .insert(4, wire::encode(&told(0)));
    host.set(1, 'X');
    let other = host.peers(4).told_to(&host, CALL).unwrap();
    assert_eq!(other.blamed, [7]);
}

#[test]
fn an_arbiter_in_the_kernel_for_a_moment_is_not_stopped() {
    let host = Host::of("DS");
    let peers = host.peers(1);
    let state_at = |ms| {
        host.now_ms.set(ms);
        peers.arbiter_state(&host)
    };
    assert_eq!(state_at(0), ArbiterState::Runs);
    assert_eq!(state_at(900), ArbiterState::Runs);
    assert_eq!(state_at(1000), ArbiterState::Stopped);
    host.set(0, 'S');
    assert_eq!(state_at(1100), ArbiterState::Runs);
    host.set(0, 'T');
    assert_eq!(state_at(1200), ArbiterState::Stopped);
}

#[test]
fn a_verdict_that_comes_while_a_rank_judges_is_told_and_not_its_own() {
    let (host, first) = (Host::of("XSS"), example());
    let ends = Ends {
        heard: &|| Some(example()),
        ..UNKNOWN
    };
    let peers = host.peers(1);
    let told = [
        peers.judge_gone(&host, CALL, ends, Patience::Spent),
        peers.judge_overdue(&host, CALL, ends, 1, Patience::Spent),
    ];
    assert_eq!(told, [Some(first.clone()), Some(first)]);
    assert!(host.bulletins.borrow().is_empty(), "another rank is told");
}

#[test]
fn who_leaves_unseen_stays_until_there_is_a_verdict_and_not_where_nobody_else_lives() {
    let hour = Duration::from_secs(3600);
    let alone = Host::of("XSX");
    alone.peers(1).stay_until_judged(&alone, hour);
    let host = Host::of("XSS");
    host.bulletins
        .borrow_mut()
        .insert(1, wire::encode(&example()));
    host.peers(1).stay_until_judged(&host, hour);
    // Where nobody comes to one it goes in the end.
    let quiet = Host::of("XSS");
    quiet
        .peers(1)
        .stay_until_judged(&quiet, Duration::from_millis(50));
    assert!(quiet.looks.get() > 4, "{}", quiet.looks.get());
}
