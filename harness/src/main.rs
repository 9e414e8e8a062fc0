//! `muster`: proves the parallel groups of a training stack on this machine.

fn main() {}
