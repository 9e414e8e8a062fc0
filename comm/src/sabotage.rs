//! Faults of our own, on purpose: what a drill must notice. Only builds with debug assertions have them.
//!
//! Which one is at work is said by `MUSTER_SABOTAGE`; without it, none is.

/// A fault of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// A message has the number of another round.
    Chunk,
    /// A rank forgets to close a descriptor.
    Descriptor,
    /// Element types are not compared.
    Field,
    /// The board of a rank does not say for whom its calls wait.
    Missing,
    /// An entry of the litmus test is published before its payload is written.
    Order,
}

/// Whether this one is at work.
#[cfg(not(debug_assertions))]
pub(crate) const fn is(_: Sabotage) -> bool {
    false
}

/// Whether this one is at work.
#[cfg(debug_assertions)]
pub(crate) fn is(which: Sabotage) -> bool {
    use std::sync::OnceLock;
    static CHOSEN: OnceLock<Option<Sabotage>> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| {
        let environment = crate::config::Environment::capture();
        let word = environment.text("MUSTER_SABOTAGE").ok().flatten()?;
        [
            ("chunk", Sabotage::Chunk),
            ("descriptor", Sabotage::Descriptor),
            ("field", Sabotage::Field),
            ("missing", Sabotage::Missing),
            ("order", Sabotage::Order),
        ]
        .into_iter()
        .find_map(|(name, sabotage)| (name == word).then_some(sabotage))
    });
    *chosen == Some(which)
}
