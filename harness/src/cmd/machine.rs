//! The options that name a machine for predictions, and change its figures.

use clap::Args;

use crate::topology::{Machine, Reach};

/// A machine that predictions are for.
#[derive(Clone, Debug, Args)]
pub(super) struct MachineArgs {
    /// The machine: a file as docs/tuning.md describes, atlas-800t-a2 or atlas-a3-superpod [default: round figures]
    #[arg(long, value_name = "FILE|PRESET", value_parser = Machine::named)]
    pub(super) topology: Option<Machine>,

    /// Ranks of one host, which share memory [default: as the topology says, else 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) ranks_per_host: Option<u32>,

    /// Latency between ranks of a host, in microseconds [default: as the topology says, else 1]
    #[arg(long, value_name = "US", value_parser = parse_positive)]
    within_us: Option<f64>,

    /// Bandwidth of a rank within its host, in GB/s [default: as the topology says, else 8]
    #[arg(long, value_name = "GB/S", value_parser = parse_positive)]
    within_gbytes_per_s: Option<f64>,

    /// Latency between hosts, in microseconds [default: as the topology says, else 5]
    #[arg(long, value_name = "US", value_parser = parse_positive)]
    between_us: Option<f64>,

    /// Bandwidth of a rank between hosts, in GB/s [default: as the topology says, else 25]
    #[arg(long, value_name = "GB/S", value_parser = parse_positive)]
    between_gbytes_per_s: Option<f64>,
}

impl MachineArgs {
    /// Whether any of them was given.
    pub(super) fn is_given(&self) -> bool {
        let figures = [
            self.within_us,
            self.within_gbytes_per_s,
            self.between_us,
            self.between_gbytes_per_s,
        ];
        self.topology.is_some()
            || self.ranks_per_host.is_some()
            || figures.iter().any(Option::is_some)
    }

    /// The machine that is named, with what options say otherwise.
    pub(super) fn machine(&self) -> Machine {
        let mut machine = self.topology.clone().unwrap_or_default();
        if let Some(ranks) = self.ranks_per_host {
            machine.set_ranks_per_host(ranks as usize);
        }
        for (reach, us, gbytes_per_s) in [
            (Reach::Within, self.within_us, self.within_gbytes_per_s),
            (Reach::Between, self.between_us, self.between_gbytes_per_s),
        ] {
            us.into_iter().for_each(|us| machine.set_latency(reach, us));
            let rates = gbytes_per_s.into_iter();
            rates.for_each(|rate| machine.set_bandwidth(reach, rate));
        }
        machine
    }
}

fn parse_positive(word: &str) -> Result<f64, String> {
    word.parse::<f64>()
        .ok()
        .filter(|number| number.is_finite() && *number > 0.0)
        .ok_or_else(|| "allowed are numbers above 0".to_owned())
}
