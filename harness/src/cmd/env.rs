//! `muster env`: who this process is by its environment, and how that is known.
//!
//! Joins nothing. Values are shown of variables that launch contracts read, and of no others: any
//! other may be a secret (`CONFIG-1`).

use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use muster_comm::config::Environment;
use muster_comm::launch::{
    Contract, Detected, Field, Heard, Identity, PerNode, VisibleDevices, detect, rank_table, survey,
};
use muster_comm::processors::{Node, is_bound_by_launcher};
use muster_comm::sync::Deadline;
use muster_comm::world::Selection;
use serde::Serialize;

use crate::cmd::rules::unusable;
use crate::cmd::saving::Form;
use crate::cmd::values::Joining;
use crate::doctor::System;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::out::{self, STRONG, escaped};

/// Version of the JSON document's fields.
const SCHEMA_VERSION: u32 = 1;
/// Columns of what a number is about.
const LABEL: usize = 18;
/// Variables that only lead to the job's secret: that they are set is all that is told.
const SECRETS: [&str; 2] = ["MUSTER_SECRET_FD", "MUSTER_SECRET_FILE"];
/// Beginnings of the names that launchers set.
const LAUNCHERS: &str = "CM_ DLROVER_ FLUX_ GROUP_ JSM_ LOCAL_ LSB_ LWS_ MA_NUM_ MLP_ MPI_LOCAL MS_ \
    MV2_COMM_ OMPI_COMM_ PALS_ PET_ PMI RANK RAY_LOCAL_ SLURM_ TORCHELASTIC_ VC_ WG_BACKEND";

/// Show this process's rank, world and devices by its environment
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    mpirun -n 2 muster env --explain     the numbers of each rank, and their variables\n  \
    muster env --format json             one JSON document, for a program to read\n\n\
    Exit code 2 if variables contradict each other; both sides are shown.")]
pub struct EnvArgs {
    /// Show the variable behind each number, other launchers that were found, and variables that nothing read
    #[arg(long)]
    explain: bool,
    /// Text for people or JSON for programs
    #[arg(long, value_enum, default_value_t)]
    format: Form,
    #[command(flatten)]
    joining: Joining,
}

/// One number and where it came from.
#[derive(Debug, Serialize)]
struct Known {
    #[serde(skip)]
    label: &'static str,
    value: serde_json::Value,
    /// Variables, or a word on how it was derived.
    from: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Ignored {
    contract: &'static str,
    says: String,
    variables: Vec<String>,
    why: String,
}

/// The answer, ready to be shown.
#[derive(Debug, Default, Serialize)]
struct Answer {
    schema_version: u32,
    tool: &'static str,
    /// `process`, `node` or `standalone`.
    started_as: &'static str,
    contract: Option<&'static str>,
    agreeing: Vec<&'static str>,
    #[serde(flatten)]
    known: serde_json::Map<String, serde_json::Value>,
    #[serde(skip)]
    lines: Vec<Known>,
    secret: Option<&'static str>,
    /// Where the rules come from that select algorithms.
    selection: String,
    /// Rules in front of the built-in ones.
    own_rules: usize,
    ignored: Vec<Ignored>,
    unread: Vec<String>,
    notes: Vec<String>,
}

/// Detects, and prints what was found.
///
/// # Errors
/// A failure of class USAGE where variables are malformed or contradict each other; both sides are
/// in its message. One of class RESOURCE where the result cannot be written.
pub fn run(args: &EnvArgs) -> Result<Exit, Failure> {
    let environment = args.joining.environment();
    let heard = survey(&environment);
    let mut detected = detect(&environment, args.joining.launcher).map_err(|error| {
        let failure = Failure::usage(error.to_string());
        let spoke = heard.iter().map(said).collect::<Vec<_>>();
        failure.with_help(format!(
            "these launchers speak here:\n  {}",
            spoke.join("\n  ")
        ))
    })?;
    if args.joining.rendezvous.is_some()
        && let Detected::Identity(identity) = &mut detected
        && let Some(hint) = &mut identity.endpoint
    {
        "--rendezvous".clone_into(&mut hint.how);
    }
    let answer = answer(detected, &environment, &heard)?;
    let text = match args.format {
        Form::Json => {
            let text = serde_json::to_string(&answer);
            let text = text.map_err(|error| {
                Failure::internal(format!("the answer cannot be written as JSON: {error}"))
            })?;
            format!("{text}\n")
        }
        Form::Table => answer.text(args.explain),
    };
    out::result(&text)?;
    Ok(Exit::Ok)
}

/// What a contract says, in one line.
fn said(heard: &Heard) -> String {
    let mut text = heard.contract.to_string();
    let _ = match (heard.rank, heard.world_size, heard.node_rank) {
        (Some(rank), Some(size), _) => write!(text, ": rank {rank} of {size}"),
        (Some(rank), None, _) => write!(text, ": rank {rank}"),
        (None, Some(size), _) => write!(text, ": a world of {size}"),
        (None, None, Some(node)) => write!(text, ": node {node}"),
        (None, None, None) => write!(text, ": no rank"),
    };
    let variables: Vec<String> = heard
        .variables
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    if !variables.is_empty() {
        let _ = write!(text, " ({})", variables.join(" "));
    }
    escaped(&text)
}

fn answer(
    detected: Detected,
    environment: &Environment,
    heard: &[Heard],
) -> Result<Answer, Failure> {
    let mut answer = Answer {
        schema_version: SCHEMA_VERSION,
        tool: crate::TOOL,
        ..Answer::default()
    };
    let mut believed = Vec::new();
    match detected {
        Detected::Identity(mut identity) => {
            // The table is looked at once; one that is still being made is a remark.
            let deadline = Deadline::after(Duration::ZERO);
            match rank_table::complete(&mut identity, environment, deadline) {
                Ok(()) => {}
                Err(error @ rank_table::RankTableError::NotReady { .. }) => {
                    identity.notes.push(error.to_string());
                }
                Err(error) => return Err(Failure::usage(error.to_string())),
            }
            believed.push(identity.source.contract);
            believed.extend(&identity.source.agreeing);
            answer.identity(
                &identity,
                &Trace {
                    heard,
                    believed: &believed,
                    environment,
                },
            );
        }
        Detected::PerNode(node) => {
            believed.push(node.source.contract);
            answer.node(
                &node,
                &Trace {
                    heard,
                    believed: &believed,
                    environment,
                },
            );
        }
        Detected::Standalone { notes } => {
            answer.started_as = "standalone";
            answer.notes = notes;
        }
    }
    answer.processors(&System::here(environment.clone()));
    let known = answer.lines.iter().map(|known| {
        let key = known.label.replace(' ', "_");
        (
            key,
            serde_json::json!({ "value": known.value, "from": known.from }),
        )
    });
    answer.known = known.collect();
    let is_set = |name: &&str| environment.names().any(|known| known == *name);
    answer.secret = SECRETS.into_iter().find(is_set);
    let selection = Selection::of_environment(environment).map_err(|error| unusable(&error))?;
    answer.own_rules = selection.own_rules();
    answer.selection = selection.source;
    answer.ignored = heard
        .iter()
        .filter(|heard| !believed.contains(&heard.contract))
        .map(|heard| ignored(heard, believed.first().copied()))
        .collect();
    answer.unread = unread(environment, heard);
    Ok(answer)
}

/// What is needed to say where a number came from.
struct Trace<'a> {
    heard: &'a [Heard],
    believed: &'a [Contract],
    environment: &'a Environment,
}

impl Trace<'_> {
    fn sources(&self, field: Field) -> Vec<String> {
        let by_variable = self.believed.iter().find_map(|contract| {
            let heard = self
                .heard
                .iter()
                .find(|heard| heard.contract == *contract)?;
            let names = heard.sources(field);
            (!names.is_empty()).then(|| names.into_iter().map(str::to_owned).collect())
        });
        by_variable.unwrap_or_else(|| {
            let table = matches!(self.environment.text("RANK_TABLE_FILE"), Ok(Some(_)));
            let how = if table { "RANK_TABLE_FILE" } else { "derived" };
            vec![how.to_owned()]
        })
    }
}

impl Answer {
    fn identity(&mut self, identity: &Identity, trace: &Trace<'_>) {
        self.started_as = "process";
        self.contract = Some(identity.source.contract.name());
        self.agreeing = identity
            .source
            .agreeing
            .iter()
            .map(|contract| contract.name())
            .collect();
        for (label, field, number) in [
            ("rank", Field::Rank, Some(identity.rank.0)),
            ("world size", Field::WorldSize, Some(identity.world_size)),
            ("local rank", Field::LocalRank, identity.local_rank),
            (
                "local world size",
                Field::LocalWorldSize,
                identity.local_world_size,
            ),
            ("node rank", Field::NodeRank, identity.node_rank),
            ("nodes", Field::Nnodes, identity.nnodes),
        ] {
            self.number(label, number, trace.sources(field));
        }
        let endpoint = identity.endpoint.as_ref();
        self.text_value(
            "endpoint",
            endpoint.map(|hint| (hint.endpoint.to_string(), hint.how.clone())),
        );
        if let (None, Some(exchange)) = (endpoint, &identity.exchange) {
            let how = "rank 0 tells the others where it serves the rendezvous".to_owned();
            self.text_value("meet", Some((exchange.to_string(), how)));
        }
        self.job(
            identity.job_id.as_deref(),
            identity.attempt,
            trace.environment,
        );
        self.devices(identity.devices.as_ref());
        self.notes.clone_from(&identity.notes);
    }

    fn node(&mut self, node: &PerNode, trace: &Trace<'_>) {
        self.started_as = "node";
        self.contract = Some(node.source.contract.name());
        for (label, field, number) in [
            ("node rank", Field::NodeRank, Some(node.node_rank)),
            ("nodes", Field::Nnodes, node.nnodes),
            ("ranks a node", Field::LocalWorldSize, node.procs_per_node),
        ] {
            self.number(label, number, trace.sources(field));
        }
        let product = vec!["nodes * ranks a node".to_owned()];
        self.number("world size", node.world_size(), product);
        let endpoint = node.endpoint.as_ref();
        self.text_value(
            "endpoint",
            endpoint.map(|hint| (hint.endpoint.to_string(), hint.how.clone())),
        );
        self.job(node.job_id.as_deref(), node.attempt, trace.environment);
        self.devices(node.devices.as_ref());
        self.notes.clone_from(&node.notes);
    }

    fn number(&mut self, label: &'static str, number: Option<u32>, from: Vec<String>) {
        let from = if number.is_some() { from } else { Vec::new() };
        self.lines.push(Known {
            label,
            value: number.into(),
            from,
        });
    }

    fn text_value(&mut self, label: &'static str, value: Option<(String, String)>) {
        let (value, from) =
            value.map_or((None, Vec::new()), |(value, how)| (Some(value), vec![how]));
        self.lines.push(Known {
            label,
            value: value.into(),
            from,
        });
    }

    fn job(&mut self, job_id: Option<&str>, attempt: u32, environment: &Environment) {
        let own = |name: &str| environment.names().any(|known| known == name);
        let how = if own("MUSTER_JOB_ID") {
            "MUSTER_JOB_ID"
        } else {
            "the launcher's variables"
        };
        let job = job_id.map(|job| (job.to_owned(), how.to_owned()));
        self.text_value("job", job);
        let from = if own("MUSTER_ATTEMPT") {
            "MUSTER_ATTEMPT"
        } else if attempt == 0 {
            "default"
        } else {
            "the launcher's variables"
        };
        self.number("attempt", Some(attempt), vec![from.to_owned()]);
    }

    fn devices(&mut self, devices: Option<&VisibleDevices>) {
        let (value, from) = devices.map_or((serde_json::Value::Null, Vec::new()), |devices| {
            (
                devices.physical.clone().into(),
                vec![devices.variable.to_owned()],
            )
        });
        self.lines.push(Known {
            label: "devices",
            value,
            from,
        });
    }

    /// The processors that this process may use, and the memory node of its device.
    fn processors(&mut self, system: &System) {
        let topology = system.topology();
        let near = |node: &Node| format!("memory node {}: {}", node.number, node.cpus);
        let mut from: Vec<String> = topology.nodes().iter().map(near).collect();
        if is_bound_by_launcher() {
            from.push("a part of those of the launcher".to_owned());
        }
        self.lines.push(Known {
            label: "cpus",
            value: topology.cpus().to_string().into(),
            from,
        });
        for npu in system.own_npus() {
            let node = npu.node.map(|node| {
                let how = format!("device {} at {}", npu.number, npu.address);
                (node.to_string(), format!("{how}, numbered by PCI address"))
            });
            self.text_value("device memory node", node);
        }
    }

    fn text(&self, explain: bool) -> String {
        let mut text = String::new();
        let contract = self.contract.unwrap_or_default();
        let _ = match self.started_as {
            "process" => writeln!(
                text,
                "{STRONG}{contract}{STRONG:#} started this process as one rank"
            ),
            "node" => writeln!(
                text,
                "{STRONG}{contract}{STRONG:#} started this process for a whole node; its ranks are still to be started"
            ),
            _ => writeln!(
                text,
                "no launcher started this process; a command starts ranks of its own"
            ),
        };
        if !self.agreeing.is_empty() {
            let _ = writeln!(text, "{} says the same", self.agreeing.join(", "));
        }
        for known in &self.lines {
            let value = match &known.value {
                serde_json::Value::Null => "not told".to_owned(),
                serde_json::Value::String(value) => value.clone(),
                serde_json::Value::Array(_)
                | serde_json::Value::Bool(_)
                | serde_json::Value::Number(_)
                | serde_json::Value::Object(_) => known.value.to_string(),
            };
            let mut from = String::new();
            if explain && !known.from.is_empty() {
                from = format!("  ({})", known.from.join(", "));
            }
            let _ = writeln!(
                text,
                "  {:<LABEL$}{}{}",
                known.label,
                escaped(&value),
                escaped(&from)
            );
        }
        if explain {
            self.rest(&mut text);
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {}", escaped(note));
        }
        text
    }

    /// The secret, who else spoke, what nobody read.
    fn rest(&self, text: &mut String) {
        let secret = self.secret.map_or_else(
            || "a file of this user, made at first use".to_owned(),
            |name| format!("by {name}, not shown"),
        );
        let _ = writeln!(text, "  {:<LABEL$}{secret}", "secret");
        let rules = match self.own_rules {
            0 => String::new(),
            1 => ", 1 rule in front of the built-in ones".to_owned(),
            own => format!(", {own} rules in front of the built-in ones"),
        };
        let _ = writeln!(
            text,
            "  {:<LABEL$}{}{rules}",
            "selection table",
            escaped(&self.selection)
        );
        for ignored in &self.ignored {
            let _ = writeln!(
                text,
                "not believed: {} - {}",
                ignored.says,
                escaped(&ignored.why)
            );
        }
        if !self.unread.is_empty() {
            let _ = writeln!(
                text,
                "set by launchers and not read: {}",
                self.unread.join(" ")
            );
        }
    }
}

fn ignored(heard: &Heard, chosen: Option<Contract>) -> Ignored {
    let why = match (&heard.error, chosen) {
        (Some(error), _) => error.clone(),
        (None, Some(chosen)) => format!("{chosen} is nearer to this process"),
        (None, None) => "it gives no rank".to_owned(),
    };
    Ignored {
        contract: heard.contract.name(),
        says: said(heard),
        variables: heard.variables.iter().map(|one| one.0.clone()).collect(),
        why,
    }
}

/// Names that look like a launcher's and that no contract has read.
fn unread(environment: &Environment, heard: &[Heard]) -> Vec<String> {
    let is_read = |name: &str| {
        let mut all = heard.iter().flat_map(|heard| &heard.variables);
        all.any(|(known, _)| known == name)
    };
    environment
        .names()
        .filter(|name| LAUNCHERS.split(' ').any(|prefix| name.starts_with(prefix)))
        .filter(|name| !is_read(name))
        .map(escaped)
        .collect()
}
