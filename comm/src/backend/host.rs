//! The host engine of one communicator: chooses the way of each call and keeps what lasts.
//!
//! | group | size | way |
//! |---|---|---|
//! | one rank | any | a copy |
//! | all ranks share memory | small | payloads travel in the entries (`shm_exchange`) |
//! | all ranks share memory | large, or not that small, in buffers that all can reach | straight between them (`zero_copy`) |
//! | all ranks share memory | large | a direct plan over staging (`direct`) |
//! | else, or where the user's table says so | any | a message plan over streams (`links`, `message`) |
//!
//! - HOST-1: a call that was refused before its entry takes no sequence number: who corrects its arguments is still in step.
#![expect(unsafe_code, reason = "erased buffers are copied by address")]

use super::direct::{Run, Staging};
use super::exchange;
use super::links::Links;
use super::retire::Retired;
use super::shm_exchange::{BufferAddrs, Local, Placement, Wanted, check_row};
use super::wait_context::WaitContext;
use super::zero_copy::{self, ZeroCopy};
use super::{Counts, Failure, Request};
use crate::algo::{self, Choice, ENTRY, Spread};
use crate::context::{Context, Identity, Island, Status, Unread};
use crate::error::{ErrorKind, Field};
use crate::kernel;
use crate::transport::shm::slot::{CLOSING, DONE, PAYLOAD_MAX};
use crate::types::Collective;

/// What a call may copy, some tens of microseconds, before it stands on the board.
const QUIET_BYTES: usize = 256 << 10;

/// Longest contributions to an `all_reduce` of two ranks that ride in the entry, which reduces all of it twice. Staged,
/// each reduces half, and its result comes back in cache lines that are at hand.
const ENTRY_BYTES_MAX_PAIR: u64 = 8 << 10;

/// What a communicator keeps between calls.
#[derive(Debug, Default)]
pub(crate) struct Host {
    seq: u64,
    local: Option<Local>,
    staging: Option<Staging>,
    links: Links,
    /// Hosts of the members; 0 before it was needed.
    host_count: usize,
    /// How the last call went; empty before the first one.
    taken: &'static str,
    /// A call failed half-way: peers may still read, and nothing says when they stop.
    broken: bool,
}

impl Host {
    /// Number of the last call that took one.
    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    /// The name of the algorithm of the last call: one of the registry, `entry`, `straight` between
    /// buffers that all could reach, `read` where these were read by system call, `copy` in a group of one; empty before the first call.
    pub(crate) fn taken(&self) -> &'static str {
        self.taken
    }

    /// The last call failed half-way.
    pub(crate) fn set_broken(&mut self) {
        self.broken = true;
    }

    /// What messages go over.
    pub(crate) fn links(&mut self) -> &mut Links {
        &mut self.links
    }

    /// Carries a call out.
    pub(crate) fn run(
        &mut self,
        wait_context: &WaitContext<'_>,
        request: &Request<'_>,
    ) -> Result<(), Failure> {
        self.carry_out(wait_context, request)?;
        exchange::identity(request, wait_context.group.len(), wait_context.group.me);
        Ok(())
    }

    fn carry_out(
        &mut self,
        wait_context: &WaitContext<'_>,
        request: &Request<'_>,
    ) -> Result<(), Failure> {
        let n = wait_context.group.len();
        if n == 1 {
            self.seq += 1;
            self.taken = "copy";
            if request.send_count(1, 0) * request.dtype.size() > QUIET_BYTES {
                wait_context.enter();
            }
            alone(request);
            return Ok(());
        }
        let Some(island) = wait_context.context.island_of(wait_context.group) else {
            wait_context.enter();
            let hosts = self.hosts(wait_context);
            let algorithm = choose(wait_context, request, algo::Links::Message, hosts)?.algorithm;
            self.seq += 1;
            self.taken = algorithm.name;
            if request.row().len() > 0 {
                // Of packed buffers the first number says how many follow.
                let skipped = usize::from(!request.packed.is_empty());
                let row = request.row();
                wait_context
                    .place
                    .set_row(self.seq, row.iter().skip(skipped));
            }
            return self
                .links
                .run(wait_context, request, algorithm, self.seq, false)
                .map_err(fatal_after_entry);
        };
        check_row(request)?;
        let local = match &mut self.local {
            Some(local) => local,
            none => {
                island.reclaim(&wait_context.context.status);
                none.insert(Local::establish(wait_context, island)?)
            }
        };
        let on_island = OnIsland {
            wait_context,
            request,
            island,
            local,
            seq: &mut self.seq,
            staging: &mut self.staging,
            links: &mut self.links,
            taken: &mut self.taken,
        };
        on_island.run()
    }

    /// Number of hosts that the members are on.
    fn hosts(&mut self, wait_context: &WaitContext<'_>) -> usize {
        if self.host_count == 0 {
            let mut hosts = self.links.hosts(wait_context).to_vec();
            hosts.sort_unstable();
            hosts.dedup();
            self.host_count = hosts.len();
        }
        self.host_count
    }

    /// The first message of a peer that no call of this rank has taken. It consumes the message: the group is not used again.
    pub(crate) fn unread(&mut self, context: &Context, group: &Identity) -> Option<Unread> {
        if self.broken {
            return None;
        }
        self.links.unread(context, group, self.seq)
    }

    /// Whether messages of this rank lie in shared memory that a rank which is there may still read.
    pub(crate) fn is_unsettled(&self, status: &Status) -> bool {
        !self.broken && self.links.is_unsettled(status)
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

/// One call of ranks that share memory.
struct OnIsland<'a> {
    wait_context: &'a WaitContext<'a>,
    request: &'a Request<'a>,
    island: &'a Island,
    local: &'a mut Local,
    seq: &'a mut u64,
    staging: &'a mut Option<Staging>,
    links: &'a mut Links,
    taken: &'a mut &'static str,
}

impl OnIsland<'_> {
    fn run(mut self) -> Result<(), Failure> {
        let result = self.choose_way();
        if result
            .as_ref()
            .map_or_else(|failure| failure.usable, |()| true)
        {
            self.local.slot.advance(*self.seq, DONE);
        }
        result
    }

    fn choose_way(&mut self) -> Result<(), Failure> {
        let (wait_context, request) = (self.wait_context, self.request);
        let (n, me) = (wait_context.group.len(), wait_context.group.me);
        let contribution = request.contribution(n, me);
        // The user's table may send even small calls over messages, or through staging.
        let has_table = wait_context.table().is_some();
        let chosen = has_table.then(|| choose_direct(wait_context, request));
        let chosen = chosen.transpose()?;
        let (ride, way) = choose_placement(request, n, chosen.as_ref(), contribution)?;
        let splits = matches!(request.counts, Counts::Splits { .. });
        let may_be_left = way == 0 && zero_copy::may_be_left(request, n, contribution);
        let offer = BufferAddrs {
            way,
            ..BufferAddrs::default()
        };
        let by_message = chosen.filter(|chosen| chosen.algorithm.links == algo::Links::Message);
        if let Some(chosen) = by_message {
            let by = (Placement::Staged, offer, Wanted::Agreement);
            *self.seq += 1;
            self.local
                .exchange(wait_context, request, *self.seq, by)
                .map_err(fatal_unless_judged)?;
            *self.taken = chosen.algorithm.name;
            self.links
                .run(wait_context, request, chosen.algorithm, *self.seq, true)
                .map_err(fatal_after_entry)
        } else if matches!(ride, Placement::Inline(_)) && !splits && !may_be_left {
            *self.seq += 1;
            *self.taken = ENTRY.name;
            self.local
                .exchange(
                    wait_context,
                    request,
                    *self.seq,
                    (ride, offer, Wanted::Contributions),
                )
                .map_err(fatal_unless_judged)?;
            self.local.exchange.finish(request, wait_context.group.me);
            Ok(())
        } else {
            self.run_large((ride, way), chosen)
        }
    }

    /// Carries out a call of which the entries may not carry all.
    fn run_large(
        &mut self,
        (mut ride, way): (Placement, u8),
        chosen: Option<Choice>,
    ) -> Result<(), Failure> {
        let (wait_context, request, island) = (self.wait_context, self.request, self.island);
        let (n, me) = (wait_context.group.len(), wait_context.group.me);
        if request.send_count(n, me) * request.dtype.size() > QUIET_BYTES {
            wait_context.enter();
        }
        if self.staging.is_none() {
            // Without it the call may still be carried out; whether it can be, all ranks see together.
            *self.staging = Staging::take(&island.heap);
        }
        let (send_at, recv_at) = zero_copy::places(request, n, me, &island.spaces, way == 0);
        if way == 0
            && zero_copy::may_be_left(request, n, request.contribution(n, me))
            && zero_copy::is_enough(request, me, (send_at, recv_at))
        {
            ride = Placement::Staged;
        }
        let offer = BufferAddrs {
            staging: self.staging.as_ref().map_or(0, Staging::offset),
            send_at,
            recv_at,
            way,
        };
        *self.seq += 1;
        let large = Large {
            wait_context,
            request,
            island,
            ride,
            chosen,
            seq: *self.seq,
            offer,
        };
        let result = large
            .run(self.local, self.staging.as_mut())
            .map(|taken| *self.taken = taken);
        let lent = send_at | recv_at != 0;
        if lent && result.as_ref().is_err_and(|failure| !failure.usable) {
            // The caller gets its buffers back: nobody may be at work on them any more.
            if !self.local.revoke(wait_context, *self.seq) {
                island.heap.distrust_users();
            }
        }
        result
    }
}

/// One call of more than rides in the entries, on ranks that share memory.
struct Large<'a> {
    wait_context: &'a WaitContext<'a>,
    request: &'a Request<'a>,
    island: &'a Island,
    ride: Placement,
    /// What the user's table says, if there is one.
    chosen: Option<Choice>,
    seq: u64,
    offer: BufferAddrs,
}

impl Large<'_> {
    /// Runs the call, and says how it went.
    fn run(
        &self,
        local: &mut Local,
        mut staging: Option<&mut Staging>,
    ) -> Result<&'static str, Failure> {
        let (wait_context, request, seq) = (self.wait_context, self.request, self.seq);
        // Of splits only the rows of all ranks tell how much there is to move.
        let splits = matches!(request.counts, Counts::Splits { .. });
        let lent = self.offer.send_at | self.offer.recv_at != 0;
        let mut begun = None;
        if self.ride == Placement::Staged
            && !splits
            && !lent
            && let Some(staging) = &mut staging
        {
            // Then the entry is the barrier of the first segment.
            let chosen = self.chosen()?;
            let mut run = Run::new(wait_context, request, &chosen, seq, None);
            run.expose_first(local, staging)?;
            begun = Some(run);
        }
        local
            .exchange(
                wait_context,
                request,
                seq,
                (self.ride, self.offer, Wanted::Entries),
            )
            .map_err(fatal_unless_judged)?;
        // A rule that names an algorithm is obeyed for small parts too, on all ranks alike.
        let by_size = self.offer.way == 0;
        if by_size && local.exchange.all_inline(request) {
            local.exchange.finish(request, wait_context.group.me);
            return Ok(ENTRY.name);
        }
        let named = zero_copy::is_named(&local.exchange);
        if named && let Some(way) = self.reach(local)? {
            return Ok(way);
        }
        // Once more by what all ranks see, so that all of them stay in step.
        let all = &local.exchange.entries;
        let without = all.iter().position(|entry| entry.staging == 0);
        let (None, Some(staging)) = (without, staging) else {
            let rank = wait_context.group.members[without.unwrap_or(wait_context.group.me)];
            return Err(Staging::lacked(rank).into());
        };
        let rows = splits.then_some(&local.exchange);
        // Where nobody named a place all ranks have exposed.
        let exposed = !splits && !named;
        let run = match begun {
            Some(run) => run,
            None => Run::new(wait_context, request, &self.chosen()?, seq, rows),
        };
        let name = run.name();
        run.finish(local, staging, exposed)?;
        Ok(name)
    }

    /// The algorithm for what goes through staging.
    fn chosen(&self) -> Result<Choice, Failure> {
        self.chosen
            .map_or_else(|| choose_direct(self.wait_context, self.request), Ok)
    }

    /// Moves the data straight between the buffers, if all ranks can reach what is needed; says how.
    fn reach(&self, local: &Local) -> Result<Option<&'static str>, Failure> {
        let (wait_context, seq) = (self.wait_context, self.seq);
        let spaces = &self.island.spaces;
        let Some(reach) = ZeroCopy::of(wait_context, self.request, &local.exchange, spaces)? else {
            return Ok(None);
        };
        local.touch(wait_context, seq)?;
        reach.work().map_err(|unread| {
            let peer = wait_context.group.members[unread.peer];
            let what = format!("its memory cannot be read: {}", unread.why);
            let news = wait_context.news(&[unread.peer]);
            news.unwrap_or(ErrorKind::Transport { peer, what })
        })?;
        local.barrier(wait_context, seq, CLOSING)?;
        Ok(Some(reach.name()))
    }
}

/// How the contribution travels, and what ranks compare of that: a rule of the user's decides, else its size.
pub(super) fn choose_placement(
    request: &Request<'_>,
    n: usize,
    chosen: Option<&Choice>,
    contribution: usize,
) -> Result<(Placement, u8), Failure> {
    let fits = Local::placement(request, contribution);
    let Some(own) = chosen.filter(|chosen| chosen.is_own) else {
        let is_pair_sum = request.collective == Collective::AllReduce && n == 2;
        let bytes = request
            .common_count()
            .saturating_mul(request.dtype.size() as u64);
        let fits_better = !is_pair_sum || bytes <= ENTRY_BYTES_MAX_PAIR;
        return Ok((if fits_better { fits } else { Placement::Staged }, 0));
    };
    let way = own.mark(request.collective);
    let is_entry = std::ptr::eq(own.algorithm, &raw const ENTRY);
    match (is_entry, fits) {
        (true, Placement::Inline(_)) => Ok((fits, way)),
        (true, Placement::Staged) => Err(ErrorKind::Unsupported {
            what: format!("{} by {}", request.collective, ENTRY.name),
            why: format!(
                "line {} of the user's selection table gives it, and it carries at most {PAYLOAD_MAX} bytes a rank, \
                 counts of blocks included; put bytes<=16KiB or less into the rule",
                own.line
            ),
        }
        .into()),
        (false, _) => Ok((Placement::Staged, way)),
    }
}

/// The algorithm that the tables give for a call of ranks on `hosts` hosts.
fn choose(
    wait_context: &WaitContext<'_>,
    request: &Request<'_>,
    links: algo::Links,
    hosts: usize,
) -> Result<Choice, Failure> {
    let n = wait_context.group.len();
    let bytes = request.largest_bytes(n);
    let spread = Spread { n, hosts, links };
    let selected = match wait_context.table() {
        Some(table) => table.choose(request.collective, bytes, spread),
        None => algo::select::choose(request.collective, bytes, spread),
    };
    selected.map_err(|error| {
        ErrorKind::Unsupported {
            what: format!("{} of {bytes} bytes on {n} ranks", request.collective),
            why: error.to_string(),
        }
        .into()
    })
}

/// As [`choose`], of ranks that share memory.
fn choose_direct(wait_context: &WaitContext<'_>, request: &Request<'_>) -> Result<Choice, Failure> {
    choose(wait_context, request, algo::Links::Direct, 1)
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

/// Once a rank has entered a call its peers count on it: if it lacks memory then, they must hear of it. What no rank can carry
/// out leaves all in step.
fn fatal_after_entry(failure: Failure) -> Failure {
    Failure {
        usable: matches!(failure.kind, ErrorKind::Unsupported { .. }),
        ..failure
    }
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
