//! Reading a board: two copies in, a report out.
//!
//! Pure but for [`of_process`]. Two copies, one after the other: a line that has the same even
//! version in both was whole in between. One that moves too fast to be caught is told as it stood in
//! the second copy, without a call: it is plainly not stuck.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::memory::FILE_NAME;
use super::{
    HEADER, Head, IN_FLIGHT, LINE_WORDS, LINES, MAGIC, OUTCOME_BITS, QUEUED_MS_BITS, RECORD_WORDS,
    RECORDS, RING, SITE_WORDS, SITES, TOOK_BOUNDS_MS, TOOK_SHIFT, WORDS, line,
};
use crate::sync::Clock;
use crate::types::index;
use crate::watch::report::{
    CallCode, CallOutcome, CallRecord, GroupState, InFlight, REPORT_VERSION, Report, Wait,
};
use crate::watch::site::SITES_MAX;

/// Why the board of a process cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BoardError {
    /// The system refuses, or there is no such process.
    #[error("process {pid} cannot be looked at: {source}")]
    System {
        /// The process.
        pid: u32,
        /// The system's reason.
        source: io::Error,
    },
    /// It shows no board.
    #[error("process {pid} has no board: it is no rank of a muster world")]
    None {
        /// The process.
        pid: u32,
    },
}

/// The boards of a process, read without its help: one for each world that it is in.
///
/// # Errors
/// [`BoardError`]: no such process, not ours, or no rank.
pub fn of_process(pid: u32) -> Result<Vec<Report>, BoardError> {
    let failed = |source| BoardError::System { pid, source };
    let folder = format!("/proc/{pid}/fd");
    let mut reports = Vec::new();
    let mut seen = BTreeSet::new();
    for entry in std::fs::read_dir(folder).map_err(failed)?.flatten() {
        let path = entry.path();
        let is_board = std::fs::read_link(&path)
            .is_ok_and(|target| target.to_string_lossy().contains(FILE_NAME));
        if !is_board {
            continue;
        }
        let file = File::open(&path).map_err(failed)?;
        let (first, second) = (copy(&file).map_err(failed)?, copy(&file).map_err(failed)?);
        let is_new = seen.insert((first[Head::Job as usize], first[Head::Rank as usize]));
        if second[Head::Magic as usize] == MAGIC && is_new {
            reports.push(decode(&first, &second, RECORDS));
        }
    }
    if reports.is_empty() {
        return Err(BoardError::None { pid });
    }
    Ok(reports)
}

fn copy(file: &File) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; WORDS * 8];
    file.read_exact_at(&mut bytes, 0)?;
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        u64::from_le_bytes(word)
    };
    Ok(bytes.chunks_exact(8).map(word).collect())
}

/// The report of a board, from two copies of it, with this many of the last calls.
pub(super) fn decode(first: &[u64], second: &[u64], calls: usize) -> Report {
    let head = |word: Head| second[word as usize];
    let narrow = |word: u64| u32::try_from(word).unwrap_or(u32::MAX);
    let reader = Reader {
        words: second,
        now_ns: Clock::nanos().saturating_sub(head(Head::EpochNs)),
        epoch_ns: head(Head::EpochNs),
    };
    let used = index(head(Head::LinesUsed)).min(LINES);
    let groups: Vec<GroupState> = (0..used)
        .filter_map(|place| {
            let at = HEADER + place * LINE_WORDS;
            // The count of looks moves without a version: it is one word, and whole by itself.
            let version = second[at + line::VERSION];
            let is_whole = first[at + line::VERSION] == version && version.is_multiple_of(2);
            reader.group(at, is_whole)
        })
        .collect();
    let calls = reader.calls(&groups, calls);
    Report {
        version: REPORT_VERSION,
        rank: narrow(head(Head::Rank)),
        world_size: narrow(head(Head::WorldSize)),
        pid: narrow(head(Head::Pid)),
        wall_ms: Clock::wall_ms(),
        threads: narrow(head(Head::Threads)),
        unwatched: head(Head::Unwatched),
        groups,
        calls,
    }
}

struct Reader<'a> {
    words: &'a [u64],
    /// Now, since the board was made.
    now_ns: u64,
    epoch_ns: u64,
}

impl Reader<'_> {
    fn text(&self, at: usize, len: u64, most: usize) -> String {
        let len = index(len).min(most * 8);
        let bytes: Vec<u8> = self.words[at..at + most]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .take(len)
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn site(&self, number: u64) -> String {
        let number = index(number);
        if number == 0 || number >= SITES_MAX {
            return "elsewhere".to_owned();
        }
        let at = SITES + number * SITE_WORDS;
        let file = self.text(at + 2, self.words[at + 1], SITE_WORDS - 2);
        format!("{file}:{}", self.words[at])
    }

    fn age_ms(&self, since_ns: u64) -> u64 {
        self.now_ns.saturating_sub(since_ns) / 1_000_000
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "halves of words are taken on purpose"
    )]
    fn group(&self, at: usize, is_whole: bool) -> Option<GroupState> {
        let word = |offset: usize| self.words[at + offset];
        if word(line::STATE) == super::FREE {
            return None;
        }
        let size = index(word(line::SIZE));
        let members: Vec<u32> = (0..size.min(line::MEMBERS_WORDS * 2))
            .map(|member| (word(line::MEMBERS + member / 2) >> (member % 2 * 32)) as u32)
            .collect();
        let site = word(line::SITE);
        let is_busy = is_whole && word(line::STATE) == IN_FLIGHT;
        let call = is_busy.then(|| InFlight {
            seq: word(line::SEQ),
            call: CallCode {
                word: word(line::CALL),
                count: word(line::COUNT),
            },
            site: self.site(site & u64::from(u32::MAX)),
            age_ms: self.age_ms(word(line::STARTED)),
            wait: self.wait(at, &members),
        });
        Some(GroupState {
            key: word(line::KEY),
            name: self.text(at + line::NAME, word(line::NAME_LEN), line::NAME_WORDS),
            size: size as u32,
            entered: word(line::ENTERED),
            thread: (site >> 32) as u32,
            version: word(line::VERSION),
            p99_ms: self.p99_ms(at),
            members,
            call,
        })
    }

    /// Below which time 99 of 100 calls stayed, from above; 0 while there are too few to say.
    fn p99_ms(&self, at: usize) -> u64 {
        /// Calls from which something can be learned.
        const CALLS_MIN: u64 = 100;
        let counts = &self.words[at + line::TOOK..at + line::TOOK + TOOK_BOUNDS_MS.len()];
        let all: u64 = counts.iter().sum();
        if all < CALLS_MIN {
            return 0;
        }
        let mut seen = 0;
        let class = counts.iter().position(|count| {
            seen += count;
            seen * 100 >= all * 99
        });
        class.map_or(0, |class| TOOK_BOUNDS_MS[class])
    }

    fn wait(&self, at: usize, members: &[u32]) -> Option<Wait> {
        let word = |offset: usize| self.words[at + offset];
        let is_missing = |member: &usize| {
            member / 64 < line::MISSING_WORDS
                && word(line::MISSING + member / 64) >> (member % 64) & 1 == 1
        };
        let checks = word(line::CHECKS);
        (checks > 0).then(|| Wait {
            missing: (0..members.len())
                .filter(is_missing)
                .map(|member| members[member])
                .collect(),
            checks,
            age_ms: self.age_ms(word(line::WAIT_SINCE)),
        })
    }

    /// The last calls, oldest first.
    fn calls(&self, groups: &[GroupState], most: usize) -> Vec<CallRecord> {
        let next = self.words[Head::Next as usize];
        let first = next.saturating_sub(most.min(RECORDS) as u64);
        (first..next)
            .filter_map(|id| self.call(id, groups))
            .collect()
    }

    fn call(&self, id: u64, groups: &[GroupState]) -> Option<CallRecord> {
        let at = RING + index(id) % RECORDS * RECORD_WORDS;
        let [mark, key, call, count, seq, site, started, tail] =
            *self.words[at..].first_chunk::<RECORD_WORDS>()?;
        if mark != id + 1 {
            return None;
        }
        let queued_ms = tail >> OUTCOME_BITS & ((1 << QUEUED_MS_BITS) - 1);
        let outcome = match tail & 3 {
            0 => CallOutcome::Open,
            1 => CallOutcome::Completed,
            _ => CallOutcome::Failed,
        };
        let started_ns = self.epoch_ns.saturating_add(started);
        let took_ns = (tail >> TOOK_SHIFT).saturating_mul(1000);
        Some(CallRecord {
            id,
            key,
            group: groups
                .iter()
                .find(|group| group.key == key)
                .map_or_else(String::new, |group| group.name.clone()),
            seq,
            call: CallCode { word: call, count },
            site: self.site(site & u64::from(u32::MAX)),
            thread: (site >> 32) as u32,
            enqueued_ns: started_ns.saturating_sub(queued_ms * 1_000_000),
            started_ns,
            completed_ns: (outcome != CallOutcome::Open).then(|| started_ns + took_ns),
            outcome,
        })
    }
}
