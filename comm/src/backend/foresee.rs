//! How a call of ranks that share memory would be carried out: what predictions ask. No rank is needed.
//!
//! It decides nothing itself. It asks what `host` and `zero_copy` ask, of requests whose buffers are nowhere.

use super::host::choose_placement;
use super::shm_exchange::{Local, Placement};
use super::zero_copy::{is_fetched, may_be_left};
use super::{Counts, Request};
use crate::algo::{Choice, ENTRY, Links, Spread, select};
use crate::types::{Collective, DType, Pattern, ReduceOp};

/// Where the buffers of such requests would lie. Nothing is read there.
const NOWHERE: usize = 1 << 40;

/// A call in which all ranks of a group share memory.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    /// The call.
    pub collective: Collective,
    /// Its element type.
    pub dtype: DType,
    /// Ranks.
    pub n: usize,
    /// Index of the root; 0 where there is none.
    pub root: usize,
    /// What each rank says of lengths; one for all where they say the same.
    pub counts: Vec<Counts<'a>>,
    /// Whether send and receive buffers are the same memory.
    pub in_place: bool,
    /// Whether all ranks can reach the buffers.
    pub in_region: bool,
    /// Whether ranks may read each other's ordinary memory by system call.
    pub may_read: bool,
}

/// The way of a call.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// The payload rides in the entries.
    Entry,
    /// Data moves between the buffers, by system call where these are ordinary memory.
    Between {
        /// By system call.
        reads: bool,
    },
    /// A plan over staging or, of the user's choice, over messages.
    Plan(Choice),
}

impl Asked<'_> {
    fn request(&self, rank: usize) -> Option<Request<'_>> {
        let counts = self.counts.get(rank).or_else(|| self.counts.first())?;
        let recv = NOWHERE << usize::from(!self.in_place);
        Some(Request {
            collective: self.collective,
            called: self.collective,
            dtype: self.dtype,
            op: ReduceOp::Sum,
            root: self.root,
            counts: *counts,
            packed: &[],
            send: std::ptr::without_provenance(NOWHERE),
            recv: std::ptr::without_provenance_mut(recv),
        })
    }

    /// The way that the built-in rules give, or this choice of the user's; none where no rank can carry it out.
    #[must_use]
    pub fn way(&self, chosen: Option<Choice>) -> Option<Way> {
        let request = self.request(0)?;
        let n = self.n;
        let (ride, _) =
            choose_placement(&request, n, chosen.as_ref(), request.contribution(n, 0)).ok()?;
        let is_own = chosen.is_some_and(|chosen| chosen.is_own);
        if let Some(chosen) = chosen.filter(|chosen| chosen.algorithm.links == Links::Message) {
            return Some(Way::Plan(chosen));
        }
        let splits = matches!(request.counts, Counts::Splits { .. });
        let contribution = request.contribution(n, 0);
        let is_inline = matches!(ride, Placement::Inline(_));
        let may_be_left = !is_own && may_be_left(&request, n, contribution);
        if is_inline && !splits && !(may_be_left && self.is_reached(is_own)) {
            return Some(Way::Entry);
        }
        if splits && !is_own && self.fits_entries() {
            return Some(Way::Entry);
        }
        if chosen.is_some_and(|chosen| std::ptr::eq(chosen.algorithm, &raw const ENTRY)) {
            return Some(Way::Entry);
        }
        if self.is_reached(is_own) {
            return Some(Way::Between {
                reads: !self.in_region,
            });
        }
        let spread = Spread::plain(n, Links::Direct);
        let bytes = request.largest_bytes(n);
        let built_in = || select::choose(self.collective, bytes, spread).ok();
        chosen.or_else(built_in).map(Way::Plan)
    }

    fn fits_entries(&self) -> bool {
        let requests = (0..self.counts.len()).filter_map(|rank| Some((rank, self.request(rank)?)));
        let placed = |(rank, request): (usize, Request<'_>)| {
            Local::placement(&request, request.send_count(self.n, rank))
        };
        requests
            .map(placed)
            .all(|placement| matches!(placement, Placement::Inline(_)))
    }

    /// Whether data can move between the buffers as they lie.
    fn is_reached(&self, is_own: bool) -> bool {
        if self.collective.pattern() == Some(Pattern::AllToAll) && self.in_place {
            return false;
        }
        if self.in_region {
            return self.collective.pattern() != Some(Pattern::Barrier);
        }
        if is_own || !self.may_read {
            return false;
        }
        let has_root = self.collective.is_rooted();
        let asked = if has_root && self.collective.pattern() != Some(Pattern::Gather) {
            self.root..self.root + 1
        } else {
            0..self.counts.len().max(1)
        };
        let mut requests = asked.filter_map(|rank| Some((rank, self.request(rank)?)));
        requests.all(|(rank, request)| is_fetched(&request, self.n, rank))
    }
}
