//! What the whole-system tests share: finding the built binary, running it with a bound on time,
//! and looking for leftovers.
