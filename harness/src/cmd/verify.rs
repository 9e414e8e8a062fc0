//! `muster verify`: its options, and the order in which matrices run.

use std::time::Duration;

use clap::{Args, ValueEnum};
use muster_comm::types::{DType, closest};

use crate::check::inject::Inject;
use crate::check::job::{Job, Transport};
use crate::exit::Exit;
use crate::fail::Failure;
use crate::matrix::Matrix;
use crate::out;

/// Most elements of one buffer that an option may ask for: 64 Mi elements of 8 bytes on each of 16
/// ranks is 8 GiB, more than a machine without an accelerator should be asked for.
const COUNT_MAX: usize = 1 << 26;
/// Longest deadline that makes sense: longer ones are a hang by another name.
const DEADLINE_MAX: Duration = Duration::from_secs(24 * 3600);

/// Options of `muster verify`.
#[derive(Debug, Args)]
#[command(
    about = "Start the ranks of each matrix and prove every group of it",
    long_about = "Starts the ranks of each matrix as processes of this host, builds every parallel group \
        (TP, EP, DP, CP, PP and their combinations, as Megatron-LM lays them out), and proves each one: its \
        members agree on who they are, and every collective gives exactly what a naive reference gives.\n\n\
        Started by torchrun, mpirun or srun it joins the ranks it finds instead of starting its own; rank 0 reports.",
    after_long_help = after_long_help(),
)]
pub struct VerifyArgs {
    /// Matrices such as tp2, tp2ep4, tp2cp2ep2@16; without any, the default ones
    ///
    /// A name lists the axes (tp, cp, pp, dp, ep, etp) with their sizes. The world size is their
    /// product, unless @WORLD says otherwise. Default: tp1 tp2 tp8 tp2ep4 tp2cp2ep2 tp2pp2dp2
    /// tp3ep4 tp2ep8 ep16.
    #[arg(value_name = "MATRIX")]
    matrices: Vec<String>,

    /// Order of the axes, the fastest changing first, as Megatron-LM's initialize_model_parallel takes it
    #[arg(long, value_name = "AXES")]
    order: Option<String>,

    /// Expert tensor parallel size of every matrix that does not name one [default: as tp]
    #[arg(long, value_name = "N")]
    etp: Option<u32>,

    /// Element types to check, separated by commas [default: all twelve]
    #[arg(long, value_name = "TYPES", value_delimiter = ',', value_parser = parse_dtype)]
    dtypes: Vec<DType>,

    /// Numbers of elements to check, separated by commas [default: 0, 1, odd, 1000 and more than a segment]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', value_parser = parse_count)]
    sizes: Vec<usize>,

    /// Time that each call may take before it ends as an error: 500ms, 30s, 2m
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_time)]
    deadline: Duration,

    /// How bytes go between ranks of one host
    #[arg(long, value_enum, default_value_t = Transport::Auto)]
    transport: Transport,

    /// What moves the data
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    backend: Backend,

    /// Plant a fault, to see the report that names it: KIND:rank=R[,collective=NAME][,matrix=NAME]
    ///
    /// KIND is bitflip, swap-blocks or drop-contribution. May be given more than once.
    #[arg(long, value_name = "FAULT")]
    inject: Vec<Inject>,

    /// How to show the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,

    /// Seed of the inputs; the same seed gives the same data
    #[arg(long, value_name = "N", default_value_t = 0x6d75_7374_6572)]
    seed: u64,
}

/// What moves the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// HCCL where a device is found, the host otherwise
    Auto,
    /// The processors and memory of the host
    Host,
    /// HCCL on Ascend NPUs
    Hccl,
}

/// How a result is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table for people
    Table,
    /// One JSON document
    Json,
}

fn after_long_help() -> String {
    format!(
        "Examples:\n  \
         muster verify                                    the default matrices\n  \
         muster verify tp2ep4 tp4@8                       two matrices\n  \
         muster verify tp2ep4@16 --etp 1 --format json    for a program to read\n  \
         muster verify tp8 --transport tcp --deadline 5s  TCP between ranks of this host\n  \
         muster verify tp2 --inject bitflip:rank=1        see what wrong data looks like (exit 40)\n  \
         torchrun --nproc-per-node 8 --no-python muster verify tp2ep4\n\n{}",
        Exit::table()
    )
}

/// Runs `muster verify`.
///
/// # Errors
/// If an option is wrong, the host cannot carry the ranks, or the result cannot be written.
pub fn run(args: &VerifyArgs) -> Result<Exit, Failure> {
    let jobs = args.jobs()?;
    for job in &jobs {
        out::note(&format!("{job:?}"));
    }
    Err(Failure::internal("the ranks cannot be started yet"))
}

impl VerifyArgs {
    /// One job a matrix, in the order of the command line.
    fn jobs(&self) -> Result<Vec<Job>, Failure> {
        let matrices = self.matrices()?;
        if let Some(etp) = self.etp
            && etp == 0
        {
            return Err(Failure::usage("--etp is 0, allowed are 1 and more"));
        }
        self.check_injections(&matrices)?;
        Ok(matrices
            .into_iter()
            .map(|matrix| Job {
                matrix: self.with_etp(matrix),
                order: self.order.clone(),
                dtypes: self.dtypes.clone(),
                counts: self.sizes.clone(),
                deadline_ms: u64::try_from(self.deadline.as_millis()).unwrap_or(u64::MAX),
                transport: self.transport,
                inject: self.inject.clone(),
                seed: self.seed,
            })
            .collect())
    }

    fn matrices(&self) -> Result<Vec<Matrix>, Failure> {
        if self.matrices.is_empty() {
            return Ok(Matrix::defaults());
        }
        self.matrices
            .iter()
            .map(|name| parse_matrix(name))
            .collect()
    }

    fn with_etp(&self, mut matrix: Matrix) -> Matrix {
        if matrix.etp.is_none() {
            matrix.etp = self.etp;
        }
        matrix
    }

    /// A fault that can never strike would make a pass look like proof.
    fn check_injections(&self, matrices: &[Matrix]) -> Result<(), Failure> {
        for inject in &self.inject {
            let strikes = matrices.iter().any(|matrix| {
                inject.rank < matrix.world_size
                    && inject
                        .matrix
                        .as_ref()
                        .is_none_or(|name| *name == matrix.name)
            });
            if !strikes {
                let names: Vec<&str> = matrices.iter().map(|matrix| matrix.name.as_str()).collect();
                return Err(Failure::usage(format!(
                    "the fault {inject} strikes no rank of the matrices chosen: {}",
                    names.join(", ")
                ))
                .with_help("choose a rank below the world size, and a matrix that runs"));
            }
        }
        Ok(())
    }
}

fn parse_matrix(name: &str) -> Result<Matrix, Failure> {
    name.parse::<Matrix>().map_err(|error| {
        let defaults = Matrix::defaults();
        let near = closest(
            &name.to_ascii_lowercase(),
            defaults.iter().map(|matrix| matrix.name.as_str()),
        )
        .map(|near| format!("did you mean {near}? "))
        .filter(|_| !error.help().starts_with("did you mean"));
        Failure::usage(error.to_string()).with_help(format!(
            "{}{}",
            near.unwrap_or_default(),
            error.help()
        ))
    })
}

fn parse_dtype(name: &str) -> Result<DType, String> {
    name.trim().parse::<DType>().map_err(|error| {
        let meant = error
            .suggestion()
            .map_or_else(String::new, |meant| format!(" (did you mean {meant}?)"));
        format!("{error}{meant}")
    })
}

fn parse_count(text: &str) -> Result<usize, String> {
    text.trim()
        .parse()
        .ok()
        .filter(|count| *count <= COUNT_MAX)
        .ok_or_else(|| format!("a number of elements is 0 to {COUNT_MAX}"))
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let allowed =
        || "a time is a number with ms, s or m behind it, from 1ms to 24 hours".to_owned();
    let text = text.trim();
    let (digits, milliseconds) = if let Some(digits) = text.strip_suffix("ms") {
        (digits, 1)
    } else if let Some(digits) = text.strip_suffix('s') {
        (digits, 1000)
    } else if let Some(digits) = text.strip_suffix('m') {
        (digits, 60_000)
    } else {
        (text, 1000)
    };
    let number: u64 = digits.parse().map_err(|_| allowed())?;
    let time = Duration::from_millis(number.checked_mul(milliseconds).ok_or_else(allowed)?);
    if time.is_zero() || time > DEADLINE_MAX {
        return Err(allowed());
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_bounds() {
        assert_eq!(parse_time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_time("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_time("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_time("7"), Ok(Duration::from_secs(7)));
        for bad in [
            "",
            "s",
            "0s",
            "-1s",
            "1h",
            "99999999999999999999s",
            "18446744073709551615m",
            "25000m",
        ] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_unknown_matrix_is_answered_with_one_that_was_meant() {
        let failure = parse_matrix("tp2pe4").expect_err("no such axis");
        assert_eq!(failure.exit, Exit::Usage);
        assert!(
            failure
                .help
                .as_deref()
                .is_some_and(|help| help.contains("did you mean")),
            "{failure:?}"
        );
    }
}
