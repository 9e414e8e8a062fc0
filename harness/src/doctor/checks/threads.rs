//! Whether the threads of all ranks together fit the processors.

use super::super::system::count;
use super::super::{Finding, Problem, System};

pub(super) fn judge(system: &System) -> Finding {
    let Some(processors) = super::affinity::allowed(system) else {
        return Finding::skip("/proc/self/status does not tell the processors");
    };
    let set = system.text("OMP_NUM_THREADS");
    let ranks = system.ranks();
    let each = (processors / ranks.as_ref().map_or(1, |ranks| ranks.count)).max(1);
    let remedy = format!("export OMP_NUM_THREADS={each}");
    if let Some(text) = set {
        // OpenMP takes a list, one number for each level of nesting.
        let first = text.split(',').next().unwrap_or_default();
        let Some(threads) = first
            .trim()
            .parse::<u32>()
            .ok()
            .filter(|threads| *threads > 0)
        else {
            return Problem::fail(
                format!("OMP_NUM_THREADS is {text:?}, which is no number of threads"),
                format!("OMP_NUM_THREADS={text}"),
                remedy,
            )
            .into();
        };
        let Some(ranks) = ranks else {
            return Finding::ok(
                format!("OpenMP takes {}", count(threads, "thread")),
                format!("OMP_NUM_THREADS={text}"),
            );
        };
        let all = u64::from(threads) * u64::from(ranks.count);
        if threads > 1 && all > u64::from(processors) {
            return Problem::warn(
                format!(
                    "{} of {} each are {all} threads on {}",
                    count(ranks.count, "rank"),
                    count(threads, "thread"),
                    count(processors, "processor")
                ),
                format!("OMP_NUM_THREADS={text}; ranks by {}", ranks.how),
                remedy,
            )
            .into();
        }
        return Finding::ok(
            "the threads of all ranks fit the processors",
            format!("OMP_NUM_THREADS={text}"),
        );
    }
    match ranks.filter(|ranks| ranks.count > 1) {
        Some(ranks) if !system.devices().is_empty() => Problem::warn(
            format!(
                "OMP_NUM_THREADS is not set, so each of {} takes all {}",
                count(ranks.count, "rank"),
                count(processors, "processor")
            ),
            format!("OMP_NUM_THREADS is not set; ranks by {}", ranks.how),
            remedy,
        )
        .into(),
        _ => Finding::ok(
            "OMP_NUM_THREADS is not set, and nothing here needs it",
            "environment",
        ),
    }
}
