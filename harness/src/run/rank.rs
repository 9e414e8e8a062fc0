//! One rank's way through a matrix: every case of every group that it is in, in the common order,
//! with a report of each result.
//!
//! RANK-1: a case that comes out wrong is a result, and the rank goes on; a call that fails ends the
//! rank's work, because its peers are no longer where it is.

mod forced;
mod measure;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::time::{Duration, Instant};

use muster_comm::algo::{ENTRY, Links, Table, choices_for, find_choice};
use muster_comm::collective::Communicator;
use muster_comm::config::Environment;
use muster_comm::error::CommError;
use muster_comm::error::verdict::Class;
use muster_comm::layout::FrameworkLayout;
use muster_comm::sync::Clock;
use muster_comm::types::{Collective, Rank, ReduceOp};
use muster_comm::world::World;

use self::forced::{Instructions, table};
use crate::check::cases::{Case, Catalogue, Question};
use crate::check::message::{CaseResult, Failed, RankMessage, Refusal, Wrong};
use crate::check::numbers::{self, Numbers};
use crate::check::subject::Subject;
use crate::check::subject::region::OnRegion;
use crate::check::{flight, lifecycle, membership, objects};
use crate::exit::Exit;
use crate::fail::Failure;
use crate::run::applicable::{applicable, objects_after};
use crate::run::job::{Forced, Job};
use crate::run::micros;
use crate::run::npu::Npu;

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
    layout: &FrameworkLayout,
    started: Instant,
    report: &mut dyn FnMut(&[u8]) -> Result<(), String>,
) -> Result<bool, Failure> {
    let (catalogue, forced) = (job.work.catalogue(layout), job.work.forced());
    let _instructions = Instructions::of(&forced)?;
    let mut work = Worker {
        world,
        job,
        table: table(&forced, job)?,
        forced,
        npu: None,
        catalogue: &catalogue,
        report,
        pending: Vec::new(),
        took_us: RefCell::default(),
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
    let outcome = work.go(layout, started);
    work.flush();
    if let Err(error) = outcome {
        let own = || Class::of(error.kind(), error.at().rank.0).0;
        let exit = Exit::from(error.verdict().map_or_else(own, |found| found.class));
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

struct Worker<'a> {
    world: &'a World,
    job: &'a Job,
    /// How calls are made to go.
    forced: Forced,
    /// Rules of its own, where the calls are made to go one way.
    table: Option<Table>,
    /// This rank's device, where groups are checked on their devices.
    npu: Option<Npu>,
    catalogue: &'a Catalogue,
    /// The way to whoever runs the job.
    report: &'a mut dyn FnMut(&[u8]) -> Result<(), String>,
    pending: Vec<CaseResult>,
    /// How long the calls of the case under way lasted.
    took_us: RefCell<Vec<u64>>,
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

impl Worker<'_> {
    fn verify(&mut self, started: Instant) -> Result<(), CommError> {
        let everyone = self.join(started)?;
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
            let mut calls_us = self.took_us.take();
            if !case.question.ends_together() {
                calls_us.clear();
            }
            let algo = algorithm(&group.comm, &case.question);
            let wrong = wrong.or_else(|| self.astray(&group.comm, &case.question, algo));
            let elapsed_us = micros(Clock::now().duration_since(begun));
            if wrong.is_some() && can_be_probed(&case.question) {
                group.suspect = group.suspect.min(number);
            }
            self.wrong |= wrong.is_some();
            self.pending.push(CaseResult {
                case: number,
                elapsed_us,
                calls_us,
                algo: algo.map(str::to_owned),
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

    fn everyone(&self) -> Vec<Rank> {
        (0..self.world.size()).map(Rank::from_index).collect()
    }

    fn group(&self, name: &str, members: &[Rank]) -> Result<Communicator, CommError> {
        let comm = match &self.table {
            Some(table) => self.world.group_with_rules(name, members, table.clone())?,
            None => self.world.group(name, members)?,
        };
        comm.set_deadline(self.job.deadline());
        Ok(comm)
    }

    /// A group as it is to be checked.
    fn subject(&self, name: &str, members: &[Rank]) -> Result<Subject, CommError> {
        let comm = self.group(name, members)?;
        match &self.npu {
            Some(npu) => npu.subject(&comm),
            None if self.forced.region => Ok(Subject::Region(OnRegion::new(comm))),
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
                        took_us: &self.took_us,
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

    /// Whether a call went another way than it was made to go: then nothing was proved of that one.
    fn astray(&self, comm: &Subject, question: &Question, went: Option<&str>) -> Option<Wrong> {
        let wanted = self.forced.algo.as_deref()?;
        let Question::Collective { collective, .. } = question else {
            return None;
        };
        let has_it = find_choice(*collective, wanted).is_ok();
        if !has_it || comm.size() == 1 || wanted == ENTRY.name {
            // The entry is left to what it can carry.
            return None;
        }
        let is_direct =
            find_choice(*collective, wanted).is_ok_and(|one| one.links == Links::Direct);
        let straight = is_direct && self.forced.region && went == Some("straight");
        let spans_hosts = is_direct && !comm.host().shares_memory();
        (went != Some(wanted) && !straight && !spans_hosts).then(|| Wrong {
            text: format!(
                "it went by {}, not by {wanted}",
                went.unwrap_or("no algorithm")
            ),
            ..Wrong::default()
        })
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
                    took_us: &RefCell::default(),
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
        if let Err(why) = sent {
            self.lose(why);
        }
    }

    /// A report cannot be sent, and why.
    fn lose(&mut self, why: String) {
        self.reports_lost.get_or_insert(why);
    }
}

impl lifecycle::Maker for Worker<'_> {
    fn make(&self, name: &str, members: &[Rank]) -> Result<Subject, CommError> {
        self.subject(name, members)
    }

    fn device_free(&self) -> Option<u64> {
        self.npu.as_ref().and_then(Npu::free)
    }
}

/// The algorithm of the last call of a check, where it was one that algorithms carry out.
fn algorithm(comm: &Subject, question: &Question) -> Option<&'static str> {
    let is_selected = question
        .collective()
        .is_some_and(|call| choices_for(call).next().is_some());
    let on_host = !matches!(comm, Subject::Device(_));
    (is_selected && on_host)
        .then(|| comm.host().last_algorithm())
        .flatten()
}

/// Whether leaving members out can tell who is to blame: where an element is the work of all.
fn can_be_probed(question: &Question) -> bool {
    matches!(question, Question::Collective { collective, .. } if collective.reduces())
}
