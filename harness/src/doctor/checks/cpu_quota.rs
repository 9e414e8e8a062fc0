//! Whether the control group leaves the ranks enough processor time.

use super::super::cgroup::{folders, quota};
use super::super::system::count;
use super::super::{Finding, Problem, System};

pub(super) fn judge(system: &System) -> Finding {
    let Some((processors, file)) = quota(system) else {
        return Finding::ok(
            "processor time is not limited",
            "no quota in the control groups",
        );
    };
    let stopped = folders(system, "cpu").into_iter().find_map(|folder| {
        let text = system.read(format!("{folder}/cpu.stat"))?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("nr_throttled "))?;
        line.parse::<u64>().ok()
    });
    let stopped = stopped.unwrap_or(0);
    let evidence = format!("{file}: {processors:.1} processors, stopped {stopped} times so far");
    let ranks = system.ranks().map_or(1, |ranks| ranks.count);
    if processors < f64::from(ranks) {
        return Problem::warn(
            format!("the control group gives {processors:.1} processors to {}: they are stopped in turn, which looks like slow ranks", count(ranks, "rank")),
            evidence,
            "raise the limit of the container: docker run --cpus, or resources.limits.cpu in Kubernetes",
        )
        .into();
    }
    Finding::ok(
        format!("the control group gives {processors:.1} processors"),
        evidence,
    )
}
