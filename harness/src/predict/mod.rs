//! What calls would take on a machine that was measured: predicted, never measured.
//!
//! A call is counted (`work`), and each count has a cost (`costs`) that `muster tune --model` fits to measured calls (`fit`).
//! So other calls, algorithms and sizes are predicted from few. It must not know commands.

pub mod against;
pub mod call;
pub mod costs;
pub mod fit;
pub mod terms;
pub mod work;

#[cfg(test)]
mod tests;
