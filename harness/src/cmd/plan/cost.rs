//! `muster plan cost`: what the algorithms of a collective cost, by count and by model.

use std::fmt::Write as _;

use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use muster_comm::algo::cost::{ALL_RANKS_MAX, Plans, Prediction};
use muster_comm::algo::select::parse_bytes;
use muster_comm::algo::{Algorithm, Cost, Links, algorithms_for, sweep};
use muster_comm::types::Collective;
use serde_json::json;

use super::{Outcome, SCHEMA_VERSION, document, modelled, parse_collective, unfit};
use crate::cmd::machine::MachineArgs;
use crate::cmd::saving::Form;
use crate::fail::Failure;
use crate::topology::{self, Machine};

/// Most ranks of a prediction.
const RANKS_MAX: u32 = 100_000;
/// Most ranks whose plans are counted one by one.
const COUNTED_MAX: usize = 256;
/// Largest buffer of a prediction.
const BYTES_MAX: u64 = 1 << 40;

/// Options of `muster plan cost`.
#[derive(Debug, Args)]
pub(super) struct CostArgs {
    /// The collective: all_reduce, all_to_all, …
    #[arg(value_parser = parse_collective, required_unless_present = "against")]
    collective: Option<Collective>,

    /// Number of ranks
    #[arg(short, long = "ranks", value_name = "N", required_unless_present = "against", value_parser = clap::value_parser!(u32).range(1..=i64::from(RANKS_MAX)))]
    n: Option<u32>,

    /// Predict what `bench` would measure, by the costs in this file of `muster tune --model`
    #[arg(long, value_name = "FILE", value_parser = super::modelled::measured_machine, conflicts_with = "topology")]
    model: Option<Machine>,

    /// Show predictions beside the measurements of this `bench` result, with the error of each line
    #[arg(long, value_name = "BENCH.json", requires = "model", conflicts_with_all = ["collective", "n"])]
    against: Option<std::path::PathBuf>,

    /// Sizes of the largest buffer of a rank, separated by commas, in bytes, KiB, MiB or GiB
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = parse_size,
        default_value = "1KiB,16KiB,256KiB,4MiB,64MiB,1GiB")]
    bytes: Vec<u64>,

    #[command(flatten)]
    machine: MachineArgs,

    /// How to show the result
    #[arg(long, value_enum, default_value_t)]
    format: Form,
}

/// What holds for large groups.
const FEW: &str = "The plans of a few ranks were priced, so these times are lower bounds; scans take far longer.\n";

/// Elements of a block for which plans pack blocks together, and cut vectors.
const SMALL_BLOCK: usize = 64;

/// Elements of a block for which plans no longer pack blocks together.
const LARGE_BLOCK: usize = 4096;

/// One predicted time.
struct Cell {
    bytes: u64,
    algorithm: &'static Algorithm,
    prediction: Prediction,
    bound: String,
}

pub(super) fn render(args: &CostArgs) -> Result<Outcome, Failure> {
    if let (Some(machine), Some(path)) = (&args.model, &args.against) {
        return modelled::beside(machine, path, args.format);
    }
    let asked = args.collective.zip(args.n);
    let (collective, n) = asked.ok_or_else(|| unfit("name a collective and --ranks"))?;
    if let Some(machine) = &args.model {
        let per_host = args.machine.ranks_per_host.unwrap_or(n).min(n) as usize;
        let place = modelled::place(machine, n as usize, per_host);
        return modelled::table(machine, collective, &place, &args.bytes, args.format);
    }
    let machine = args.machine.machine();
    let n = n as usize;
    let algorithms: Vec<&'static Algorithm> = algorithms_for(collective)
        .filter(|a| a.links == Links::Message || n <= machine.topology.ranks_per_host())
        .collect();
    let of_many = n > ALL_RANKS_MAX;
    // Plans of large groups are made once of small blocks and once of large ones, and priced at every size.
    let planned = |algorithm: &&'static Algorithm, elements| {
        let problem = machine.spread(sweep::sized(collective, n, elements).map_err(unfit)?);
        Plans::of(algorithm, &problem).map_err(unfit)
    };
    let mut kept = Vec::new();
    for block in [SMALL_BLOCK, LARGE_BLOCK] {
        let all = algorithms.iter().filter(|_| of_many);
        let plans = all.map(|one| planned(one, n * block));
        kept.push((block, plans.collect::<Result<Vec<_>, _>>()?));
    }
    let mut cells = Vec::new();
    for bytes in &args.bytes {
        let elements = usize::try_from(*bytes).map_err(unfit)?;
        let (block, kept) = &kept[usize::from(elements / n >= LARGE_BLOCK)];
        for (place, algorithm) in algorithms.iter().enumerate() {
            let own = if of_many {
                None
            } else {
                Some(planned(algorithm, elements)?)
            };
            let element_bytes = if of_many {
                *bytes as f64 / (n * block) as f64
            } else {
                1.0
            };
            let plans = own.as_ref().unwrap_or_else(|| &kept[place]);
            cells.push(Cell {
                bytes: *bytes,
                algorithm,
                prediction: plans.predict(element_bytes, &machine.topology),
                bound: plans.bound(element_bytes, &machine.topology),
            });
        }
    }
    let text = match args.format {
        Form::Table => tables((collective, n), &machine, &algorithms, &cells)?,
        Form::Json => json((collective, n), &machine, &cells),
    };
    Ok(Outcome::ok(text))
}

fn tables(
    (collective, n): (Collective, usize),
    machine: &Machine,
    algorithms: &[&'static Algorithm],
    cells: &[Cell],
) -> Result<String, Failure> {
    let mut predicted = styled();
    let names = algorithms.iter().map(|a| a.name.to_owned());
    predicted.set_header(std::iter::once("Bytes".to_owned()).chain(names));
    let mut bounds: Vec<String> = Vec::new();
    for of_size in cells.chunks(algorithms.len().max(1)) {
        let best = of_size
            .iter()
            .map(|cell| cell.prediction.seconds)
            .fold(f64::INFINITY, f64::min);
        let times = of_size.iter().map(|cell| {
            let seconds = cell.prediction.seconds;
            let mark = if seconds <= best { "* " } else { "" };
            format!("{mark}{}", show_seconds(seconds))
        });
        let bytes = of_size.first().map_or(0, |cell| cell.bytes);
        let won = of_size.iter().find(|cell| cell.prediction.seconds <= best);
        bounds.extend(won.map(|cell| format!("{} {}", show_bytes(bytes), cell.bound)));
        predicted.add_row(std::iter::once(show_bytes(bytes)).chain(times));
    }
    let mut text = format!(
        "{} over {} ranks of {}, {} a host: predicted times (* the least)\n{}\n",
        collective,
        n,
        machine.name,
        machine.topology.ranks_per_host(),
        right_aligned(predicted)
    );
    let _ = writeln!(text, "What bounds the least:\n  {}", bounds.join(",\n  "));
    if let Some(line) = topology::lower_bounds(&machine.unknown) {
        let _ = writeln!(text, "{line}");
    }
    if cells.iter().any(|cell| !cell.prediction.all_ranks) {
        text.push_str(FEW);
    }
    if n <= COUNTED_MAX {
        let counted = counted((collective, n), algorithms)?;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "\nCounted from the plans, most of any rank, in bytes of a buffer of 1 MiB:\n{counted}"
        );
    }
    text.push_str(
        "\nThe model: a message takes a latency and its bytes over a bandwidth; no congestion, no \
         protocol. It ranks, it does not measure.\n",
    );
    Ok(text)
}

fn counted(
    (collective, n): (Collective, usize),
    algorithms: &[&'static Algorithm],
) -> Result<Table, Failure> {
    let problem = sweep::sized(collective, n, 1 << 20).map_err(unfit)?;
    let mut table = styled();
    table.set_header([
        "Algorithm",
        "Rounds",
        "Barriers",
        "Messages",
        "Sent",
        "Read from peers",
        "Scratch",
    ]);
    for algorithm in algorithms {
        let cost = Cost::of(&algorithm.plans(&problem, false).map_err(unfit)?);
        table.add_row([
            algorithm.name.to_owned(),
            cost.rounds.to_string(),
            cost.barriers.to_string(),
            cost.messages_most.to_string(),
            cost.sent_most.to_string(),
            cost.pulled_most.to_string(),
            cost.scratch_most.to_string(),
        ]);
    }
    Ok(right_aligned(table))
}

fn json((collective, n): (Collective, usize), machine: &Machine, cells: &[Cell]) -> String {
    let predictions: Vec<_> = cells
        .iter()
        .map(|cell| {
            json!({
                "algo": cell.algorithm.name,
                "links": cell.algorithm.links,
                "bytes": cell.bytes,
                "seconds": cell.prediction.seconds,
                "all_ranks": cell.prediction.all_ranks,
                "bound": cell.bound,
            })
        })
        .collect();
    document(&json!({
        "schema_version": SCHEMA_VERSION,
        "tool": crate::TOOL,
        "collective": collective,
        "n": n,
        "ranks_per_host": machine.topology.ranks_per_host(),
        "predicted": true,
        "topology": machine.name,
        "unknown": machine.unknown,
        "lower_bounds": !machine.unknown.is_empty(),
        "predictions": predictions,
    }))
}

pub(super) fn styled() -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table
}

/// Numbers, which all columns but the first hold, end at one line.
pub(super) fn right_aligned(mut table: Table) -> Table {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A time with three digits and a unit.
pub(super) fn show_seconds(seconds: f64) -> String {
    if seconds < 1e-3 {
        format!("{:.3} us", seconds * 1e6)
    } else if seconds < 1.0 {
        format!("{:.3} ms", seconds * 1e3)
    } else {
        format!("{seconds:.3} s")
    }
}

pub(super) fn show_bytes(bytes: u64) -> String {
    for (unit, size) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= size && bytes.is_multiple_of(size) {
            return format!("{} {unit}", bytes / size);
        }
    }
    format!("{bytes} B")
}

fn parse_size(word: &str) -> Result<u64, String> {
    parse_bytes(word)
        .filter(|bytes| *bytes <= BYTES_MAX)
        .ok_or_else(|| {
            "allowed are numbers with B, KiB, MiB, GiB or no unit, up to 1024GiB".to_owned()
        })
}
