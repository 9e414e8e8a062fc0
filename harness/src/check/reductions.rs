//! The collectives that reduce, against the naive reference.
//!
//! Part of the check of [`numbers`](crate::check::numbers): its inputs are chosen so that the result
//! is exact in every type, whatever the order in which an algorithm combines them.

use muster_comm::buffer::Element;
use muster_comm::collective::reference::{self, exact_inputs};
use muster_comm::error::CommError;
use muster_comm::types::{Extent, Pattern, Rank, ReduceOp};

use crate::check::call_args::CallArgs;
use crate::check::message::Wrong;
use crate::check::numbers::{Attempt, Numbers, blank, elements};

impl Numbers<'_> {
    /// Every reduction that was asked for; the first wrong one is told.
    pub(super) fn reductions<T: Element>(
        &self,
        pattern: Pattern,
    ) -> Result<Option<Wrong>, CommError> {
        let mut wrong = None;
        let taken = |op: &&ReduceOp| pattern.ops().contains(op);
        for op in self.ops.iter().filter(taken) {
            let found = if self.collective.is_coalesced() {
                self.coalesced::<T>(*op)
            } else if pattern.is_of_vectors() {
                self.vectors::<T>(*op, pattern)
            } else {
                self.reduce_scatters::<T>(*op)
            }?;
            wrong = wrong.or(found);
        }
        Ok(wrong)
    }

    /// Input of a member to a reduction of whole buffers.
    fn addend(&self, op: ReduceOp, member: usize) -> Vec<u8> {
        exact_inputs(
            self.dtype,
            op,
            Rank::from_index(member),
            self.len(),
            self.count,
            self.seed,
        )
    }

    /// What a member adds to the block of another one.
    fn addend_for(&self, op: ReduceOp, member: usize, to: usize, count: usize) -> Vec<u8> {
        let seed = self.block_seed(to);
        exact_inputs(
            self.dtype,
            op,
            Rank::from_index(member),
            self.len(),
            count,
            seed,
        )
    }

    /// Buffers of several lengths, some of them empty.
    fn coalesced<T: Element>(&self, op: ReduceOp) -> Result<Option<Wrong>, CommError> {
        let inputs: Vec<_> = (0..self.len())
            .map(|member| self.addend(op, member))
            .collect();
        let mut attempt = Attempt {
            expected: reference::reduce(self.dtype, op, Rank(0), &inputs).swap_remove(0),
            got: elements::<T>(&inputs[self.me()]),
            blocks: Vec::new(),
            how: format!("{op}, four buffers"),
        };
        let args = CallArgs { op, ..self.args() };
        self.make(&args.in_place(), &[], &mut attempt.got)?;
        Ok(attempt.judge(self, None))
    }

    /// What one rank or every one gets of the vectors of all, or of those in front of it.
    fn vectors<T: Element>(
        &self,
        op: ReduceOp,
        pattern: Pattern,
    ) -> Result<Option<Wrong>, CommError> {
        let me = self.me();
        let gets = pattern.recv(me == self.root()) != Extent::Nothing;
        let sent = self.addend(op, me);
        let expected = if gets {
            // Only what this member gets is made: the reference of all of them is as many reductions.
            let contributors = pattern.contributors(self.len(), me);
            let inputs: Vec<_> = contributors.map(|member| self.addend(op, member)).collect();
            self.reduced(op, &inputs, &sent)
        } else {
            Vec::new()
        };
        let send: Vec<T> = elements(&sent);
        let to = if pattern.is_rooted() {
            format!(" to {}", self.root_name())
        } else {
            String::new()
        };
        let mut attempt = Attempt {
            expected,
            got: blank(if gets { self.count } else { 0 }),
            blocks: Vec::new(),
            how: format!("{op}{to}, out of place"),
        };
        let args = CallArgs { op, ..self.args() };
        self.make(&args, &send, &mut attempt.got)?;
        let wrong = attempt.judge(self, Some((&send, &sent)));
        attempt.how = format!("{op}{to}, in place");
        attempt.got = send;
        if !gets {
            // There the buffer is only read.
            attempt.expected = sent;
        }
        self.make(&args.in_place(), &[], &mut attempt.got)?;
        Ok(wrong.or_else(|| attempt.judge(self, None)))
    }

    /// The reduction of the inputs, or of none of them: as many elements as `own` has.
    fn reduced(&self, op: ReduceOp, inputs: &[Vec<u8>], own: &Vec<u8>) -> Vec<u8> {
        let mut all = if inputs.is_empty() {
            reference::exclusive_scan(self.dtype, op, std::slice::from_ref(own))
        } else {
            reference::reduce(self.dtype, op, Rank(0), inputs)
        };
        all.swap_remove(0)
    }

    fn reduce_scatters<T: Element>(&self, op: ReduceOp) -> Result<Option<Wrong>, CommError> {
        let (len, me) = (self.len(), self.me());
        let parts = self.parts();
        let sent: Vec<u8> = (0..len)
            .flat_map(|to| self.addend_for(op, me, to, parts[to]))
            .collect();
        let send: Vec<T> = elements(&sent);
        let own_blocks: Vec<_> = (0..len)
            .map(|member| self.addend_for(op, member, me, parts[me]))
            .collect();
        let mut attempt = Attempt {
            expected: reference::reduce(self.dtype, op, Rank(0), &own_blocks).swap_remove(0),
            got: blank(parts[me]),
            blocks: Vec::new(),
            how: format!("{op}, out of place"),
        };
        let args = CallArgs {
            op,
            ..self.of_blocks(&parts)
        };
        self.make(&args, &send, &mut attempt.got)?;
        let wrong = attempt.judge(self, Some((&send, &sent)));
        if self.collective.has_lengths() {
            return Ok(wrong);
        }
        // The result replaces this member's block, the other blocks stay as they were.
        let own = self.count * T::DTYPE.size();
        let mut expected = sent;
        expected[own * me..][..own].copy_from_slice(&attempt.expected);
        attempt.expected = expected;
        attempt.got = send;
        attempt.how = format!("{op}, in place");
        self.make(&args.in_place(), &[], &mut attempt.got)?;
        Ok(wrong.or_else(|| attempt.judge(self, None)))
    }
}
