//! Tests of the layout: replays of recorded groups, and properties.

#[cfg(test)]
mod megatron;
#[cfg(test)]
mod reader;
