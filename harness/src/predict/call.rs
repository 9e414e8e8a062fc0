//! A call to predict: what a line of `bench` says of it, and the way that it would go.

use muster_comm::algo::select::{self, Spread};
use muster_comm::algo::{Algorithm, Choice, ENTRY, Links, Matrix, Problem, find_choice};
use muster_comm::backend::Counts;
use muster_comm::backend::foresee::{Asked, Way};
use muster_comm::types::{Collective, Counting, DType};

use crate::bench::model::Record;
use crate::bench::shape::{Shape, Split};

/// Where the ranks of a world are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The host of each rank, numbered from 0.
    pub hosts: Vec<u32>,
    /// Processors of a host.
    pub processors: usize,
    /// Whether the ranks of a host share memory; else they are joined by TCP, too.
    pub shares_memory: bool,
    /// Whether ranks of a host may read each other's ordinary memory by system call.
    pub may_read: bool,
}

/// One call of a group.
#[derive(Clone, Debug)]
pub struct Call {
    /// The call.
    pub collective: Collective,
    /// Buffers.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
    /// The algorithm that was asked for; none where the built-in rules choose.
    pub algorithm: Option<&'static Algorithm>,
    /// Bytes that go through staging at once, where that was asked for.
    pub segment: Option<usize>,
    /// Whether send and receive buffer are one.
    pub in_place: bool,
    /// Whether the buffers are in memory that ranks share.
    pub in_region: bool,
    /// Groups of the kind that work at once.
    pub groups: usize,
}

/// The way of a call.
#[derive(Clone, Copy, Debug)]
pub enum Route {
    /// A group of one.
    Copy,
    /// In the entries.
    Entry,
    /// Between the buffers; by system call or not.
    Between {
        /// By system call.
        reads: bool,
    },
    /// A plan over staging, in segments of so many bytes.
    Staged(&'static Algorithm, Option<usize>),
    /// A plan of messages.
    Messages(&'static Algorithm),
    /// Messages without a plan.
    Points,
}

impl Route {
    /// The word of `bench` for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Entry => ENTRY.name,
            Self::Between { reads: true } => "read",
            Self::Between { reads: false } => "straight",
            Self::Staged(algorithm, _) | Self::Messages(algorithm) => algorithm.name,
            Self::Points => "messages",
        }
    }
}

impl Place {
    /// Of ranks by the names of their hosts; of one host where there are none.
    #[must_use]
    pub fn of(names: &[String], ranks: u32, processors: usize, shares_memory: bool) -> Self {
        let mut known: Vec<&String> = Vec::new();
        let mut hosts: Vec<u32> = Vec::new();
        for name in names.iter().take(ranks as usize) {
            let place = known.iter().position(|one| *one == name);
            let number = place.unwrap_or_else(|| {
                known.push(name);
                known.len() - 1
            });
            hosts.push(u32::try_from(number).unwrap_or(u32::MAX));
        }
        hosts.resize(ranks as usize, 0);
        Self {
            hosts,
            processors: processors.max(1),
            shares_memory,
            may_read: true,
        }
    }

    /// Ranks of the host that has most.
    #[must_use]
    pub fn ranks_a_host(&self) -> usize {
        let of = |host: u32| self.hosts.iter().filter(|other| **other == host).count();
        (0..self.host_count()).map(of).max().unwrap_or(1)
    }

    /// Hosts.
    #[must_use]
    pub fn host_count(&self) -> u32 {
        self.hosts.iter().max().map_or(1, |last| last + 1)
    }
}

impl Call {
    /// What a record of `bench` is about.
    ///
    /// # Errors
    /// What of it cannot be predicted.
    pub fn of(record: &Record) -> Result<Self, String> {
        let named = |call: &Collective| call.name() == record.collective;
        let collective = Collective::ALL
            .into_iter()
            .find(named)
            .ok_or_else(|| format!("{} is no call of a group", record.collective))?;
        let dtype = match record.dtype.as_deref() {
            Some(name) => DType::ALL
                .into_iter()
                .find(|dtype| dtype.name() == name)
                .ok_or_else(|| format!("{name} is no element type"))?,
            None => DType::U8,
        };
        let algorithm = match record.algo.as_str() {
            "auto" => None,
            name => Some(find_choice(collective, name).map_err(|error| error.to_string())?),
        };
        let split = match record.split.as_deref() {
            Some("even") => Split::Even,
            Some(_) | None => Split::Uneven,
        };
        if record.memory == "device" {
            return Err("the model knows memory of hosts only".to_owned());
        }
        Ok(Self {
            collective,
            shape: Shape {
                collective,
                n: (record.ranks as usize).max(1),
                element: dtype.size(),
                count: usize::try_from(record.count).unwrap_or(usize::MAX),
                split,
                root: record.root.unwrap_or(0) as usize,
            },
            dtype,
            algorithm,
            segment: record.segment.map(|bytes| bytes as usize),
            in_place: record.in_place && !collective.has_one_buffer(),
            in_region: record.memory == "region",
            groups: (record.groups as usize).max(1),
        })
    }

    /// What the algorithms are asked; none for calls that have none.
    #[must_use]
    pub fn problem(&self, hosts: &[u32]) -> Option<Problem> {
        let (shape, n) = (&self.shape, self.shape.n);
        if !self.collective.is_planned() {
            return None;
        }
        let problem = match self.collective.counting() {
            Counting::Splits => {
                let cells = (0..n * n).map(|cell| shape.pair(cell / n, cell % n));
                Problem::all_to_all_v(Matrix::full(n, cells.collect()).ok()?)
            }
            Counting::Blocks => {
                Problem::uneven(self.collective, n, &shape.parts(), shape.root).ok()?
            }
            Counting::Buffers | Counting::Messages | Counting::Objects | Counting::Uniform => {
                Problem::uniform(self.collective, n, shape.count, shape.root).ok()?
            }
        };
        Some(problem.with_hosts(hosts.into()))
    }

    /// The way that the call takes for a group of members on these hosts.
    ///
    /// # Errors
    /// Why it cannot be carried out.
    pub fn route(&self, hosts: &[u32], place: &Place) -> Result<Route, String> {
        let n = self.shape.n;
        if n == 1 {
            return Ok(Route::Copy);
        }
        if !self.collective.is_planned() {
            return Ok(Route::Points);
        }
        let mut distinct = hosts.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let own = self.algorithm.map(|algorithm| Choice {
            algorithm,
            segment: self.segment,
            line: 1,
            is_own: true,
        });
        if place.shares_memory && distinct.len() == 1 {
            let way = self.asked(place.may_read, |asked| asked.way(own));
            let way = way.ok_or_else(|| "the entry does not carry so much".to_owned())?;
            return Ok(match way {
                Way::Entry => Route::Entry,
                Way::Between { reads } => Route::Between { reads },
                Way::Plan(choice) => match choice.algorithm.links {
                    Links::Direct => Route::Staged(choice.algorithm, choice.segment),
                    Links::Message => Route::Messages(choice.algorithm),
                },
            });
        }
        let spread = Spread {
            n,
            hosts: if place.shares_memory {
                distinct.len()
            } else {
                n
            },
            links: Links::Message,
        };
        let bytes = if self.collective.has_splits() {
            0
        } else {
            self.shape.bytes()
        };
        let built_in = || select::choose(self.collective, bytes, spread);
        let choice = own
            .map_or_else(built_in, Ok)
            .map_err(|error| error.to_string())?;
        if choice.algorithm.links == Links::Direct {
            let name = choice.algorithm.name;
            return Err(format!("{name} needs memory that all ranks share"));
        }
        Ok(Route::Messages(choice.algorithm))
    }

    fn asked<T>(&self, may_read: bool, ask: impl FnOnce(&Asked<'_>) -> T) -> T {
        let (shape, n) = (&self.shape, self.shape.n);
        let parts = shape.parts();
        let pairs = |of: &dyn Fn(usize, usize) -> usize| -> Vec<Vec<usize>> {
            let row = |me| (0..n).map(|peer| of(me, peer)).collect();
            (0..n).map(row).collect()
        };
        let splits = self.collective.has_splits();
        let (rows, columns) = if splits {
            (
                pairs(&|me, peer| shape.pair(me, peer)),
                pairs(&|me, peer| shape.pair(peer, me)),
            )
        } else {
            (Vec::new(), Vec::new())
        };
        let counts = match self.collective.counting() {
            Counting::Splits => rows
                .iter()
                .zip(&columns)
                .map(|(send, recv)| Counts::Splits { send, recv })
                .collect(),
            Counting::Blocks => vec![Counts::Blocks(&parts)],
            Counting::Buffers | Counting::Messages | Counting::Objects | Counting::Uniform => {
                vec![Counts::Uniform(shape.count)]
            }
        };
        ask(&Asked {
            collective: self.collective,
            dtype: self.dtype,
            n,
            root: shape.root,
            counts,
            in_place: self.in_place,
            in_region: self.in_region,
            may_read,
        })
    }
}
