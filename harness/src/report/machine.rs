//! The machine of a result: what it is, and what it could do at moments of the run.

use serde::{Deserialize, Serialize};

/// The machine on which something was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Machine {
    /// Name of the processor, as the kernel gives it.
    pub cpu: String,
    /// Processors that this process may use.
    pub cpus: usize,
    /// Kernel, name and release.
    pub kernel: String,
    /// Architecture.
    pub arch: String,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Build profile of the program: `release` or `debug`.
    pub profile: String,
}

impl Machine {
    /// This machine.
    #[must_use]
    pub fn here() -> Self {
        let field = |path: &str, names: &[&str]| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            text.lines()
                .filter_map(|line| line.split_once(':'))
                .find(|(name, _)| names.contains(&name.trim()))
                .map(|(_, value)| value.trim().to_owned())
        };
        let names = rustix::system::uname();
        let memory = field("/proc/meminfo", &["MemTotal"]);
        let kib = memory.and_then(|text| text.trim_end_matches(" kB").parse::<u64>().ok());
        Self {
            cpu: field("/proc/cpuinfo", &["model name", "CPU part"]).unwrap_or_default(),
            cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            kernel: format!(
                "{} {}",
                names.sysname().to_string_lossy(),
                names.release().to_string_lossy()
            ),
            arch: std::env::consts::ARCH.to_owned(),
            memory_mib: kib.unwrap_or(0) / 1024,
            profile: if cfg!(debug_assertions) {
                "debug".to_owned()
            } else {
                "release".to_owned()
            },
        }
    }
}

/// What the machine can do at a moment, apart from anything that is measured: whether two runs are
/// comparable shows here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pulse {
    /// Half a round trip of one cache line between two threads, in nanoseconds.
    pub exchange_ns: f64,
    /// Copy of 4 MiB by one thread, in GB/s.
    pub copy_gbytes_per_s: f64,
    /// Part of the time in which a thread that wanted to run did run, 1 where nobody was in its way.
    pub processor_share: f64,
}

/// A look at the machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MachineState {
    /// The round in which it was taken.
    pub round: u32,
    /// What the machine could do.
    #[serde(flatten)]
    pub pulse: Pulse,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_processors_and_a_kernel() {
        let machine = Machine::here();
        assert!(machine.cpus > 0, "{machine:?}");
        assert!(machine.kernel.starts_with("Linux"), "{machine:?}");
    }
}
