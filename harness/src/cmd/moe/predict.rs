//! `muster moe --predict`: what a layer would take on a machine that is not here.

use muster_comm::config::Environment;
use muster_comm::layout::{FrameworkLayout, Matrix};

use super::MoeArgs;
use crate::cmd::saving::publish;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::moe::model::Model;
use crate::moe::predicted::Asked;
use crate::moe::sweep::Source;
use crate::moe::workload::Workload;

/// Expert parallel sizes where none is given.
const SIZES: [u32; 6] = [16, 32, 64, 128, 256, 384];

/// Predicts and reports.
///
/// # Errors
/// If an option is wrong, or the result cannot be written.
pub(super) fn run(args: &MoeArgs) -> Result<Exit, Failure> {
    if args.machine.topology.is_none() {
        return Err(Failure::usage("--predict needs a machine").with_help(
            "--topology atlas-800t-a2, atlas-a3-superpod, or a file as docs/tuning.md describes",
        ));
    }
    if !matches!(args.sources(1)?[..], [Source::Made(Workload::Balanced)]) {
        return Err(Failure::usage(
            "predictions are of balanced routing: each rank sends each other one as much",
        )
        .with_help("leave --routing out, or measure without --predict"));
    }
    args.common.saving.check()?;
    // A wrong environment is named here too, as where it is used.
    args.common
        .settings(&Environment::capture(), super::DEADLINE_DEFAULT)?;
    let model = args.model()?;
    let machine = args.machine.machine();
    let tokens = args
        .sweep
        .map_or_else(|| args.tokens.clone(), |sweep| sweep.sizes());
    let asked = Asked {
        machine: &machine,
        model: &model,
        layouts: &args.layouts(&model)?,
        tokens: &tokens,
        dispatchers: &args.dispatcher,
        payloads: &args.payload,
    };
    let prediction = asked.predict().map_err(Failure::usage)?;
    publish(&prediction, &args.common.saving, args.common.format)
}

impl MoeArgs {
    /// A layout for each size that is asked for; of a matrix its own.
    fn layouts(&self, model: &Model) -> Result<Vec<FrameworkLayout>, Failure> {
        let illegal =
            |name: &str, error: &dyn std::fmt::Display| Failure::usage(format!("{name}: {error}"));
        if let Some(matrix) = &self.matrix {
            let layout = matrix.layout();
            return Ok(vec![layout.map_err(|error| illegal("--matrix", &error))?]);
        }
        let fits = |ep: &u32| *ep > 0 && model.experts.is_multiple_of(*ep as usize);
        let sizes: Vec<u32> = if self.ep.is_empty() {
            SIZES.into_iter().filter(fits).collect()
        } else {
            self.ep.clone()
        };
        if let Some(ep) = sizes.iter().find(|ep| !fits(ep)) {
            return Err(Failure::usage(format!(
                "{} experts cannot be dealt evenly to ep {ep}",
                model.experts
            )));
        }
        let of = |ep: &u32| {
            let etp = self.etp.map_or_else(String::new, |etp| format!("etp{etp}"));
            let world = self
                .ranks
                .map_or_else(String::new, |ranks| format!("@{ranks}"));
            let name = format!("tp{}ep{ep}{etp}{world}", self.tp);
            let matrix: Matrix = name.parse().map_err(|error| illegal(&name, &error))?;
            matrix.layout().map_err(|error| illegal(&name, &error))
        };
        sizes.iter().map(of).collect()
    }
}
