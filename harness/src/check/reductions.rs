//! The collectives that reduce, against the naive reference.
//!
//! Part of the check of [`numbers`](crate::check::numbers): its inputs are chosen so that the result
//! is exact in every type, whatever the order in which an algorithm combines them.

use muster_comm::buffer::Element;
use muster_comm::collective::reference::{self, exact_inputs};
use muster_comm::error::CommError;
use muster_comm::types::{Pattern, Rank, ReduceOp};

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
            let found = match pattern {
                Pattern::AllReduce if self.collective.is_coalesced() => self.coalesced::<T>(*op),
                Pattern::AllReduce => self.all_reduce::<T>(*op),
                Pattern::ExclusiveScan | Pattern::Scan => self.scans::<T>(*op, pattern),
                Pattern::Reduce => self.reduce::<T>(*op),
                Pattern::ReduceScatter => self.reduce_scatters::<T>(*op),
                Pattern::AllGather
                | Pattern::AllToAll
                | Pattern::Barrier
                | Pattern::Broadcast
                | Pattern::Gather
                | Pattern::Scatter => unreachable!("{} does not reduce", self.collective),
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

    fn all_reduce<T: Element>(&self, op: ReduceOp) -> Result<Option<Wrong>, CommError> {
        let inputs: Vec<_> = (0..self.len())
            .map(|member| self.addend(op, member))
            .collect();
        let send: Vec<T> = elements(&inputs[self.me()]);
        let mut attempt = Attempt {
            // All members hold the same: one copy of it is enough.
            expected: reference::reduce(self.dtype, op, Rank(0), &inputs).swap_remove(0),
            got: blank(self.count),
            blocks: Vec::new(),
            how: format!("{op}, out of place"),
        };
        self.comm.all_reduce(&send, &mut attempt.got, op)?;
        let wrong = attempt.judge(self, Some((&send, &inputs[self.me()])));
        attempt.got = send;
        attempt.how = format!("{op}, in place");
        self.comm.all_reduce_in_place(&mut attempt.got, op)?;
        Ok(wrong.or_else(|| attempt.judge(self, None)))
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
        let (first, rest) = attempt.got.split_at_mut(self.count / 4);
        let (second, third) = rest.split_at_mut(self.count / 2);
        self.comm
            .all_reduce_coalesced(&mut [first, second, &mut [], third], op)?;
        Ok(attempt.judge(self, None))
    }

    fn scans<T: Element>(
        &self,
        op: ReduceOp,
        pattern: Pattern,
    ) -> Result<Option<Wrong>, CommError> {
        let me = self.me();
        // Only what this member gets is made: the reference of all of them is as many reductions.
        let end = me + usize::from(pattern == Pattern::Scan);
        let sent = self.addend(op, me);
        let inputs: Vec<_> = (0..end).map(|member| self.addend(op, member)).collect();
        let mut expected = if inputs.is_empty() {
            reference::exclusive_scan(self.dtype, op, std::slice::from_ref(&sent))
        } else {
            reference::reduce(self.dtype, op, Rank(0), &inputs)
        };
        let send: Vec<T> = elements(&sent);
        let mut attempt = Attempt {
            expected: expected.swap_remove(0),
            got: blank(self.count),
            blocks: Vec::new(),
            how: format!("{op}, out of place"),
        };
        self.comm
            .scan(self.collective, &send, &mut attempt.got, op)?;
        let wrong = attempt.judge(self, Some((&send, &sent)));
        attempt.got = send;
        attempt.how = format!("{op}, in place");
        self.comm
            .scan_in_place(self.collective, &mut attempt.got, op)?;
        Ok(wrong.or_else(|| attempt.judge(self, None)))
    }

    fn reduce<T: Element>(&self, op: ReduceOp) -> Result<Option<Wrong>, CommError> {
        let (me, root) = (self.me(), self.root());
        let sent = self.addend(op, me);
        let send: Vec<T> = elements(&sent);
        let expected = if me == root {
            let inputs: Vec<_> = (0..self.len())
                .map(|member| self.addend(op, member))
                .collect();
            reference::reduce(self.dtype, op, Rank(0), &inputs).swap_remove(0)
        } else {
            Vec::new()
        };
        let mut attempt = Attempt {
            expected,
            got: blank(if me == root { self.count } else { 0 }),
            blocks: Vec::new(),
            how: format!("{op} to {}", self.root_name()),
        };
        self.comm.reduce(&send, &mut attempt.got, op, root)?;
        let wrong = attempt.judge(self, Some((&send, &sent)));
        attempt.how.push_str(", in place");
        attempt.got = send;
        if me != root {
            // Elsewhere the buffer is only read.
            attempt.expected = sent;
        }
        self.comm.reduce_in_place(&mut attempt.got, op, root)?;
        Ok(wrong.or_else(|| attempt.judge(self, None)))
    }

    fn reduce_scatters<T: Element>(&self, op: ReduceOp) -> Result<Option<Wrong>, CommError> {
        let (len, me) = (self.len(), self.me());
        let uneven = self.collective.has_lengths();
        let parts: Vec<usize> = (0..len)
            .map(|member| {
                if uneven {
                    self.uneven(member)
                } else {
                    self.count
                }
            })
            .collect();
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
        if uneven {
            self.comm
                .reduce_scatter_v(&send, &parts, &mut attempt.got, op)?;
        } else {
            self.comm.reduce_scatter(&send, &mut attempt.got, op)?;
        }
        let wrong = attempt.judge(self, Some((&send, &sent)));
        if uneven {
            return Ok(wrong);
        }
        // The result replaces this member's block, the other blocks stay as they were.
        let own = self.count * T::DTYPE.size();
        let mut expected = sent;
        expected[own * me..][..own].copy_from_slice(&attempt.expected);
        attempt.expected = expected;
        attempt.got = send;
        attempt.how = format!("{op}, in place");
        self.comm.reduce_scatter_in_place(&mut attempt.got, op)?;
        Ok(wrong.or_else(|| attempt.judge(self, None)))
    }
}
