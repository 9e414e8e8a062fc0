//! `muster ranktable`: checks rank tables of HCCL, and writes them.
//!
//! A table that is written goes through the same check, and replaces an older file in one step: who
//! reads it sees the old one or the new one.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use muster_comm::launch::rank_table::{self, Audit, ServerSketch, Sketch, Version, audit};

use crate::cmd::saving::Form;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::out::{self, escaped};

/// Version of the JSON document's fields.
const SCHEMA_VERSION: u32 = 1;
/// Most devices of a server that can be asked for.
const DEVICES_MAX: u32 = 1024;
/// Names that are tried for the file that becomes the table.
const TRIES: u32 = 16;

/// Check a rank table of HCCL, or write one
#[derive(Args, Clone, Debug)]
pub struct RankTableArgs {
    #[command(subcommand)]
    command: RankTableCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum RankTableCommand {
    /// Check a table of any version and report every error with its place
    Check(CheckArgs),
    /// Write a table from servers, devices and addresses
    Write(WriteArgs),
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "Exit code 0 if the table is right and complete, else 2.")]
struct CheckArgs {
    /// The table
    file: PathBuf,
    /// Text for people or JSON for programs
    #[arg(long, value_enum, default_value_t)]
    format: Form,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    muster ranktable write --server 10.0.0.1 --devices 0-7\n  \
    muster ranktable write --server 10.0.0.1=192.168.1.1,192.168.1.2 \\\n      \
      --server 10.0.0.2=192.168.1.3,192.168.1.4 --devices 0,1 --out hccl.json\n  \
    muster ranktable write --servers-from hosts.txt --devices 0-15 --version 1.2 --out hccl.json\n\n\
    Ranks follow the order of servers, then of devices.")]
struct WriteArgs {
    /// A server: ID, or ID=DEVICE_IP,DEVICE_IP,…; ranks follow the order of these options
    #[arg(long, value_name = "SERVER", required_unless_present = "servers_from")]
    server: Vec<String>,
    /// A file with one server on each line: ID, then the addresses of its devices, separated by spaces
    #[arg(long, value_name = "FILE", conflicts_with = "server")]
    servers_from: Option<PathBuf>,
    /// Physical ids of the devices of every server: 0-7 or 0,1,4
    #[arg(long, value_name = "IDS", default_value = "0-7")]
    devices: String,
    /// Form of the table
    #[arg(long, value_enum, default_value_t)]
    version: WriteVersion,
    /// Servers of a super pod (1.2) [default: all in one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    servers_a_pod: Option<u32>,
    /// File to write, replaced in one step [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Forms that are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum WriteVersion {
    /// Servers with devices
    #[default]
    #[value(name = "1.0")]
    V1_0,
    /// Servers in super pods (A3)
    #[value(name = "1.2")]
    V1_2,
    /// A list of ranks (950)
    #[value(name = "2.0")]
    V2_0,
}

/// Checks or writes.
///
/// # Errors
/// A failure of class USAGE for a table that is wrong or cannot be made, of class RESOURCE where a
/// file or the result cannot be written.
pub fn run(args: &RankTableArgs) -> Result<Exit, Failure> {
    match &args.command {
        RankTableCommand::Check(args) => check(args),
        RankTableCommand::Write(args) => write(args),
    }
}

fn check(args: &CheckArgs) -> Result<Exit, Failure> {
    let text = rank_table::read(&args.file).map_err(|error| Failure::usage(error.to_string()))?;
    let audit = audit(&text);
    let right = audit.findings.is_empty() && audit.completed;
    let shown = match args.format {
        Form::Json => json(&args.file, &audit, right),
        Form::Table => for_people(&args.file, &audit),
    };
    out::result(&shown)?;
    Ok(if right { Exit::Ok } else { Exit::Usage })
}

fn json(file: &Path, audit: &Audit, right: bool) -> String {
    let findings: Vec<_> = audit
        .findings
        .iter()
        .map(|finding| serde_json::json!({ "pointer": finding.pointer, "what": finding.what }))
        .collect();
    let document = serde_json::json!({
        "schema_version": SCHEMA_VERSION,
        "tool": crate::TOOL,
        "file": file.display().to_string(),
        "version": audit.version.map(|version| version.to_string()),
        "valid": right,
        "completed": audit.completed,
        "ranks": audit.ranks,
        "servers": audit.servers.len(),
        "findings": findings,
        "more_findings": audit.cut,
    });
    format!("{document}\n")
}

fn for_people(file: &Path, audit: &Audit) -> String {
    let file = escaped(&file.display().to_string());
    let version = audit.version.map_or_else(
        || "unknown version".to_owned(),
        |version| format!("version {version}"),
    );
    if audit.findings.is_empty() && audit.completed {
        return format!(
            "{file}: right, {version}, {} ranks on {} servers\n",
            audit.ranks,
            audit.servers.len()
        );
    }
    if audit.findings.is_empty() {
        return format!("{file}: {version}, still being made (/status is initializing)\n");
    }
    let more = if audit.cut { " or more" } else { "" };
    let mut text = format!(
        "{file}: {version}, {} places{more} are wrong\n",
        audit.findings.len()
    );
    for finding in &audit.findings {
        let _ = writeln!(text, "  {}", escaped(&finding.to_string()));
    }
    text
}

fn write(args: &WriteArgs) -> Result<Exit, Failure> {
    let sketch = Sketch {
        version: match args.version {
            WriteVersion::V1_0 => Version::V1_0,
            WriteVersion::V1_2 => Version::V1_2,
            WriteVersion::V2_0 => Version::V2_0,
        },
        servers: servers(args)?,
        devices: devices(&args.devices)?,
        servers_a_pod: args.servers_a_pod.map(|servers| servers as usize),
    };
    if args.servers_a_pod.is_some() && sketch.version != Version::V1_2 {
        return Err(Failure::usage(
            "--servers-a-pod goes with --version 1.2 only",
        ));
    }
    let text = sketch
        .draw()
        .map_err(|error| Failure::usage(error.to_string()))?;
    // What is written is what will be read: the same rules hold for both.
    let wrong = audit(&text).findings;
    if !wrong.is_empty() {
        let lines: Vec<String> = wrong.iter().map(ToString::to_string).collect();
        return Err(Failure::usage(format!(
            "these servers, devices and addresses make no right table:\n  {}",
            lines.join("\n  ")
        )));
    }
    match &args.out {
        None => out::result(&text)?,
        Some(file) => {
            replace(file, &text).map_err(|error| {
                Failure::resource(format!("{} cannot be written: {error}", file.display()))
            })?;
            let ranks = sketch.servers.len() * sketch.devices.len();
            out::note(&format!("wrote {} with {ranks} ranks", file.display()));
        }
    }
    Ok(Exit::Ok)
}

fn servers(args: &WriteArgs) -> Result<Vec<ServerSketch>, Failure> {
    if let Some(file) = &args.servers_from {
        let text = fs::read_to_string(file)
            .map_err(|error| Failure::usage(format!("cannot read {}: {error}", file.display())))?;
        let lines = text
            .lines()
            .map(|line| line.split('#').next().unwrap_or_default().trim())
            .filter(|line| !line.is_empty());
        let servers: Vec<ServerSketch> = lines
            .map(|line| {
                let mut words = line.split([' ', '\t', ',']).filter(|word| !word.is_empty());
                server(
                    words.next().unwrap_or_default(),
                    words.map(str::to_owned).collect(),
                )
            })
            .collect::<Result<_, _>>()?;
        if servers.is_empty() {
            return Err(Failure::usage(format!(
                "{} names no server",
                file.display()
            )));
        }
        return Ok(servers);
    }
    args.server
        .iter()
        .map(|text| match text.split_once('=') {
            None => server(text, Vec::new()),
            Some((id, addresses)) => server(id, addresses.split(',').map(str::to_owned).collect()),
        })
        .collect()
}

fn server(id: &str, device_ips: Vec<String>) -> Result<ServerSketch, Failure> {
    if id.is_empty() {
        return Err(Failure::usage("a server needs an id: an address or a name"));
    }
    if let Some(wrong) = device_ips
        .iter()
        .find(|text| text.parse::<IpAddr>().is_err())
    {
        return Err(Failure::usage(format!(
            "{wrong:?} of server {id} is no IPv4 or IPv6 address"
        )));
    }
    Ok(ServerSketch {
        id: id.to_owned(),
        host_ip: None,
        device_ips,
    })
}

fn devices(text: &str) -> Result<Vec<u32>, Failure> {
    let wrong = || {
        Failure::usage(format!(
            "--devices {text:?}; allowed: ids and ranges as in 0-7 or 0,1,4, below {DEVICES_MAX}, none twice"
        ))
    };
    let mut ids = Vec::new();
    for item in text.split(',') {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let number = |text: &str| {
            text.trim()
                .parse::<u32>()
                .ok()
                .filter(|id| *id < DEVICES_MAX)
        };
        let (Some(first), Some(last)) = (number(first), number(last)) else {
            return Err(wrong());
        };
        if first > last || (first..=last).any(|id| ids.contains(&id)) {
            return Err(wrong());
        }
        ids.extend(first..=last);
    }
    Ok(ids)
}

/// Writes a new file beside `file`, to the disk, and gives it the name.
fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    let name = file
        .file_name()
        .ok_or_else(|| std::io::Error::other("it has no name"))?;
    let mut made = None;
    for number in 0..TRIES {
        let mut fresh = std::ffi::OsString::from(".");
        fresh.push(name);
        fresh.push(format!(".{}.{number}", std::process::id()));
        let path = file.with_file_name(fresh);
        let opened = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        match opened {
            Ok(opened) => {
                made = Some((opened, path));
                break;
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    let (mut opened, path) = made.ok_or_else(|| std::io::Error::other("no free name beside it"))?;
    let written = opened
        .write_all(text.as_bytes())
        .and_then(|()| opened.sync_all())
        .and_then(|()| fs::rename(&path, file));
    if written.is_err() {
        // What cannot be removed either is told by the error that is given back.
        let _ = fs::remove_file(&path);
    }
    written
}
