//! The terms of the model: what calls are counted in.

/// Terms of the model, in the order of `Work`.
pub const TERMS: [Term; 23] = [
    Term::count("call", "a call"),
    Term::count("entry", "an exchange of entries"),
    Term::count("entry_rank", "an entry of a peer"),
    Term::count("barrier", "a barrier behind the entries"),
    Term::count("barrier_rank", "the tick of a peer"),
    Term::bytes(
        "memory_64k",
        "copying, where all buffers together have 64 KiB",
    ),
    Term::bytes("memory_1m", "the same of 1 MiB"),
    Term::bytes("memory_8m", "the same of 8 MiB"),
    Term::bytes("memory_64m", "the same of 64 MiB and more"),
    Term::bytes("reduce", "combining, beside copying"),
    Term::count("read", "reading a peer's memory by system call"),
    Term::bytes("read_byte", "the same, beside copying"),
    Term::bytes("staged_byte", "what is staged, beside copying"),
    Term::count("ring_round", "a round of messages over a ring"),
    Term::count("ring_message", "a message over a ring"),
    Term::bytes("ring_byte", "bytes over a ring"),
    Term::count("tcp_round", "a round of messages over TCP on one host"),
    Term::count("tcp_message", "a message over TCP on one host"),
    Term::bytes("tcp_byte", "bytes over TCP on one host"),
    Term::count("net_round", "a round of messages between hosts"),
    Term::count("net_message", "a message between hosts"),
    Term::bytes("net_byte", "bytes between hosts"),
    Term::count(
        "everybody",
        "a call of messages that no rank ends before all have begun it",
    ),
];

/// Places of the terms.
pub(super) mod at {
    pub(in crate::predict) const CALL: usize = 0;
    pub(in crate::predict) const ENTRY: usize = 1;
    pub(in crate::predict) const BARRIER: usize = 3;
    pub(in crate::predict) const MEMORY: usize = 5;
    pub(in crate::predict) const REDUCE: usize = 9;
    pub(in crate::predict) const READ: usize = 10;
    pub(in crate::predict) const STAGED: usize = 12;
    pub(in crate::predict) const RING: usize = 13;
    pub(in crate::predict) const TCP: usize = 16;
    pub(in crate::predict) const NET: usize = 19;
    pub(in crate::predict) const EVERYBODY: usize = 22;
}

/// Sizes of all buffers together for which the cost of a copied byte has a figure of its own; between them it is interpolated.
const KNOTS: [f64; 4] = [65_536.0, 1_048_576.0, 8_388_608.0, 67_108_864.0];

/// A term of the model.
#[derive(Clone, Copy, Debug)]
pub struct Term {
    /// Its name in files.
    pub name: &'static str,
    /// What it is of.
    pub meaning: &'static str,
    /// Whether it counts bytes; else occurrences.
    pub is_of_bytes: bool,
}

impl Term {
    const fn count(name: &'static str, meaning: &'static str) -> Self {
        Self {
            name,
            meaning,
            is_of_bytes: false,
        }
    }

    const fn bytes(name: &'static str, meaning: &'static str) -> Self {
        Self {
            name,
            meaning,
            is_of_bytes: true,
        }
    }
}

/// The parts of the knots in the cost of a byte where all buffers together have `set` bytes.
pub(super) fn hats(set: f64) -> [f64; KNOTS.len()] {
    let mut parts = [0.0; KNOTS.len()];
    let above = KNOTS.iter().position(|knot| *knot >= set);
    match above {
        Some(0) => parts[0] = 1.0,
        None => parts[KNOTS.len() - 1] = 1.0,
        Some(upper) => {
            let (low, high) = (KNOTS[upper - 1].ln(), KNOTS[upper].ln());
            let part = (set.ln() - low) / (high - low);
            parts[upper - 1] = 1.0 - part;
            parts[upper] = part;
        }
    }
    parts
}
