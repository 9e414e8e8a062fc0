//! Whether the drills notice faults of our own: builds the tool with the feature `sabotage`, and runs a few
//! drills with each of its faults at work. With none they must pass, with each of them fail.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::{Failure, root};

/// A fault of ours, and what must be noticed of it.
struct Fault {
    name: &'static str,
    what: &'static str,
    drill: &'static str,
    /// The assertion that must not hold in one of the drill's runs.
    breaks: &'static str,
}

const FAULTS: &[Fault] = &[
    Fault {
        name: "answer",
        what: "ranks do not answer when they are asked what they do",
        drill: "never-enters",
        breaks: "culprits",
    },
    Fault {
        name: "field",
        what: "element types are not compared",
        drill: "other-dtype",
        breaks: "detected",
    },
    Fault {
        name: "chunk",
        what: "messages have the number of another round",
        drill: "quiet",
        breaks: "detected",
    },
    Fault {
        name: "descriptor",
        what: "a descriptor is not closed",
        drill: "quiet",
        breaks: "clean",
    },
];

/// Exit code of `muster drill` where a drill has failed.
const FAILED: i32 = 1;

/// Builds, and runs all of it.
pub(crate) fn run() -> Result<String, Failure> {
    let tool = build()?;
    let mut drills: Vec<&str> = FAULTS.iter().map(|fault| fault.drill).collect();
    drills.sort_unstable();
    drills.dedup();
    let (honest, failed) = drill(&tool, &drills, None)?;
    if !honest.status.success() {
        return Err(Failure(format!(
            "without sabotage drills fail: {}",
            failed.join(", ")
        )));
    }
    let mut report = format!("without sabotage all pass: {}\n", drills.join(", "));
    for fault in FAULTS {
        let (output, failed) = drill(&tool, &[fault.drill], Some(fault.name))?;
        let is_noticed = output.status.code() == Some(FAILED)
            && failed.iter().any(|assertion| assertion == fault.breaks);
        if !is_noticed {
            return Err(Failure(format!(
                "{} does not notice that {}: of its assertions these fail: [{}], and not \"{}\"",
                fault.drill,
                fault.what,
                failed.join(", "),
                fault.breaks
            )));
        }
        writeln!(report, "{} notices that {}", fault.drill, fault.what)?;
    }
    Ok(report)
}

/// The tool with our faults in it, in a folder of its own.
fn build() -> Result<PathBuf, Failure> {
    let target = root().join("target/sabotage");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--package", "muster"])
        .args(["--features", "sabotage", "--target-dir"])
        .arg(&target)
        .current_dir(root())
        .status()?;
    if !built.success() {
        return Err(Failure("the tool does not build with sabotage".to_owned()));
    }
    Ok(target.join("debug/muster"))
}

/// Runs drills between two ranks, with one of our faults at work or none; gives back the assertions that
/// do not hold as well.
fn drill(
    tool: &Path,
    drills: &[&str],
    fault: Option<&str>,
) -> Result<(Output, Vec<String>), Failure> {
    let mut command = Command::new(tool);
    command
        .args(["drill", "--json", "--world", "2", "--only"])
        .args(drills)
        .env_remove("MUSTER_SABOTAGE")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    if let Some(fault) = fault {
        command.env("MUSTER_SABOTAGE", fault);
    }
    let output = command.output()?;
    let document: Value = serde_json::from_slice(&output.stdout)?;
    let runs = document["drills"].as_array().into_iter().flatten();
    let mut failed: Vec<String> = runs
        .flat_map(|run| run["assertions"].as_array().into_iter().flatten())
        .filter(|assertion| assertion["holds"] == false)
        .filter_map(|assertion| assertion["name"].as_str())
        .map(str::to_owned)
        .collect();
    failed.sort_unstable();
    failed.dedup();
    Ok((output, failed))
}
