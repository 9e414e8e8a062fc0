//! Whether every variable of the vendor's stack holds what its reader takes.

use super::super::{Finding, Owner, Problem, System, Vendor, vendor_variables};

pub(super) fn judge(system: &System) -> Finding {
    let mut problems = Vec::new();
    let mut seen = Vec::new();
    for row in vendor_variables() {
        let value = match system.environment().text(row.name) {
            Ok(Some(value)) => value,
            Ok(None) => continue,
            Err(error) => {
                problems.push(Problem::fail(
                    error.to_string(),
                    row.name,
                    format!("unset {}", row.name),
                ));
                continue;
            }
        };
        seen.push(row.name);
        if (row.fits)(value) {
            continue;
        }
        let consequence = match row.owner {
            Owner::Hccl => "the first HCCL call fails with EI0001",
            Owner::VllmAscend => "the engine ends when it reads it",
            Owner::HcclTest | Owner::Launch | Owner::Runtime | Owner::TorchNpu => "",
        };
        let gap = if consequence.is_empty() { "" } else { ": " };
        problems.push(Problem::fail(
            format!(
                "{} is {value:?}, which {} does not take{gap}{consequence}",
                row.name,
                row.owner.name()
            ),
            format!("{}={value} ({})", row.name, row.meaning),
            remedy(row),
        ));
    }
    Finding::of(problems, || {
        if seen.is_empty() {
            return Finding::ok(
                "no variable of HCCL, Ascend or torch_npu is set",
                "environment",
            );
        }
        Finding::ok(
            format!(
                "the {} variables that are set hold values in their range",
                seen.len()
            ),
            seen.join(" "),
        )
    })
}

/// A line to copy where the default is a value, else what may be written.
fn remedy(row: &Vendor) -> String {
    let name = row.name;
    if (row.fits)(row.default) {
        return format!(
            "export {name}={}, the default, or another value allowed: {}",
            row.default, row.allowed
        );
    }
    format!(
        "unset {name}, or set it to what is allowed: {}",
        row.allowed
    )
}
