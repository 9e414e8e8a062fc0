//! Whether reading the clock is cheap.

use super::super::{Finding, Problem, System};

const FOLDER: &str = "/sys/devices/system/clocksource/clocksource0";
/// Clocks that cost a trip to a chip or to the hypervisor.
const SLOW: [&str; 5] = ["acpi_pm", "hpet", "jiffies", "pit", "refined-jiffies"];

pub(super) fn judge(system: &System) -> Finding {
    let Some(current) = system.read(format!("{FOLDER}/current_clocksource")) else {
        return Finding::skip("/sys does not tell the clock source");
    };
    let others = system
        .read(format!("{FOLDER}/available_clocksource"))
        .unwrap_or_default();
    let evidence = format!("{FOLDER}: current {current}, available {others}");
    if !SLOW.contains(&current.as_str()) {
        return Finding::ok(format!("the clock source is {current}"), evidence);
    }
    let better = others
        .split_ascii_whitespace()
        .find(|name| !SLOW.contains(name));
    let remedy = better.map_or_else(
        || "look at dmesg for why the processor's own counter was given up (clocksource: ... unstable)".to_owned(),
        |better| format!("echo {better} > {FOLDER}/current_clocksource"),
    );
    Problem::warn(
        format!("the clock source is {current}: every look at the clock costs microseconds, and measured latencies grow"),
        evidence,
        remedy,
    )
    .into()
}
