//! A collective on numbers, against the naive reference.
//!
//! Every member can make every member's input, so it knows what it must receive: by the reference
//! where numbers are reduced, by the definition of the call where they only move. It compares
//! bytes. Nothing here shares code with what is checked.
//!
//! NUMBERS-1: receive buffers are filled with a pattern before the call, so that an element nobody
//! wrote is noticed. NUMBERS-2: send buffers are compared after the call: no collective writes them.
//! NUMBERS-3: every member makes every call of a check, whatever came out of the ones before: what
//! one member sees wrong, another may see right, and they must stay in step.

use std::cell::RefCell;

use half::{bf16, f16};
use muster_comm::buffer::Element;
use muster_comm::collective::reference::{Difference, distinct_inputs, first_difference};
use muster_comm::error::CommError;
use muster_comm::sync::Clock;
use muster_comm::types::{Collective, DType, Extent, Pattern, Rank, ReduceOp, Source};

use crate::check::call_args::CallArgs;
use crate::check::message::Wrong;
use crate::check::subject::{Message, Subject};

/// Byte that receive buffers are filled with.
const PATTERN: u8 = 0xa5;

/// One collective to check on one group.
#[derive(Clone, Copy, Debug)]
pub struct Numbers<'a> {
    /// The group.
    pub comm: &'a Subject,
    /// The call.
    pub collective: Collective,
    /// Element type.
    pub dtype: DType,
    /// Elements, as the call counts them.
    pub count: usize,
    /// Seed of the inputs, the same on all members.
    pub seed: u64,
    /// The reductions to try, where the call reduces.
    pub ops: &'a [ReduceOp],
    /// Takes how long each call lasted on this member, in microseconds.
    pub took_us: &'a RefCell<Vec<u64>>,
}

/// Checks a collective. All members call it with equal arguments.
///
/// # Errors
/// The first error of a call; what comes out wrong is no error but the result.
pub fn check(numbers: &Numbers<'_>) -> Result<Option<Wrong>, CommError> {
    let wrong = match numbers.dtype {
        DType::Bf16 => numbers.typed::<bf16>(),
        DType::F16 => numbers.typed::<f16>(),
        DType::F32 => numbers.typed::<f32>(),
        DType::F64 => numbers.typed::<f64>(),
        DType::I8 => numbers.typed::<i8>(),
        DType::I16 => numbers.typed::<i16>(),
        DType::I32 => numbers.typed::<i32>(),
        DType::I64 => numbers.typed::<i64>(),
        DType::U8 => numbers.typed::<u8>(),
        DType::U16 => numbers.typed::<u16>(),
        DType::U32 => numbers.typed::<u32>(),
        DType::U64 => numbers.typed::<u64>(),
    }?;
    let spoilt = numbers.comm.take_trouble().map(|text| Wrong {
        text,
        blamed: vec![numbers.comm.members()[numbers.me()].0],
        ..Wrong::default()
    });
    Ok(wrong.or(spoilt))
}

/// What one call got, what it should have got, and whose block each element is.
pub(super) struct Attempt<T> {
    pub(super) expected: Vec<u8>,
    pub(super) got: Vec<T>,
    /// Member and length of each block of the receive buffer; empty where every element came from
    /// all members.
    pub(super) blocks: Vec<(usize, usize)>,
    /// The circumstances, for the report.
    pub(super) how: String,
}

impl<T: Element> Attempt<T> {
    /// What is wrong with what was received; and, where the send buffer is given as it is and as it
    /// was, with what became of that.
    pub(super) fn judge(
        &self,
        numbers: &Numbers<'_>,
        sent: Option<(&[T], &[u8])>,
    ) -> Option<Wrong> {
        let members = numbers.comm.members();
        let got: &[u8] = bytemuck::cast_slice(&self.got);
        if let Some(difference) = first_difference(T::DTYPE, &self.expected, got) {
            let source = self
                .source_of(difference.index)
                .or_else(|| (members.len() == 1).then_some(0));
            let blamed = source
                .and_then(|source| members.get(source))
                .map(|rank| rank.0);
            return Some(wrong(&difference, blamed.into_iter().collect(), &self.how));
        }
        let (after, before) = sent?;
        let difference = first_difference(T::DTYPE, before, bytemuck::cast_slice(after))?;
        let how = format!("{}, the call changed its own send buffer", self.how);
        Some(wrong(&difference, vec![members[numbers.me()].0], &how))
    }

    /// The member whose contribution an element of the receive buffer is.
    fn source_of(&self, element: usize) -> Option<usize> {
        let mut end = 0_usize;
        self.blocks.iter().find_map(|(member, length)| {
            end = end.saturating_add(*length);
            (element < end).then_some(*member)
        })
    }
}

fn wrong(difference: &Difference, blamed: Vec<u32>, how: &str) -> Wrong {
    Wrong {
        element: Some(difference.index as u64),
        differing: Some(difference.differing as u64),
        expected: difference.expected.clone(),
        got: difference.got.clone(),
        blamed,
        text: format!("{how}: {difference}"),
    }
}

/// A receive buffer full of the pattern (NUMBERS-1).
pub(super) fn blank<T: Element>(count: usize) -> Vec<T> {
    elements(&vec![PATTERN; count * T::DTYPE.size()])
}

/// Bytes as elements.
pub(super) fn elements<T: Element>(bytes: &[u8]) -> Vec<T> {
    bytes
        .chunks_exact(size_of::<T>())
        .map(bytemuck::pod_read_unaligned)
        .collect()
}

impl Numbers<'_> {
    fn typed<T: Element>(&self) -> Result<Option<Wrong>, CommError> {
        let Some(pattern) = self.collective.pattern() else {
            return if self.collective == Collective::SendRecvBatch {
                self.batch::<T>()
            } else {
                self.ring::<T>()
            };
        };
        let has_lengths = self.collective.has_lengths();
        let is_of_own_blocks = pattern.send(true) == Extent::OwnBlock;
        match pattern.source() {
            // Objects have a check of their own; asked here, nothing would be proved.
            _ if self.collective.is_of_objects() => Ok(Some(Wrong {
                text: format!("{} carries no numbers", self.collective),
                ..Wrong::default()
            })),
            Source::Each if is_of_own_blocks => self.gathers::<T>(pattern),
            Source::Each if has_lengths => self.all_to_all_v::<T>(),
            Source::Each => self.all_to_all::<T>(),
            Source::Nobody => self.make::<T>(&self.args(), &[], &mut []).map(|()| None),
            Source::Reduction(_) => self.reductions::<T>(pattern),
            Source::Root if pattern.has_one_buffer() => self.broadcast::<T>(),
            Source::Root => self.scatters::<T>(),
        }
    }

    /// Makes a call, and notes how long it lasted.
    pub(super) fn make<T: Element>(
        &self,
        args: &CallArgs<'_>,
        sendbuf: &[T],
        recvbuf: &mut [T],
    ) -> Result<(), CommError> {
        let begun = Clock::now();
        let made = self.comm.make(args, sendbuf, recvbuf);
        let took = Clock::now().duration_since(begun).as_micros();
        let took = u64::try_from(took).unwrap_or(u64::MAX);
        self.took_us.borrow_mut().push(took);
        made
    }

    pub(super) fn len(&self) -> usize {
        self.comm.size()
    }

    pub(super) fn me(&self) -> usize {
        self.comm.rank()
    }

    /// The root of rooted calls: another one for each shape, so that all members have their turn.
    pub(super) fn root(&self) -> usize {
        (self.count + self.dtype as usize) % self.len()
    }

    /// The call.
    pub(super) fn args(&self) -> CallArgs<'_> {
        CallArgs {
            root: self.root(),
            ..CallArgs::new(self.collective)
        }
    }

    /// The call with so many elements in each block. They count where blocks may differ only.
    pub(super) fn of_blocks<'a>(&self, counts: &'a [usize]) -> CallArgs<'a> {
        CallArgs {
            root: self.root(),
            send_counts: counts,
            ..CallArgs::new(self.collective)
        }
    }

    /// The root as reports name it.
    pub(super) fn root_name(&self) -> String {
        format!("root {}", self.comm.members()[self.root()])
    }

    /// The part of member `index` in calls whose parts differ: some all, some half, some nothing.
    pub(super) fn uneven(&self, index: usize) -> usize {
        match index % 4 {
            0 => self.count,
            1 => self.count / 2,
            2 => 0,
            _ => self.count / 3 + usize::from(self.count > 0),
        }
    }

    /// The part of each member, where blocks may differ.
    pub(super) fn parts(&self) -> Vec<usize> {
        let part = |member: usize| match self.collective.has_lengths() {
            true => self.uneven(member),
            false => self.count,
        };
        (0..self.len()).map(part).collect()
    }

    /// Input of a member to a call that only moves data and treats a buffer as a whole.
    fn moved(&self, member: usize, count: usize) -> Vec<u8> {
        distinct_inputs(self.dtype, Rank::from_index(member), count, self.seed)
    }

    /// What a member has for another one, in calls that treat them differently. Each block can be
    /// made alone, so that nobody has to make what concerns others only.
    fn block(&self, from: usize, to: usize, count: usize) -> Vec<u8> {
        distinct_inputs(
            self.dtype,
            Rank::from_index(from),
            count,
            self.block_seed(to),
        )
    }

    /// The seed of the blocks that are meant for a member.
    pub(super) fn block_seed(&self, to: usize) -> u64 {
        // Any odd number far from small ones: neighbouring seeds give unrelated data.
        self.seed
            .wrapping_add((to as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// A buffer of one block a member in which this member's block is filled in.
    fn with_own_block<T: Element>(&self, own: &[u8]) -> Vec<T> {
        let mut bytes = vec![PATTERN; own.len() * self.len()];
        bytes[own.len() * self.me()..][..own.len()].copy_from_slice(own);
        elements(&bytes)
    }

    fn all_to_all<T: Element>(&self) -> Result<Option<Wrong>, CommError> {
        let (len, me) = (self.len(), self.me());
        let sent: Vec<u8> = (0..len)
            .flat_map(|to| self.block(me, to, self.count))
            .collect();
        let send: Vec<T> = elements(&sent);
        let mut attempt = Attempt {
            expected: (0..len)
                .flat_map(|from| self.block(from, me, self.count))
                .collect(),
            got: blank(self.count * len),
            blocks: (0..len).map(|member| (member, self.count)).collect(),
            how: "out of place".to_owned(),
        };
        self.make(&self.args(), &send, &mut attempt.got)?;
        let wrong = attempt.judge(self, Some((&send, &sent)));
        attempt.got = send;
        "in place".clone_into(&mut attempt.how);
        self.make(&self.args().in_place(), &[], &mut attempt.got)?;
        Ok(wrong.or_else(|| attempt.judge(self, None)))
    }

    fn all_to_all_v<T: Element>(&self) -> Result<Option<Wrong>, CommError> {
        let (len, me) = (self.len(), self.me());
        // Another length for each pair, and many of them zero.
        let split = |from: usize, to: usize| self.uneven(from + 3 * to);
        let sends: Vec<usize> = (0..len).map(|to| split(me, to)).collect();
        let receives: Vec<usize> = (0..len).map(|from| split(from, me)).collect();
        let sent: Vec<u8> = (0..len)
            .flat_map(|to| self.block(me, to, sends[to]))
            .collect();
        let send: Vec<T> = elements(&sent);
        let mut got = blank(receives.iter().sum());
        let args = CallArgs {
            recv_counts: &receives,
            ..self.of_blocks(&sends)
        };
        self.make(&args, &send, &mut got)?;
        let attempt = Attempt {
            expected: (0..len)
                .flat_map(|from| self.block(from, me, receives[from]))
                .collect(),
            got,
            blocks: receives.into_iter().enumerate().collect(),
            how: "uneven blocks".to_owned(),
        };
        Ok(attempt.judge(self, Some((&send, &sent))))
    }

    /// All blocks to the root, or to every member.
    fn gathers<T: Element>(&self, pattern: Pattern) -> Result<Option<Wrong>, CommError> {
        let (me, parts) = (self.me(), self.parts());
        let gets = pattern.recv(me == self.root()) != Extent::Nothing;
        let input = self.moved(me, parts[me]);
        let send: Vec<T> = elements(&input);
        let mut attempt = Attempt {
            expected: if gets {
                (0..self.len())
                    .flat_map(|member| self.moved(member, parts[member]))
                    .collect()
            } else {
                Vec::new()
            },
            got: blank(if gets { parts.iter().sum() } else { 0 }),
            blocks: parts.iter().copied().enumerate().collect(),
            how: if pattern.is_rooted() {
                self.root_name()
            } else {
                "to all".to_owned()
            },
        };
        self.make(&self.of_blocks(&parts), &send, &mut attempt.got)?;
        let wrong = attempt.judge(self, Some((&send, &input)));
        if self.collective.has_lengths() {
            return Ok(wrong);
        }
        attempt.how.push_str(", in place");
        if gets {
            attempt.got = self.with_own_block(&input);
        } else {
            // Elsewhere the buffer is the block that is given, and stays as it was.
            attempt.got = send;
            attempt.expected.clone_from(&input);
        }
        self.make(&self.args().in_place(), &[], &mut attempt.got)?;
        Ok(wrong.or_else(|| attempt.judge(self, None)))
    }

    fn scatters<T: Element>(&self) -> Result<Option<Wrong>, CommError> {
        let (me, root, parts) = (self.me(), self.root(), self.parts());
        let sent: Vec<u8> = if me == root {
            (0..self.len())
                .flat_map(|to| self.block(root, to, parts[to]))
                .collect()
        } else {
            Vec::new()
        };
        let send: Vec<T> = elements(&sent);
        let mut attempt = Attempt {
            expected: self.block(root, me, parts[me]),
            got: blank(parts[me]),
            blocks: vec![(root, usize::MAX)],
            how: self.root_name(),
        };
        self.make(&self.of_blocks(&parts), &send, &mut attempt.got)?;
        let wrong = attempt.judge(self, Some((&send, &sent)));
        if self.collective.has_lengths() {
            return Ok(wrong);
        }
        attempt.how.push_str(", in place");
        if me == root {
            // The root's own block stays in its place, so the whole buffer is as before.
            attempt.got = send;
            attempt.expected = sent;
        } else {
            attempt.got = blank(parts[me]);
        }
        self.make(&self.args().in_place(), &[], &mut attempt.got)?;
        Ok(wrong.or_else(|| attempt.judge(self, None)))
    }

    fn broadcast<T: Element>(&self) -> Result<Option<Wrong>, CommError> {
        let (me, root) = (self.me(), self.root());
        let expected = self.moved(root, self.count);
        let mut got: Vec<T> = if me == root {
            elements(&expected)
        } else {
            blank(self.count)
        };
        self.make(&self.args(), &[], &mut got)?;
        let attempt = Attempt {
            expected,
            got,
            blocks: vec![(root, usize::MAX)],
            how: self.root_name(),
        };
        Ok(attempt.judge(self, None))
    }

    /// A message to the next member and one from the one before, with plain send and receive.
    fn ring<T: Element>(&self) -> Result<Option<Wrong>, CommError> {
        let (len, me) = (self.len(), self.me());
        if len == 1 {
            // A message to oneself is possible in a batch only.
            return Ok(None);
        }
        let (next, previous) = ((me + 1) % len, (me + len - 1) % len);
        let sent = self.moved(me, self.count);
        let send: Vec<T> = elements(&sent);
        let mut got = blank(self.count);
        // Sends may wait for their receiver: somebody in the ring has to receive first.
        if me.is_multiple_of(2) {
            self.comm.send(&send, next)?;
            self.comm.recv(&mut got, previous)?;
        } else {
            self.comm.recv(&mut got, previous)?;
            self.comm.send(&send, next)?;
        }
        let attempt = Attempt {
            expected: self.moved(previous, self.count),
            got,
            blocks: vec![(previous, self.count)],
            how: format!("from rank {}", self.comm.members()[previous]),
        };
        Ok(attempt.judge(self, Some((&send, &sent))))
    }

    /// Messages of different lengths to and from both neighbours and oneself, posted together.
    fn batch<T: Element>(&self) -> Result<Option<Wrong>, CommError> {
        let (len, me) = (self.len(), self.me());
        let (next, previous) = ((me + 1) % len, (me + len - 1) % len);
        let sent = self.moved(me, self.count);
        let send: Vec<T> = elements(&sent);
        let (mut around, mut back, mut own) = (
            blank::<T>(self.count),
            blank::<T>(self.count / 2),
            blank::<T>(self.count),
        );
        // Forward the whole, backward the first half, and the whole to oneself.
        let mut messages = vec![Message::Send(&send, me), Message::Recv(&mut own, me)];
        if len > 1 {
            messages.push(Message::Recv(&mut around, previous));
            messages.push(Message::Send(&send, next));
            messages.push(Message::Send(&send[..self.count / 2], previous));
            messages.push(Message::Recv(&mut back, next));
        }
        self.comm.batch_send_recv(&mut messages)?;
        drop(messages);
        let mut attempts = vec![(me, sent.clone(), own)];
        if len > 1 {
            attempts.push((previous, self.moved(previous, self.count), around));
            attempts.push((next, self.moved(next, self.count / 2), back));
        }
        let mut wrong = None;
        for (source, expected, got) in attempts {
            let how = format!("from rank {}", self.comm.members()[source]);
            let blocks = vec![(source, usize::MAX)];
            let attempt = Attempt {
                expected,
                got,
                blocks,
                how,
            };
            wrong = wrong.or_else(|| attempt.judge(self, Some((&send, &sent))));
        }
        Ok(wrong)
    }
}
