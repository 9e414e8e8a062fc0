//! What this rank's device was given, and what became of it.
//!
//! Every call is entered before the vendor sees it and closed when its completion was observed, so
//! that a rank whose device hangs can say what hangs, since when, and what it did last. Collectives
//! are numbered alike on all ranks; messages are counted by peer, because they concern two ranks
//! only.

use std::collections::{BTreeMap, VecDeque};
use std::panic::Location;
use std::time::Instant;

use crate::error::ErrorKind;
use crate::sync::Clock;
use crate::watch::judge::device::{Ask, Deed, Stage, Words};

/// Calls that are remembered: what is open, and the last things before it.
const DEEDS_MAX: usize = 64;
/// Of these, how many travel in a stall report.
const DEEDS_SAID_MAX: usize = 24;

struct Entry {
    number: u64,
    seq: u64,
    ask: Ask,
    site: &'static Location<'static>,
    began: Instant,
    stage: Stage,
}

/// The record of one communicator.
pub(super) struct OpLog {
    /// Counts every call, messages too: the key of an entry.
    entered: u64,
    made: u64,
    entries: VecDeque<Entry>,
    sent: BTreeMap<u32, u64>,
    received: BTreeMap<u32, u64>,
    fault: Option<(ErrorKind, Instant)>,
}

impl OpLog {
    pub(super) fn new() -> Self {
        Self {
            entered: 0,
            made: 0,
            entries: VecDeque::new(),
            sent: BTreeMap::new(),
            received: BTreeMap::new(),
            fault: None,
        }
    }

    /// Number of collectives so far.
    pub(super) fn made(&self) -> u64 {
        self.made
    }

    /// Enters a call that the program makes at `site`; gives back its key and its number.
    pub(super) fn enter(&mut self, ask: Ask, site: &'static Location<'static>) -> (u64, u64) {
        if !ask.collective.is_of_messages() {
            self.made += 1;
        }
        self.entered += 1;
        if self.entries.len() == DEEDS_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back(Entry {
            number: self.entered,
            seq: self.made,
            ask,
            site,
            began: Clock::now(),
            stage: Stage::Entering,
        });
        (self.entered, self.made)
    }

    /// A message was enqueued: to the peer, or the receive of one from it.
    pub(super) fn count_message(&mut self, peer: u32, outgoing: bool) {
        let counts = if outgoing {
            &mut self.sent
        } else {
            &mut self.received
        };
        *counts.entry(peer).or_insert(0) += 1;
    }

    /// Takes back a call that the vendor refused: the ranks stay in step.
    pub(super) fn retract(&mut self, number: u64) {
        if let Some(at) = self.position(number) {
            let entry = self.entries.remove(at);
            if entry.is_some_and(|entry| !entry.ask.collective.is_of_messages()) {
                self.made -= 1;
            }
        }
    }

    /// Notes how far a call has come.
    pub(super) fn note(&mut self, number: u64, stage: Stage) {
        if let Some(at) = self.position(number) {
            self.entries[at].stage = stage;
        }
    }

    /// Notes that a call was seen to be complete, and with it every one before it.
    pub(super) fn complete(&mut self, number: u64) {
        let now = Clock::now();
        for entry in &mut self.entries {
            if entry.number <= number && matches!(entry.stage, Stage::Enqueued | Stage::Entering) {
                let after_ms = millis(now.saturating_duration_since(entry.began));
                entry.stage = Stage::Completed { after_ms };
            }
        }
    }

    /// Notes an error of the vendor; the first one stays.
    pub(super) fn set_fault(&mut self, kind: &ErrorKind) {
        self.fault
            .get_or_insert_with(|| (kind.clone(), Clock::now()));
    }

    pub(super) fn has_fault(&self) -> bool {
        self.fault.is_some()
    }

    /// Milliseconds since the oldest open call began, where one is open.
    pub(super) fn open_ms(&self) -> Option<u64> {
        let now = Clock::now();
        self.entries
            .iter()
            .find(|entry| matches!(entry.stage, Stage::Enqueued | Stage::Entering))
            .map(|entry| millis(now.saturating_duration_since(entry.began)))
    }

    /// Everything there is to say.
    pub(super) fn words(&self) -> Words {
        let now = Clock::now();
        let skip = self.entries.len().saturating_sub(DEEDS_SAID_MAX);
        // What is open is said, however long ago it was entered.
        let said = |(at, entry): &(usize, &Entry)| {
            *at >= skip || matches!(entry.stage, Stage::Enqueued | Stage::Entering)
        };
        let deeds = self.entries.iter().enumerate().filter(said);
        Words {
            wall_ms: Clock::wall_ms(),
            made: self.made,
            deeds: deeds
                .map(|(_, entry)| Deed {
                    seq: entry.seq,
                    ask: entry.ask,
                    site: format!("{}:{}", entry.site.file(), entry.site.line()),
                    age_ms: millis(now.saturating_duration_since(entry.began)),
                    stage: entry.stage,
                })
                .collect(),
            sent: self.sent.clone(),
            received: self.received.clone(),
            fault: self
                .fault
                .as_ref()
                .map(|(kind, at)| (kind.clone(), millis(now.saturating_duration_since(*at)))),
        }
    }

    fn position(&self, number: u64) -> Option<usize> {
        self.entries
            .iter()
            .rposition(|entry| entry.number == number)
    }
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Collective, DType};

    fn ask(collective: Collective) -> Ask {
        Ask {
            collective,
            dtype: Some(DType::F32),
            count: 8,
            op: None,
            root: None,
        }
    }

    #[test]
    fn collectives_are_numbered_and_messages_are_counted_by_peer() {
        let mut op_log = OpLog::new();
        let (first, seq) = op_log.enter(ask(Collective::AllGather), Location::caller());
        assert_eq!(seq, 1);
        let (message, seq) = op_log.enter(ask(Collective::Send), Location::caller());
        assert_eq!(seq, 1);
        op_log.count_message(3, true);
        let (refused, seq) = op_log.enter(ask(Collective::AllReduce), Location::caller());
        assert_eq!(seq, 2);
        op_log.retract(refused);
        assert_eq!(op_log.made(), 1);
        op_log.note(first, Stage::Enqueued);
        op_log.note(message, Stage::Enqueued);
        assert!(op_log.open_ms().is_some());
        op_log.complete(message);
        assert_eq!(op_log.open_ms(), None);
        let words = op_log.words();
        assert_eq!(words.sent.get(&3), Some(&1));
        assert!(words.deeds.iter().all(|deed| !deed.is_open()));
    }

    #[test]
    fn the_first_fault_stays_and_the_record_is_bounded() {
        let mut op_log = OpLog::new();
        let fault = |code| ErrorKind::Vendor {
            call: "aclrtSynchronizeStream".to_owned(),
            code,
            name: String::new(),
            detail: String::new(),
        };
        op_log.set_fault(&fault(507_048));
        op_log.set_fault(&fault(1));
        for _ in 0..200 {
            let (number, _) = op_log.enter(ask(Collective::Barrier), Location::caller());
            op_log.complete(number);
        }
        let words = op_log.words();
        assert_eq!(words.fault.map(|(kind, _)| kind), Some(fault(507_048)));
        assert_eq!(words.made, 200);
        assert_eq!(words.deeds.len(), DEEDS_SAID_MAX);
    }
}
