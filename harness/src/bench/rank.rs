//! One rank's way through the cells: all ranks measure the same cell at the same time.
//!
//! MEASURE-1: every sample begins behind a barrier of all ranks and holds so many calls that the
//! two readings of the clock around it weigh less than a hundredth.
//! MEASURE-2: nothing but the calls happens between the two readings: no decision, no allocation of
//! ours, no message to the launcher.
//! MEASURE-3: all ranks take the same number of samples. When it is enough they decide together,
//! outside of what is timed.

use std::time::Duration;

use half::{bf16, f16};
use muster_comm::algo::Table;
use muster_comm::buffer::Element;
use muster_comm::collective::{Communicator, Tamper};
use muster_comm::error::{CommError, ErrorKind};
use muster_comm::sync::Clock;
use muster_comm::types::{Collective, DType, Rank, ReduceOp};
use muster_comm::world::World;

use crate::bench::call::{Call, Checked, Unfit};
use crate::bench::ground::Ground;
use crate::bench::machine;
use crate::bench::measured::{Measured, SAMPLES_MAX};
use crate::bench::sweep::{Cell, Stop, Sweep, What};
use crate::bench::told::Head;
use crate::check::cases::KindGroups;
use crate::stats;

/// Time that a sample should take at least, in nanoseconds: two readings of the clock take about 50.
const SAMPLE_NS: u64 = 5000;
/// Most calls in one sample.
const CALLS_MAX: u64 = 10_000;
/// Fewest samples of a round, where time decides.
const SAMPLES_MIN: usize = 8;
/// Time between two decisions whether it is enough, in nanoseconds.
const DECIDE_NS: u64 = 10_000_000;
/// Time between two looks at the machine, in nanoseconds.
const PULSE_NS: u64 = 1_000_000_000;

/// Puts a group where its calls are to be made.
pub type Place<'a> = &'a dyn Fn(Communicator) -> Result<Ground, CommError>;

/// What a group is made for: the kind, the algorithm of a collective, and the segment.
type Rules = (usize, Option<(&'static str, Collective)>, u32);

impl std::fmt::Debug for Bench<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bench")
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

/// What a rank needs to measure all cells of a plan.
pub struct Bench<'a> {
    world: &'a World,
    plan: &'a Sweep,
    kinds: &'a [KindGroups],
    seed: u64,
    /// Puts a group where its calls are to be made.
    place: Place<'a>,
    /// The fault that this rank plants.
    tamper: Option<Tamper>,
    /// All ranks: starts, ends and decisions.
    control: Communicator,
    /// The group of the last cell, kept while the next one has the same.
    current: Option<(Rules, Option<Ground>)>,
    /// When this rank last looked at the machine.
    looked_ns: u64,
    /// The name of its host, until it has told it.
    host: Option<String>,
}

/// What a loop around the calls of a cell needs to know.
#[derive(Clone, Copy, Debug)]
struct Pace {
    calls: u64,
    stop: Stop,
    rounds: u32,
}

impl<'a> Bench<'a> {
    /// A rank that is ready to measure.
    ///
    /// # Errors
    /// None in practice: the group of all ranks can always be made.
    pub fn new(
        world: &'a World,
        plan: &'a Sweep,
        kinds: &'a [KindGroups],
        (deadline, seed): (Duration, u64),
        tamper: Option<Tamper>,
        place: Place<'a>,
    ) -> Result<Self, CommError> {
        let everyone: Vec<Rank> = (0..world.size()).map(Rank::from_index).collect();
        let control = world.group("bench", &everyone)?;
        control.set_deadline(deadline);
        Ok(Self {
            world,
            plan,
            kinds,
            seed,
            place,
            tamper,
            control,
            current: None,
            looked_ns: 0,
            host: Some(machine::host()),
        })
    }

    /// Measures one cell in one round. `None` on ranks that are in none of its groups.
    ///
    /// # Errors
    /// The first error of a call.
    pub fn measure(
        &mut self,
        number: u32,
        round: u32,
        cell: &Cell,
    ) -> Result<Option<Measured>, CommError> {
        let comm = self.group(cell)?;
        let mut measured = Measured {
            head: Head {
                cell: number,
                round,
                ..Head::default()
            },
            ..Measured::default()
        };
        let is_time = number == 0 || Clock::nanos() - self.looked_ns > PULSE_NS;
        if self.world.rank() == Rank(0) && is_time {
            measured.head.machine = Some(machine::pulse());
            self.looked_ns = Clock::nanos();
        }
        let is_member = comm.is_some();
        if is_member {
            measured.host = self.host.take();
        }
        match (cell.what, &comm) {
            (What::Collective(collective), Some(comm)) => {
                self.typed(cell, collective, comm, &mut measured)?;
            }
            (What::GroupCreate, Some(_)) => self.groups(cell, &mut measured)?,
            _ => self.idle(&mut measured)?,
        }
        Ok(is_member.then_some(measured))
    }

    /// The group of this rank in a cell, if it is in one.
    fn group(&mut self, cell: &Cell) -> Result<Option<Ground>, CommError> {
        let algo = cell.algo.zip(cell.collective());
        let rules = (cell.kind, algo, cell.segment);
        if let Some((current, comm)) = &self.current
            && *current == rules
        {
            return Ok(comm.clone());
        }
        let comm = self.make_group(cell, "")?;
        self.current = Some((rules, comm.clone()));
        Ok(comm)
    }

    fn make_group(&self, cell: &Cell, suffix: &str) -> Result<Option<Ground>, CommError> {
        let kind = &self.kinds[cell.kind];
        let me = self.world.rank().0;
        let Some(index) = kind.groups.iter().position(|group| group.contains(&me)) else {
            return Ok(None);
        };
        let members: Vec<Rank> = kind.groups[index].iter().map(|rank| Rank(*rank)).collect();
        let name = format!("{}-{index}{suffix}", kind.kind);
        let rules = cell
            .algo
            .zip(cell.collective())
            .and_then(|(algo, collective)| {
                // The plan holds only names that the collective has.
                let segment = match cell.segment {
                    0 => String::new(),
                    bytes => format!(" segment={bytes}"),
                };
                Table::with_overrides(&format!("{collective} -> {algo}{segment}")).ok()
            });
        let comm = match rules {
            Some(rules) => self.world.group_with_rules(&name, &members, rules)?,
            None => self.world.group(&name, &members)?,
        };
        comm.set_deadline(self.control.deadline());
        comm.set_tamper(self.tamper);
        (self.place)(comm).map(Some)
    }

    fn typed(
        &self,
        cell: &Cell,
        collective: Collective,
        comm: &Ground,
        measured: &mut Measured,
    ) -> Result<(), CommError> {
        let of = (cell, collective, comm);
        match cell.dtype {
            DType::Bf16 => self.run::<bf16>(of, measured),
            DType::F16 => self.run::<f16>(of, measured),
            DType::F32 => self.run::<f32>(of, measured),
            DType::F64 => self.run::<f64>(of, measured),
            DType::I8 => self.run::<i8>(of, measured),
            DType::I16 => self.run::<i16>(of, measured),
            DType::I32 => self.run::<i32>(of, measured),
            DType::I64 => self.run::<i64>(of, measured),
            DType::U8 => self.run::<u8>(of, measured),
            DType::U16 => self.run::<u16>(of, measured),
            DType::U32 => self.run::<u32>(of, measured),
            DType::U64 => self.run::<u64>(of, measured),
        }
    }

    fn run<T: Element>(
        &self,
        (cell, collective, comm): (&Cell, Collective, &Ground),
        measured: &mut Measured,
    ) -> Result<(), CommError> {
        let mut call = match Call::<T>::new(comm, cell, collective, self.seed) {
            Ok(call) => call,
            Err(Unfit::Failed(error)) => return Err(error),
            Err(Unfit::NoRoom(why)) => {
                measured.head.unsupported = Some(why);
                return self.samples(measured, &mut || Ok(()));
            }
        };
        self.samples(measured, &mut || call.make())?;
        measured.taken = call.taken().map(str::to_owned);
        if measured.head.unsupported.is_some() {
            return Ok(());
        }
        if self.plan.checks > 0 {
            note(
                &call.look_after_timing()?,
                "after the timed calls",
                measured,
            );
        }
        // Every round would spend more on checking than on measuring.
        let is_checked = measured.head.round == 0 || measured.head.round + 1 == self.plan.rounds;
        for _ in 0..if is_checked { self.plan.checks } else { 0 } {
            note(&call.check()?, "in a checked call", measured);
        }
        Ok(())
    }

    fn groups(&self, cell: &Cell, measured: &mut Measured) -> Result<(), CommError> {
        self.samples(measured, &mut || {
            // The same name again, as a program does that makes its groups anew.
            let comm = self.make_group(cell, "-again")?;
            comm.map_or(Ok(()), |comm| comm.barrier())
        })
    }

    /// Keeps step with the others in a cell without this rank.
    fn idle(&self, measured: &mut Measured) -> Result<(), CommError> {
        self.samples(measured, &mut || Ok(()))
    }

    /// Takes the samples of a cell: cold, warm-up, then the timed ones.
    fn samples(
        &self,
        measured: &mut Measured,
        call: &mut dyn FnMut() -> Result<(), CommError>,
    ) -> Result<(), CommError> {
        if self.is_unsupported(measured)? {
            return Ok(());
        }
        self.control.barrier()?;
        let start = Clock::nanos();
        if let Err(error) = call() {
            // Refused on all members alike, before anything was sent.
            let ErrorKind::Unsupported { .. } = error.kind() else {
                return Err(error);
            };
            measured.head.unsupported = Some(error.kind().to_string());
        }
        measured.cold_ns = Clock::nanos() - start;
        if self.is_unsupported(measured)? {
            return Ok(());
        }
        let pace = self.pace(call)?;
        measured.calls = u32::try_from(pace.calls).unwrap_or(u32::MAX);
        self.timed(pace, measured, call)
    }

    /// Whether a rank has said that it cannot carry the cell out; then none does.
    fn is_unsupported(&self, measured: &mut Measured) -> Result<bool, CommError> {
        let is_so = self.agree(u64::from(measured.head.unsupported.is_some()))? > 0;
        if is_so {
            measured.head.unsupported.get_or_insert_default();
        }
        Ok(is_so)
    }

    /// Warms up, and finds out how many calls a sample needs.
    fn pace(&self, call: &mut dyn FnMut() -> Result<(), CommError>) -> Result<Pace, CommError> {
        self.control.barrier()?;
        let warm_ups = u64::from(self.plan.warm_ups.max(1));
        let start = Clock::nanos();
        for _ in 0..warm_ups {
            call()?;
        }
        let mut a_call = (Clock::nanos() - start) / warm_ups;
        let mut calls = self.calls_for(a_call)?;
        // The first estimate of a short call is mostly what is special about the first calls.
        for _ in 0..2 {
            if calls == 1 {
                break;
            }
            let start = Clock::nanos();
            for _ in 0..calls {
                call()?;
            }
            a_call = (Clock::nanos() - start) / calls;
            calls = self.calls_for(a_call)?;
        }
        let stop = self.plan.stop;
        let calls = stop
            .calls
            .map_or(calls, |most| calls.min(u64::from(most.max(1))));
        Ok(Pace {
            calls,
            stop,
            rounds: self.plan.rounds,
        })
    }

    /// Calls for a sample that is long enough on the slowest rank.
    fn calls_for(&self, a_call_ns: u64) -> Result<u64, CommError> {
        let slowest = self.agree(a_call_ns)?.max(1);
        Ok(SAMPLE_NS.div_ceil(slowest).clamp(1, CALLS_MAX))
    }

    /// The greatest of the numbers of all ranks.
    fn agree(&self, number: u64) -> Result<u64, CommError> {
        let mut numbers = [number];
        self.control
            .all_reduce_in_place(&mut numbers, ReduceOp::Max)?;
        Ok(numbers[0])
    }

    fn timed(
        &self,
        pace: Pace,
        measured: &mut Measured,
        call: &mut dyn FnMut() -> Result<(), CommError>,
    ) -> Result<(), CommError> {
        let Pace {
            calls,
            stop,
            rounds,
        } = pace;
        let budget_ns = stop.time_ms * 1_000_000 / u64::from(rounds.max(1));
        let wanted = stop.calls.map(|all| u64::from(all).div_ceil(calls));
        let wanted = wanted.map(|samples| usize::try_from(samples).unwrap_or(usize::MAX));
        let most = wanted.unwrap_or(SAMPLES_MAX).clamp(1, SAMPLES_MAX);
        let mut starts: Vec<u64> = Vec::with_capacity(most);
        let mut samples: Vec<u64> = Vec::with_capacity(most);
        let begun = Clock::nanos();
        let mut decided = begun;
        let mut chunk = SAMPLES_MIN;
        loop {
            for _ in 0..chunk.min(most - samples.len()) {
                self.control.barrier()?;
                let start = Clock::nanos();
                for _ in 0..calls {
                    call()?;
                }
                let end = Clock::nanos();
                starts.push(start);
                samples.push(end - start);
            }
            if samples.len() >= most {
                break;
            }
            if wanted.is_some() {
                chunk = most;
                continue;
            }
            let now = Clock::nanos();
            let is_late = now - begun >= budget_ns;
            // Two votes in one number: time is up, and not known well enough.
            let vote = 2 * u64::from(is_late) + u64::from(!is_known(&samples, stop.confidence));
            let known = self.agree(vote)?;
            if known >= 2 || known == 0 {
                break;
            }
            let a_sample = ((now - decided) / chunk as u64).max(1);
            decided = now;
            let next = self.agree(DECIDE_NS / a_sample)?;
            chunk = usize::try_from(next)
                .unwrap_or(SAMPLES_MAX)
                .clamp(1, SAMPLES_MAX);
        }
        let mut before = 0;
        measured.starts_ns = starts
            .into_iter()
            .map(|start| start - std::mem::replace(&mut before, start))
            .collect();
        measured.samples_ns = samples;
        Ok(())
    }
}

/// Whether the median of the samples is known as well as asked for.
fn is_known(samples: &[u64], confidence: f64) -> bool {
    if confidence <= 0.0 {
        return false;
    }
    let mut times: Vec<f64> = samples.iter().map(|sample| *sample as f64).collect();
    stats::sort(&mut times);
    let middle = stats::median(&times);
    stats::median_interval(&times)
        .is_some_and(|(low, high)| (high - low) / 2.0 <= confidence * middle)
}

fn note(checked: &Checked, when: &str, measured: &mut Measured) {
    measured.head.wrong += checked.wrong;
    if checked.wrong > 0 && measured.head.wrong_text.is_none() {
        let first = checked
            .first
            .map_or_else(String::new, |first| format!(", first element {first}"));
        measured.head.wrong_text = Some(format!("{} elements wrong {when}{first}", checked.wrong));
    }
}
