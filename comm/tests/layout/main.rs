//! Tests of the layout: replays of recorded groups, and properties.

#[cfg(test)]
mod megatron;
#[cfg(test)]
mod mindspeed;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod reader;
#[cfg(test)]
mod vllm;
