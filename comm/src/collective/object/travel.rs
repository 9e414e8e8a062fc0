//! How envelopes travel: their lengths first, then their bytes. What an envelope holds is the caller's business, who
//! opens it within the call, so that all ranks get the same error where one is spoilt.

use super::lengths::{Length, bytes_of};
use super::{Fault, too_large};
use crate::backend::{Counts, Failure, Request};
use crate::collective::{Buffers, Call, Communicator};
use crate::error::CommError;
use crate::types::{Collective, DType};

/// This rank's envelope, or why it has none.
pub(super) type Encoded = (Vec<u8>, Option<Fault>);

impl Communicator {
    /// Gives every rank all envelopes, one behind the other, and what `open` makes of them. `M` tells types of
    /// objects apart.
    pub(super) fn all_gather_envelopes<M, R>(
        &self,
        call: Call,
        (bytes, fault): Encoded,
        open: impl FnOnce(&[u8], &[Length]) -> Result<R, Failure>,
    ) -> Result<(Vec<u8>, R), CommError> {
        let told = self.exchange_lens::<M>(call, bytes.len(), fault, 0)?;
        let lens = bytes_of(&told);
        let mut all = self.room(call, &lens)?;
        let counts = Counts::Blocks(&lens);
        let buffers = Buffers::apart(&bytes, &mut all);
        let request = Request {
            called: call.collective,
            ..buffers.request(Collective::AllGatherV, DType::U8, None, 0, counts)
        };
        let mut opened = None;
        self.run_and(call, &request, || {
            opened = Some(open(&all, &told)?);
            Ok(())
        })?;
        self.spare([bytes]);
        Ok((all, there(opened)))
    }

    /// As [`Communicator::all_gather_envelopes`] on the root; nothing on the others.
    pub(super) fn gather_envelopes<M, R>(
        &self,
        call: Call,
        (bytes, fault): Encoded,
        root: usize,
        open: impl FnOnce(&[u8], &[Length]) -> Result<R, Failure>,
    ) -> Result<Option<(Vec<u8>, R)>, CommError> {
        let told = self.exchange_lens::<M>(call, bytes.len(), fault, root)?;
        let lens = bytes_of(&told);
        let here = self.rank() == root;
        let mut all = if here {
            self.room(call, &lens)?
        } else {
            Vec::new()
        };
        let counts = Counts::Blocks(&lens);
        let buffers = Buffers::apart(&bytes, &mut all);
        let request = Request {
            called: call.collective,
            ..buffers.request(Collective::GatherV, DType::U8, None, root, counts)
        };
        let mut opened = None;
        self.run_and(call, &request, || {
            opened = here.then(|| open(&all, &told)).transpose()?;
            Ok(())
        })?;
        self.spare([bytes]);
        Ok(opened.map(|opened| (all, opened)))
    }

    /// Gives every rank the root's envelope, and what `open` makes of it.
    pub(super) fn broadcast_envelope<M, R>(
        &self,
        call: Call,
        (mut bytes, fault): Encoded,
        root: usize,
        open: impl FnOnce(&[u8], &[Length]) -> Result<R, Failure>,
    ) -> Result<(Vec<u8>, R), CommError> {
        let told = self.exchange_lens::<M>(call, bytes.len(), fault, root)?;
        let len = told[root].bytes();
        if self.rank() != root {
            bytes = self.room(call, &[len])?;
        }
        let counts = Counts::Uniform(len);
        let buffers = Buffers::in_place(&mut bytes, 0, 0);
        let request = Request {
            called: call.collective,
            ..buffers.request(Collective::Broadcast, DType::U8, None, root, counts)
        };
        let mut opened = None;
        self.run_and(call, &request, || {
            opened = Some(open(&bytes, &told)?);
            Ok(())
        })?;
        Ok((bytes, there(opened)))
    }

    /// Gives every rank its envelope of the root's, which lie one behind the other and are `lens` long, and what `open`
    /// makes of it.
    pub(super) fn scatter_envelopes<M, R>(
        &self,
        call: Call,
        (bytes, fault): Encoded,
        lens: &[usize],
        root: usize,
        open: impl FnOnce(&[u8], &[Length]) -> Result<R, Failure>,
    ) -> Result<(Vec<u8>, R), CommError> {
        let told = self.exchange_lens::<M>(call, 0, fault, root)?;
        let mut words: Vec<u64> = lens.iter().map(|len| *len as u64).collect();
        let counts = Counts::Uniform(words.len());
        let buffers = Buffers::in_place(&mut words, 0, 0);
        let request = Request {
            called: call.collective,
            ..buffers.request(Collective::Broadcast, DType::U64, None, root, counts)
        };
        self.run(call, &request)?;
        let lens: Vec<usize> = words.into_iter().map(crate::types::index).collect();
        // The root keeps the limit; a root that does not is found out by all ranks alike.
        let limit = self.envelope_bytes_max();
        if let Some(over) = lens.iter().find(|len| **len > limit) {
            let kind = too_large(self.members()[root], *over, self.limit());
            return Err(self.object_error(call, kind));
        }
        let mut mine = self.room(call, &lens[self.rank()..=self.rank()])?;
        let counts = Counts::Blocks(&lens);
        let buffers = Buffers::apart(&bytes, &mut mine);
        let request = Request {
            called: call.collective,
            ..buffers.request(Collective::ScatterV, DType::U8, None, root, counts)
        };
        let mut opened = None;
        self.run_and(call, &request, || {
            opened = Some(open(&mine, &told)?);
            Ok(())
        })?;
        self.spare([bytes]);
        Ok((mine, there(opened)))
    }
}

/// What a call that ended well has opened.
fn there<R>(opened: Option<R>) -> R {
    opened.unwrap_or_else(|| unreachable!("it was opened, or there was an error"))
}
