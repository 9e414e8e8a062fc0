//! Where boards come from: our own ranks of this host, all ranks of jobs whose rendezvous is served here, and processes under the tap.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use muster_comm::error::verdict::Verdict;
use muster_comm::sync::{Clock, Deadline};
use muster_comm::watch::process::{Sight, number};
use muster_comm::watch::tap::{BoardFile, Jobs as TapJobs, board_files};
use muster_comm::watch::view::View;
use muster_comm::watch::{LiveBoards, Seen, dump};
use serde::Serialize;

/// A wait that is shown to the judge has lasted this long.
const JUDGED_AFTER_MS: u64 = 5_000;
/// How often boards of the tap are looked for.
const FIND_EVERY: Duration = Duration::from_secs(2);
/// Pause between two looks at jobs of several hosts.
const AFAR_EVERY: Duration = Duration::from_millis(600);

/// Who writes the boards of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Its own ranks: a program of muster, in Rust or Python.
    #[default]
    Muster,
    /// The tap in front of the vendor's library.
    Tap,
}

impl Kind {
    /// The word that tables show.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Muster => "muster",
            Self::Tap => "tap",
        }
    }
}

/// The boards of a job.
#[derive(Clone, Debug, Default)]
pub struct Raw {
    /// Its number.
    pub job: u64,
    /// Who writes them.
    pub kind: Kind,
    /// A board for each rank that was seen.
    pub ranks: Vec<Seen>,
    /// What the judge of the tap says.
    pub verdict: Option<Verdict>,
    /// How long reading all boards took, in milliseconds.
    pub took_ms: u64,
    /// Which look at the ranks it is, where the process that serves the rendezvous told of them; 0 where boards were read here.
    pub round: u64,
}

impl Raw {
    /// Ranks of its world.
    #[must_use]
    pub fn world_size(&self) -> u32 {
        let sizes = self.ranks.iter().map(|seen| seen.report.world_size);
        sizes.max().unwrap_or(0)
    }

    /// Whether it is the job that is meant: by the first digits of its number, or the process of a rank.
    #[must_use]
    pub fn is_meant(&self, meant: &str) -> bool {
        let is_pid = |pid: u32| self.ranks.iter().any(|seen| seen.pid == pid);
        meant.parse().is_ok_and(is_pid) || format!("{:016x}", self.job).starts_with(meant)
    }
}

/// What the boards of a job mean, if it waits and all of it can be seen.
pub(super) fn judged(raw: &Raw) -> Option<Verdict> {
    if raw.kind == Kind::Tap {
        return raw.verdict.clone();
    }
    let is_whole = raw.ranks.len() == raw.world_size() as usize
        && raw.ranks.iter().all(|seen| !seen.has_ended);
    let waits = raw
        .ranks
        .iter()
        .flat_map(|seen| &seen.report.groups)
        .filter_map(|group| group.call.as_ref()?.wait.as_ref());
    let lasts = waits.map(|wait| wait.age_ms).max() >= Some(JUDGED_AFTER_MS);
    if !is_whole || !lasts {
        return None;
    }
    let reports: Vec<_> = raw.ranks.iter().map(|seen| seen.report.clone()).collect();
    let host = |rank| {
        let seen = raw.ranks.iter().find(|seen| seen.report.rank == rank);
        seen.map_or_else(String::new, |seen| seen.host.clone())
    };
    dump::explain_on(&reports, host)
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Sources {
    boards: LiveBoards,
    afar: Afar,
    tapped: Tapped,
}

/// Which of two looks at ranks of other hosts is meant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    /// The one before the last: all that it shows was so before any rank was asked for the last one.
    Before,
    Last,
}

impl Sources {
    pub(super) fn look(&mut self) -> Vec<Raw> {
        self.read(LiveBoards::look, Round::Last)
    }

    pub(super) fn glance(&mut self) -> Vec<Raw> {
        self.read(LiveBoards::glance, Round::Before)
    }

    fn read(&mut self, read: impl Fn(&mut LiveBoards) -> Vec<Seen>, round: Round) -> Vec<Raw> {
        let begun_ns = Clock::nanos();
        let mut all = by_job(read(&mut self.boards));
        let afar = self.afar.look(round);
        all.retain(|raw| afar.iter().all(|other| other.job != raw.job));
        all.extend(afar);
        all.extend(self.tapped.look());
        let took_ms = (Clock::nanos() - begun_ns) / 1_000_000;
        all.iter_mut().for_each(|raw| raw.took_ms = took_ms);
        all
    }
}

fn by_job(seen: Vec<Seen>) -> Vec<Raw> {
    let mut jobs: BTreeMap<u64, Raw> = BTreeMap::new();
    for one in seen {
        let raw = jobs.entry(one.job).or_insert_with(|| Raw {
            job: one.job,
            ..Raw::default()
        });
        raw.ranks.push(one);
    }
    jobs.into_values().collect()
}

/// Jobs of several hosts, as the processes of this host that serve their rendezvous show them. A thread asks those.
#[derive(Debug, Default)]
struct Afar {
    views: Option<Arc<Mutex<Vec<View>>>>,
    /// The last two looks at each job, the later one first.
    of_job: BTreeMap<u64, [View; 2]>,
}

impl Afar {
    fn look(&mut self, round: Round) -> Vec<Raw> {
        let views = self.views.get_or_insert_with(watch_afar);
        let last = views.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.of_job
            .retain(|job, _| last.iter().any(|view| view.job == *job));
        for view in last.into_iter().filter(|view| !view.ranks.is_empty()) {
            let [known, before] = self.of_job.entry(view.job).or_default();
            if known.round != view.round {
                *before = std::mem::replace(known, view);
            }
        }
        let all = self.of_job.values();
        all.map(|[last, before]| raw(if round == Round::Last { last } else { before }, last.job))
            .collect()
    }
}

/// Asks now, and then again and again as long as somebody has what comes of it.
fn watch_afar() -> Arc<Mutex<Vec<View>>> {
    let views = Arc::new(Mutex::new(View::all()));
    let shared = Arc::downgrade(&views);
    let asks = move || {
        loop {
            Clock::pause(AFAR_EVERY);
            let Some(views) = shared.upgrade() else {
                return;
            };
            let found = View::all();
            *views.lock().unwrap_or_else(PoisonError::into_inner) = found;
        }
    };
    // Without a thread the first look stands.
    let _ = thread::Builder::new()
        .name("muster-afar".to_owned())
        .spawn(asks);
    views
}

fn raw(view: &View, job: u64) -> Raw {
    let ranks = view.ranks.iter().map(|rank| Seen {
        job,
        host: rank.host.clone(),
        network: u64::from(rank.host_number),
        pid: rank.report.pid,
        has_ended: false,
        report: rank.report.clone(),
    });
    Raw {
        job,
        ranks: ranks.collect(),
        round: view.round,
        ..Raw::default()
    }
}

/// Processes under the tap.
#[derive(Debug, Default)]
struct Tapped {
    boards: BTreeMap<PathBuf, BoardFile>,
    jobs: BTreeMap<u64, TapJobs>,
    next: Option<Deadline>,
}

impl Tapped {
    fn look(&mut self) -> Vec<Raw> {
        if self.next.as_ref().is_none_or(Deadline::passed) {
            self.find();
            self.next = Some(Deadline::after(FIND_EVERY));
        }
        let mut of_job: BTreeMap<u64, Vec<&BoardFile>> = BTreeMap::new();
        for board in self.boards.values() {
            of_job.entry(board.job()).or_default().push(board);
        }
        self.jobs.retain(|job, _| of_job.contains_key(job));
        let mut all = Vec::new();
        for (job, boards) in of_job {
            let looks = boards.iter().filter_map(|board| board.look(None));
            let judge = self
                .jobs
                .entry(job)
                .or_insert_with(|| TapJobs::on("this host"));
            let watched: Vec<_> = looks.collect();
            let limit = JUDGED_AFTER_MS * 2;
            let verdict = judge.judge(&watched, Clock::nanos(), Clock::wall_ms(), limit);
            let pid_of = |pid: u32| boards.iter().find(|board| board.process().pid == pid);
            let ranks = judge.reports().map(|report| {
                let board = pid_of(report.pid);
                let pid = board.and_then(|board| number(&board.process()));
                Seen {
                    job,
                    host: String::new(),
                    network: 0,
                    pid: pid.unwrap_or(report.pid),
                    has_ended: board.is_none_or(|board| board.sight() == Sight::Ended),
                    report: report.clone(),
                }
            });
            all.push(Raw {
                job,
                kind: Kind::Tap,
                ranks: ranks.collect(),
                verdict,
                took_ms: 0,
                round: 0,
            });
        }
        all
    }

    /// Opens boards that are new, and leaves those of processes that have ended to who watches them.
    fn find(&mut self) {
        self.boards.retain(|_, board| board.sight() != Sight::Ended);
        for path in board_files() {
            if self.boards.contains_key(&path) {
                continue;
            }
            let Ok(board) = BoardFile::open(&path) else {
                continue;
            };
            if board.is_made() && board.sight() != Sight::Ended {
                self.boards.insert(path, board);
            }
        }
    }
}
