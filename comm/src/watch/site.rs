//! Where programs make their calls: `file:line` as small numbers that fit a word of the board.
//!
//! A call site is a `&'static Location`. The first call from a site gives it a number and writes
//! its text to the board; later ones find the number by the address, without a lock.

use std::cell::Cell;
use std::panic::Location;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::sync::{AtomicU64, Ordering};

/// Call sites that are told apart; beyond that they all are number 0, "elsewhere".
pub(super) const SITES_MAX: usize = 512;
/// Places of the lookup by address; a power of two.
const PLACES: usize = 1024;
/// Bits of a place that hold the number; the rest is the address, which fits 48 bits.
const NUMBER_BITS: u32 = 16;

/// A place in a program of another language that makes its calls through this crate.
#[derive(Debug)]
pub struct ProgramSite {
    file: String,
    line: u32,
}

impl ProgramSite {
    /// The line of a file.
    #[must_use]
    pub fn new(file: String, line: u32) -> Self {
        Self { file, line }
    }

    /// Runs calls that the program makes there: dumps and verdicts show this place, and not the one in Rust.
    pub fn at<R>(&'static self, calls: impl FnOnce() -> R) -> R {
        let before = PROGRAM.replace(Some(self));
        let result = calls();
        PROGRAM.set(before);
        result
    }
}

/// A call site as boards and marks take it: that of the program, where one is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot<'a> {
    pub(super) file: &'a str,
    pub(super) line: u32,
    pub(super) column: u32,
}

/// Different for each call site.
fn address_of(site: &Location<'_>) -> u64 {
    PROGRAM.get().map_or_else(
        || std::ptr::from_ref(site) as u64,
        |program| std::ptr::from_ref(program) as u64,
    )
}

impl<'a> Spot<'a> {
    pub(super) fn of(site: &'a Location<'a>) -> Self {
        match PROGRAM.get() {
            Some(program) => Self {
                file: &program.file,
                line: program.line,
                column: 0,
            },
            None => Self {
                file: site.file(),
                line: site.line(),
                column: site.column(),
            },
        }
    }
}

/// Where and when the program started an asynchronous call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub(crate) site: &'static Location<'static>,
    pub(crate) at: Instant,
    /// The thread that started it.
    pub(crate) thread: u32,
}

thread_local! {
    /// On a worker: what it works on.
    static STARTED: Cell<Option<Start>> = const { Cell::new(None) };
    /// Where the program makes the calls of this thread, if it is not in Rust.
    static PROGRAM: Cell<Option<&'static ProgramSite>> = const { Cell::new(None) };
}

/// Runs calls on behalf of the program that started them.
pub(crate) fn on_behalf<R>(start: Start, calls: impl FnOnce() -> R) -> R {
    let before = STARTED.replace(Some(start));
    let result = calls();
    STARTED.set(before);
    result
}

/// On a worker, what started the call under way.
pub(super) fn started() -> Option<Start> {
    STARTED.get()
}

/// Whether calls of this thread are made for others that have started them.
pub(crate) fn is_on_behalf() -> bool {
    started().is_some()
}

/// The place that a call counts for: that of the start where the call itself is made in here.
pub(crate) fn blamed(site: &'static Location<'static>) -> &'static Location<'static> {
    match started() {
        Some(start) if site.file().ends_with("collective/work.rs") => start.site,
        Some(_) | None => site,
    }
}

/// The numbers given so far.
#[derive(Debug)]
pub(super) struct Sites {
    places: Box<[AtomicU64]>,
    /// Addresses by number, less one.
    known: Mutex<Vec<u64>>,
}

impl Default for Sites {
    fn default() -> Self {
        Self {
            places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
            known: Mutex::default(),
        }
    }
}

impl Sites {
    /// The number of a site, from 1; 0 where there is no more room. `write` is called once a site,
    /// before its number is given out.
    #[inline]
    pub(super) fn number<'a>(
        &self,
        site: &'a Location<'a>,
        write: impl FnOnce(usize, Spot<'a>),
    ) -> usize {
        // Every call comes here; what stands at the address is read for a new one only.
        let address = address_of(site);
        let place = &self.places[place_of(address)];
        // SYNC: pairs with the Release below: whoever puts this number on the board does so after its text.
        let word = place.load(Ordering::Acquire);
        if word >> NUMBER_BITS == address & (u64::MAX >> NUMBER_BITS) {
            return crate::types::index(word & ((1 << NUMBER_BITS) - 1));
        }
        self.look_up(site, write)
    }

    /// The number of a site that is not in its place.
    #[cold]
    fn look_up<'a>(&self, site: &'a Location<'a>, write: impl FnOnce(usize, Spot<'a>)) -> usize {
        let address = address_of(site);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let number = match known.iter().position(|one| *one == address) {
            Some(at) => at + 1,
            None if known.len() + 1 < SITES_MAX => {
                known.push(address);
                write(known.len(), Spot::of(site));
                known.len()
            }
            None => 0,
        };
        // SYNC: pairs with the Acquire above. Sites that share a place take turns in it.
        self.places[place_of(address)]
            .store(address << NUMBER_BITS | number as u64, Ordering::Release);
        number
    }
}

fn place_of(address: u64) -> usize {
    // Locations are 24 bytes apart.
    crate::types::index((address >> 3).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn here() -> &'static Location<'static> {
        Location::caller()
    }

    #[test]
    fn a_site_keeps_its_number_and_is_written_once() {
        let sites = Sites::default();
        let (first, second) = (here(), here());
        let mut written = Vec::new();
        for site in [first, second, first, second] {
            let number = sites.number(site, |number, site| written.push((number, site.column)));
            assert_eq!(number, if std::ptr::eq(site, first) { 1 } else { 2 });
        }
        assert_eq!(written.len(), 2);
        assert_ne!(written[0].1, written[1].1);
    }

    #[test]
    fn a_site_of_the_program_takes_the_place_of_the_one_in_rust() {
        static TRAIN: std::sync::OnceLock<ProgramSite> = std::sync::OnceLock::new();
        let train = TRAIN.get_or_init(|| ProgramSite::new("train.py".to_owned(), 62));
        train.at(|| {
            let spot = Spot::of(here());
            assert_eq!((spot.file, spot.line), ("train.py", 62));
        });
        assert_eq!(Spot::of(here()).file, file!());
    }
}
