//! The books of a device's memory: what is allocated, what was freed, what is free.
//!
//! BOOKS-1: addresses rest after a free, memory does not. Whole pages are given back at once, and a page that
//! several ranges share as soon as all of it is free. So freed memory takes less than two pages for each range
//! that rests: at most `RESTING_BYTES_MAX` a device.

use std::collections::{BTreeMap, VecDeque};

use super::backing::{Backing, page};
use super::fresh::{Fresh, PART};
use super::misuse::Misuse;
use super::ranges::Ranges;
use super::{Access, Rules};
use crate::options::Bounds;
use crate::runtime::errors::{AclError, RuntimeError};

/// Sizes are rounded up to this, as the vendor does.
const ROUND: u64 = 32;
/// Bytes behind every allocation, as the vendor has them.
const SPARE: u64 = 32;
/// Alignment of an allocation; the vendor promises 64. Those that fill a page begin at one, so that it can be given back.
const ALIGN: u64 = 512;
/// Memory that freed ranges take while they rest: at most two pages each, so they are 8192 with pages of 4 KiB.
const RESTING_BYTES_MAX: u64 = 64 << 20;
/// How much memory there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// All of it, in bytes.
    pub total: u64,
    /// What is not allocated, in bytes.
    pub free: u64,
}

#[derive(Debug)]
struct Allocation {
    /// As asked for.
    bytes: u64,
    /// How much of it may be used.
    usable: u64,
    /// With rounding and spare bytes.
    span: u64,
    by: (&'static str, u64),
    fresh: Option<Fresh>,
}

impl Allocation {
    fn covers(&self, start: u64, bytes: u64) -> Result<(), Misuse> {
        match start.checked_add(bytes) {
            Some(end) if end <= self.usable => Ok(()),
            _ => Err(Misuse::OutOfBounds {
                start,
                bytes,
                allocation: self.bytes,
                by: self.by,
            }),
        }
    }
}

#[derive(Debug)]
struct Freed {
    bytes: u64,
    span: u64,
    by: (&'static str, u64),
    freed_by: (&'static str, u64),
}

/// The books of one device.
#[derive(Debug)]
pub struct Space {
    device: u32,
    rules: Rules,
    capacity: u64,
    used: u64,
    /// Taken without an address.
    pub(super) charged: u64,
    free: Ranges,
    live: BTreeMap<u64, Allocation>,
    /// Freed addresses that rest, by start, and in the order of their end.
    resting: BTreeMap<u64, Freed>,
    queue: VecDeque<u64>,
    resting_bytes: u64,
    resting_max: u64,
    allocations: u64,
    frees: u64,
}

impl Space {
    /// Books for `capacity` bytes of memory in `span` bytes of addresses.
    #[must_use]
    pub fn new(device: u32, rules: Rules, capacity: u64, span: u64) -> Self {
        Self {
            device,
            rules,
            capacity,
            used: 0,
            charged: 0,
            free: Ranges::up_to(span),
            live: BTreeMap::new(),
            resting: BTreeMap::new(),
            queue: VecDeque::new(),
            resting_bytes: 0,
            resting_max: span / 2,
            allocations: 0,
            frees: 0,
        }
    }

    /// Takes an address range for `bytes`.
    pub(super) fn allocate(
        &mut self,
        bytes: u64,
        call: &'static str,
        backing: &Backing,
    ) -> Result<u64, RuntimeError> {
        let span = bytes
            .checked_next_multiple_of(ROUND)
            .and_then(|rounded| rounded.checked_add(SPARE))
            .ok_or_else(|| self.out_of_memory(bytes, call))?;
        let align = if span >= page() { page() } else { ALIGN };
        self.allocate_span(bytes, span, align, call, backing)
    }

    /// Takes a range of `span` bytes, of which `bytes` may be used.
    pub(super) fn allocate_span(
        &mut self,
        bytes: u64,
        span: u64,
        align: u64,
        call: &'static str,
        backing: &Backing,
    ) -> Result<u64, RuntimeError> {
        if span > self.info().free {
            return Err(self.out_of_memory(bytes, call));
        }
        let offset = loop {
            if let Some(offset) = self.free.take(span, align) {
                break offset;
            }
            // Addresses that rest are given up before memory that is free is refused.
            if !self.release_oldest(backing) {
                return Err(self.out_of_memory(bytes, call));
            }
        };
        self.allocations += 1;
        self.used += span;
        let usable = match self.rules.bounds {
            Bounds::Exact => bytes,
            Bounds::Granule => span,
        };
        let fresh = if span >= PART {
            Some(Fresh::new(usable))
        } else {
            backing.fill(offset, span, self.rules.poison);
            None
        };
        self.live.insert(
            offset,
            Allocation {
                bytes,
                usable,
                span,
                by: (call, self.allocations),
                fresh,
            },
        );
        Ok(offset)
    }

    pub(super) fn free(
        &mut self,
        offset: u64,
        call: &'static str,
        backing: &Backing,
    ) -> Result<(), Misuse> {
        let Some(allocation) = self.live.remove(&offset) else {
            return Err(match self.around(offset) {
                Some((start, allocation)) => Misuse::NotTheStart {
                    start: offset - start,
                    by: allocation.by,
                },
                None => self.absent(offset),
            });
        };
        self.frees += 1;
        self.used -= allocation.span;
        // Whatever still uses the memory finds poison or zeros, not what was there.
        self.give_back(offset, allocation.span, backing);
        self.resting_bytes += allocation.span;
        self.queue.push_back(offset);
        self.resting.insert(
            offset,
            Freed {
                bytes: allocation.bytes,
                span: allocation.span,
                by: allocation.by,
                freed_by: (call, self.frees),
            },
        );
        let is_too_much = |space: &Self| {
            space.resting_bytes > space.resting_max
                || space.queue.len() as u64 > RESTING_BYTES_MAX / (2 * page())
        };
        while is_too_much(self) && self.release_oldest(backing) {}
        Ok(())
    }

    pub(super) fn free_all(&mut self, call: &'static str, backing: &Backing) {
        let starts: Vec<u64> = self.live.keys().copied().collect();
        for start in starts {
            // It is the start of a live allocation: it was read from the list just now.
            let _ = self.free(start, call, backing);
        }
        // No page belongs to a live allocation any more.
        backing.punch(0, backing.bytes() as u64);
    }

    /// Proves that a range lies in one live allocation.
    pub(super) fn verify(&self, offset: u64, bytes: u64) -> Result<(), Misuse> {
        let Some((start, found)) = self.around(offset) else {
            return Err(self.absent(offset));
        };
        found.covers(offset - start, bytes)
    }

    /// Proves that a range lies in one live allocation, and poisons what of it is fresh.
    pub(super) fn check(
        &mut self,
        offset: u64,
        bytes: u64,
        access: Access,
        backing: &Backing,
    ) -> Result<(), Misuse> {
        let Some((start, found)) = self.live.range_mut(..=offset).next_back() else {
            return Err(self.absent(offset));
        };
        let inside = offset - start;
        if inside >= found.span {
            return Err(self.absent(offset));
        }
        found.covers(inside, bytes)?;
        let Some(fresh) = &mut found.fresh else {
            return Ok(());
        };
        for part in fresh.touch(inside, bytes) {
            let (from, to) = (part * PART, ((part + 1) * PART).min(found.usable));
            let covered = inside <= from && to <= inside + bytes;
            if access == Access::Read || !covered {
                backing.fill(start + from, to - from, self.rules.poison);
            }
        }
        if fresh.is_over() {
            found.fresh = None;
        }
        Ok(())
    }

    pub(super) fn allocation_at(&self, offset: u64) -> Option<(u64, u64)> {
        self.around(offset)
            .map(|(start, allocation)| (start, allocation.bytes))
    }

    pub(super) fn charge(&mut self, bytes: u64, what: &'static str) -> Result<(), RuntimeError> {
        if bytes > self.info().free {
            return Err(self.out_of_memory(bytes, what));
        }
        self.charged += bytes;
        Ok(())
    }

    pub(super) fn info(&self) -> Info {
        Info {
            total: self.capacity,
            free: self.capacity.saturating_sub(self.used + self.charged),
        }
    }

    /// The live allocation that holds `offset`, spare bytes included.
    fn around(&self, offset: u64) -> Option<(u64, &Allocation)> {
        let (start, allocation) = self.live.range(..=offset).next_back()?;
        (offset - start < allocation.span).then_some((*start, allocation))
    }

    /// What `offset` is, if it is in no live allocation.
    fn absent(&self, offset: u64) -> Misuse {
        let before = self.resting.range(..=offset).next_back();
        match before.filter(|(start, freed)| offset - *start < freed.span) {
            Some((_, freed)) => Misuse::Freed {
                allocation: freed.bytes,
                by: freed.by,
                freed_by: freed.freed_by,
            },
            None => Misuse::Unallocated {
                device: self.device,
                offset,
            },
        }
    }

    /// Ends the rest of the addresses that were freed first.
    fn release_oldest(&mut self, backing: &Backing) -> bool {
        let Some(start) = self.queue.pop_front() else {
            return false;
        };
        if let Some(freed) = self.resting.remove(&start) {
            self.resting_bytes -= freed.span;
            let merged = self.free.give(start, freed.span);
            // Its whole pages were given back when it was freed; those at its edges may be free now.
            let page = page();
            let (first, last) = (start / page * page, (start + freed.span - 1) / page * page);
            for at in [first, last] {
                if merged.0 <= at && at + page <= merged.1 {
                    backing.punch(at, page);
                }
            }
        }
        true
    }

    /// Gives the whole pages of a range back, and poisons its ends, which share their pages.
    fn give_back(&self, offset: u64, span: u64, backing: &Backing) {
        let poison = |from: u64, to: u64| backing.fill(from, to - from, self.rules.poison);
        let end = offset + span;
        let page = page();
        let (first, last) = (offset.next_multiple_of(page), end / page * page);
        if first >= last {
            poison(offset, end);
            return;
        }
        poison(offset, first);
        poison(last, end);
        backing.punch(offset, span);
    }

    fn out_of_memory(&self, bytes: u64, call: &'static str) -> RuntimeError {
        let info = self.info();
        RuntimeError::new(
            AclError::RT_MEMORY_ALLOCATION,
            format!(
                "{call} of {bytes} bytes on device {}: {} of {} bytes are free",
                self.device, info.free, info.total
            ),
        )
    }
}
