//! Which backend moves the data, and why.

use clap::ValueEnum;
use hccl_sys::search::{Places, Probe, probe};
use muster_comm::config::{
    ASCEND_HOME_PATH, ASCEND_TOOLKIT_HOME, ConfigError, Environment, HCCL_SO_PATH, LD_LIBRARY_PATH,
};

use crate::fail::Failure;

/// What the user asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// The best of this machine and version: so far the host, with a line that says why
    Auto,
    /// The processors and memory of the host
    Host,
    /// HCCL on Ascend NPUs: not in this version; says what was looked for
    Hccl,
}

/// The backend to use, as reports name it, and a line for the user where it was chosen for him.
///
/// # Errors
/// A failure of class RESOURCE, with what was looked for, where HCCL was asked for and cannot be
/// had; one of class USAGE where a variable that leads to its libraries is malformed.
pub fn choose(
    asked: Backend,
    environment: &Environment,
) -> Result<(&'static str, Option<String>), Failure> {
    if asked == Backend::Host {
        return Ok(("host", None));
    }
    let places = places(environment).map_err(|error| Failure::usage(error.to_string()))?;
    judge(asked, &probe(&places))
}

fn judge(asked: Backend, probe: &Probe) -> Result<(&'static str, Option<String>), Failure> {
    let obstacle = probe.obstacle();
    if asked == Backend::Hccl {
        let help = format!(
            "use --backend host; looked for:\n  {}",
            probe.lines().join("\n  ")
        );
        let message = obstacle.map_or_else(
            || "the HCCL backend was asked for, and this version has none yet".to_owned(),
            |obstacle| format!("the HCCL backend was asked for: {obstacle}"),
        );
        return Err(Failure::resource(message).with_help(help));
    }
    let why = obstacle.unwrap_or_else(|| "this version drives no NPU yet".to_owned());
    Ok(("host", Some(format!("using the host backend: {why}"))))
}

fn places(environment: &Environment) -> Result<Places, ConfigError> {
    Ok(Places {
        hccl_so_path: environment.read(&HCCL_SO_PATH)?,
        ascend_home_path: environment.read(&ASCEND_HOME_PATH)?,
        ascend_toolkit_home: environment.read(&ASCEND_TOOLKIT_HOME)?,
        ld_library_path: environment.read(&LD_LIBRARY_PATH)?,
        ..Places::default()
    })
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
        let probe = probe(&places);
        let (name, line) = judge(Backend::Auto, &probe).expect("the host is always there");
        assert_eq!(name, "host");
        assert!(line.is_some_and(|line| line.contains("no NPU") && line.lines().count() == 1));
        let failure = judge(Backend::Hccl, &probe).expect_err("there is none");
        assert_eq!(failure.exit, Exit::Resource);
        let text = format!("{} {}", failure.message, failure.help.unwrap_or_default());
        for part in ["davinci", "libhccl.so", "libascendcl.so", "LD_LIBRARY_PATH"] {
            assert!(text.contains(part), "{part} is missing from {text}");
        }
    }
}
