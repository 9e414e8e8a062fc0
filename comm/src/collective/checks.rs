//! Checks of what a call is given, before anything is sent.

use super::{Call, Communicator};
use crate::error::{CommError, ErrorKind};
use crate::sync::Deadline;
use crate::types::ReduceOp;

impl Communicator {
    /// The error of a call whose arguments cannot be served.
    pub(crate) fn refuse(&self, call: Call, what: &str, got: String, want: String) -> CommError {
        let kind = ErrorKind::InvalidArgument {
            what: what.to_owned(),
            got,
            want,
        };
        let none = Deadline::after(self.deadline());
        self.error(call, kind, 0, None, none, true)
    }

    pub(crate) fn check_len(
        &self,
        call: Call,
        what: &str,
        got: usize,
        want: usize,
    ) -> Result<(), CommError> {
        if got == want {
            return Ok(());
        }
        Err(self.refuse(
            call,
            what,
            format!("{got} elements"),
            format!("{want} elements"),
        ))
    }

    /// The reduction must be one that the collective takes, where it reduces.
    pub(super) fn check_op(&self, call: Call, op: ReduceOp) -> Result<(), CommError> {
        let ops = call.collective.ops();
        if let Some(dtype) = call.dtype.filter(|dtype| !op.takes(*dtype))
            && !ops.is_empty()
        {
            let got = format!("{op} of {dtype}");
            let want = format!("integers for {op}, or another reduction");
            return Err(self.refuse(call, "the reduction", got, want));
        }
        if ops.is_empty() || ops.contains(&op) {
            return Ok(());
        }
        let names: Vec<&str> = ops.iter().map(|op| op.name()).collect();
        let want = format!("{}, which have an identity", names.join(", "));
        Err(self.refuse(call, "the reduction", op.to_string(), want))
    }

    pub(crate) fn check_index(
        &self,
        call: Call,
        what: &str,
        index: usize,
    ) -> Result<(), CommError> {
        let n = self.size();
        if index < n {
            return Ok(());
        }
        let want = format!("an index into the group, 0 to {}", n - 1);
        Err(self.refuse(call, what, index.to_string(), want))
    }

    /// One count for each member, whose sum must not overflow; returns the sum.
    pub(crate) fn check_counts(
        &self,
        call: Call,
        what: &str,
        counts: &[usize],
    ) -> Result<usize, CommError> {
        let n = self.size();
        if counts.len() != n {
            let want = format!("one count for each of the {n} members");
            return Err(self.refuse(call, what, format!("{} counts", counts.len()), want));
        }
        let sum = counts
            .iter()
            .try_fold(0_usize, |sum, count| sum.checked_add(*count));
        sum.ok_or_else(|| {
            let want = "a sum that fits the address space".to_owned();
            self.refuse(call, what, format!("{counts:?}"), want)
        })
    }

    /// `buffer` must hold one block for each member; returns the length of a block.
    pub(crate) fn check_blocks(
        &self,
        call: Call,
        what: &str,
        len: usize,
    ) -> Result<usize, CommError> {
        let n = self.size();
        if len.is_multiple_of(n) {
            return Ok(len / n);
        }
        let want = format!("a multiple of the group's {n} members");
        Err(self.refuse(call, what, format!("{len} elements"), want))
    }

    /// A block for each member, of `count` elements: the product must fit.
    pub(crate) fn blocks_len(&self, call: Call, count: usize) -> Result<usize, CommError> {
        count.checked_mul(self.size()).ok_or_else(|| {
            let want = format!("at most {} elements", usize::MAX / self.size());
            self.refuse(call, "sendbuf", format!("{count} elements"), want)
        })
    }
}
