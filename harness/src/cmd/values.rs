//! Values of options that several commands take.

use std::ffi::OsStr;
use std::time::Duration;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Args, Command};
use muster_comm::config::{ConfigError, DEADLINE_S, Environment, PIN, RENDEZVOUS, SEED};
use muster_comm::launch::{Contract, Identity};
use muster_comm::layout::{FrameworkLayout, Matrix, Preset};
use muster_comm::processors::Bind;
use muster_comm::rendezvous::Endpoint;
use muster_comm::types::DType;

use super::rules::Rules;
use super::saving::{Saving, Shown};
use crate::backend::{Backend, Choice};
use crate::fail::Failure;
use crate::out;
use crate::run::job::Transport;
use crate::run::joined;
use crate::world::limits::WORLD_SIZE_MAX;

/// Most elements of one buffer that an option may ask for: 64 Mi elements of 8 bytes on each of 16
/// ranks is 8 GiB, more than a machine without an accelerator should be asked for.
const COUNT_MAX: usize = 1 << 26;

/// Longest deadline that makes sense: longer ones are a hang by another name.
const DEADLINE_MAX: Duration = Duration::from_secs(24 * 3600);

/// The matrix of this name and its layout, for a command that starts a process for each rank.
///
/// # Errors
/// A failure of class USAGE where there is no such matrix, or its world is too large.
pub(crate) fn matrix_of(name: &str, command: &str) -> Result<(Matrix, FrameworkLayout), Failure> {
    let illegal = |error: &dyn std::fmt::Display| Failure::usage(format!("{name}: {error}"));
    let matrix: Matrix = name.parse().map_err(|error| illegal(&error))?;
    let layout = matrix.layout().map_err(|error| illegal(&error))?;
    let ranks = layout.dims().world;
    if ranks > WORLD_SIZE_MAX {
        return Err(Failure::usage(format!(
            "{ranks} ranks are asked for, and {command} starts a process on this host for each: at most {WORLD_SIZE_MAX}"
        )));
    }
    Ok((matrix, layout))
}

/// The layout of a matrix for ranks that are started here, or that a launcher has started.
///
/// # Errors
/// As [`matrix_of`]; and where the launcher has started another number of ranks.
pub(crate) fn layout_of(
    matrix: &Matrix,
    identity: Option<&Identity>,
    command: &str,
) -> Result<FrameworkLayout, Failure> {
    if let Some(identity) = identity
        && identity.world_size != matrix.world_size()
    {
        return Err(Failure::usage(format!(
            "{} started {} ranks, and {matrix} has {}",
            identity.source.contract,
            identity.world_size,
            matrix.world_size()
        )));
    }
    matrix_of(&matrix.to_string(), command).map(|(_, layout)| layout)
}

/// What a message about an unknown name ends with: the name that is like it, if there is one.
pub(crate) fn did_you_mean(name: Option<&str>) -> String {
    name.map_or_else(String::new, |name| format!(" (did you mean {name}?)"))
}

pub(crate) fn parse_dtype(name: &str) -> Result<DType, String> {
    name.trim().parse::<DType>().map_err(|error| {
        let meant = did_you_mean(error.suggestion());
        format!("{error}{meant}")
    })
}

pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];
    let allowed =
        || "a time is a number with ms, s, m or h behind it, from 1ms to 24 hours".to_owned();
    let text = text.trim();
    let mut units = UNITS.iter();
    let with_unit = units.find_map(|(unit, ms)| Some((text.strip_suffix(unit)?, *ms)));
    let (digits, milliseconds) = with_unit.unwrap_or((text, 1000));
    let number: u64 = digits.parse().map_err(|_| allowed())?;
    let time = Duration::from_millis(number.checked_mul(milliseconds).ok_or_else(allowed)?);
    if time.is_zero() || time > DEADLINE_MAX {
        return Err(allowed());
    }
    Ok(time)
}

/// Parses words, most of which have these names: shells complete the names.
#[derive(Clone, Debug)]
pub(super) struct Named<T> {
    parse: fn(&str) -> Result<T, String>,
    names: Vec<&'static str>,
}

impl<T> Named<T> {
    pub(super) fn new(
        parse: fn(&str) -> Result<T, String>,
        names: impl IntoIterator<Item = &'static str>,
    ) -> Self {
        let names = names.into_iter().collect();
        Self { parse, names }
    }
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Named<T> {
    type Value = T;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<T, clap::Error> {
        let parse = self.parse;
        let parser = StringValueParser::new().try_map(move |word| parse(&word));
        parser.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.names.iter().copied().map(PossibleValue::new)))
    }
}

/// Layouts of training stacks by their names.
pub(super) fn presets() -> Named<&'static Preset> {
    Named::new(parse_preset, Preset::all().iter().map(|preset| preset.name))
}

/// A layout of a training stack by its name.
fn parse_preset(name: &str) -> Result<&'static Preset, String> {
    Preset::find(name).map_err(|error| {
        let meant = did_you_mean(Preset::closest(name));
        format!("{error}{meant}")
    })
}

/// A change in percent, with or without its sign.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    text.trim_end_matches('%')
        .parse()
        .ok()
        .filter(|percent: &f64| (0.1..=1000.0).contains(percent))
        .ok_or_else(|| "allowed are 0.1 to 1000 percent".to_owned())
}

/// A number of elements.
pub(super) fn parse_count(text: &str) -> Result<usize, String> {
    text.trim()
        .parse()
        .ok()
        .filter(|count| *count <= COUNT_MAX)
        .ok_or_else(|| format!("a number of elements is 0 to {COUNT_MAX}"))
}

/// Options of all commands that find out which rank of another launcher this process is.
#[derive(Clone, Debug, Args)]
pub(super) struct Joining {
    /// Read rank and world size from this launcher's variables only: torchrun, openmpi, slurm, …
    #[arg(long, value_name = "NAME")]
    pub(super) launcher: Option<Contract>,

    /// Meet at this address of rank 0's host and a free port there; it wins over MUSTER_RENDEZVOUS
    #[arg(long, value_name = "tcp://HOST:PORT")]
    pub(super) rendezvous: Option<Endpoint>,
}

impl Joining {
    /// The environment, as these options change it.
    pub(super) fn environment(&self) -> Environment {
        let captured = Environment::capture();
        match &self.rendezvous {
            Some(endpoint) => captured.with(&RENDEZVOUS, format!("tcp://{endpoint}")),
            None => captured,
        }
    }

    /// The environment, and who this process is, if a launcher started it as a rank.
    ///
    /// # Errors
    /// As [`joined::identity`]; and of class USAGE where ranks of our own are told where to meet.
    pub(super) fn identity(&self) -> Result<(Environment, Option<Identity>), Failure> {
        let environment = self.environment();
        let identity = joined::identity(&environment, self.launcher)?;
        if identity.is_none() && self.rendezvous.is_some() {
            return Err(Failure::usage(
                "--rendezvous is where the ranks of another launcher meet, and none has started this process",
            ));
        }
        Ok((environment, identity))
    }
}

/// Options of all commands that start ranks, or join them, and report.
#[derive(Debug, Args)]
pub(super) struct Common {
    /// Transport between ranks of one host
    #[arg(long, value_enum, default_value_t = Transport::Auto)]
    pub(super) transport: Transport,

    #[command(flatten)]
    pub(super) joining: Joining,

    /// What moves the data
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    pub(super) backend: Backend,

    /// Deadline of each call: 500ms, 30s, 2m [default: 30s, 60s in `moe`]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    deadline: Option<Duration>,

    /// How to show the result
    #[arg(long, value_enum, default_value_t = Shown::Table)]
    pub(super) format: Shown,

    /// With `--format json`: print what bench or moe has measured so far after each round, a document a line; the last one is the result
    #[arg(long, hide = true)]
    pub(super) interim: bool,

    #[command(flatten)]
    pub(super) rules: Rules,

    #[command(flatten)]
    pub(super) saving: Saving,

    /// Seed of what is random, inputs or routing; the same seed gives the same [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

impl Common {
    /// The time that each call is given, and the seed.
    ///
    /// # Errors
    /// A failure of class USAGE where the environment cannot be understood.
    pub(super) fn settings(
        &self,
        environment: &Environment,
        deadline: Duration,
    ) -> Result<(Duration, u64), Failure> {
        settings(environment, (self.deadline, self.seed), deadline)
    }

    /// Before ranks start: makes sure that the result can be kept, and says what moves the data and what is odd about
    /// the environment. Of ranks that another launcher started the first one speaks.
    ///
    /// # Errors
    /// A failure of class USAGE where a file cannot be written.
    pub(super) fn prepare(
        &self,
        choice: &Choice,
        environment: &Environment,
        identity: Option<&Identity>,
    ) -> Result<(), Failure> {
        if identity.is_some_and(|identity| identity.rank.0 != 0) {
            return Ok(());
        }
        self.saving.check()?;
        choice.line.iter().for_each(|line| out::note(line));
        for warning in environment.warnings() {
            out::note(&warning.to_string());
        }
        Ok(())
    }
}

/// The time that each call is given, and the seed: as options say, else the environment, else `default` and 1.
///
/// # Errors
/// A failure of class USAGE where the environment cannot be understood.
pub(super) fn settings(
    environment: &Environment,
    (deadline, seed): (Option<Duration>, Option<u64>),
    default: Duration,
) -> Result<(Duration, u64), Failure> {
    let unreadable = |error: ConfigError| Failure::usage(error.to_string());
    let of_environment = (
        environment.read(&DEADLINE_S).map_err(unreadable)?,
        environment.read(&SEED).map_err(unreadable)?,
    );
    Ok((
        deadline.or(of_environment.0).unwrap_or(default),
        seed.or(of_environment.1).unwrap_or(1),
    ))
}

/// Processors that ranks are bound to.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Binding {
    /// Bind each rank: to one core, to the CPUs of one memory node, to its share of all CPUs, or not [default: MUSTER_PIN, else none]
    ///
    /// Ranks are spread evenly over the cores, so over the memory nodes too. They keep within the CPUs that this process may use. Ranks
    /// that another launcher has bound stay there.
    #[arg(long, value_name = "TO", value_parser = binds())]
    pub(super) bind: Option<Bind>,
}

fn binds() -> impl TypedValueParser<Value = Bind> {
    const ALL: [Bind; 4] = [Bind::Numa, Bind::Core, Bind::Share, Bind::None];
    let parser = clap::builder::PossibleValuesParser::new(ALL.map(Bind::name));
    parser.try_map(|name| {
        let bind = ALL.into_iter().find(|bind| bind.name() == name);
        bind.ok_or("no such place")
    })
}

impl Binding {
    /// As the option, `--pin` or the environment says.
    ///
    /// # Errors
    /// A failure of class USAGE where the environment cannot be understood.
    pub(super) fn of(self, pin: bool, environment: &Environment) -> Result<Option<Bind>, Failure> {
        let variable = environment.read(&PIN);
        let variable = variable.map_err(|error| Failure::usage(error.to_string()))?;
        Ok(self
            .bind
            .or_else(|| pin.then_some(Bind::Share))
            .or(variable))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_bounds() {
        assert_eq!(parse_time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_time("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_time("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_time("24h"), Ok(Duration::from_secs(86_400)));
        assert_eq!(parse_time("7"), Ok(Duration::from_secs(7)));
        for bad in [
            "",
            "s",
            "0s",
            "-1s",
            "1d",
            "99999999999999999999s",
            "18446744073709551615m",
            "25h",
        ] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }
}
