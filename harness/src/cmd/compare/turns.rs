//! Two programs that measure in turns, so that what changes on the machine meanwhile befalls both.

use std::path::Path;

use crate::cmd::child;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::out;
use crate::report::document::Document;
use crate::results;
use crate::world::signals::Interrupts;

/// Rounds of each program in one turn, one after the other in pairs.
const ROUNDS: u32 = 5;

/// What both programs measured: the base, and what is compared with it.
pub(super) type Sides = [Vec<Box<dyn Document>>; 2];

/// Runs `muster ARGUMENTS` of both builds in turns. `check` sees what the first turn gave.
///
/// # Errors
/// A failure of class USAGE where a program cannot be run or prints no result, of class INTERRUPTED after a request to stop; that of `check`.
pub(super) fn measure(
    programs: [&Path; 2],
    turns: u32,
    arguments: &[String],
    check: impl Fn(&Sides) -> Result<(), Failure>,
) -> Result<Sides, Failure> {
    let interrupts = Interrupts::install()?;
    let mut sides: Sides = [Vec::new(), Vec::new()];
    for turn in 0..turns {
        out::note(&format!(
            "turn {} of {turns}: {ROUNDS} rounds of each build",
            turn + 1
        ));
        for pair in turn * ROUNDS..(turn + 1) * ROUNDS {
            // Who comes second finds the machine as the first one leaves it.
            let order = if pair % 2 == 0 { [0, 1] } else { [1, 0] };
            for side in order {
                sides[side].push(once(programs[side], arguments, &interrupts)?);
            }
            if pair == 0 {
                check(&sides)?;
            }
        }
    }
    Ok(sides)
}

fn once(
    program: &Path,
    arguments: &[String],
    interrupts: &Interrupts,
) -> Result<Box<dyn Document>, Failure> {
    let words = arguments.iter().map(String::as_str);
    let words: Vec<&str> = words.chain(["--format", "json", "--rounds", "1"]).collect();
    let ended = child::run(program, &words, &[], interrupts, |_| ())?;
    if ended.was_stopped {
        return Err(Failure::new(
            Exit::Interrupted,
            "interrupted: the turns are not complete",
        ));
    }
    let name = format!("the output of {}", name(program, arguments));
    results::parse(&ended.stdout, &name).map_err(|failure| {
        let said = ended.stderr.lines().find(|line| line.starts_with("error"));
        let how = ended.code.map_or_else(
            || "was ended by a signal".to_owned(),
            |code| format!("ended with code {code}"),
        );
        failure.with_help(format!(
            "it {how}{}",
            said.map_or_else(String::new, |line| format!(" and said: {line}"))
        ))
    })
}

/// What a program measured, in words for a report.
pub(super) fn name(program: &Path, arguments: &[String]) -> String {
    format!("{} {}", program.display(), arguments.join(" "))
}
