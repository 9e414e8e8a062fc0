//! Two programs that measure in turns, so that what changes on the machine meanwhile befalls both.

use std::path::Path;
use std::process::Command;

use crate::fail::Failure;
use crate::out;
use crate::report::document::Document;
use crate::results;

/// Rounds of a program in one turn.
const ROUNDS: u32 = 5;

/// What both programs measured: the base, and what is compared with it.
pub(super) type Sides = [Vec<Box<dyn Document>>; 2];

/// Runs `muster ARGUMENTS` of both builds in turns. `check` sees what the first turn gave.
///
/// # Errors
/// A failure of class USAGE where a program cannot be run or prints no result; that of `check`.
pub(super) fn measure(
    programs: [&Path; 2],
    turns: u32,
    arguments: &[String],
    check: impl Fn(&Sides) -> Result<(), Failure>,
) -> Result<Sides, Failure> {
    let mut sides: Sides = [Vec::new(), Vec::new()];
    for turn in 0..turns {
        // Who comes second finds the machine as the first one leaves it.
        let order = if turn % 2 == 0 { [0, 1] } else { [1, 0] };
        for side in order {
            let program = programs[side];
            out::note(&format!(
                "turn {} of {turns}: {}",
                turn + 1,
                program.display()
            ));
            sides[side].push(once(program, arguments)?);
        }
        if turn == 0 {
            check(&sides)?;
        }
    }
    Ok(sides)
}

fn once(program: &Path, arguments: &[String]) -> Result<Box<dyn Document>, Failure> {
    let shown = program.display();
    let output = Command::new(program)
        .args(arguments)
        .args(["--format", "json", "--rounds", &ROUNDS.to_string()])
        .output()
        .map_err(|error| Failure::usage(format!("{shown} cannot be run: {error}")))?;
    let name = format!("the output of {}", name(program, arguments));
    results::parse(&output.stdout, &name).map_err(|failure| {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().find(|line| line.starts_with("error"));
        failure.with_help(format!(
            "it ended with {}{}",
            output.status,
            said.map_or_else(String::new, |line| format!(" and said: {line}"))
        ))
    })
}

/// What a program measured, in words for a report.
pub(super) fn name(program: &Path, arguments: &[String]) -> String {
    format!("{} {}", program.display(), arguments.join(" "))
}
