//! `muster doctor`: looks at this host and says what will make a job fail, and what to do.
//!
//! Looks only: nothing is written but the reports that are asked for, nothing bound or started, and no privilege is needed.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use muster_comm::config::Environment;
use muster_comm::sync::Clock;

use crate::diagnosis::Diagnosis;
use crate::doctor::{CHECKS, Check, Elsewhere, Group, System, run as judge};
use crate::exit::Exit;
use crate::fail::Failure;
use crate::out;
use crate::report::document::Document as _;

use super::saving::{Form, Saving};

/// Longest time of a single check, by default.
const BOUND_S: f64 = 5.0;

/// Check this host for what will make a job fail
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    muster doctor                        what is wrong here, worst first\n  \
    muster doctor --ranks 8              check for eight ranks on this host\n  \
    muster doctor --only host-ports      one check, with what it found\n  \
    muster doctor --format json          one JSON document, for a program to read\n  \
    muster doctor --report doctor.html   a page; .xml, .md, .csv, .prom and .json likewise\n\n\
    Exit code 0 if no check failed (warnings included), else 60.")]
pub struct DoctorArgs {
    /// Text for people or JSON for programs
    #[arg(long, value_enum, default_value_t)]
    format: Form,
    /// Only this check or group of checks; may be given more than once
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    only: Vec<String>,
    /// List the checks and their questions, and run none
    #[arg(long, conflicts_with_all = ["only", "report", "save"])]
    list: bool,
    /// Show all findings, not only problems
    #[arg(long)]
    all: bool,
    /// Check for this many ranks on this host [default: the launcher's number, else one for each device]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    ranks: Option<u32>,
    /// Check the files below DIR instead: an image, or a copy of another host's /proc and /sys
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Longest time of a single check, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = BOUND_S, value_parser = seconds)]
    timeout: f64,
    #[command(flatten)]
    saving: Saving,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "allowed: 0.1 to 600".to_owned())?;
    if (0.1..=600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("allowed: 0.1 to 600".to_owned())
    }
}

/// Looks, and prints what was found.
///
/// # Errors
/// If a check is asked for that does not exist, the root is no folder, or the result cannot be
/// written.
pub fn run(args: &DoctorArgs) -> Result<Exit, Failure> {
    if args.list {
        out::result(&list(args.format)?)?;
        return Ok(Exit::Ok);
    }
    let checks = chosen(&args.only)?;
    args.saving.check()?;
    let environment = Environment::capture();
    let system = match &args.root {
        None => System::here(environment),
        Some(root) if root.is_dir() => System::at(root, environment, Box::new(Elsewhere)),
        Some(root) => {
            let what = format!("--root {} is no folder", root.display());
            return Err(Failure::usage(what));
        }
    };
    let system = Arc::new(system.with_ranks(args.ranks));
    let started = Clock::now();
    let judged = judge(&system, &checks, Duration::from_secs_f64(args.timeout));
    let diagnosis = Diagnosis::new(judged, &system, Clock::now().duration_since(started));
    // A closed terminal must not cost the files, nor a full disk the text.
    let written = args.saving.write(&diagnosis);
    out::result(&match args.format {
        Form::Json => diagnosis.json()?,
        Form::Table => diagnosis.shown(args.all || !args.only.is_empty()),
    })?;
    Saving::ended(diagnosis.exit(), written)
}

/// The checks of these names, or of groups of these names; all where none is given.
fn chosen(only: &[String]) -> Result<Vec<&'static Check>, Failure> {
    if only.is_empty() {
        return Ok(CHECKS.iter().collect());
    }
    let mut found: Vec<&'static Check> = Vec::new();
    for name in only {
        let of_name = CHECKS
            .iter()
            .filter(|check| check.id == name || check.group.name() == name);
        let before = found.len();
        found.extend(of_name);
        if found.len() == before {
            let known = CHECKS.iter().map(|check| check.id);
            let known = known.chain(Group::ALL.map(Group::name));
            let meant = muster_comm::types::closest(name, known);
            let help = meant.map_or_else(
                || "muster doctor --list shows all checks".to_owned(),
                |meant| format!("did you mean {meant}? muster doctor --list shows all"),
            );
            return Err(Failure::usage(format!("there is no check {name:?}")).with_help(help));
        }
    }
    let mut once: Vec<&'static Check> = Vec::new();
    for check in found {
        if once.iter().all(|other| other.id != check.id) {
            once.push(check);
        }
    }
    Ok(once)
}

fn list(format: Form) -> Result<String, Failure> {
    if format == Form::Json {
        let checks: Vec<_> = CHECKS
            .iter()
            .map(|check| {
                serde_json::json!({ "id": check.id, "group": check.group.name(), "asks": check.asks })
            })
            .collect();
        let document = serde_json::json!({
            "schema_version": 1,
            "tool": crate::TOOL,
            "checks": checks,
        });
        return Ok(format!("{document}\n"));
    }
    let mut text = String::new();
    for group in Group::ALL {
        text.push_str(group.name());
        text.push('\n');
        for check in CHECKS.iter().filter(|check| check.group == group) {
            let _ = writeln!(text, "  {:<24}{}", check.id, check.asks);
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_chosen_by_name_and_by_group_and_each_once() {
        let names = |only: &[&str]| -> Vec<&str> {
            let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
            let found = chosen(&only).expect("known");
            found.into_iter().map(|check| check.id).collect()
        };
        assert_eq!(names(&["mtu", "mtu"]), ["mtu"]);
        assert!(names(&["network", "mtu"]).contains(&"host-ports"));
        assert_eq!(names(&[]).len(), CHECKS.len());
        let failure = chosen(&["host-prots".to_owned()]).expect_err("a slip");
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.help.is_some_and(|help| help.contains("host-ports")));
    }
}
