//! Several connections between two ranks that carry one byte stream.
//!
//! The stream is cut into stripes, and stripe `s` goes over connection `s` modulo their number: both sides know
//! from the position alone where the next byte is, so nothing is added to the bytes. While one connection's
//! buffers drain, the next one fills: one connection is held back by its window, by the one path that a network
//! gives it, or by the one processor that receives it; several are not.
//!
//! - BUNDLE-1: an error of one connection is that of the stream. But for a close, it ends both directions.

use std::os::fd::BorrowedFd;

use super::TcpLink;
use crate::transport::stream::{LinkError, LinkKind, Source, Stream, Target};

/// Bytes of a stripe: as much as one pass moves, and less than a socket buffers.
const STRIPE_BYTES: u64 = 256 << 10;
/// Most connections of one stream: more only cost descriptors.
pub const LANES_MAX: u8 = 16;

/// One end of a stream over several connections.
#[derive(Debug)]
pub struct Bundle {
    lanes: Vec<TcpLink>,
    written: u64,
    read: u64,
    /// The error that ended both directions.
    dead: Option<LinkError>,
}

impl Bundle {
    /// A stream over these connections, which the other side has in the same order.
    ///
    /// # Panics
    /// Without connections.
    #[must_use]
    pub fn new(lanes: Vec<TcpLink>) -> Self {
        assert!(!lanes.is_empty(), "a stream needs a connection");
        Self {
            lanes,
            written: 0,
            read: 0,
            dead: None,
        }
    }

    /// The connection of the byte at `position`, and how many bytes follow on it.
    fn lane(&self, position: u64) -> (usize, usize) {
        let (stripe, within) = (position / STRIPE_BYTES, position % STRIPE_BYTES);
        let lane = stripe % self.lanes.len() as u64;
        let index = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        (index(lane), index(STRIPE_BYTES - within))
    }

    /// Takes note of an error (BUNDLE-1).
    fn ended<T>(&mut self, result: Result<T, LinkError>) -> Result<T, LinkError> {
        if let Err(error) = result
            && error != LinkError::Closed
        {
            self.reset();
            self.dead = Some(error);
        }
        result
    }
}

impl Stream for Bundle {
    fn write_from(&mut self, source: Source<'_>) -> Result<usize, LinkError> {
        if let Some(error) = self.dead {
            return Err(error);
        }
        let (lane, room) = self.lane(self.written);
        let result = self.lanes[lane].write_from(source.first(room));
        let len = self.ended(result)?;
        self.written += len as u64;
        Ok(len)
    }

    fn read_into(&mut self, target: Target<'_>) -> Result<usize, LinkError> {
        if let Some(error) = self.dead {
            return Err(error);
        }
        let (lane, room) = self.lane(self.read);
        let result = self.lanes[lane].read_into(target.first(room));
        let len = self.ended(result)?;
        self.read += len as u64;
        Ok(len)
    }

    fn kind(&self) -> LinkKind {
        LinkKind::Tcp
    }

    fn reset(&mut self) {
        self.dead = Some(LinkError::Reset);
        self.lanes.iter_mut().for_each(Stream::reset);
    }

    fn descriptor(&self, write: bool) -> Option<BorrowedFd<'_>> {
        let position = if write { self.written } else { self.read };
        let (lane, _) = self.lane(position);
        self.lanes[lane].descriptor(write)
    }
}
