//! Whether the machine itself became slower, by its own figures.

use crate::compare::judge::LEVEL;
use crate::compare::rank_test;
use crate::report::machine::Pulse;

/// Least change of the machine's own figures that is believed.
const MACHINE_CHANGE_MIN: f64 = 1.1;

/// How many times slower the machine itself was, and what is to be said about that.
pub(super) fn machine_ratio(base: &[Pulse], new: &[Pulse]) -> (f64, Vec<String>) {
    type Figure = fn(&Pulse) -> f64;
    let figures: [(&str, Figure); 3] = [
        ("an exchange of a cache line between two threads", |pulse| {
            pulse.exchange_ns
        }),
        ("a copy of 4 MiB", |pulse| {
            1.0 / pulse.copy_gbytes_per_s.max(1e-9)
        }),
        ("a thread that wants to run", |pulse| {
            1.0 / pulse.processor_share.max(1e-3)
        }),
    ];
    let (mut worst, mut remarks) = (1.0_f64, Vec::new());
    for (what, figure) in figures {
        let of = |pulses: &[Pulse]| -> Vec<f64> { pulses.iter().map(figure).collect() };
        let Some(effect) = rank_test::compare(&of(base), &of(new)) else {
            continue;
        };
        if effect.p_slower <= LEVEL && effect.ratio >= MACHINE_CHANGE_MIN {
            worst = worst.max(effect.ratio);
            remarks.push(format!(
                "the machine was not the same: {what} took {:.2} times as long in the new run",
                effect.ratio
            ));
        }
    }
    (worst, remarks)
}
