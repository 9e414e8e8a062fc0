//! Programs that nothing is wrong with, and truths that are planted.

use super::fault::{Fault, plant};
use super::machine::{End, Mode, play};
use super::program::generate;
use crate::moe::random::Draws;

#[test]
fn a_program_with_nothing_wrong_gets_through_whatever_waits_for_what() {
    for seed in 0..300 {
        let world_size = 2 + u32::try_from(seed % 15).unwrap();
        let program = generate(world_size, Draws::of(&[seed]));
        let halts = vec![None; program.len()];
        for mode in [Mode::Lax, Mode::Strict] {
            let outcome = play(&program, &halts, mode);
            let done = outcome.ends.iter().all(|end| *end == End::Done);
            assert!(done, "seed {seed} {mode:?}: {:?}", outcome.ends);
            assert_eq!(outcome.contradictions, []);
            assert_eq!(outcome.lost, []);
        }
    }
}
