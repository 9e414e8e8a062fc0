//! An operator as a task of a stream: faults, the host backend, and what a failure is called.
//!
//! - `TASK-1`: a task ends soon after its stream is told to end, whatever it waits for.
//! - `TASK-2`: a task that failed on this rank alone tells the others nothing: they wait, and their
//!   timeout names this rank, as on hardware.

use std::sync::Arc;
use std::time::Duration;

use hccl_sys::types::HcclResult;
use muster_comm::error::{CommError, ErrorKind};
use muster_comm::types::Rank;

use super::comm::{Comm, Lines, Ticket};
use super::fail::{
    EI0002, EI0003, EI0005, EI0006, EI0007, EI0012, EI0013, RT_LINK_ERROR, task_error,
};
use super::float_mode::UsualMode;
use super::job::{Job, Trouble};
use super::meeting::FOR_EVER;
use super::operator::Operator;
use super::spoil::Spoil;
use crate::fault::{At, Kind};
use crate::runtime::RuntimeError;
use crate::runtime::errors::{AclError, Label};
use crate::runtime::notice;
use crate::runtime::stream::TaskContext;

/// An operator that waits for its turn.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) comm: Arc<Comm>,
    pub(crate) ticket: Ticket,
    pub(crate) job: Job,
}

impl Task {
    /// Carries the operator out.
    pub(crate) fn run(&self, context: &TaskContext) -> Result<(), RuntimeError> {
        let comm = &self.comm;
        if let Some(error) = comm.broken() {
            return Err(error);
        }
        for fault in &comm.faults {
            self.suffer(*fault, context)?;
        }
        let lines = comm.lines();
        lines.set_deadline(match self.ticket.operator {
            Operator::Barrier => FOR_EVER,
            _ => comm.patience(),
        });
        let aborting = Arc::clone(comm);
        let hook = context.on_abort(Arc::new(move || {
            aborting.break_off(&aborted(&aborting));
        }));
        let mode = UsualMode::set();
        let outcome = self.carry_out(&lines);
        drop(mode);
        drop(hook);
        match outcome {
            Ok(()) => Ok(()),
            Err(trouble) => {
                if let Some(error) = context.aborted() {
                    return Err(error);
                }
                if let Some(error) = comm.broken() {
                    return Err(error);
                }
                Err(self.failed(trouble))
            }
        }
    }

    /// Runs the job, and spoils its result if a fault says so.
    fn carry_out(&self, lines: &Lines) -> Result<(), Trouble> {
        let device = self.comm.device.logical;
        let concerned = |kind: &&Kind| kind.at().is_some_and(|at| self.is_at(at));
        let faults = self.comm.faults.iter().filter(concerned).copied();
        let spoil = Spoil::begin(faults, &self.job, device)?;
        self.job.run(lines, device)?;
        if let Some(spoil) = spoil {
            for harmless in spoil.end(&self.job, device)? {
                notice::harmless(harmless.fault, &self.what(), &harmless.why);
            }
        }
        Ok(())
    }

    /// Whether this is the operator at which a fault happens.
    fn is_at(&self, at: At) -> bool {
        match at.operator {
            Some(name) => name == self.ticket.operator.name() && at.k == self.ticket.of_kind,
            None => at.k == self.ticket.number,
        }
    }

    /// Lets a fault happen, if it is one of this operator.
    fn suffer(&self, fault: Kind, context: &TaskContext) -> Result<(), RuntimeError> {
        match fault {
            Kind::Slow { operator, ms }
                if operator.is_none_or(|name| name == self.ticket.operator.name()) =>
            {
                context
                    .wait_aborted(Some(Duration::from_millis(ms)))
                    .map_or(Ok(()), Err)
            }
            Kind::Hang(at) if self.is_at(at) => {
                let reason = context.wait_aborted(None);
                let error = aborted(&self.comm);
                self.comm.break_off(&error);
                Err(reason.unwrap_or(error))
            }
            Kind::AsyncError(at) if self.is_at(at) => Err(self.cqe(None)),
            Kind::DeviceLost(at) if self.is_at(at) => {
                let error = task_error(
                    AclError::RT_LOST_HEARTBEAT,
                    Label::EXECUTION,
                    format!(
                        "{}: device {} lost its heartbeat (a fault on purpose)",
                        self.what(),
                        self.comm.device.logical
                    ),
                );
                self.comm.break_off(&error);
                self.comm.device.lose(error.clone());
                Err(error)
            }
            Kind::LinkDown { peer, after }
                if self.ticket.number > after && self.job.concerns(peer as usize) =>
            {
                Err(self.cqe(Some(peer)))
            }
            _ => Ok(()),
        }
    }

    /// The device gave up repeating what it sends.
    fn cqe(&self, peer: Option<u32>) -> RuntimeError {
        let towards = peer.map_or_else(String::new, |peer| {
            format!(" towards rank {peer} {}", self.comm.place_of(peer))
        });
        let error = task_error(
            AclError::RT_SUSPECT_REMOTE_ERROR,
            EI0013,
            format!(
                "{}: error CQE{towards}: retransmission is exhausted (a fault on purpose)",
                self.what()
            ),
        );
        self.comm.set_async_error(HcclResult::HCCL_E_REMOTE);
        self.comm.break_off(&error);
        error
    }

    /// The operator, for messages.
    fn what(&self) -> String {
        format!(
            "{} (number {} of its kind) on communicator {}, rank {} of {}",
            self.ticket.operator.function(),
            self.ticket.of_kind,
            self.comm.name,
            self.comm.rank,
            self.comm.size()
        )
    }

    fn failed(&self, trouble: Trouble) -> RuntimeError {
        match trouble {
            Trouble::Memory(error) => {
                let text = format!("{}: {}", self.what(), error.text);
                let error = RuntimeError { text, ..error };
                self.comm.break_off(&error);
                error
            }
            Trouble::Comm(error) => self.translate(error.kind(), &error, None),
        }
    }

    /// The vendor's words for an error of the host backend; `origin` met it first.
    fn translate(&self, kind: &ErrorKind, error: &CommError, origin: Option<Rank>) -> RuntimeError {
        let first = origin.map_or_else(String::new, |origin| {
            format!("; rank {} found it first", self.comm.index_of(origin))
        });
        let (code, label, text) = match kind {
            ErrorKind::PeerAborted { origin, cause, .. } => {
                return self.translate(cause, error, Some(*origin));
            }
            ErrorKind::Stalled { waiting_for, .. } => self.timeout(waiting_for, error),
            ErrorKind::Mismatch {
                field,
                rank,
                mine,
                peer,
                theirs,
            } => (
                AclError::RT_INTERNAL_ERROR,
                EI0005,
                format!(
                    "{field} differs between ranks: rank {} has {mine}, rank {} has {theirs}",
                    self.comm.index_of(*rank),
                    self.comm.index_of(*peer)
                ),
            ),
            ErrorKind::PeerClosed { peer, how, .. } => (
                AclError::RT_SUSPECT_REMOTE_ERROR,
                EI0006,
                self.gone(*peer, how),
            ),
            ErrorKind::Orphaned { why } => match self.comm.server() {
                Some(peer) => (
                    AclError::RT_SUSPECT_REMOTE_ERROR,
                    EI0006,
                    self.gone(peer, "is gone"),
                ),
                None => (AclError::RT_SUSPECT_REMOTE_ERROR, EI0006, why.clone()),
            },
            ErrorKind::Transport { peer, what } | ErrorKind::Malformed { peer, what, .. } => (
                RT_LINK_ERROR,
                EI0012,
                format!("link to rank {}: {what}", self.comm.index_of(*peer)),
            ),
            ErrorKind::Resource { .. } => {
                (AclError::RT_MEMORY_ALLOCATION, EI0007, kind.to_string())
            }
            _ => (AclError::RT_PARAM_INVALID, EI0003, kind.to_string()),
        };
        task_error(code, label, format!("{}: {text}{first}", self.what()))
    }

    fn timeout(&self, waiting_for: &[Rank], error: &CommError) -> (AclError, Label, String) {
        let named: Vec<String> = waiting_for
            .iter()
            .map(|rank| self.comm.index_of(*rank).to_string())
            .collect();
        let places: Vec<String> = waiting_for
            .iter()
            .map(|rank| self.comm.place_of(self.comm.index_of(*rank)))
            .collect();
        let text = format!(
            "the wait for other ranks timed out after {:.3} s (HCCL_EXEC_TIMEOUT); not there: rank {}. Cluster Exception Location[IP/ID]: {}",
            error.at().elapsed.as_secs_f64(),
            named.join(", "),
            places.join(", ")
        );
        (AclError::RT_FFTS_PLUS_TIMEOUT, EI0002, text)
    }

    fn gone(&self, peer: Rank, how: &str) -> String {
        let rank = self.comm.index_of(peer);
        format!(
            "the link to rank {rank} {} is gone: the rank {how}",
            self.comm.place_of(rank)
        )
    }
}

fn aborted(comm: &Comm) -> RuntimeError {
    task_error(
        AclError::RT_STREAM_ABORT,
        EI0006,
        format!(
            "communicator {} was left in the middle of an operator by an abort; resume or destroy it",
            comm.name
        ),
    )
}

impl Comm {
    /// The rank in this communicator of a rank of its world; the world's where it is no member.
    pub(crate) fn index_of(&self, rank: Rank) -> u32 {
        let at = self.members.iter().position(|member| *member == rank);
        at.map_or(rank.0, |at| u32::try_from(at).unwrap_or(rank.0))
    }

    /// Where a rank of this communicator is: `[IP/ID]`.
    pub(crate) fn place_of(&self, rank: u32) -> String {
        let world = self.members.get(rank as usize);
        let peer = world.and_then(|rank| self.seat.peers.get(rank.index()));
        peer.map_or_else(
            || "[?]".to_owned(),
            |peer| format!("[{}/{}]", peer.host, peer.device),
        )
    }

    /// The rank whose process serves the rendezvous.
    fn server(&self) -> Option<Rank> {
        let at = self.seat.peers.iter().position(|peer| peer.serves)?;
        Some(Rank::from_index(at))
    }
}
