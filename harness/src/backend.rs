//! Which backend moves the data, and why.

use std::time::Duration;

use clap::ValueEnum;
use hccl_sys::search::Places;
use hccl_sys::symbols::Api;
use muster_comm::config::{ConfigError, Environment, HCCL_EXEC_TIMEOUT};
use muster_comm::device::Backends;

use crate::fail::Failure;
use crate::run::job::Hccl;

/// What the user asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// HCCL if NPUs are usable, else the host with a line that says why; never an emulator
    Auto,
    /// The processors and memory of the host
    #[value(alias = "cpu:host")]
    Host,
    /// HCCL on Ascend NPUs, or on an emulated toolkit; objects still go over the host
    #[value(alias = "cpu:host,npu:hccl")]
    Hccl,
}

/// What moves the data of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What is used.
    pub backends: Backends,
    /// Devices that this process sees; zero on the host.
    pub devices: u32,
    /// Version of the emulator, where the devices are emulated ones.
    pub emulated: Option<String>,
    /// A line for the user, where it was chosen for him or needs a word.
    pub line: Option<String>,
}

impl Choice {
    fn host(line: Option<String>) -> Self {
        Self {
            backends: Backends::Host,
            devices: 0,
            emulated: None,
            line,
        }
    }

    /// The name that reports use.
    #[must_use]
    pub fn name(&self) -> &'static str {
        if self.backends.has_hccl() {
            "hccl"
        } else {
            "host"
        }
    }
}

/// The backend to use.
///
/// # Errors
/// A failure of class RESOURCE, with what was looked for, where HCCL was asked for and cannot be
/// had; one of class USAGE where a variable that leads to its libraries is malformed.
pub fn choose(asked: Backend, environment: &Environment) -> Result<Choice, Failure> {
    if asked == Backend::Host {
        return Ok(Choice::host(None));
    }
    let places = environment
        .vendor_places()
        .map_err(|error: ConfigError| Failure::usage(error.to_string()))?;
    judge(asked, &places)
}

/// The backend of a command that measures, and how its ranks open their devices where they do.
/// `ranks` is the greatest number of ranks that this process starts on this host, if it starts any.
///
/// # Errors
/// As [`choose`]; one of class RESOURCE where there are fewer devices than ranks.
pub fn for_measuring(
    asked: Backend,
    environment: &Environment,
    deadline: Duration,
    ranks: Option<u32>,
) -> Result<(Choice, Option<Hccl>), Failure> {
    let choice = choose(asked, environment)?;
    if !choice.backends.has_hccl() {
        return Ok((choice, None));
    }
    if let Some(ranks) = ranks.filter(|ranks| *ranks > choice.devices) {
        return Err(Failure::resource(format!(
            "{ranks} ranks need a device each, and this host has {}",
            choice.devices
        ))
        .with_help("choose fewer ranks, make more devices visible, or use --backend host"));
    }
    let hccl = hccl_job(deadline, environment)?;
    Ok((choice, Some(hccl)))
}

/// How devices are checked: the vendor's own limit lies below the deadline of calls, so that its
/// verdict is there first. The user's own limit stands.
///
/// # Errors
/// A failure of class USAGE where that is malformed.
pub fn hccl_job(deadline: Duration, environment: &Environment) -> Result<Hccl, Failure> {
    let own = environment
        .read(&HCCL_EXEC_TIMEOUT)
        .map_err(|error| Failure::usage(error.to_string()))?;
    // Whole seconds, at least one.
    let limit = Duration::from_secs((deadline.as_secs() * 2 / 3).max(1));
    Ok(Hccl {
        exec_timeout_ms: own
            .is_none()
            .then(|| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
    })
}

fn judge(asked: Backend, places: &Places) -> Result<Choice, Failure> {
    let api = Api::load(places);
    let emulated = api.emulated().map(str::to_owned);
    match (asked, devices(&api, emulated.is_some())) {
        (Backend::Hccl, Err(obstacle)) => {
            let help = format!(
                "use --backend host, or `muster emu install` for an emulated device; looked for:\n  {}",
                api.probe().lines().join("\n  ")
            );
            let message = format!("the HCCL backend was asked for: {obstacle}");
            Err(Failure::resource(message).with_help(help))
        }
        (_, Err(obstacle)) => Ok(Choice::host(Some(format!(
            "using the host backend: {obstacle}"
        )))),
        (Backend::Hccl, Ok(devices)) => Ok(Choice {
            backends: Backends::HostAndHccl,
            devices,
            line: emulated.as_ref().map(|version| {
                format!("the devices are emulated ({version}): nothing here says anything about hardware")
            }),
            emulated,
        }),
        (_, Ok(devices)) => {
            let backends = Backends::detected(devices > 0, emulated.is_some());
            if !backends.has_hccl() {
                let line = "using the host backend: the toolkit found is an emulated one; --backend hccl runs on it";
                return Ok(Choice::host(Some(line.to_owned())));
            }
            Ok(Choice {
                backends,
                devices,
                emulated,
                line: Some(format!("using HCCL on {devices} devices")),
            })
        }
    }
}

/// Number of devices, or what stands in the way of driving any.
fn devices(api: &Api, is_emulated: bool) -> Result<u32, String> {
    let obstacle = api.probe().obstacle();
    // An emulator needs no device nodes; everything else does.
    if let Some(obstacle) = obstacle.filter(|_| !is_emulated) {
        return Err(obstacle);
    }
    muster_comm::device::count(api).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn without_a_device_auto_says_so_and_hccl_is_refused_with_what_was_looked_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let places = Places {
            installations: vec![folder.path().to_owned()],
            device_folder: folder.path().to_owned(),
            ..Places::default()
        };
        let choice = judge(Backend::Auto, &places).expect("the host is always there");
        assert_eq!(choice.name(), "host");
        let line = choice.line.expect("a reason");
        assert!(
            line.contains("no NPU") && line.lines().count() == 1,
            "{line}"
        );
        let failure = judge(Backend::Hccl, &places).expect_err("there is none");
        assert_eq!(failure.exit, Exit::Resource);
        let text = format!("{} {}", failure.message, failure.help.unwrap_or_default());
        for part in ["davinci", "libhccl.so", "libascendcl.so", "LD_LIBRARY_PATH"] {
            assert!(text.contains(part), "{part} is missing from {text}");
        }
    }
}
