//! One direction of a simulated lane.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Draw, LinkFault, SimConfig, nanos};
use crate::transport::stream::{LinkError, Source, Target};

/// Bytes underway, or the news that no more will come.
#[derive(Debug)]
struct Flight {
    arrives_ns: u64,
    /// Empty: the writer closed.
    bytes: Vec<u8>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Pipe {
    from: usize,
    to: usize,
    latency_ns: u64,
    jitter_ns: u64,
    bytes_per_us: u64,
    window: usize,
    flights: VecDeque<Flight>,
    /// Bytes that arrived and were not read.
    there: VecDeque<u8>,
    /// Bytes that are underway.
    aloft: usize,
    /// When the sender's interface has sent all it was given.
    free_ns: u64,
    /// Nothing arrives before that.
    stalled_ns: u64,
    /// Bytes ever written.
    written: u64,
    corruptions: Vec<(u64, u8)>,
    /// The writer has closed, and the news is underway or there.
    ended: bool,
    /// When the reader learns that the lane was torn down.
    reset_ns: Option<u64>,
}

impl Pipe {
    pub(super) fn new(from: usize, to: usize, config: &SimConfig, draw: &mut Draw) -> Self {
        Self {
            from,
            to,
            latency_ns: draw.within(&config.latency_ns),
            jitter_ns: draw.within(&config.jitter_ns),
            bytes_per_us: draw.within(&config.bytes_per_us).max(1),
            window: crate::types::index(draw.within(&config.window_bytes).max(1)),
            flights: VecDeque::new(),
            there: VecDeque::new(),
            aloft: 0,
            free_ns: 0,
            stalled_ns: 0,
            written: 0,
            corruptions: Vec::new(),
            ended: false,
            reset_ns: None,
        }
    }

    /// Takes as many bytes as the draw and the window let it, in up to two pieces.
    pub(super) fn write(&mut self, source: Source<'_>, now: u64, draw: &mut Draw) -> usize {
        self.land(now);
        let room = self.window - self.aloft - self.there.len();
        let len = pick(room.min(source.len()), draw);
        let first = pick(len, draw);
        for (skip, len) in [(0, first), (first, len - first)] {
            if len > 0 {
                let mut bytes = vec![0; len];
                source.skip(skip).copy_to(&mut bytes);
                self.launch(bytes, now, draw.up_to(self.jitter_ns));
            }
        }
        len
    }

    /// Sends a piece off.
    fn launch(&mut self, mut bytes: Vec<u8>, now: u64, late_ns: u64) {
        self.corrupt(&mut bytes);
        let len = bytes.len() as u64;
        self.written += len;
        self.aloft += bytes.len();
        self.free_ns = self.free_ns.max(now) + len.saturating_mul(1000) / self.bytes_per_us;
        let arrives_ns = self.arrival(self.free_ns + self.latency_ns + late_ns);
        self.flights.push_back(Flight { arrives_ns, bytes });
    }

    /// No piece overtakes the one before it.
    fn arrival(&self, at_ns: u64) -> u64 {
        let before = self.flights.back().map_or(0, |flight| flight.arrives_ns);
        at_ns.max(before)
    }

    fn corrupt(&mut self, bytes: &mut [u8]) {
        let first = self.written;
        self.corruptions.retain(|(place, mask)| {
            let hit = place
                .checked_sub(first)
                .and_then(|at| bytes.get_mut(crate::types::index(at)));
            hit.map(|byte| *byte ^= mask).is_none()
        });
    }

    /// Gives as many bytes as the draw lets it.
    pub(super) fn read(
        &mut self,
        mut target: Target<'_>,
        now: u64,
        draw: &mut Draw,
    ) -> Result<usize, LinkError> {
        self.land(now);
        if self.there.is_empty() && self.is_ended(now) {
            return Err(LinkError::Closed);
        }
        let len = pick(self.there.len().min(target.len()), draw);
        let bytes: Vec<u8> = self.there.drain(..len).collect();
        Ok(target.copy_from(&bytes))
    }

    /// Lets everything arrive whose time has come.
    fn land(&mut self, now: u64) {
        if now < self.stalled_ns {
            return;
        }
        while let Some(flight) = self.flights.front()
            && flight.arrives_ns <= now
            && !flight.bytes.is_empty()
        {
            self.aloft -= flight.bytes.len();
            self.there.extend(&flight.bytes);
            self.flights.pop_front();
        }
    }

    /// The writer closes.
    pub(super) fn end(&mut self, now: u64) {
        if !self.ended {
            self.ended = true;
            let arrives_ns = self.arrival(now + self.latency_ns);
            let bytes = Vec::new();
            self.flights.push_back(Flight { arrives_ns, bytes });
        }
    }

    /// Whether the news of the close has arrived. Bytes may still be unread.
    pub(super) fn is_ended(&self, now: u64) -> bool {
        self.ended
            && now >= self.stalled_ns
            && self
                .flights
                .back()
                .is_some_and(|last| last.arrives_ns <= now)
    }

    /// The writer tears the lane down.
    pub(super) fn reset(&mut self, now: u64) {
        self.reset_ns.get_or_insert(now + self.latency_ns);
    }

    /// Whether the reader knows that the lane was torn down.
    pub(super) fn is_reset(&self, now: u64) -> bool {
        self.reset_ns.is_some_and(|at| at <= now)
    }

    /// When something changes for the reader next, if ever.
    pub(super) fn next_event(&self, now: u64) -> Option<u64> {
        let flight = self
            .flights
            .iter()
            .map(|flight| flight.arrives_ns.max(self.stalled_ns))
            .find(|at| *at > now);
        let reset = self.reset_ns.filter(|at| *at > now);
        flight.into_iter().chain(reset).min()
    }

    /// Suffers a fault, if it is about this pipe.
    pub(super) fn strike(&mut self, fault: LinkFault, now: u64) {
        match fault {
            LinkFault::Corrupt {
                from,
                to,
                byte,
                mask,
            } if (from, to) == (self.from, self.to) => self.corruptions.push((byte, mask)),
            LinkFault::Cut { one, other }
                if (one, other) == (self.from, self.to) || (other, one) == (self.from, self.to) =>
            {
                self.reset_ns = Some(now);
            }
            LinkFault::Kill { rank } if rank == self.from => self.end(now),
            LinkFault::Stall { from, to, until } if (from, to) == (self.from, self.to) => {
                self.stalled_ns = self.stalled_ns.max(nanos(until.min(STALL_MAX)));
            }
            LinkFault::Corrupt { .. }
            | LinkFault::Cut { .. }
            | LinkFault::Kill { .. }
            | LinkFault::Stall { .. } => {}
        }
    }
}

/// Longest stall: sums of times stay far inside 64 bits.
const STALL_MAX: Duration = Duration::from_secs(1 << 30);

/// From 1 to `most`, and everything in half of the cases; 0 only if `most` is.
fn pick(most: usize, draw: &mut Draw) -> usize {
    let Some(last) = most.checked_sub(1) else {
        return 0;
    };
    if draw.up_to(1) == 0 {
        most
    } else {
        1 + crate::types::index(draw.up_to(last as u64))
    }
}
