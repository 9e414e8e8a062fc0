//! From a checked call to the vendor's calls that carry it out.
//!
//! Pure: addresses are numbers here. Most collectives are one call. What HCCL or a product lacks is
//! composed of `HcclAlltoAllV`, which every product has and which takes zero counts anywhere, or of
//! `HcclAllReduce` and a copy; in-place forms that the vendor does not promise go through scratch
//! memory. All ranks take the same decision, because it depends on what all of them know only.
//!
//! - `LOWER-1`: nothing outside the buffers of the call and the scratch memory is named.
//! - `LOWER-2`: the vendor never gets the same address as send and receive buffer of an exchange.

use super::soc::Product;
use super::support;
use crate::backend::Counts;
use crate::device::vendor_call::{Even, Handle, Side, VendorCall};
use crate::types::{Collective, DType, Pattern, ReduceOp};

/// A checked call: `send` and `recv` as the collective layer defines them. In place they are the
/// addresses within the one buffer at which what is sent and what is received begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceCall<'a> {
    pub(crate) collective: Collective,
    pub(crate) dtype: DType,
    pub(crate) op: ReduceOp,
    pub(crate) root: usize,
    pub(crate) counts: Counts<'a>,
    pub(crate) send: Handle,
    pub(crate) recv: Handle,
    pub(crate) in_place: bool,
    /// This rank and the number of ranks.
    pub(crate) me: usize,
    pub(crate) n: usize,
    pub(crate) product: Product,
    /// Whether all ranks are on one host.
    pub(crate) one_host: bool,
}

impl Side {
    /// Nothing for anybody.
    fn nothing(n: usize, base: Handle) -> Self {
        Self {
            base,
            counts: vec![0; n],
            displs: vec![0; n],
        }
    }

    /// Blocks of these lengths one behind the other.
    fn packed(base: Handle, counts: &[usize]) -> Self {
        let mut at = 0;
        let displs = counts
            .iter()
            .map(|count| {
                let displ = at;
                at += *count as u64;
                displ
            })
            .collect();
        Self {
            base,
            counts: counts.iter().map(|count| *count as u64).collect(),
            displs,
        }
    }

    /// One block for or from one member.
    fn one(n: usize, base: Handle, member: usize, count: usize) -> Self {
        let mut side = Self::nothing(n, base);
        side.counts[member] = count as u64;
        side
    }

    /// The same block for everybody.
    fn same(n: usize, base: Handle, count: usize) -> Self {
        Self {
            base,
            counts: vec![count as u64; n],
            displs: vec![0; n],
        }
    }

    /// Without what this rank has for itself.
    fn without(mut self, me: usize) -> Self {
        self.counts[me] = 0;
        self
    }
}

impl DeviceCall<'_> {
    /// Bytes of scratch memory that the call needs, besides the few that are always there.
    pub(crate) fn scratch_bytes(&self) -> usize {
        let uniform = self.uniform();
        let elements = match self.pattern() {
            Pattern::AllToAll if self.in_place => self.n * uniform,
            Pattern::Reduce if self.me != self.root => uniform,
            Pattern::ReduceScatter if self.collective.has_lengths() => {
                if self.is_direct_reduce_scatter_v() {
                    0
                } else {
                    self.blocks().iter().sum()
                }
            }
            Pattern::ReduceScatter if self.in_place => uniform,
            Pattern::Scatter if self.in_place && self.me == self.root => uniform,
            Pattern::AllGather
            | Pattern::AllReduce
            | Pattern::AllToAll
            | Pattern::Barrier
            | Pattern::Broadcast
            | Pattern::ExclusiveScan
            | Pattern::Gather
            | Pattern::Reduce
            | Pattern::ReduceScatter
            | Pattern::Scan
            | Pattern::Scatter => 0,
        };
        elements * self.dtype.size()
    }

    /// How its data moves: objects go over the host, and messages have steps of their own.
    fn pattern(&self) -> Pattern {
        let pattern = self.collective.pattern();
        pattern.unwrap_or_else(|| unreachable!("{} is made of messages", self.collective))
    }

    /// The vendor's calls, in order; none where no rank has anything to do. `scratch` is device
    /// memory of at least [`DeviceCall::scratch_bytes`] and 64 bytes.
    pub(crate) fn lower(&self, scratch: Handle) -> Vec<VendorCall> {
        if self.is_empty_everywhere() {
            return Vec::new();
        }
        let has_lengths = self.collective.has_lengths();
        match self.pattern() {
            Pattern::AllGather if has_lengths => vec![self.all_gather_v()],
            Pattern::AllGather => vec![VendorCall::AllGather(self.even(self.send, self.recv))],
            Pattern::AllReduce => {
                let even = self.even(self.send, self.recv);
                vec![VendorCall::AllReduce(even, self.op)]
            }
            Pattern::AllToAll if has_lengths => vec![self.all_to_all_v()],
            Pattern::AllToAll => self.all_to_all(scratch),
            Pattern::Barrier => vec![VendorCall::Barrier],
            Pattern::Broadcast => vec![self.broadcast(scratch)],
            Pattern::ExclusiveScan | Pattern::Scan => {
                unreachable!("`support` refuses {}", self.collective)
            }
            Pattern::Gather => vec![self.gather(scratch)],
            Pattern::Reduce => vec![self.reduce(scratch)],
            Pattern::ReduceScatter if has_lengths => self.reduce_scatter_v(scratch),
            Pattern::ReduceScatter => self.reduce_scatter(scratch),
            Pattern::Scatter => vec![self.scatter(scratch)],
        }
    }

    fn all_gather_v(&self) -> VendorCall {
        let blocks = self.blocks();
        // The vendor's own form takes no zero counts for granted, spans one server on A3 and is
        // missing on 910.
        let direct = !blocks.contains(&0)
            && match self.product {
                Product::A3 => self.one_host,
                Product::Ascend910 => false,
                Product::A2 | Product::Ascend310P | Product::Ascend950 | Product::Unknown => true,
            };
        let recv = Side::packed(self.recv, blocks);
        if direct {
            return VendorCall::AllGatherV {
                send: self.send,
                count: recv.counts[self.me],
                recv,
                dtype: self.dtype,
            };
        }
        self.exchange(Side::same(self.n, self.send, blocks[self.me]), recv)
    }

    fn all_to_all(&self, scratch: Handle) -> Vec<VendorCall> {
        let count = self.uniform();
        let mut steps = Vec::new();
        let send = if self.in_place {
            steps.push(VendorCall::Copy {
                target: scratch,
                source: self.send,
                bytes: count * self.n * self.dtype.size(),
            });
            scratch
        } else {
            self.send
        };
        // On 910 the plain form was seen to return success and move nothing.
        if self.product == Product::Ascend910 {
            let blocks = vec![count; self.n];
            steps.push(self.exchange(
                Side::packed(send, &blocks),
                Side::packed(self.recv, &blocks),
            ));
        } else {
            steps.push(VendorCall::AllToAll(self.even(send, self.recv)));
        }
        steps
    }

    fn all_to_all_v(&self) -> VendorCall {
        let (send, recv): (&[usize], &[usize]) = match self.counts {
            Counts::Splits { send, recv } => (send, recv),
            Counts::Blocks(_) | Counts::Uniform(_) => (&[], &[]),
        };
        self.exchange(Side::packed(self.send, send), Side::packed(self.recv, recv))
    }

    fn broadcast(&self, scratch: Handle) -> VendorCall {
        let count = self.uniform();
        if self.product != Product::Ascend310P {
            return VendorCall::Broadcast {
                buffer: self.recv,
                count: count as u64,
                dtype: self.dtype,
                root: self.root_number(),
            };
        }
        if self.me == self.root {
            let send = Side::same(self.n, self.recv, count).without(self.me);
            return self.exchange(send, Side::nothing(self.n, scratch));
        }
        self.exchange(
            Side::nothing(self.n, scratch),
            Side::one(self.n, self.recv, self.root, count),
        )
    }

    /// HCCL has no gather: everybody sends to the root.
    fn gather(&self, scratch: Handle) -> VendorCall {
        let block = |member: usize| match self.counts {
            Counts::Blocks(blocks) => blocks[member],
            Counts::Uniform(count) => count,
            Counts::Splits { .. } => 0,
        };
        if self.me != self.root {
            return self.exchange(
                Side::one(self.n, self.send, self.root, block(self.me)),
                Side::nothing(self.n, scratch),
            );
        }
        let blocks: Vec<usize> = (0..self.n).map(block).collect();
        let recv = Side::packed(self.recv, &blocks);
        if self.in_place {
            // The root's own block is where it belongs.
            return self.exchange(Side::nothing(self.n, scratch), recv.without(self.me));
        }
        self.exchange(Side::one(self.n, self.send, self.me, block(self.me)), recv)
    }

    fn reduce(&self, scratch: Handle) -> VendorCall {
        let recv = if self.me == self.root {
            self.recv
        } else {
            scratch
        };
        let even = self.even(self.send, recv);
        if self.product == Product::Ascend310P {
            return VendorCall::AllReduce(even, self.op);
        }
        VendorCall::Reduce(even, self.op, self.root_number())
    }

    fn reduce_scatter(&self, scratch: Handle) -> Vec<VendorCall> {
        let count = self.uniform();
        let step = |recv| VendorCall::ReduceScatter(self.even(self.send, recv), self.op);
        if !self.in_place {
            return vec![step(self.recv)];
        }
        vec![
            step(scratch),
            VendorCall::Copy {
                target: self.recv,
                source: scratch,
                bytes: count * self.dtype.size(),
            },
        ]
    }

    fn is_direct_reduce_scatter_v(&self) -> bool {
        !self.blocks().contains(&0)
            && support::has_reduce_scatter_v(self.product, self.dtype, self.op)
    }

    fn reduce_scatter_v(&self, scratch: Handle) -> Vec<VendorCall> {
        let side = Side::packed(self.send, self.blocks());
        let (count, displ) = (side.counts[self.me], side.displs[self.me]);
        if self.is_direct_reduce_scatter_v() {
            return vec![VendorCall::ReduceScatterV {
                send: side,
                recv: self.recv,
                count,
                dtype: self.dtype,
                op: self.op,
            }];
        }
        let size = self.dtype.size() as u64;
        let all = Even {
            count: side.counts.iter().sum(),
            ..self.even(self.send, scratch)
        };
        let mut steps = vec![VendorCall::AllReduce(all, self.op)];
        if count > 0 {
            steps.push(VendorCall::Copy {
                target: self.recv,
                source: scratch + crate::types::index(displ * size),
                bytes: crate::types::index(count * size),
            });
        }
        steps
    }

    fn scatter(&self, scratch: Handle) -> VendorCall {
        let uniform = matches!(self.counts, Counts::Uniform(_));
        let is_root = self.me == self.root;
        if uniform && self.product != Product::Ascend310P {
            // In place the root's block is where it belongs: what the vendor writes is not needed.
            let recv = if self.in_place && is_root {
                scratch
            } else {
                self.recv
            };
            return VendorCall::Scatter(self.even(self.send, recv), self.root_number());
        }
        let blocks = match self.counts {
            Counts::Blocks(blocks) => blocks.to_vec(),
            Counts::Uniform(count) => vec![count; self.n],
            Counts::Splits { .. } => Vec::new(),
        };
        let mine = blocks[self.me];
        let recv = Side::one(self.n, self.recv, self.root, mine);
        if !is_root {
            return self.exchange(Side::nothing(self.n, scratch), recv);
        }
        let send = Side::packed(self.send, &blocks);
        if self.in_place {
            return self.exchange(send.without(self.me), Side::nothing(self.n, scratch));
        }
        self.exchange(send, recv)
    }

    fn exchange(&self, send: Side, recv: Side) -> VendorCall {
        VendorCall::AllToAllV {
            send,
            recv,
            dtype: self.dtype,
        }
    }

    /// Blocks of the call's one length, between these addresses.
    fn even(&self, send: Handle, recv: Handle) -> Even {
        Even {
            send,
            recv,
            count: self.uniform() as u64,
            dtype: self.dtype,
        }
    }

    fn uniform(&self) -> usize {
        match self.counts {
            Counts::Uniform(count) => count,
            Counts::Blocks(_) | Counts::Splits { .. } => 0,
        }
    }

    fn blocks(&self) -> &[usize] {
        match self.counts {
            Counts::Blocks(blocks) => blocks,
            Counts::Splits { .. } | Counts::Uniform(_) => &[],
        }
    }

    /// Whether every rank can tell that no rank has anything to do.
    fn is_empty_everywhere(&self) -> bool {
        match self.counts {
            Counts::Uniform(count) => count == 0 && !self.collective.is_empty(),
            Counts::Blocks(blocks) => blocks.iter().all(|count| *count == 0),
            Counts::Splits { .. } => false,
        }
    }

    fn root_number(&self) -> u32 {
        u32::try_from(self.root).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests;
