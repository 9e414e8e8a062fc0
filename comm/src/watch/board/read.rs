//! Reading a board: two copies in, a report out.
//!
//! Pure but for [`of_process`]. Two copies, one after the other: what was whole in the first is known by
//! the versions in both (PUBLISH-1), of which those of the first are older than its words where the system copies (PUBLISH-3). A line
//! that moves too fast to be caught is told as it stood in the second copy, without a call: it is plainly not stuck.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::history::mark;
use super::map::{
    BULLETIN, BULLETIN_WORDS, FREE, HEADER, Head, IN_FLIGHT, IS_ASYNC, KEPT, LINE_WORDS, LINES,
    MAGIC, OUTCOME_BITS, QUEUED_MS_BITS, RECORD_WORDS, RECORDS, RING, SITE_MASK, SITE_WORDS, SITES,
    TOOK_BOUNDS_MS, TOOK_SHIFT, WORDS,
};
use super::memory::FILE_NAME;
use super::{Lists, line, publish};
use crate::sync::Clock;
use crate::types::index;
use crate::watch::report::{
    CallCode, CallOutcome, CallRecord, Destroyed, GroupState, InFlight, LastCalls, REPORT_VERSION,
    Report, Wait,
};
use crate::watch::site::SITES_MAX;
use crate::watch::{process, runs};

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
    let mut reports = Vec::new();
    let mut seen = BTreeSet::new();
    for file in boards(pid, File::options().read(true)).map_err(failed)? {
        let (first, second) = match copies(&file, Part::All) {
            Ok(copies) => copies,
            // A board that is being made.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => continue,
            Err(error) => return Err(failed(error)),
        };
        let is_new = seen.insert((first.head(Head::Job), first.head(Head::Rank)));
        // Of the copy before: who sees the mark sees the header in the next one.
        if first.head(Head::Magic) == MAGIC && is_new {
            let mut report = decode(&first, &second, &Lists::new(), RECORDS);
            report.process = process::look(pid);
            report.environment = process::environment(Some(pid));
            reports.push(report);
        }
    }
    if reports.is_empty() {
        return Err(BoardError::None { pid });
    }
    Ok(reports)
}

/// How much of a board is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    All,
    /// The groups with their calls under way, without call sites and the last calls: most of the bytes.
    Groups,
}

/// What a board shows; `None` where it cannot be read.
pub(super) fn report(file: &File, part: Part) -> Option<Report> {
    let calls = match part {
        Part::All => RECORDS,
        Part::Groups => 0,
    };
    let (first, second) = copies(file, part).ok()?;
    let mut report = decode(&first, &second, &Lists::new(), calls);
    if part == Part::Groups {
        let calls = report
            .groups
            .iter_mut()
            .filter_map(|group| group.call.as_mut());
        calls.for_each(|call| call.site.clear());
    }
    Some(report)
}

fn copies(file: &File, part: Part) -> io::Result<(Copied, Copied)> {
    let earlier = copy(file, part)?;
    let mut first = copy(file, part)?;
    first.take_versions(&earlier);
    Ok((first, copy(file, part)?))
}

/// A word of the header; `None` of a board that is being made.
pub(super) fn word(file: &File, head: Head) -> Option<u64> {
    let mut word = [0; 8];
    let is_read = file.read_exact_at(&mut word, head as u64 * 8).is_ok();
    publish::settle();
    is_read.then(|| u64::from_le_bytes(word))
}

/// What is written on the board of a rank that does not run itself, after `change` has seen what was
/// there. One process at a time.
///
/// # Errors
/// `WouldBlock` where another process is at it; else of the system.
pub(in crate::watch) fn bulletin(
    pid: u32,
    rank: u32,
    change: impl FnOnce(Option<&[u8]>) -> Vec<u8>,
) -> io::Result<Vec<u8>> {
    let file = writable(pid, rank)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    let at = BULLETIN as u64 * 8;
    let mut length = [0; 8];
    file.read_exact_at(&mut length, at)?;
    let most = (BULLETIN_WORDS - 1) * 8;
    let length = index(u64::from_le_bytes(length)).min(most);
    let mut told = vec![0; length];
    file.read_exact_at(&mut told, at + 8)?;
    let told = change((length > 0).then_some(told.as_slice()));
    if told.len() > most {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    file.write_all_at(&told, at + 8)?;
    file.write_all_at(&(told.len() as u64).to_le_bytes(), at)?;
    // Closing the file gives the lock back.
    Ok(told)
}

/// The board of this rank of the process, to write to.
fn writable(pid: u32, rank: u32) -> io::Result<File> {
    for file in boards(pid, File::options().read(true).write(true))? {
        // A board that is being made has no words yet.
        if word(&file, Head::Magic) == Some(MAGIC) && word(&file, Head::Rank) == Some(rank.into()) {
            return Ok(file);
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// The boards that a process has open: its own, and for a moment those of others that it reads itself. One that it closes while
/// it is looked at is none.
pub(super) fn boards(pid: u32, options: &mut OpenOptions) -> io::Result<Vec<File>> {
    // Of a pipe, which the number may be by then, the open must not wait for the other side.
    let options = options.custom_flags(libc::O_NONBLOCK);
    let mut files = Vec::new();
    let mut refused = None;
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
        let path = entry.path();
        if !is_board(&path) {
            continue;
        }
        match options.open(&path) {
            // The number may be that of another file by now.
            Ok(file) if is_board(&own_path(&file)) => files.push(file),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => refused = Some(error),
        }
    }
    match refused {
        Some(error) if files.is_empty() => Err(error),
        _ => Ok(files),
    }
}

/// Whether this descriptor in `/proc` is of a board.
fn is_board(path: &Path) -> bool {
    std::fs::read_link(path).is_ok_and(|target| target.to_string_lossy().contains(FILE_NAME))
}

/// A descriptor of this process in `/proc`.
fn own_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Copies a board. What is not read is zeros.
fn copy(file: &File, part: Part) -> io::Result<Copied> {
    let copied = Copied::take(|from, words| {
        if from == SITES && part == Part::Groups {
            return Ok(());
        }
        file.read_exact_at(bytemuck::cast_slice_mut(words), from as u64 * 8)?;
        words
            .iter_mut()
            .for_each(|word| *word = u64::from_le(*word));
        Ok(())
    });
    publish::settle();
    copied
}

/// A copy of a board, without the lines that are not in use: those are most of it.
pub(super) struct Copied {
    /// The header, and the lines in use.
    lines: Vec<u64>,
    /// All behind the lines.
    rest: Vec<u64>,
}

impl Copied {
    /// A copy by a function that reads the words from a place on.
    pub(super) fn take<E>(
        mut read: impl FnMut(usize, &mut [u64]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut lines = vec![0; HEADER];
        read(0, &mut lines)?;
        let used = index(lines[Head::LinesUsed as usize]).min(LINES);
        lines.resize(HEADER + used * LINE_WORDS, 0);
        read(HEADER, &mut lines[HEADER..])?;
        let mut rest = vec![0; WORDS - SITES];
        read(SITES, &mut rest)?;
        Ok(Self { lines, rest })
    }

    /// Takes the versions of an earlier copy, without the lines that this did not have (PUBLISH-3).
    fn take_versions(&mut self, earlier: &Self) {
        self.lines.truncate(earlier.lines.len());
        publish::take_versions(&mut self.lines, &earlier.lines, (HEADER, LINE_WORDS));
        let records = (RING - SITES, RECORD_WORDS);
        publish::take_versions(&mut self.rest, &earlier.rest, records);
    }

    fn head(&self, word: Head) -> u64 {
        self.lines[word as usize]
    }

    /// The words from this place of the board on.
    fn words(&self, at: usize) -> &[u64] {
        match at.checked_sub(SITES) {
            Some(at) => &self.rest[at..],
            None => &self.lines[at..],
        }
    }
}

/// The report of a board, from two copies of it and the lists that it has no room for, with this many of
/// the last calls.
pub(super) fn decode(first: &Copied, second: &Copied, lists: &Lists, calls: usize) -> Report {
    let head = |word: Head| second.head(word);
    let narrow = |word: u64| u32::try_from(word).unwrap_or(u32::MAX);
    let reader = Reader {
        first,
        second,
        lists,
        now_ns: Clock::nanos().saturating_sub(head(Head::EpochNs)),
        epoch_ns: head(Head::EpochNs),
    };
    let end = first.lines.len().min(second.lines.len());
    let lines = || (HEADER..end).step_by(LINE_WORDS);
    let groups: Vec<GroupState> = lines().filter_map(|at| reader.group(at)).collect();
    let mut destroyed: Vec<Destroyed> = lines().filter_map(|at| reader.destroyed(at)).collect();
    destroyed.sort_by_key(|group| group.age_ms);
    destroyed.truncate(KEPT);
    let calls = reader.calls(&groups, &destroyed, calls);
    Report {
        version: REPORT_VERSION,
        rank: narrow(head(Head::Rank)),
        world_size: narrow(head(Head::WorldSize)),
        pid: narrow(head(Head::Pid)),
        wall_ms: Clock::wall_ms(),
        threads: narrow(head(Head::Threads)),
        unwatched: head(Head::Unwatched),
        groups,
        destroyed,
        calls,
        process: None,
        stack: Vec::new(),
        environment: BTreeMap::new(),
    }
}

struct Reader<'a> {
    first: &'a Copied,
    second: &'a Copied,
    lists: &'a Lists,
    /// Now, since the board was made.
    now_ns: u64,
    epoch_ns: u64,
}

/// Text of at most this many bytes.
fn text(words: &[u64], len: u64) -> String {
    let bytes: Vec<u8> = words
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .take(index(len))
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The name of the group of a line.
fn name(words: &[u64]) -> String {
    let name = &words[line::NAME..][..line::NAME_WORDS];
    text(name, words[line::NAME_LEN])
}

impl Reader<'_> {
    fn site(&self, number: u64) -> String {
        let number = index(number);
        if number == 0 || number >= SITES_MAX {
            return "elsewhere".to_owned();
        }
        // Written once, before anything that was copied first could name it.
        let words = &self.second.words(SITES + number * SITE_WORDS)[..SITE_WORDS];
        format!("{}:{}", text(&words[2..], words[1]), words[0])
    }

    fn age_ms(&self, since_ns: u64) -> u64 {
        self.now_ns.saturating_sub(since_ns) / 1_000_000
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "halves of words are taken on purpose"
    )]
    fn group(&self, at: usize) -> Option<GroupState> {
        let (first, second) = (
            &self.first.words(at)[..LINE_WORDS],
            &self.second.words(at)[..LINE_WORDS],
        );
        let is_whole = publish::is_whole(first, second);
        let words = if is_whole { first } else { second };
        let word = |offset: usize| words[offset];
        if word(line::STATE) == FREE {
            return None;
        }
        let size = index(word(line::SIZE));
        let listed = self.lists.get(&((at - HEADER) / LINE_WORDS));
        let members = listed
            .cloned()
            .unwrap_or_else(|| runs::unpack(&words[line::MEMBERS..][..line::MEMBERS_WORDS], size));
        let site = word(line::SITE);
        let is_busy = is_whole && word(line::STATE) == IN_FLIGHT;
        let call = is_busy.then(|| InFlight {
            seq: word(line::SEQ),
            call: CallCode {
                word: word(line::CALL),
                count: word(line::COUNT),
            },
            site: self.site(site & SITE_MASK),
            is_async: site & IS_ASYNC != 0,
            age_ms: self.age_ms(word(line::STARTED)),
            row: Vec::new(),
            wait: self.wait(words, size, &members),
        });
        Some(GroupState {
            key: word(line::KEY),
            name: name(words),
            size: size as u32,
            entered: word(line::ENTERED),
            thread: (site >> 32) as u32,
            awaited_by: word(line::AWAITED) as u32,
            pending: word(line::PENDING) as u32,
            version: word(line::VERSION),
            p99_ms: p99_ms(words),
            members,
            cancelled: None,
            call,
        })
    }

    /// What a free line tells.
    fn destroyed(&self, at: usize) -> Option<Destroyed> {
        let words = &self.first.words(at)[..LINE_WORDS];
        let is_whole = publish::is_whole(words, &self.second.words(at)[..LINE_WORDS]);
        let tells = is_whole && words[line::STATE] == FREE && words[line::KEY] != 0;
        tells.then(|| Destroyed {
            key: words[line::KEY],
            name: name(words),
            entered: words[line::ENTERED],
            calls: counts(words).iter().sum(),
            age_ms: self.age_ms(words[line::STARTED]),
        })
    }

    /// Whom the call of a line waits for. Of members whose ranks are not known only the number is told.
    fn wait(&self, words: &[u64], size: usize, members: &[u32]) -> Option<Wait> {
        let checks = words[line::CHECKS];
        if checks == 0 {
            return None;
        }
        let told = &words[line::MISSING..][..line::MISSING_WORDS];
        let missing: Vec<u32> = if size <= line::BITS_MAX {
            let is_missing = |member: &usize| told[member / 64] >> (member % 64) & 1 == 1;
            let known = (0..members.len().min(size)).filter(is_missing);
            known.map(|member| members[member]).collect()
        } else {
            let known = runs::unpack(told, size).into_iter();
            known
                .filter_map(|member| members.get(index(member.into())).copied())
                .collect()
        };
        let count = index(words[line::MISSING_COUNT]).min(size);
        let missing_more = count.saturating_sub(missing.len());
        Some(Wait {
            missing,
            missing_more: u32::try_from(missing_more).unwrap_or(u32::MAX),
            checks,
            age_ms: self.age_ms(words[line::WAIT_SINCE]),
        })
    }

    /// The last calls, oldest first.
    fn calls(&self, groups: &[GroupState], gone: &[Destroyed], most: usize) -> Vec<CallRecord> {
        let live = groups.iter().map(|group| (group.key, group.name.as_str()));
        let gone = gone.iter().map(|group| (group.key, group.name.as_str()));
        let names: HashMap<u64, &str> = gone.chain(live).collect();
        let next = self.first.head(Head::Next);
        // Numbers that threads have taken need not have been used yet: then an older record is still there.
        let first = next.saturating_sub(2 * RECORDS as u64);
        let mut last = LastCalls::of(most);
        let mut calls: Vec<CallRecord> = (first..next)
            .rev()
            .filter_map(|id| Some((id, self.record(id)?)))
            .filter(|(_, [_, key, ..])| last.takes(*key))
            .map(|(id, words)| self.call(id, words, &names))
            .collect();
        calls.reverse();
        calls
    }

    /// The words of this record, where they are still there and whole.
    fn record(&self, id: u64) -> Option<&[u64; RECORD_WORDS]> {
        let at = RING + index(id) % RECORDS * RECORD_WORDS;
        let words = self.first.words(at).first_chunk()?;
        let is_whole = words[0] == mark(id) && publish::is_whole(words, self.second.words(at));
        is_whole.then_some(words)
    }

    fn call(&self, id: u64, words: &[u64; RECORD_WORDS], names: &HashMap<u64, &str>) -> CallRecord {
        let [_, key, call, count, seq, site, started, tail] = *words;
        let queued_ms = tail >> OUTCOME_BITS & ((1 << QUEUED_MS_BITS) - 1);
        let outcome = match tail & 3 {
            0 => CallOutcome::Open,
            1 => CallOutcome::Completed,
            _ => CallOutcome::Failed,
        };
        let started_ns = self.epoch_ns.saturating_add(started);
        let took_ns = (tail >> TOOK_SHIFT).saturating_mul(1000);
        CallRecord {
            id,
            key,
            group: names.get(&key).copied().unwrap_or_default().to_owned(),
            seq,
            call: CallCode { word: call, count },
            site: self.site(site & SITE_MASK),
            is_async: site & IS_ASYNC != 0,
            thread: (site >> 32) as u32,
            enqueued_ns: started_ns.saturating_sub(queued_ms * 1_000_000),
            started_ns,
            completed_ns: (outcome != CallOutcome::Open).then(|| started_ns + took_ns),
            outcome,
        }
    }
}

/// How many calls took how long.
fn counts(words: &[u64]) -> &[u64] {
    &words[line::TOOK..line::TOOK + TOOK_BOUNDS_MS.len()]
}

/// Below which time 99 of 100 calls stayed, from above; 0 while there are too few to say.
fn p99_ms(words: &[u64]) -> u64 {
    /// Calls from which something can be learned.
    const CALLS_MIN: u64 = 100;
    let counts = counts(words);
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
