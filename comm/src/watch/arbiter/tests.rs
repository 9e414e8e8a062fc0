//! The arbiter between ranks that answer, and ranks that do not.

mod ends;
mod published;

use super::decide::{ENDING_WAIT_MS, EXIT_WAIT_MS, UNREADABLE_WAIT_MS};
use super::{Arbiter, ROUND_MS, TOGETHER_MS, UNKNOWN_WAIT_MS};
use crate::error::verdict::{CallId, Class, Confidence, Verdict};
use crate::error::{ErrorKind, Field};
use crate::host_load::HostLoad;
use crate::rendezvous::{Act, Arbiter as Referee, Card, DownReason, Liveness, ProcessId, Seen};
use crate::types::{Collective, Rank};
use crate::watch::cpu_time::CpuTime;
use crate::watch::process::{ProcessFacts, Sight};
use crate::watch::report::{CallCode, CallOutcome, CallRecord, GroupState, InFlight, Report, Wait};
use crate::watch::wire::{Cause, FromRank, Look, ToRank, decode, encode};

const CALL: CallId = CallId { key: 9, seq: 3 };

/// What rank 0 of three shows, which waits for rank 1, or another rank, which has not come.
fn board(rank: u32, waits: bool) -> Report {
    let call = InFlight {
        seq: CALL.seq,
        call: CallCode { word: 4, count: 8 },
        site: "train.rs:8".to_owned(),
        age_ms: 2000,
        wait: Some(Wait {
            missing: vec![1],
            checks: 5,
            age_ms: 1990,
            ..Wait::default()
        }),
        ..InFlight::default()
    };
    let group = GroupState {
        key: CALL.key,
        name: "world".to_owned(),
        members: vec![0, 1],
        size: 2,
        entered: CALL.seq - u64::from(rank == 1),
        thread: 1,
        call: Some(call).filter(|_| waits),
        ..GroupState::default()
    };
    Report {
        rank,
        world_size: 3,
        threads: 1,
        groups: vec![group],
        ..Report::default()
    }
}

/// An arbiter of three ranks, and the time.
struct Play {
    arbiter: Arbiter,
    now_ms: u64,
    /// What the coordinator sees of rank 1, where it can look.
    sight: Option<Sight>,
    /// Ranks that answer.
    answer: Vec<u32>,
    told: Vec<Verdict>,
    /// Whether boards show no call: their ranks are through, or boards are read while they are written.
    is_torn: bool,
    /// Key of the group that boards show.
    key: u64,
    /// Calls of the past, and who made them.
    made: Vec<(u32, CallRecord)>,
    /// The one of `CROWD` ranks that has not come to the call.
    late: Option<u32>,
    /// How much the processors of the host are wanted, as ranks say.
    load: Option<HostLoad>,
}

/// Ranks of a world that is too large for the coordinator to look at all of them in one round.
const CROWD: u32 = 130;

impl Play {
    fn new(answer: &[u32]) -> Self {
        let mut arbiter = Arbiter::default();
        arbiter.ready(&[Card::default(), Card::default(), Card::default()]);
        Self {
            arbiter,
            now_ms: 1000,
            sight: None,
            answer: answer.to_vec(),
            told: Vec::new(),
            is_torn: false,
            key: CALL.key,
            made: Vec::new(),
            late: None,
            load: None,
        }
    }

    /// Many ranks on one host, of which only rank 0 answers. All but one wait in the call, and the processes of all can be seen.
    fn of_a_crowd(late: u32) -> Self {
        let own = ProcessId {
            boot: 7,
            ..ProcessId::default()
        };
        let card = Card {
            process: own,
            ..Card::default()
        };
        let mut play = Self::new(&[0]);
        play.arbiter = Arbiter::in_process(own);
        play.arbiter
            .ready(&vec![card; crate::types::index(CROWD.into())]);
        play.late = Some(late);
        play.sight = process('S', 100, 0);
        play
    }

    fn board(&self, rank: u32, waits: bool) -> Box<Report> {
        let mut report = board(rank, waits);
        report.groups[0].key = self.key;
        let own = self.made.iter().filter(|(by, _)| *by == rank);
        report.calls = own.map(|(_, call)| call.clone()).collect();
        report.process = self.load.map(|load| ProcessFacts {
            load,
            ..ProcessFacts::default()
        });
        if let Some(late) = self.late {
            report.world_size = CROWD;
            let group = &mut report.groups[0];
            (group.members, group.size) = ((0..CROWD).collect(), CROWD);
            group.entered = CALL.seq - u64::from(rank == late);
            if let Some(wait) = group.call.as_mut().and_then(|call| call.wait.as_mut()) {
                wait.missing = if rank == 0 {
                    (1..CROWD).collect()
                } else {
                    vec![late]
                };
            }
        }
        Box::new(report)
    }

    /// Ranks 0 and 1 have made this call, with another count each if it is to differ.
    fn make(&mut self, seq: u64, differs: bool, outcome: CallOutcome) {
        for rank in 0..2 {
            let word = Collective::AllReduce as u64;
            let count = 8 + u64::from(differs) * u64::from(rank);
            let call = CallRecord {
                key: self.key,
                seq,
                call: CallCode { word, count },
                outcome,
                ..CallRecord::default()
            };
            self.made.push((rank, call));
        }
    }

    /// Rank 0 says of a call that ranks made it differently, and goes on.
    fn catch(&mut self, seq: u64) {
        self.make(seq, true, CallOutcome::Failed);
        let kind = ErrorKind::Mismatch {
            field: Field::Count,
            rank: Rank(0),
            mine: "8".to_owned(),
            peer: Rank(1),
            theirs: "9".to_owned(),
        };
        let complaint = FromRank::Complaint {
            call: CallId { seq, ..CALL },
            cause: Cause::Failed {
                kind,
                usable: true,
                culprit: None,
            },
            report: Some(self.board(0, false)),
        };
        let acts = self
            .arbiter
            .heard(Rank(0), &encode(&complaint), self.now_ms);
        self.act(acts);
        self.pass(500);
        assert_eq!(self.found(), Some((Class::Mismatch, [1].as_slice())));
    }

    /// The program of a rank gets the verdict on this call.
    fn is_told(&mut self, rank: Rank, seq: u64) {
        let complaint = FromRank::Complaint {
            call: CallId { seq, ..CALL },
            cause: Cause::Told,
            report: Some(self.board(rank.0, false)),
        };
        let acts = self.arbiter.heard(rank, &encode(&complaint), self.now_ms);
        assert_eq!(acts, []);
    }

    fn down(&mut self, rank: Rank, reason: &DownReason) {
        self.arbiter.down(rank, reason, self.now_ms);
    }

    fn complain(&mut self, cause: Cause) {
        let report = (cause != Cause::Waits).then(|| self.board(0, true));
        let complaint = FromRank::Complaint {
            call: CallId {
                key: self.key,
                ..CALL
            },
            cause,
            report,
        };
        let acts = self
            .arbiter
            .heard(Rank(0), &encode(&complaint), self.now_ms);
        self.act(acts);
    }

    /// Lets time pass, in the steps of the coordinator.
    fn pass(&mut self, ms: u64) {
        let end_ms = self.now_ms + ms;
        while self.now_ms < end_ms {
            self.now_ms += 10;
            let acts = self.arbiter.tick(self.now_ms);
            self.act(acts);
        }
    }

    fn act(&mut self, acts: Vec<Act>) {
        for act in acts {
            let more = match act {
                Act::Tell(rank, bytes) => self.hear(rank, &bytes),
                Act::TellAll(bytes) => self.hear(Rank(0), &bytes),
                Act::Look(ranks) => ranks.into_iter().flat_map(|rank| self.look(rank)).collect(),
                Act::Ended(_) | Act::Post(..) | Act::Report(_) => Vec::new(),
            };
            self.act(more);
        }
    }

    fn hear(&mut self, rank: Rank, bytes: &[u8]) -> Vec<Act> {
        let answer = match decode::<ToRank>(bytes) {
            Some(ToRank::Ask { ask, .. }) if self.answer.contains(&rank.0) => FromRank::Answer {
                ask,
                report: self.board(rank.0, rank.0 == 0 && !self.is_torn),
                looks: Vec::new(),
            },
            Some(ToRank::Stack { .. }) => FromRank::Stack {
                functions: Vec::new(),
            },
            Some(ToRank::Verdict(verdict)) => {
                self.told.push(*verdict);
                return Vec::new();
            }
            _ => return Vec::new(),
        };
        self.arbiter.heard(rank, &encode(&answer), self.now_ms)
    }

    fn look(&mut self, rank: Rank) -> Vec<Act> {
        let can_be_seen = rank == Rank(1) || self.late.is_some();
        let sight = self.sight.clone().filter(|_| can_be_seen);
        let sight = sight.unwrap_or_else(|| Sight::Hidden("elsewhere".to_owned()));
        let waits = self.late.is_some_and(|late| late != rank.0);
        let look = Look {
            rank: rank.0,
            report: sight.facts().map(|_| self.board(rank.0, waits)),
            sight,
        };
        let seen = Seen {
            liveness: Liveness::Hidden,
            bytes: encode(&look),
        };
        self.arbiter.looked(rank, &seen, self.now_ms)
    }

    fn found(&self) -> Option<(Class, &[u32])> {
        let verdict = self.told.first()?;
        Some((verdict.class, &verdict.blamed))
    }
}

/// A process in this state that has run for so long, and was ready without running for so long.
fn process(state: char, ran_ms: u64, delayed_ms: u64) -> Option<Sight> {
    Some(Sight::Seen(ProcessFacts {
        state,
        cpu_time: CpuTime {
            ran_ns: ran_ms * 1_000_000,
            delayed_ns: delayed_ms * 1_000_000,
        },
        ..ProcessFacts::default()
    }))
}

/// Rank 1 has left a message of rank 2 unread, and rank 0 waits in a call of the group.
fn play_of_an_unread_message() -> Play {
    let mut play = Play::new(&[0, 1, 2]);
    let complaint = FromRank::Complaint {
        call: CALL,
        cause: Cause::Failed {
            kind: ErrorKind::Mismatch {
                field: Field::Count,
                rank: Rank(1),
                mine: "0".to_owned(),
                peer: Rank(2),
                theirs: "8".to_owned(),
            },
            usable: false,
            culprit: Some(Rank(1)),
        },
        report: Some(Box::new(board(1, false))),
    };
    let acts = play
        .arbiter
        .heard(Rank(1), &encode(&complaint), play.now_ms);
    play.act(acts);
    play.pass(1500);
    assert!(play.told.is_empty(), "what rank 0 waits for says more");
    play
}

#[test]
fn a_message_that_nobody_received_is_told_of_once_those_in_calls_of_its_group_are_through() {
    let mut play = play_of_an_unread_message();
    play.is_torn = true;
    play.pass(200);
    assert_eq!(play.told[0].class, Class::Mismatch, "{:?}", play.told);
    // Where its rank does not stay for that, nothing is said.
    let mut play = play_of_an_unread_message();
    play.arbiter.left(Rank(1));
    play.pass(200);
    assert!(!play.arbiter.is_busy());
    play.is_torn = true;
    play.pass(1000);
    assert!(play.told.is_empty(), "{:?}", play.told);
}

#[test]
fn on_a_crowded_host_a_mismatch_waits_longer_for_a_rank_that_has_not_come() {
    for (runnable, is_told) in [(2, true), (40, false)] {
        let mut play = Play::new(&[0, 1, 2]);
        play.load = Some(HostLoad {
            runnable,
            processors: 2,
        });
        play.complain(a_mismatch_of_0_and_2());
        play.pass(1500);
        assert_eq!(play.found().is_some(), is_told, "{runnable} threads");
        play.pass(5000);
        assert!(play.found().is_some(), "{runnable} threads");
    }
}

#[test]
fn a_rank_is_not_named_for_its_absence_while_the_sides_of_a_mismatch_are_looked_for() {
    let mut play = Play::new(&[0, 1, 2]);
    play.load = Some(HostLoad {
        runnable: 40,
        processors: 2,
    });
    play.complain(a_mismatch_of_0_and_2());
    let complaint = encode(&FromRank::Complaint {
        call: CALL,
        cause: Cause::InVain,
        report: None,
    });
    let acts = play.arbiter.heard(Rank(2), &complaint, play.now_ms);
    play.act(acts);
    play.pass(1500);
    assert_eq!(play.found(), None);
    play.pass(5000);
    assert_eq!(play.found().map(|(class, _)| class), Some(Class::Mismatch));
}

fn a_mismatch_of_0_and_2() -> Cause {
    Cause::Failed {
        kind: ErrorKind::Mismatch {
            field: Field::Count,
            rank: Rank(0),
            mine: "8".to_owned(),
            peer: Rank(2),
            theirs: "9".to_owned(),
        },
        usable: false,
        culprit: None,
    }
}

#[test]
fn nobody_is_named_for_silence_who_can_be_looked_at() {
    for late in [1, 64, 70, 129] {
        let mut play = Play::of_a_crowd(late);
        play.complain(Cause::InVain);
        play.pass(10_000);
        assert_eq!(play.found(), Some((Class::NotJoined, [late].as_slice())));
    }
}

#[test]
fn a_call_is_judged_by_the_board_that_its_complaint_carries() {
    let mut play = Play::new(&[0, 1, 2]);
    play.is_torn = true;
    play.complain(Cause::InVain);
    play.pass(20);
    assert_eq!(play.found(), Some((Class::NotJoined, [1].as_slice())));
    assert_eq!(play.told[0].confidence, Confidence::Certain);
    assert!(play.told[0].ends.contains(&CALL));
}

#[test]
fn a_call_that_a_later_complaint_of_its_rank_does_not_show_is_judged_by_the_first() {
    let mut play = Play::new(&[0, 1, 2]);
    play.is_torn = true;
    play.complain(Cause::InVain);
    let other = CallId { key: 4, seq: 1 };
    let complaint = encode(&FromRank::Complaint {
        call: other,
        cause: Cause::InVain,
        report: Some(Box::new(board(0, false))),
    });
    let acts = play.arbiter.heard(Rank(0), &complaint, play.now_ms);
    play.act(acts);
    play.pass(20);
    assert_eq!(play.found(), Some((Class::NotJoined, [1].as_slice())));
}

#[test]
fn a_call_that_no_board_shows_is_looked_for_before_nobody_is_named() {
    let mut play = Play::new(&[0, 1, 2]);
    play.is_torn = true;
    let complaint = encode(&FromRank::Complaint {
        call: CALL,
        cause: Cause::InVain,
        report: Some(Box::new(board(0, false))),
    });
    let acts = play.arbiter.heard(Rank(0), &complaint, play.now_ms);
    play.act(acts);
    play.pass(UNREADABLE_WAIT_MS / 2);
    assert_eq!(play.found(), None);
    play.is_torn = false;
    play.pass(UNREADABLE_WAIT_MS);
    assert_eq!(play.found(), Some((Class::NotJoined, [1].as_slice())));
}

#[test]
fn who_does_not_answer_and_cannot_be_seen_is_named_late_and_never_for_certain() {
    let mut play = Play::new(&[0, 2]);
    play.complain(Cause::Waits);
    play.pass(20_000);
    assert_eq!(play.found(), None, "silence proves nothing");
    play.complain(Cause::InVain);
    play.pass(UNKNOWN_WAIT_MS - ROUND_MS);
    assert_eq!(play.found(), None);
    play.pass(1000);
    assert_eq!(play.found(), Some((Class::NotJoined, [1].as_slice())));
    assert_eq!(play.told[0].confidence, Confidence::Likely);
}

#[test]
fn a_rank_that_is_known_to_be_dead_is_the_cause_whether_or_not_any_board_came() {
    let mut play = Play::new(&[]);
    play.down(Rank(1), &DownReason::Killed { signal: 9 });
    play.complain(Cause::InVain);
    play.pass(2 * ROUND_MS);
    assert_eq!(play.found(), Some((Class::PeerDead, [1].as_slice())));
}

#[test]
fn a_rank_is_frozen_that_every_look_of_a_second_found_stopped_and_that_did_not_run() {
    let mut play = Play::new(&[0, 2]);
    play.sight = process('T', 5, 0);
    play.complain(Cause::Waits);
    play.pass(900);
    assert_eq!(play.found(), None);
    // It ran for a moment, and is stopped again.
    play.sight = process('T', 6, 0);
    play.complain(Cause::Waits);
    play.pass(900);
    assert_eq!(play.found(), None);
    play.complain(Cause::Waits);
    play.pass(500);
    assert_eq!(play.found(), Some((Class::PeerFrozen, [1].as_slice())));
}

/// Rank 0 waits to its deadline for rank 1, which gets no processor.
fn play_of_a_starved_rank(differs: bool) -> Play {
    let mut play = Play::new(&[0, 2]);
    play.make(CALL.seq - 1, differs, CallOutcome::Completed);
    for second in 0..12 {
        play.sight = process('R', 40, second * 1000);
        play.complain(Cause::Waits);
        play.pass(1000);
    }
    assert_eq!(play.found(), None);
    play.complain(Cause::InVain);
    play.pass(500);
    play
}

#[test]
fn who_made_an_earlier_call_differently_is_the_cause_on_a_starved_host_too() {
    let play = play_of_a_starved_rank(true);
    assert_eq!(play.found(), Some((Class::Mismatch, [1].as_slice())));
}

#[test]
fn a_rank_that_gets_no_processor_is_not_to_blame() {
    let play = play_of_a_starved_rank(false);
    assert_eq!(play.found(), Some((Class::Resource, [].as_slice())));
    assert!(
        play.told[0].place.contains("starved: rank 1"),
        "{}",
        play.told[0]
    );
}

#[test]
fn a_process_in_the_kernel_for_a_moment_is_not_frozen() {
    let mut play = Play::new(&[0, 2]);
    play.sight = process('D', 5, 0);
    play.complain(Cause::InVain);
    play.pass(300);
    assert!(
        play.found()
            .is_none_or(|(class, _)| class != Class::PeerFrozen)
    );
    let mut play = Play::new(&[0, 2]);
    play.sight = process('D', 5, 0);
    for _ in 0..8 {
        play.complain(Cause::Waits);
        play.pass(300);
    }
    assert_eq!(play.found(), Some((Class::PeerFrozen, [1].as_slice())));
}
