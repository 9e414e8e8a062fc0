//! One rank's way through a matrix: every case of every group that it is in, in the common order,
//! with a report of each result.
//!
//! RANK-1: a case that comes out wrong is a result, and the rank goes on; a call that fails ends the
//! rank's work, because its peers are no longer where it is.

use std::time::{Duration, Instant};

use muster_comm::collective::Communicator;
use muster_comm::config::Environment;
use muster_comm::error::CommError;
use muster_comm::layout::{GroupKind, Layout};
use muster_comm::sync::Clock;
use muster_comm::types::{Collective, Rank, ReduceOp};
use muster_comm::world::World;

use crate::bench::plan::Plan;
use crate::bench::rank::Bench;
use crate::check::cases::{Case, Catalogue, Question};
use crate::check::job::Job;
use crate::check::message::{CaseResult, Failed, RankMessage, Refusal, Wrong};
use crate::check::numbers::{self, Numbers};
use crate::check::subject::Subject;
use crate::check::{flight, lifecycle, membership, objects};
use crate::fail::Failure;
use crate::moe::{self, rank::Moe};
use crate::run::applicable::{applicable, objects_after};
use crate::run::class::exit_of;
use crate::run::npu::Npu;
use crate::run::{catalogue, micros};

/// Results that wait for a message at most.
const RESULTS_MAX: usize = 512;
/// Longest time that a result waits for a message.
const RESULTS_WAIT: Duration = Duration::from_millis(50);
/// What a member says that saw nothing wrong.
const NOTHING_WRONG: u32 = u32::MAX;

/// Runs a job as one rank of a world that is complete, and reports. Gives back whether everything
/// that this rank saw was right.
///
/// # Errors
/// What kept the rank from going on. It has been reported already, as far as that was possible.
pub fn run(
    world: &World,
    job: &Job,
    layout: &Layout,
    started: Instant,
    report: &mut dyn FnMut(&[u8]) -> Result<(), String>,
) -> Result<bool, Failure> {
    let catalogue = catalogue(job, layout);
    let mut work = Work {
        world,
        job,
        npu: None,
        catalogue: &catalogue,
        report,
        pending: Vec::new(),
        sent: Clock::now(),
        current: None,
        wrong: false,
        reports_lost: None,
        objects_after: String::new(),
    };
    if let Some(hccl) = &job.hccl {
        match Npu::open(&Environment::capture(), hccl) {
            Ok(npu) => work.npu = Some(npu),
            Err(failure) => {
                work.tell(&RankMessage::Failed(Failed {
                    case: None,
                    kind: None,
                    exit: failure.exit.code(),
                    text: failure.message.clone(),
                    help: failure.help.clone(),
                }));
                return Err(failure);
            }
        }
    }
    let outcome = match (&job.bench, &job.moe) {
        (Some(plan), _) => work.bench(plan, layout, started),
        (None, Some(plan)) => work.moe(plan, layout, started),
        (None, None) => work.all(started),
    };
    work.flush();
    if let Err(error) = outcome {
        let exit = exit_of(error.kind());
        work.tell(&RankMessage::Failed(Failed {
            case: work.current,
            kind: Some(error.kind().clone()),
            exit: exit.code(),
            text: format!("{error}{}", work.objects_after),
            help: Some(error.help().to_owned()),
        }));
        return Err(Failure::new(exit, error.to_string()).with_help(error.help()));
    }
    work.tell(&RankMessage::Done);
    match work.reports_lost {
        Some(why) => Err(Failure::internal(format!(
            "results were not reported: {why}"
        ))),
        None => Ok(!work.wrong),
    }
}

struct Work<'a> {
    world: &'a World,
    job: &'a Job,
    /// This rank's device, where groups are checked on their devices.
    npu: Option<Npu>,
    catalogue: &'a Catalogue,
    /// The way to whoever runs the job.
    report: &'a mut dyn FnMut(&[u8]) -> Result<(), String>,
    pending: Vec<CaseResult>,
    /// When results were last sent.
    sent: Instant,
    /// The case under way.
    current: Option<u32>,
    /// Whether anything was wrong so far.
    wrong: bool,
    /// Why a report did not get through, if one did not.
    reports_lost: Option<String>,
    /// Whether objects still went through after a device had failed; empty where none did.
    objects_after: String,
}

/// A group that this rank is in, with the cases that came out wrong here and can be probed.
struct Current {
    kind: usize,
    comm: Subject,
    suspect: u32,
}

impl Work<'_> {
    fn all(&mut self, started: Instant) -> Result<(), CommError> {
        let everyone = self.group("world", &self.everyone())?;
        everyone.barrier()?;
        let elapsed_us = micros(Clock::now().duration_since(started));
        self.tell(&RankMessage::Joined { elapsed_us });
        let mut current: Option<Current> = None;
        for number in self.catalogue.of_rank(self.world.rank().0) {
            let case = self.catalogue.cases[number];
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            if current.as_ref().is_none_or(|group| group.kind != case.kind) {
                if let Some(group) = current.take() {
                    self.find_culprit(&group)?;
                }
                let comm = self.subject(&self.name_of(&case), &self.members_of(&case))?;
                current = Some(Current {
                    kind: case.kind,
                    comm,
                    suspect: NOTHING_WRONG,
                });
            }
            let Some(group) = current.as_mut() else {
                continue;
            };
            self.current = Some(number);
            let begun = Clock::now();
            let asked = self.ask(&group.comm, &case.question);
            if asked.is_err() && self.npu.is_some() {
                self.objects_after = objects_after(&group.comm);
            }
            let (wrong, refused) = asked?;
            let elapsed_us = micros(Clock::now().duration_since(begun));
            if wrong.is_some() && can_be_probed(&case.question) {
                group.suspect = group.suspect.min(number);
            }
            self.wrong |= wrong.is_some();
            self.pending.push(CaseResult {
                case: number,
                elapsed_us,
                wrong,
                refused,
            });
            if self.pending.len() >= RESULTS_MAX
                || Clock::now().duration_since(self.sent) > RESULTS_WAIT
            {
                self.flush();
            }
        }
        self.current = None;
        // Nobody leaves while another still needs it.
        everyone.barrier()
    }

    /// Measures every cell of a plan, as often as it says.
    fn bench(&mut self, plan: &Plan, layout: &Layout, started: Instant) -> Result<(), CommError> {
        let everyone = self.group("world", &self.everyone())?;
        everyone.barrier()?;
        let elapsed_us = micros(Clock::now().duration_since(started));
        self.tell(&RankMessage::Joined { elapsed_us });
        let (kinds, cells) = (plan.kinds(layout), plan.cells(layout));
        let mut bench = Bench::new(self.world, plan, &kinds, self.job)?;
        for round in plan.rounds_here() {
            // The questions of a cell's groups stand one after the other.
            let mut first = 0;
            for (number, cell) in (0..).zip(&cells) {
                let groups = &kinds[cell.kind].groups;
                let mine = groups
                    .iter()
                    .position(|group| group.contains(&self.world.rank().0));
                self.current = mine.and_then(|group| u32::try_from(first + group).ok());
                first += groups.len();
                let Some(measured) = bench.measure(number, round, cell)? else {
                    continue;
                };
                self.wrong |= measured.wrong > 0;
                let elapsed_us = measured.samples_ns.iter().sum::<u64>() / 1000;
                self.tell(&RankMessage::Measured(measured));
                if let (Some(case), true) = (self.current, round + 1 == plan.rounds_here().end) {
                    self.pending.push(CaseResult {
                        case,
                        elapsed_us,
                        wrong: None,
                        refused: Vec::new(),
                    });
                    self.flush();
                }
            }
        }
        self.current = None;
        everyone.barrier()
    }

    /// Dispatches tokens in every cell of a plan, as often as it says.
    fn moe(
        &mut self,
        plan: &moe::plan::Plan,
        layout: &Layout,
        started: Instant,
    ) -> Result<(), CommError> {
        let everyone = self.group("world", &self.everyone())?;
        everyone.barrier()?;
        let elapsed_us = micros(Clock::now().duration_since(started));
        self.tell(&RankMessage::Joined { elapsed_us });
        let moe = Moe::new(self.world, layout, plan, self.job.seed, self.job.deadline())?;
        let groups = layout.groups(GroupKind::EtpEp);
        let mine = groups
            .iter()
            .position(|group| group.iter().any(|rank| rank == self.world.rank()));
        for round in 0..plan.rounds {
            for (number, cell) in plan.cells().iter().enumerate() {
                let case = mine.and_then(|group| u32::try_from(number * groups.len() + group).ok());
                self.current = case;
                let number = u32::try_from(number).unwrap_or(u32::MAX);
                let measured = moe.measure(number, round, cell)?;
                self.wrong |= measured.wrong > 0;
                let ns: u64 = measured
                    .steps
                    .iter()
                    .map(|step| step.time_ns(|_| true))
                    .sum();
                self.tell(&RankMessage::Dispatched(measured));
                if let (Some(case), true) = (case, round + 1 == plan.rounds) {
                    self.pending.push(CaseResult {
                        case,
                        elapsed_us: ns / 1000,
                        wrong: None,
                        refused: Vec::new(),
                    });
                    self.flush();
                }
            }
        }
        self.current = None;
        everyone.barrier()
    }

    fn everyone(&self) -> Vec<Rank> {
        (0..self.world.size()).map(Rank::from_index).collect()
    }

    fn group(&self, name: &str, members: &[Rank]) -> Result<Communicator, CommError> {
        let comm = self.world.group(name, members)?;
        comm.set_deadline(self.job.deadline());
        Ok(comm)
    }

    /// A group as it is to be checked.
    fn subject(&self, name: &str, members: &[Rank]) -> Result<Subject, CommError> {
        let comm = self.group(name, members)?;
        match &self.npu {
            Some(npu) => npu.subject(&comm),
            None => Ok(comm.into()),
        }
    }

    fn members_of(&self, case: &Case) -> Vec<Rank> {
        self.catalogue
            .members(case)
            .iter()
            .map(|rank| Rank(*rank))
            .collect()
    }

    /// `tp-3` is the fourth group of the kind tp.
    fn name_of(&self, case: &Case) -> String {
        format!("{}-{}", self.catalogue.kinds[case.kind].kind, case.group)
    }

    fn ask(
        &self,
        comm: &Subject,
        question: &Question,
    ) -> Result<(Option<Wrong>, Vec<Refusal>), CommError> {
        let mut refused = Vec::new();
        let wrong = match *question {
            Question::Membership => {
                let promised: Vec<u32> = comm.members().iter().map(|rank| rank.0).collect();
                membership::check(comm.host(), self.world.rank(), &promised)
            }
            Question::Collective {
                collective,
                dtype,
                count,
            } => {
                let ops = applicable(comm, collective, dtype, count, &mut refused);
                if refused.iter().any(|refusal| refusal.op.is_none()) {
                    return Ok((None, refused));
                }
                self.tampered(comm.host(), Some(collective), || {
                    numbers::check(&Numbers {
                        comm,
                        collective,
                        dtype,
                        count,
                        seed: self.job.seed,
                        ops: &ops,
                    })
                })
            }
            Question::Object { collective, shape } => {
                objects::check(comm.host(), collective, shape, self.job.seed)
            }
            Question::InFlight => flight::check(&self.groups_in_flight()?),
            Question::Lifecycle => lifecycle::check(self, &self.all_groups()),
        }?;
        Ok((wrong, refused))
    }

    /// Runs a call with the faults planted that were asked for on this rank.
    fn tampered<R>(
        &self,
        comm: &Communicator,
        collective: Option<Collective>,
        call: impl FnOnce() -> R,
    ) -> R {
        let fault = self
            .job
            .faults_of(self.world.rank().0)
            .find(|fault| fault.collective.is_none() || fault.collective == collective);
        let Some(fault) = fault else {
            return call();
        };
        comm.set_tamper(Some(fault.tamper()));
        let outcome = call();
        comm.set_tamper(None);
        outcome
    }

    /// Where a sum came out wrong for anybody in the group, looks for the member without which it
    /// comes out right. Each member in turn stays away from a group of the others.
    fn find_culprit(&mut self, group: &Current) -> Result<(), CommError> {
        let comm = &group.comm;
        let mut suspects = vec![NOTHING_WRONG; comm.size()];
        comm.host().all_gather(&[group.suspect], &mut suspects)?;
        let suspect = suspects.into_iter().min().unwrap_or(NOTHING_WRONG);
        let case = usize::try_from(suspect)
            .ok()
            .and_then(|number| self.catalogue.cases.get(number));
        let Some(Case {
            question:
                Question::Collective {
                    collective,
                    dtype,
                    count,
                },
            ..
        }) = case.copied()
        else {
            return Ok(());
        };
        self.current = Some(suspect);
        for (absent, rank) in comm.members().iter().enumerate() {
            let rest: Vec<Rank> = comm
                .members()
                .iter()
                .copied()
                .filter(|member| member != rank)
                .collect();
            if absent == comm.rank() || rest.is_empty() {
                continue;
            }
            let probe = self.subject(&format!("{}-without-{rank}", comm.name()), &rest)?;
            let wrong = self.tampered(probe.host(), Some(collective), || {
                numbers::check(&Numbers {
                    comm: &probe,
                    collective,
                    dtype,
                    count,
                    seed: self.job.seed,
                    ops: &[ReduceOp::Sum],
                })
            })?;
            self.tell(&RankMessage::Probe {
                case: suspect,
                absent: rank.0,
                wrong: wrong.is_some(),
            });
        }
        Ok(())
    }

    /// The groups of this rank that work at the same time: one of each kind that a training step
    /// uses, as far as they have members.
    fn groups_in_flight(&self) -> Result<Vec<Subject>, CommError> {
        let mut comms = Vec::new();
        for (kind, groups) in self.catalogue.kinds.iter().enumerate() {
            if !matches!(groups.kind.as_str(), "tp" | "dp" | "ep" | "mp") {
                continue;
            }
            let mine = groups
                .groups
                .iter()
                .position(|group| group.contains(&self.world.rank().0));
            if let Some(group) = mine {
                let case = Case {
                    kind,
                    group,
                    question: Question::InFlight,
                };
                let name = format!("{}-in-flight", self.name_of(&case));
                comms.push(self.subject(&name, &self.members_of(&case))?);
            }
        }
        Ok(comms)
    }

    /// Every group of this rank, by name.
    fn all_groups(&self) -> Vec<(String, Vec<Rank>)> {
        let mut groups = Vec::new();
        for (kind, of_kind) in self.catalogue.kinds.iter().enumerate() {
            for (group, members) in of_kind.groups.iter().enumerate() {
                if members.contains(&self.world.rank().0) {
                    let case = Case {
                        kind,
                        group,
                        question: Question::Lifecycle,
                    };
                    groups.push((
                        format!("{}-again", self.name_of(&case)),
                        self.members_of(&case),
                    ));
                }
            }
        }
        groups
    }

    fn flush(&mut self) {
        self.sent = Clock::now();
        if !self.pending.is_empty() {
            let results = std::mem::take(&mut self.pending);
            self.tell(&RankMessage::Results(results));
        }
    }

    /// Reports to whoever runs the job. Where that fails the launcher sees silence, which it takes
    /// for the failure that it is.
    fn tell(&mut self, message: &RankMessage) {
        let sent = message
            .encode()
            .map_err(|error| error.to_string())
            .and_then(|bytes| (self.report)(&bytes));
        self.reports_lost = self.reports_lost.take().or_else(|| sent.err());
    }
}

impl lifecycle::Maker for Work<'_> {
    fn make(&self, name: &str, members: &[Rank]) -> Result<Subject, CommError> {
        self.subject(name, members)
    }

    fn device_free(&self) -> Option<u64> {
        self.npu.as_ref().and_then(Npu::free)
    }
}

/// Whether leaving members out can tell who is to blame: where an element is the work of all.
fn can_be_probed(question: &Question) -> bool {
    matches!(question, Question::Collective { collective, .. } if collective.reduces())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use muster_comm::layout::Matrix;

    use super::*;
    use crate::check::collect::Collector;
    use crate::check::job::{MatrixSpec, Transport};
    use crate::report::model;

    fn job(matrix: &str, inject: &[&str]) -> Job {
        Job {
            matrix: MatrixSpec::of(
                matrix,
                &matrix
                    .parse::<Matrix>()
                    .expect(matrix)
                    .layout()
                    .expect(matrix),
            ),
            dtypes: Vec::new(),
            counts: Vec::new(),
            deadline_ms: 20_000,
            transport: Transport::Auto,
            inject: inject
                .iter()
                .map(|text| text.parse().expect(text))
                .collect(),
            seed: 7,
            hccl: None,
            bench: None,
            moe: None,
        }
    }

    /// Runs a job with ranks that are threads, and gives back its cases and what ranks returned.
    fn cases(job: &Job) -> (Vec<model::Case>, Vec<Result<bool, Failure>>) {
        let layout = job.matrix.layout().expect("a legal layout");
        let world_size = job.matrix.world_size;
        let collector = Mutex::new(Collector::new(catalogue(job, &layout), world_size));
        let outcomes = World::threads(world_size as usize, |world| {
            let rank = world.rank().0;
            run(&world, job, &layout, Clock::now(), &mut |bytes| {
                collector.lock().expect("no panic").take(rank, bytes);
                Ok(())
            })
        })
        .expect("a world of threads");
        let collector = collector.into_inner().expect("no panic");
        for state in collector.ranks() {
            assert_eq!(state.failed, None);
            assert_eq!(state.garbled, None);
        }
        (collector.report(&job.matrix.name, world_size), outcomes)
    }

    #[test]
    fn every_case_of_a_matrix_passes_on_ranks_that_are_threads() {
        // Growth is that of the process, in which several tests run at once here.
        let of_interest = |case: &&model::Case| case.check != "lifecycle";
        for matrix in ["tp1", "tp2", "tp2pp2", "tp3"] {
            let (cases, _) = cases(&job(matrix, &[]));
            for case in cases.iter().filter(of_interest) {
                assert!(case.passed, "{}", case.headline());
            }
        }
    }

    #[test]
    fn every_kind_of_fault_is_found_and_put_on_the_rank_that_has_it() {
        for kind in ["bitflip", "swap-blocks", "drop-contribution"] {
            for collective in [
                "all_reduce",
                "all_gather",
                "all_to_all_v",
                "reduce_scatter",
                "broadcast",
            ] {
                let fault = format!("{kind}:rank=1,collective={collective}");
                let mut job = job("tp3", &[&fault]);
                job.counts = vec![100];
                let (cases, outcomes) = cases(&job);
                let failed: Vec<&model::Case> = cases
                    .iter()
                    .filter(|case| !case.passed && case.check == "collective")
                    .collect();
                assert!(!failed.is_empty(), "{fault} was not found");
                assert!(outcomes.contains(&Ok(false)), "{fault}: {outcomes:?}");
                for case in failed {
                    let detail = case.detail.as_ref().expect("a detail");
                    assert_eq!(
                        case.collective.as_deref(),
                        Some(collective),
                        "{fault}: {}",
                        case.headline()
                    );
                    assert!(detail.first_wrong.is_some(), "{fault}: {}", case.headline());
                    assert_eq!(detail.blamed, [1], "{fault}: {}", case.headline());
                }
            }
        }
    }
}
