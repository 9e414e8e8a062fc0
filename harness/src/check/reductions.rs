//! The collectives that reduce, against the naive reference.
//!
//! Part of the check of [`numbers`](crate::check::numbers): its inputs are chosen so that the result
//! is exact in every type, whatever the order in which an algorithm combines them.

use muster_comm::buffer::Element;
use muster_comm::collective::reference::{self, exact_inputs};
use muster_comm::error::CommError;
use muster_comm::types::{Collective, Rank, ReduceOp};

use crate::check::message::Wrong;
use crate::check::numbers::{Attempt, Numbers, blank, elements};

impl Numbers<'_> {
    /// Every reduction that was asked for; the first wrong one is told.
    pub(super) fn reductions<T: Element>(&self) -> Result<Option<Wrong>, CommError> {
        let ops: &[ReduceOp] = if self.all_ops {
            &ReduceOp::ALL
        } else {
            &[ReduceOp::Sum]
        };
        let mut wrong = None;
        for op in ops {
            let found = if self.collective == Collective::AllReduce {
                self.all_reduce::<T>(*op)?
            } else if self.collective == Collective::Reduce {
                self.reduce::<T>(*op)?
            } else {
                self.reduce_scatters::<T>(*op)?
            };
            wrong = wrong.or(found);
        }
        Ok(wrong)
    }

    fn addends(&self, op: ReduceOp, count: usize) -> Vec<Vec<u8>> {
        (0..self.len())
            .map(|member| {
                exact_inputs(
                    self.dtype,
                    op,
                    Rank::from_index(member),
                    self.len(),
                    count,
                    self.seed,
                )
            })
            .collect()
    }

    fn all_reduce<T: Element>(&self, op: ReduceOp) -> Result<Option<Wrong>, CommError> {
        let inputs = self.addends(op, self.count);
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

    fn reduce<T: Element>(&self, op: ReduceOp) -> Result<Option<Wrong>, CommError> {
        let (me, root) = (self.me(), self.root());
        let inputs = self.addends(op, self.count);
        let send: Vec<T> = elements(&inputs[me]);
        let mut attempt = Attempt {
            expected: reference::reduce(self.dtype, op, Rank::from_index(root), &inputs)
                .swap_remove(me),
            got: blank(if me == root { self.count } else { 0 }),
            blocks: Vec::new(),
            how: format!("{op} to {}", self.root_name()),
        };
        self.comm.reduce(&send, &mut attempt.got, op, root)?;
        let wrong = attempt.judge(self, Some((&send, &inputs[me])));
        attempt.how.push_str(", in place");
        attempt.got = send;
        if me != root {
            // Elsewhere the buffer is only read.
            attempt.expected.clone_from(&inputs[me]);
        }
        self.comm.reduce_in_place(&mut attempt.got, op, root)?;
        Ok(wrong.or_else(|| attempt.judge(self, None)))
    }

    fn reduce_scatters<T: Element>(&self, op: ReduceOp) -> Result<Option<Wrong>, CommError> {
        let (len, me) = (self.len(), self.me());
        let uneven = self.collective == Collective::ReduceScatterV;
        let parts: Vec<usize> = (0..len)
            .map(|member| {
                if uneven {
                    self.uneven(member)
                } else {
                    self.count
                }
            })
            .collect();
        let inputs = self.addends(op, parts.iter().sum());
        let send: Vec<T> = elements(&inputs[me]);
        let mut attempt = Attempt {
            expected: reference::reduce_scatter_v(self.dtype, op, &parts, &inputs).swap_remove(me),
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
        let wrong = attempt.judge(self, Some((&send, &inputs[me])));
        if uneven {
            return Ok(wrong);
        }
        // The result replaces this member's block, the other blocks stay as they were.
        let own = self.count * T::DTYPE.size();
        let mut expected = inputs[me].clone();
        expected[own * me..][..own].copy_from_slice(&attempt.expected);
        attempt.expected = expected;
        attempt.got = send;
        attempt.how = format!("{op}, in place");
        self.comm.reduce_scatter_in_place(&mut attempt.got, op)?;
        Ok(wrong.or_else(|| attempt.judge(self, None)))
    }
}
