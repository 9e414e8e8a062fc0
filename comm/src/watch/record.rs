//! Recordings: the calls of a rank in a file, from which `muster replay` makes them again.
//!
//! - RECORD-1: no call waits for the file. Calls go into a queue of at most [`QUEUE_BYTES`], which a thread of the lowest priority
//!   writes out. A call for which there is no room is counted, and the file says where such calls are missing.
//! - RECORD-2: each line stands by itself, so that a file which was cut off is whole up to its last line. A rank that leaves
//!   its world writes a last line with a checksum of all before it.

mod file;
mod line;

use std::cell::Cell;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, unbounded};

pub use self::file::{RecordingFile, file_name};
pub use self::line::{CallLine, FORMAT_VERSION, Header, Line, MessageLine};
use crate::sync::{AtomicU64, Clock, Ordering};
use crate::types::{Collective, DType, Rank, ReduceOp};

/// Most bytes of calls that wait to be written.
pub const QUEUE_BYTES: u64 = 32 << 20;
/// What a call takes of that besides its lists.
const CALL_BYTES: u64 = size_of::<Event>() as u64;
/// How often the file gets what was written.
const FLUSH_EVERY: Duration = Duration::from_millis(100);
/// The lowest priority.
const NICE: i32 = 19;

thread_local! {
    /// When this thread's last call ended, by the monotonic clock; 0 before the first.
    static ENDED_NS: Cell<u64> = const { Cell::new(0) };
}

/// The lengths of a call.
#[derive(Debug)]
pub(crate) enum Lengths {
    None,
    One(u64),
    Blocks(Vec<u64>),
    Splits(Vec<u64>, Vec<u64>),
}

/// A call that begins.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) maker: Maker,
    pub(crate) call: Collective,
    /// What the program called.
    pub(crate) called: Collective,
    pub(crate) dtype: Option<DType>,
    pub(crate) op: Option<ReduceOp>,
    pub(crate) root: Option<usize>,
    pub(crate) lengths: Lengths,
    pub(crate) messages: Vec<MessageLine>,
}

#[derive(Debug)]
enum Event {
    Group {
        key: u64,
        name: String,
        members: Vec<u32>,
    },
    Destroyed {
        key: u64,
    },
    Call(Box<Made>, u64),
    End,
}

/// An event that waits to be written.
#[derive(Debug)]
struct Queued {
    event: Event,
    bytes: u64,
    /// Calls before it that found no room.
    lost: u64,
}

/// Where the calls of a rank go.
#[derive(Debug)]
pub(crate) struct Recorder {
    events: Sender<Queued>,
    shared: std::sync::Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Bytes in the queue.
    queued: AtomicU64,
    /// Calls for which there was no room, and that the file does not tell of so far.
    lost: AtomicU64,
}

/// Who makes a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Maker {
    pub(crate) key: u64,
    pub(crate) seq: u64,
    pub(crate) thread: u32,
    pub(crate) is_async: bool,
}

impl Recorder {
    /// Begins a file in this folder, which is made if it is not there.
    pub(super) fn new(folder: &Path, rank: Rank, world_size: u32, job: u64) -> io::Result<Self> {
        let (events, received) = unbounded();
        let shared = std::sync::Arc::new(Shared::default());
        let writer = Writer {
            file: RecordingFile::create(folder, rank.0, world_size, job)?,
            groups: Vec::new(),
            shared: std::sync::Arc::clone(&shared),
        };
        let writer = std::thread::Builder::new()
            .name("record".to_owned())
            .spawn(move || writer.run(&received))?;
        Ok(Self {
            events,
            shared,
            writer: Mutex::new(Some(writer)),
        })
    }

    fn send(&self, event: Event, bytes: u64) {
        let shared = &self.shared;
        // Relaxed: a budget; the channel orders the event itself.
        let queued = shared.queued.fetch_add(bytes, Ordering::Relaxed);
        if queued + bytes > QUEUE_BYTES {
            shared.queued.fetch_sub(bytes, Ordering::Relaxed);
            if matches!(event, Event::Call(..)) {
                shared.lost.fetch_add(1, Ordering::Relaxed);
                return;
            }
            // Few, and all later calls need them.
            shared.queued.fetch_add(bytes, Ordering::Relaxed);
        }
        let queued = Queued {
            event,
            bytes,
            // Relaxed: what is lost before this event is told before it.
            lost: shared.lost.swap(0, Ordering::Relaxed),
        };
        // A writer that has ended wants nothing any more.
        let _ = self.events.send(queued);
    }

    pub(super) fn group(&self, key: u64, name: &str, members: &[Rank]) {
        let members: Vec<u32> = members.iter().map(|rank| rank.0).collect();
        let bytes = 4 * members.len() as u64 + CALL_BYTES;
        let name = name.to_owned();
        self.send(Event::Group { key, name, members }, bytes);
    }

    pub(super) fn destroyed(&self, key: u64) {
        self.send(Event::Destroyed { key }, CALL_BYTES);
    }

    /// A call begins.
    pub(crate) fn made(&self, made: Made) {
        let lists = match &made.lengths {
            Lengths::None | Lengths::One(_) => 0,
            Lengths::Blocks(counts) => counts.len(),
            Lengths::Splits(send, recv) => send.len() + recv.len(),
        };
        let bytes = CALL_BYTES + 8 * lists as u64 + 48 * made.messages.len() as u64;
        self.send(Event::Call(Box::new(made), pause_ns()), bytes);
    }

    /// The call of this thread has ended.
    pub(crate) fn ended() {
        ENDED_NS.set(Clock::nanos());
    }

    /// Writes what is left, and the last line. What comes later is not recorded.
    pub(super) fn finish(&self) {
        let writer = self
            .writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(writer) = writer {
            self.send(Event::End, 0);
            // A writer that panicked has left a file that is cut off.
            let _ = writer.join();
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.finish();
    }
}

/// For how long this thread has made no call.
fn pause_ns() -> u64 {
    match ENDED_NS.get() {
        0 => 0,
        ended_ns => Clock::nanos().saturating_sub(ended_ns),
    }
}

/// The thread that writes the file.
struct Writer {
    file: RecordingFile,
    /// Keys of the groups, by their numbers in the file; 0 of one that was destroyed.
    groups: Vec<u64>,
    shared: std::sync::Arc<Shared>,
}

impl Writer {
    fn run(mut self, events: &Receiver<Queued>) {
        // Without the right to it, the usual priority serves too.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
        // A full disk ends the recording, and the job goes on.
        let _ = self.write(events);
    }

    fn write(&mut self, events: &Receiver<Queued>) -> io::Result<()> {
        loop {
            let event = match events.recv_timeout(FLUSH_EVERY) {
                Ok(queued) => {
                    // Relaxed: as in `send`.
                    self.shared
                        .queued
                        .fetch_sub(queued.bytes, Ordering::Relaxed);
                    if queued.lost > 0 {
                        self.file.put(&Line::Lost { calls: queued.lost })?;
                    }
                    queued.event
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.file.flush()?;
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => Event::End,
            };
            match event {
                Event::Group { key, name, members } => {
                    let group = self.groups.len() as u64;
                    self.groups.push(key);
                    self.file.put(&Line::Group {
                        group,
                        key: format!("{key:016x}"),
                        name,
                        members,
                    })?;
                }
                Event::Destroyed { key } => {
                    if let Some(group) = self.number(key) {
                        self.groups[crate::types::index(group)] = 0;
                        self.file.put(&Line::Destroyed { group })?;
                    }
                }
                Event::Call(made, pause_ns) => {
                    if let Some(group) = self.number(made.maker.key) {
                        self.file
                            .put(&Line::Call(line_of(*made, group, pause_ns)))?;
                    }
                }
                Event::End => return self.file.end(),
            }
        }
    }

    fn number(&self, key: u64) -> Option<u64> {
        let place = self.groups.iter().rposition(|known| *known == key);
        place.map(|place| place as u64)
    }
}

fn line_of(made: Made, group: u64, pause_ns: u64) -> CallLine {
    let mut line = CallLine {
        group,
        seq: made.maker.seq,
        thread: made.maker.thread,
        is_async: made.maker.is_async,
        pause_us: pause_ns / 1000,
        call: made.call.name().to_owned(),
        called: (made.called != made.call).then(|| made.called.name().to_owned()),
        dtype: made.dtype.map(|dtype| dtype.name().to_owned()),
        op: made.op.map(|op| op.name().to_owned()),
        root: made.root.map(|root| root as u64),
        messages: made.messages,
        ..CallLine::default()
    };
    match made.lengths {
        Lengths::None => {}
        Lengths::One(count) => line.count = Some(count),
        Lengths::Blocks(counts) => line.counts = counts,
        Lengths::Splits(send, recv) => (line.send, line.recv) = (send, recv),
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(folder: &Path, rank: u32) -> Vec<Line> {
        let text = std::fs::read_to_string(folder.join(file_name(rank))).expect("a file");
        let line = |line: &str| serde_json::from_str(line).expect("a line");
        text.lines().map(line).collect()
    }

    fn made(key: u64, seq: u64) -> Made {
        let maker = Maker {
            key,
            seq,
            thread: 1,
            is_async: false,
        };
        let message = MessageLine {
            sends: true,
            peer: 0,
            dtype: "f32".to_owned(),
            count: 5,
        };
        Made {
            maker,
            call: Collective::Send,
            called: Collective::Send,
            dtype: None,
            op: None,
            root: None,
            lengths: Lengths::None,
            messages: vec![message],
        }
    }

    #[test]
    fn a_file_has_groups_calls_and_an_end_with_its_checksum() {
        let folder = tempfile::tempdir().expect("a folder");
        let recorder = Recorder::new(folder.path(), Rank(1), 2, 7).expect("a file");
        recorder.group(9, "tp", &[Rank(0), Rank(1)]);
        recorder.made(made(9, 1));
        // Of a group that nobody knows.
        recorder.made(made(8, 1));
        recorder.destroyed(9);
        recorder.finish();
        let all = lines(folder.path(), 1);
        assert_eq!(all.len(), 5);
        assert!(
            matches!(&all[0], Line::Recording(header) if header.world_size == 2 && header.rank == 1)
        );
        assert!(
            matches!(&all[1], Line::Group { group: 0, name, members, .. } if name == "tp" && members == &[0, 1])
        );
        let Line::Call(call) = &all[2] else {
            unreachable!("{all:?}");
        };
        assert_eq!((call.call.as_str(), call.messages[0].count), ("send", 5));
        let text = std::fs::read(folder.path().join(file_name(1))).expect("a file");
        let before = text[..text.len() - 1]
            .iter()
            .rposition(|byte| *byte == b'\n');
        let before = &text[..=before.expect("lines")];
        let end = Line::End {
            calls: 1,
            lost: 0,
            crc32: crc32fast::hash(before),
        };
        assert_eq!(all[4], end);
    }

    #[test]
    fn what_finds_no_room_is_counted_where_it_is_missing() {
        let folder = tempfile::tempdir().expect("a folder");
        let recorder = Recorder::new(folder.path(), Rank(0), 1, 7).expect("a file");
        recorder.group(9, "tp", &[Rank(0)]);
        recorder
            .shared
            .queued
            .fetch_add(QUEUE_BYTES, Ordering::Relaxed);
        recorder.made(made(9, 1));
        recorder
            .shared
            .queued
            .fetch_sub(QUEUE_BYTES, Ordering::Relaxed);
        recorder.made(made(9, 2));
        recorder.finish();
        let all = lines(folder.path(), 0);
        assert_eq!(all[2], Line::Lost { calls: 1 });
        assert!(matches!(&all[3], Line::Call(call) if call.seq == 2));
        assert!(matches!(
            &all[4],
            Line::End {
                calls: 1,
                lost: 1,
                ..
            }
        ));
    }
}
