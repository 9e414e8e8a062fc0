//! The host engine of one communicator: chooses the way of each call and keeps what lasts.
//!
//! | group | size | way |
//! |---|---|---|
//! | one rank | any | a copy |
//! | all ranks share memory | small | payloads ride in the entries (`local`) |
//! | all ranks share memory | large, in buffers that all can reach | straight between them (`reach`) |
//! | all ranks share memory | large | a direct plan over staging (`direct`) |
//! | else, or where the user's table says so | any | a message plan over streams (`links`, `message`) |
//!
//! - HOST-1: a call that was refused before its entry takes no sequence number, so a rank that
//!   corrects its arguments is still in step.
#![expect(unsafe_code, reason = "erased buffers are copied by address")]

use super::direct::{Run, Staging};
use super::links::{Links, Message};
use super::local::{Local, Offer, Ride};
use super::reach::{self, Reach};
use super::vigil::Vigil;
use super::{Counts, Failure, Request};
use crate::algo::{self, Algorithm};
use crate::error::{ErrorKind, Field};
use crate::kernel;
use crate::transport::shm::slot::{CLOSING, DONE, PAYLOAD_MAX};
use crate::types::Collective;
use crate::world::{Island, Retired};

/// What a communicator keeps between calls.
#[derive(Debug, Default)]
pub(crate) struct Host {
    seq: u64,
    local: Option<Local>,
    staging: Option<Staging>,
    links: Links,
    /// A call failed half-way: peers may still read, and nothing says when they stop.
    broken: bool,
}

impl Host {
    /// Number of the last call that took one.
    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    /// The last call failed half-way.
    pub(crate) fn set_broken(&mut self) {
        self.broken = true;
    }

    /// Sends and receives messages.
    pub(crate) fn exchange(
        &mut self,
        vigil: &Vigil<'_>,
        messages: &[Message],
    ) -> Result<(), Failure> {
        self.links.exchange(vigil, messages)
    }

    /// Carries a call out.
    pub(crate) fn run(&mut self, vigil: &Vigil<'_>, request: &Request<'_>) -> Result<(), Failure> {
        let n = vigil.group.len();
        if n == 1 {
            self.seq += 1;
            alone(request);
            return Ok(());
        }
        let Some(island) = vigil.world.island_of(vigil.group) else {
            let algorithm = self.choose(vigil, request, algo::Links::Message)?;
            self.seq += 1;
            return self
                .links
                .run(vigil, request, algorithm, self.seq, false)
                .map_err(fatal_after_entry);
        };
        check_row(request)?;
        if self.local.is_none() {
            island.reclaim(vigil.world);
            self.local = Some(Local::establish(vigil, island)?);
        }
        let result = self.run_local(vigil, request, island);
        if result
            .as_ref()
            .map_or_else(|failure| failure.usable, |()| true)
            && let Some(local) = &self.local
        {
            local.slot.advance(self.seq, DONE);
        }
        result
    }

    fn run_local(
        &mut self,
        vigil: &Vigil<'_>,
        request: &Request<'_>,
        island: &Island,
    ) -> Result<(), Failure> {
        let Some(local) = &mut self.local else {
            return Ok(());
        };
        let ride = local.ride(request);
        let splits = matches!(request.counts, Counts::Splits { .. });
        let chosen = match vigil.table() {
            // The user's table may send even small calls over messages.
            Some(_) => Some(self.choose(vigil, request, algo::Links::Direct)?),
            None => None,
        };
        let by_message = chosen.is_some_and(|chosen| chosen.links == algo::Links::Message);
        let Some(local) = &mut self.local else {
            return Ok(());
        };
        if by_message {
            self.seq += 1;
            local
                .exchange(vigil, request, self.seq, Ride::Staged, Offer::default())
                .map_err(fatal_unless_judged)?;
            let algorithm = chosen.unwrap_or_else(|| unreachable!("by_message says so"));
            self.links
                .run(vigil, request, algorithm, self.seq, true)
                .map_err(fatal_after_entry)?;
        } else if ride == Ride::Inline && !splits {
            self.seq += 1;
            local
                .exchange(vigil, request, self.seq, ride, Offer::default())
                .map_err(fatal_unless_judged)?;
            local.exchange.finish(request, vigil.group.me);
        } else {
            let algorithm = match chosen {
                Some(algorithm) => algorithm,
                None => self.choose(vigil, request, algo::Links::Direct)?,
            };
            self.run_staged(vigil, request, island, ride, algorithm)?;
        }
        Ok(())
    }

    fn run_staged(
        &mut self,
        vigil: &Vigil<'_>,
        request: &Request<'_>,
        island: &Island,
        ride: Ride,
        algorithm: &'static Algorithm,
    ) -> Result<(), Failure> {
        let Some(local) = &mut self.local else {
            return Ok(());
        };
        let staging = match &mut self.staging {
            Some(staging) => staging,
            empty => empty.insert(Staging::take(&island.heap)?),
        };
        let (n, me) = (vigil.group.len(), vigil.group.me);
        let (send_at, recv_at) = reach::places(request, n, me, &island.spaces);
        let offer = Offer {
            staging: staging.offset(),
            send_at,
            recv_at,
        };
        self.seq += 1;
        let large = Large {
            vigil,
            request,
            island,
            ride,
            algorithm,
            seq: self.seq,
            offer,
        };
        let result = large.run(local, staging);
        let lent = send_at | recv_at != 0;
        if lent && result.as_ref().is_err_and(|failure| !failure.usable) {
            // The caller gets its buffers back: nobody may be at work on them any more.
            if !local.revoke(vigil, self.seq) {
                island.heap.distrust_users();
            }
        }
        result
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all others have one block a rank"
    )]
    fn choose(
        &self,
        vigil: &Vigil<'_>,
        request: &Request<'_>,
        links: algo::Links,
    ) -> Result<&'static Algorithm, Failure> {
        let n = vigil.group.len();
        let largest = match request.counts {
            Counts::Uniform(count) => match request.collective {
                Collective::AllReduce | Collective::Broadcast | Collective::Reduce => count,
                _ => count.saturating_mul(n),
            },
            Counts::Blocks(counts) => counts.iter().sum(),
            Counts::Splits { .. } => 0,
        };
        let bytes = (largest as u64).saturating_mul(request.dtype.size() as u64);
        let selected = match vigil.table() {
            Some(table) => table.select(request.collective, bytes, n, links),
            None => algo::select(request.collective, bytes, n, links),
        };
        selected.map_err(|error| {
            ErrorKind::Unsupported {
                what: format!("{} of {bytes} bytes on {n} ranks", request.collective),
                why: error.to_string(),
            }
            .into()
        })
    }

    /// Gives up what the communicator holds in shared memory, as soon as no peer can read it.
    pub(crate) fn retire(&mut self, key: u64) -> Option<Retired> {
        let rings = self.links.retire();
        let local = self.local.take();
        if let Some(local) = &local {
            local.slot.forget_name();
        }
        if local.is_none() && rings.is_empty() {
            return None;
        }
        let staging = self.staging.take();
        Some(Retired {
            key,
            seq: self.seq,
            broken: self.broken,
            local,
            staging,
            rings,
        })
    }
}

/// One call of more than rides in the entries, on ranks that share memory.
struct Large<'a> {
    vigil: &'a Vigil<'a>,
    request: &'a Request<'a>,
    island: &'a Island,
    ride: Ride,
    algorithm: &'static Algorithm,
    seq: u64,
    offer: Offer,
}

impl Large<'_> {
    fn run(&self, local: &mut Local, staging: &mut Staging) -> Result<(), Failure> {
        let (vigil, request, seq) = (self.vigil, self.request, self.seq);
        // Of splits only the rows of all ranks tell how much there is to move.
        let splits = matches!(request.counts, Counts::Splits { .. });
        let lent = self.offer.send_at | self.offer.recv_at != 0;
        if !splits && !lent {
            // Then the entry is the barrier of the first segment.
            Run::new(vigil, request, self.algorithm, seq, None).expose_first(local, staging)?;
        }
        local
            .exchange(vigil, request, seq, self.ride, self.offer)
            .map_err(fatal_unless_judged)?;
        if splits && local.exchange.all_inline(request.dtype) {
            local.exchange.finish(request, vigil.group.me);
            return Ok(());
        }
        let named = reach::is_named(&local.exchange);
        if named && self.reach(local)? {
            return Ok(());
        }
        let rows = splits.then_some(&local.exchange);
        let exposed = !splits && !named;
        Run::new(vigil, request, self.algorithm, seq, rows).finish(local, staging, exposed)
    }

    /// Moves the data straight between the buffers, if all ranks can reach what is needed.
    fn reach(&self, local: &Local) -> Result<bool, Failure> {
        let (vigil, seq) = (self.vigil, self.seq);
        let spaces = &self.island.spaces;
        let Some(reach) = Reach::of(vigil, self.request, &local.exchange, spaces)? else {
            return Ok(false);
        };
        local.touch(vigil, seq)?;
        reach.work();
        local.barrier(vigil, seq, CLOSING)?;
        Ok(true)
    }
}

/// A mismatch of calls leaves all ranks in step; anything else that ends an exchange does not. Ranks
/// that disagree on the members have different groups, which never come together.
fn fatal_unless_judged(kind: ErrorKind) -> Failure {
    let judged = matches!(&kind, ErrorKind::Mismatch { field, .. } if *field != Field::Membership);
    Failure {
        usable: judged,
        ..Failure::from(kind)
    }
}

/// Once a rank has entered a call its peers count on it: if it lacks memory then, they must hear of
/// it. What no rank can carry out leaves all in step.
fn fatal_after_entry(failure: Failure) -> Failure {
    Failure {
        usable: matches!(failure.kind, ErrorKind::Unsupported { .. }),
        ..failure
    }
}

/// The row of counts must fit the entry.
fn check_row(request: &Request<'_>) -> Result<(), ErrorKind> {
    let row = request.row().len();
    if row * size_of::<u64>() <= PAYLOAD_MAX {
        return Ok(());
    }
    Err(ErrorKind::Unsupported {
        what: format!("{} with {row} counts", request.collective),
        why: format!(
            "at most {} fit the exchange",
            PAYLOAD_MAX / size_of::<u64>()
        ),
    })
}

/// A group of one: what it sends is what it receives.
fn alone(request: &Request<'_>) {
    let count = request.send_count(1, 0).min(request.recv_count(1, 0));
    if !std::ptr::eq(request.send, request.recv) {
        // SAFETY: both buffers hold `count` elements (checked by the collective layer) and are
        // either the same memory or apart.
        unsafe { kernel::copy(request.recv, request.send, count * request.dtype.size()) };
    }
}
