//! `--record`: the calls of HCCL of a job, written as `muster replay` reads them.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;

use muster_comm::sync::Clock;
use muster_comm::types::{Collective, Counting};
use muster_comm::watch::process::Sight;
use muster_comm::watch::record::{CallLine, Line, MessageLine, RecordingFile};
use muster_comm::watch::tap::{BoardFile, Tape, Taped};

use crate::out;

/// Most characters of a communicator's name.
const NAME_MAX: usize = 200;
/// How long no process may have come before ranks that no launcher numbers are told by their communicators.
const ALL_CAME_NS: u64 = 1_000_000_000;

/// Most members of a communicator that is recorded.
const MEMBERS_MAX: u32 = 65_536;
/// How long a call waits until the members of its communicator are known: their boards may be found a moment later.
const MEMBERS_NS: u64 = 1_000_000_000;

/// The recording of a job.
#[derive(Debug)]
pub(super) struct Recording {
    folder: PathBuf,
    /// The job of the first process; others are not recorded.
    job: Option<u64>,
    /// By the path of the board.
    reels: BTreeMap<PathBuf, Reel>,
    groups: Groups,
    left_out: LeftOut,
    /// How many processes there were last, and since when.
    came: (usize, u64),
    has_failed: bool,
}

/// Names and members of communicators, by key, the same for all ranks.
type Groups = HashMap<u64, (String, Vec<Option<u32>>)>;

/// Calls that were seen and cannot be made again.
#[derive(Debug, Default)]
struct LeftOut {
    /// Captured into a graph, or refused.
    not_made: u64,
    /// Of communicators whose members are not all known.
    elsewhere: u64,
    /// Of types that muster lacks, or with counts that were not read in time.
    unreadable: u64,
}

/// The file of a rank.
#[derive(Debug)]
struct Reel {
    tape: Tape,
    rank: u32,
    file: RecordingFile,
    /// Its communicators by the time when it made them.
    made: BTreeMap<u64, u64>,
    /// Their numbers in the file, by key.
    numbers: HashMap<u64, u64>,
    /// Calls that were not written so far.
    calls: Vec<Taped>,
    /// Its streams, each a thread in the file: the handle, and when its last call returned.
    streams: Vec<(u64, u64)>,
    has_ended: bool,
}

impl Recording {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            job: None,
            reels: BTreeMap::new(),
            groups: HashMap::new(),
            left_out: LeftOut::default(),
            came: (0, 0),
            has_failed: false,
        }
    }

    /// Writes what the processes have called since the last time. A file that cannot be written ends the recording, and
    /// is told once.
    pub(super) fn look<'a>(&mut self, boards: impl Iterator<Item = &'a BoardFile>) {
        if self.has_failed {
            return;
        }
        let boards: Vec<&BoardFile> = boards.filter(|board| board.is_made()).collect();
        let Some(first) = boards.first() else {
            return;
        };
        let job = *self.job.get_or_insert_with(|| first.job());
        let boards: Vec<&BoardFile> = boards
            .into_iter()
            .filter(|board| board.job() == job)
            .collect();
        if self.came.0 != boards.len() {
            self.came = (boards.len(), Clock::nanos());
        }
        if let Err(error) = self.write(&boards, job) {
            self.has_failed = true;
            out::note(&format!(
                "the recording in {} ends: {error}",
                self.folder.display()
            ));
        }
    }

    fn write(&mut self, boards: &[&BoardFile], job: u64) -> io::Result<()> {
        let mut over = Vec::new();
        for board in boards {
            let path = board.path();
            if !self.reels.contains_key(path)
                && let Some(reel) = self.begin(board, job, boards.len())?
            {
                self.reels.insert(path.to_owned(), reel);
            }
            let reel = self.reels.get_mut(path);
            if let Some(reel) = reel.filter(|reel| !reel.has_ended) {
                // Before the calls are read, so that all of them are.
                let is_over = board.sight() == Sight::Ended;
                let calls = board.wind(&mut reel.tape, Clock::nanos(), is_over);
                reel.calls.extend(calls);
                over.push((path, is_over));
            }
        }
        // Behind the calls, so that the communicators of all of them are there.
        for board in boards {
            if let Some(reel) = self.reels.get_mut(board.path()) {
                reel.note_groups(board, &mut self.groups);
            }
        }
        for (path, is_over) in over {
            let Some(reel) = self.reels.get_mut(path) else {
                continue;
            };
            reel.write(&self.groups, is_over, &mut self.left_out)?;
            // A rank that was killed has left its board, and its file has no end.
            if is_over && !path.exists() {
                reel.file.end()?;
            }
            reel.file.flush()?;
            reel.has_ended = is_over;
        }
        Ok(())
    }

    /// The file of a process, once its rank is known: from its launcher, or from a communicator that all processes have.
    fn begin(&self, board: &BoardFile, job: u64, processes: usize) -> io::Result<Option<Reel>> {
        let Some(own) = board.groups() else {
            return Ok(None);
        };
        let largest = own.groups.iter().max_by_key(|group| group.size);
        let has_ended = board.sight() == Sight::Ended;
        let all_came = has_ended || Clock::nanos().saturating_sub(self.came.1) > ALL_CAME_NS;
        let of_all = largest.filter(|group| all_came && group.size as usize == processes);
        let told = own.world_rank.zip(own.world_size);
        let place = told.or_else(|| of_all.map(|group| (group.rank, group.size)));
        let Some((rank, size)) = place.filter(|(rank, size)| rank < size) else {
            return Ok(None);
        };
        if self.reels.values().any(|reel| reel.rank == rank) {
            return Err(io::Error::other(format!("a second process is rank {rank}")));
        }
        Ok(Some(Reel {
            tape: Tape::default(),
            rank,
            file: RecordingFile::create(&self.folder, rank, size, job)?,
            made: BTreeMap::new(),
            numbers: HashMap::new(),
            calls: Vec::new(),
            streams: Vec::new(),
            has_ended: false,
        }))
    }

    /// Says what became of it.
    pub(super) fn tell(&self) {
        let LeftOut {
            not_made,
            elsewhere,
            unreadable,
        } = self.left_out;
        let recorded = format!(
            "recorded {} ranks in {}; make their calls again with `muster replay`",
            self.reels.len(),
            self.folder.display()
        );
        let left_out = [
            (not_made, "were captured into graphs or refused"),
            (
                elsewhere,
                "are of communicators with members that are not on this host",
            ),
            (
                unreadable,
                "have element types or counts that cannot be recorded",
            ),
        ];
        let left_out = left_out.iter().filter(|(calls, _)| *calls > 0);
        let left_out = left_out.map(|(calls, why)| format!("left out: {calls} calls that {why}"));
        let lines: Vec<String> = std::iter::once(recorded).chain(left_out).collect();
        out::note(&lines.join("; "));
    }
}

/// The members of a communicator, where all are known and the rank is one.
fn known(groups: &Groups, key: u64, rank: u32) -> Option<(&str, Vec<u32>)> {
    let (name, members) = groups.get(&key)?;
    let members: Vec<u32> = members.iter().copied().collect::<Option<_>>()?;
    members.contains(&rank).then_some((name, members))
}

impl Reel {
    /// Takes note of the communicators on the board of the rank.
    fn note_groups(&mut self, board: &BoardFile, groups: &mut Groups) {
        let own = board.groups().map(|own| own.groups).unwrap_or_default();
        for group in own.into_iter().filter(|group| group.size <= MEMBERS_MAX) {
            self.made.insert(group.created_ns, group.key);
            let (name, members) = groups.entry(group.key).or_insert_with(|| {
                let name = format!("communicator {:08x}", group.key & 0xffff_ffff);
                (name, vec![None; group.size as usize])
            });
            if !group.name.is_empty() && members.iter().all(Option::is_none) {
                *name = group.name.chars().take(NAME_MAX).collect();
            }
            if let Some(place) = members.get_mut(group.rank as usize) {
                *place = Some(self.rank);
            }
        }
    }

    /// Writes the calls whose communicators are known, or will not be.
    fn write(&mut self, groups: &Groups, is_over: bool, left_out: &mut LeftOut) -> io::Result<()> {
        let now_ns = Clock::nanos();
        let waits = |call: &Taped| {
            let is_young = now_ns.saturating_sub(call.entered_ns) < MEMBERS_NS;
            is_young && known(groups, call.key, self.rank).is_none()
        };
        let ready = self.calls.iter().position(|call| !is_over && waits(call));
        let ready = ready.unwrap_or(self.calls.len());
        let calls: Vec<Taped> = self.calls.drain(..ready).collect();
        if calls
            .iter()
            .any(|call| !self.numbers.contains_key(&call.key))
        {
            self.declare(groups)?;
        }
        for together in calls.chunk_by(|one, next| one.batch.is_some() && one.batch == next.batch) {
            // Messages of a batch are posted together on each communicator.
            let mut parts: Vec<Vec<&Taped>> = Vec::new();
            for call in together {
                let is_message = call.collective.is_of_messages();
                let part = parts.iter_mut().find(|part| {
                    is_message && part[0].collective.is_of_messages() && part[0].key == call.key
                });
                match part {
                    Some(part) => part.push(call),
                    None => parts.push(vec![call]),
                }
            }
            for part in parts {
                self.write_one(&part, left_out)?;
            }
        }
        Ok(())
    }

    /// Writes the communicators of the rank whose members are all known, in the order in which it made them.
    fn declare(&mut self, groups: &Groups) -> io::Result<()> {
        for key in self.made.values() {
            let Some((name, members)) =
                known(groups, *key, self.rank).filter(|_| !self.numbers.contains_key(key))
            else {
                continue;
            };
            let group = self.numbers.len() as u64;
            self.numbers.insert(*key, group);
            self.file.put(&Line::Group {
                group,
                key: format!("{key:016x}"),
                name: name.to_owned(),
                members,
            })?;
        }
        Ok(())
    }

    /// Writes a collective, or messages that are posted together.
    fn write_one(&mut self, calls: &[&Taped], left_out: &mut LeftOut) -> io::Result<()> {
        let lost = calls.iter().map(|call| call.lost).sum();
        if lost > 0 {
            self.file.put(&Line::Lost { calls: lost })?;
        }
        let number = calls.len() as u64;
        let Some(group) = self.numbers.get(&calls[0].key).copied() else {
            left_out.elsewhere += number;
            return Ok(());
        };
        if calls.iter().any(|call| !call.is_made) {
            left_out.not_made += number;
            return Ok(());
        }
        let (thread, pause_us) = self.stream(calls);
        let Some(line) = line_of(calls) else {
            left_out.unreadable += number;
            return Ok(());
        };
        self.file.put(&Line::Call(CallLine {
            group,
            thread,
            pause_us,
            ..line
        }))
    }

    /// The thread that stands for the stream of these calls, and the microseconds since its last call.
    fn stream(&mut self, calls: &[&Taped]) -> (u32, u64) {
        let handle = calls[0].stream;
        let place = self.streams.iter().position(|(known, _)| *known == handle);
        let place = place.unwrap_or_else(|| {
            self.streams.push((handle, 0));
            self.streams.len() - 1
        });
        let last_ns = &mut self.streams[place].1;
        let pause_ns = match *last_ns {
            0 => 0,
            last_ns => calls[0].entered_ns.saturating_sub(last_ns),
        };
        let returned = calls.iter().filter_map(|call| call.returned_ns).max();
        *last_ns = returned.unwrap_or(calls[0].entered_ns);
        (
            u32::try_from(place + 1).unwrap_or(u32::MAX),
            pause_ns / 1000,
        )
    }
}

/// The line of a collective, or of messages that are posted together; none where it cannot be made again.
fn line_of(calls: &[&Taped]) -> Option<CallLine> {
    let first = calls[0];
    let dtype = |call: &Taped| Some(call.dtype?.name().to_owned());
    let mut line = CallLine {
        seq: first.seq,
        call: first.collective.name().to_owned(),
        ..CallLine::default()
    };
    if first.collective.is_of_messages() {
        if calls.len() > 1 || first.batch.is_some() {
            Collective::SendRecvBatch.name().clone_into(&mut line.call);
        }
        let message = |call: &&Taped| {
            Some(MessageLine {
                sends: call.collective == Collective::Send,
                peer: call.root?.into(),
                dtype: dtype(call)?,
                count: call.count,
            })
        };
        line.messages = calls.iter().map(message).collect::<Option<_>>()?;
        return Some(line);
    }
    if !first.collective.is_empty() {
        line.dtype = Some(dtype(first)?);
    }
    if first.collective.reduces() {
        line.op = Some(first.op?.name().to_owned());
    }
    line.root = first.root.map(u64::from);
    let lists = || first.lists.clone().filter(|lists| !lists.is_empty());
    match first.collective.counting() {
        Counting::Blocks => line.counts = lists()?,
        Counting::Splits => {
            let mut send = lists()?;
            line.recv = send.split_off(send.len() / 2);
            line.send = send;
        }
        Counting::Uniform | Counting::Buffers | Counting::Messages | Counting::Objects => {
            line.count = Some(first.count);
        }
    }
    Some(line)
}
