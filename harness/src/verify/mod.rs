//! The result of `verify`: what was checked and what came out, and the views of it.

mod document;
#[cfg(test)]
pub(crate) mod fixtures;
pub mod model;
mod page;
pub mod table;
mod verdict;
