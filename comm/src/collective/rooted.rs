//! What `gather` and `scatter` ask of their buffers, on the host and on devices: every rank has one
//! block, the root alone has the blocks of all.

use super::{Call, Communicator};
use crate::backend::Counts;
use crate::error::CommError;

/// The two sides of a call with a root: a name and a length in elements each.
pub(crate) struct Sides<'a> {
    /// What every rank has.
    pub(crate) block: (&'static str, usize),
    /// What the root alone has: the blocks of all ranks.
    pub(crate) whole: (&'static str, usize),
    /// The lengths of the blocks, where the call takes them.
    pub(crate) counts: Option<(&'static str, &'a [usize])>,
}

impl Communicator {
    /// The counts of a call, if the lengths fit them.
    pub(crate) fn check_sides<'a>(
        &self,
        call: Call,
        root: usize,
        sides: &Sides<'a>,
    ) -> Result<Counts<'a>, CommError> {
        let ((block, len), (whole, whole_len)) = (sides.block, sides.whole);
        self.check_index(call, "root", root)?;
        let at_root = self.rank() == root;
        let Some((name, counts)) = sides.counts else {
            if at_root {
                let total = self.blocks_len(call, len)?;
                self.check_len(call, whole, whole_len, total)?;
            }
            return Ok(Counts::Uniform(len));
        };
        let total = self.check_counts(call, name, counts)?;
        self.check_len(call, block, len, counts[self.rank()])?;
        if at_root {
            self.check_len(call, whole, whole_len, total)?;
        }
        Ok(Counts::Blocks(counts))
    }

    /// The same for one buffer of `len` elements that serves as both sides: the length of a block, and
    /// where in the buffer the root's own one begins.
    pub(crate) fn check_sides_in_place(
        &self,
        call: Call,
        root: usize,
        len: usize,
    ) -> Result<(usize, usize), CommError> {
        self.check_index(call, "root", root)?;
        if self.rank() != root {
            return Ok((len, 0));
        }
        let count = self.check_blocks(call, "buffer", len)?;
        Ok((count, root * count))
    }
}
