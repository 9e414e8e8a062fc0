//! Every recorded environment leads to the identity, the node or the refusal written beside it.
//!
//! A fixture is a text file: remarks (`#`), processes above (`parent PID NAME TICKS`), variables
//! (`NAME=value`), a line of dashes, and what detection must answer.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use muster_comm::config::{Ancestor, Environment};
use muster_comm::launch::{
    Contract, Detected, Field, Identity, LaunchError, PerNode, detect, survey,
};

/// A fixture, read.
struct Fixture {
    name: String,
    variables: Vec<(String, String)>,
    ancestors: Vec<Ancestor>,
    expected: String,
}

impl Fixture {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).expect("a fixture");
        let (head, expected) = text.split_once("---\n").expect("a line of dashes");
        let mut fixture = Self {
            name: path.file_stem().expect("a name").display().to_string(),
            variables: Vec::new(),
            ancestors: Vec::new(),
            expected: expected.to_owned(),
        };
        for line in head.lines().filter(|line| !line.starts_with('#')) {
            if let Some(parent) = line.strip_prefix("parent ") {
                let mut words = parent.split(' ');
                let mut word = || words.next().expect("three words");
                fixture.ancestors.push(Ancestor {
                    pid: word().parse().expect("a pid"),
                    name: word().to_owned(),
                    started_ticks: word().parse().expect("ticks"),
                });
            } else {
                let (name, value) = line.split_once('=').expect("NAME=value");
                fixture.variables.push((name.to_owned(), value.to_owned()));
            }
        }
        fixture
    }

    fn environment(&self) -> Environment {
        Environment::from_pairs(self.variables.clone()).with_ancestors(self.ancestors.clone())
    }
}

fn fixtures(folder: &str) -> Vec<Fixture> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/launch")
        .join(folder);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("fixtures")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    paths.iter().map(|path| Fixture::read(path)).collect()
}

fn dash(number: Option<u32>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

fn describe(answer: &Result<Detected, LaunchError>) -> String {
    match answer {
        Ok(Detected::Identity(identity)) => describe_identity(identity),
        Ok(Detected::PerNode(node)) => describe_node(node),
        Ok(Detected::Standalone { notes }) => {
            let notes: String = notes.iter().map(|note| format!("note {note}\n")).collect();
            format!("standalone\n{notes}")
        }
        Err(error) => format!("refused\n{error}\n"),
    }
}

fn describe_identity(identity: &Identity) -> String {
    let mut text = format!(
        "identity {}\nrank {} of {}\nlocal {} of {}\nnode {} of {}\njob {} attempt {}\n",
        identity.source.contract,
        identity.rank,
        identity.world_size,
        dash(identity.local_rank),
        dash(identity.local_world_size),
        dash(identity.node_rank),
        dash(identity.nnodes),
        identity.job_id.as_deref().unwrap_or("-"),
        identity.attempt,
    );
    if let Some(hint) = &identity.endpoint {
        writeln!(text, "endpoint tcp://{}", hint.endpoint).expect("a string");
    }
    if let Some(exchange) = &identity.exchange {
        writeln!(text, "exchange {exchange}").expect("a string");
    }
    for contract in &identity.source.agreeing {
        writeln!(text, "agreeing {contract}").expect("a string");
    }
    describe_devices(&mut text, identity.devices.as_ref(), &identity.notes);
    text
}

fn describe_node(node: &PerNode) -> String {
    let mut text = format!(
        "per node {}\nnode {} of {}\nprocs {}\njob {} attempt {}\n",
        node.source.contract,
        node.node_rank,
        dash(node.nnodes),
        dash(node.procs_per_node),
        node.job_id.as_deref().unwrap_or("-"),
        node.attempt,
    );
    if let Some(hint) = &node.endpoint {
        writeln!(text, "endpoint tcp://{}", hint.endpoint).expect("a string");
    }
    describe_devices(&mut text, node.devices.as_ref(), &node.notes);
    text
}

fn describe_devices(
    text: &mut String,
    devices: Option<&muster_comm::launch::VisibleDevices>,
    notes: &[String],
) {
    if let Some(devices) = devices {
        write!(text, "devices {}", devices.variable).expect("a string");
        for id in &devices.physical {
            write!(text, " {id}").expect("a string");
        }
        text.push('\n');
    }
    for note in notes {
        writeln!(text, "note {note}").expect("a string");
    }
}

fn compare_all(folder: &str) {
    let mut wrong = String::new();
    for fixture in fixtures(folder) {
        let answer = describe(&detect(&fixture.environment(), None));
        if answer != fixture.expected {
            writeln!(
                wrong,
                "{folder}/{}\n--- expected\n{}--- got\n{answer}",
                fixture.name, fixture.expected
            )
            .expect("a string");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn every_contract_gives_the_identity_that_its_launcher_meant() {
    compare_all("contracts");
}

#[test]
fn no_trap_gives_an_identity_that_nobody_meant() {
    compare_all("traps");
}

#[test]
fn every_contract_has_a_fixture() {
    let mut seen: Vec<Contract> = Vec::new();
    for fixture in fixtures("contracts") {
        match detect(&fixture.environment(), None) {
            Ok(Detected::Identity(identity)) => {
                seen.push(identity.source.contract);
                seen.extend(identity.source.agreeing);
            }
            Ok(Detected::PerNode(node)) => seen.push(node.source.contract),
            Ok(Detected::Standalone { .. }) => {}
            Err(error) => panic!("{}: {error}", fixture.name),
        }
    }
    // PMIx is never whole by itself; its fixtures are `pmix` and the trap `pmix-alone`.
    for contract in Contract::all().filter(|contract| *contract != Contract::Pmix) {
        assert!(seen.contains(&contract), "no fixture gives {contract}");
    }
}

#[test]
fn a_forced_contract_is_asked_alone_and_names_all_that_it_lacks() {
    let both = Environment::from_pairs([
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("OMPI_COMM_WORLD_SIZE", "2"),
        ("PMI_RANK", "0"),
        ("PMI_SIZE", "4"),
    ]);
    for (contract, rank, world_size) in [(Contract::OpenMpi, 1, 2), (Contract::Hydra, 0, 4)] {
        let Ok(Detected::Identity(identity)) = detect(&both, Some(contract)) else {
            panic!("{contract} is set in full");
        };
        assert_eq!((identity.rank.0, identity.world_size), (rank, world_size));
        assert_eq!(identity.source.contract, contract);
        assert!(identity.notes[0].contains("is believed where"));
    }
    let Err(LaunchError::Incomplete { missing, .. }) = detect(&both, Some(Contract::Slurm)) else {
        panic!("no Slurm variable is set");
    };
    assert_eq!(missing, ["SLURM_STEP_ID", "SLURM_PROCID"]);
    let nothing = Environment::default();
    for contract in Contract::all() {
        let Err(LaunchError::Incomplete { missing, .. }) = detect(&nothing, Some(contract)) else {
            panic!("{contract} is found in an empty environment");
        };
        assert!(!missing.is_empty(), "{contract}");
    }
}

#[test]
fn the_ranks_of_a_node_follow_each_other() {
    let fixture = fixtures("contracts")
        .into_iter()
        .find(|fixture| fixture.name == "pytorchjob")
        .expect("a fixture");
    let Ok(Detected::PerNode(node)) = detect(&fixture.environment(), None) else {
        panic!("a node");
    };
    assert_eq!(node.world_size(), Some(16));
    assert_eq!(node.rank_of(0).map(|rank| rank.0), Some(8));
    assert_eq!(node.rank_of(7).map(|rank| rank.0), Some(15));
    assert_eq!(node.rank_of(8), None);
}

#[test]
fn a_world_of_one_always_has_a_place_to_meet() {
    let environment =
        Environment::from_pairs([("PMI_RANK", "0"), ("PMI_SIZE", "1")]).with_pid(4711);
    let Ok(Detected::Identity(identity)) = detect(&environment, None) else {
        panic!("rank 0 of 1");
    };
    assert_eq!(identity.job_id.as_deref(), Some("mpich:pid-4711"));
    assert!(identity.endpoint.is_some());
    assert!(identity.notes.is_empty(), "{:?}", identity.notes);
}

#[test]
fn the_source_of_an_identity_fits_a_hello_and_names_the_variables() {
    let fixture = fixtures("contracts")
        .into_iter()
        .find(|fixture| fixture.name == "srun-torchrun")
        .expect("a fixture");
    let Ok(Detected::Identity(identity)) = detect(&fixture.environment(), None) else {
        panic!("an identity");
    };
    let text = identity.source.to_string();
    assert!(
        text.starts_with("torchrun (RANK=11 WORLD_SIZE=16 "),
        "{text}"
    );
    assert!(text.len() <= 256, "{}", text.len());
    let long = "x".repeat(70);
    let pairs = [
        ("MS_ROLE", "MS_WORKER"),
        ("MS_WORKER_NUM", "2"),
        ("RANK_ID", "0"),
        ("MS_SCHED_PORT", "1"),
        ("MS_SCHED_HOST", long.as_str()),
        ("MUSTER_RENDEZVOUS", "h:1"),
        ("MS_NODE_ID", long.as_str()),
        ("SLURM_JOB_ID", "1"),
    ];
    let Ok(Detected::Identity(identity)) = detect(&Environment::from_pairs(pairs), None) else {
        panic!("an identity");
    };
    assert!(identity.source.to_string().len() <= 256);
}

/// The numbers of an answer, each with what it is about.
fn numbers(identity: &Identity) -> Vec<(Field, u32)> {
    let known = [
        (Field::Rank, Some(identity.rank.0)),
        (Field::WorldSize, Some(identity.world_size)),
        (Field::LocalRank, identity.local_rank),
        (Field::LocalWorldSize, identity.local_world_size),
        (Field::NodeRank, identity.node_rank),
        (Field::Nnodes, identity.nnodes),
    ];
    let given = |(field, number): (Field, Option<u32>)| Some((field, number?));
    known.into_iter().filter_map(given).collect()
}

#[test]
fn every_number_of_an_answer_can_be_traced_to_a_variable() {
    for fixture in fixtures("contracts") {
        let environment = fixture.environment();
        let heard = survey(&environment);
        let traced = |contracts: &[Contract], field: Field| {
            let mut speakers = heard
                .iter()
                .filter(|heard| contracts.contains(&heard.contract));
            speakers.any(|heard| !heard.sources(field).is_empty())
        };
        match detect(&environment, None) {
            Ok(Detected::Identity(identity)) => {
                let mut contracts = vec![identity.source.contract];
                contracts.extend(&identity.source.agreeing);
                for (field, number) in numbers(&identity) {
                    assert!(
                        traced(&contracts, field),
                        "{}: {field:?} {number}",
                        fixture.name
                    );
                }
            }
            Ok(Detected::PerNode(node)) => {
                let contracts = [node.source.contract];
                assert!(traced(&contracts, Field::NodeRank), "{}", fixture.name);
                if node.procs_per_node.is_some() {
                    assert!(
                        traced(&contracts, Field::LocalWorldSize),
                        "{}",
                        fixture.name
                    );
                }
            }
            Ok(Detected::Standalone { .. }) | Err(_) => {}
        }
    }
}

#[test]
fn a_survey_hears_both_of_two_that_disagree() {
    let disagree = fixtures("traps")
        .into_iter()
        .find(|trap| trap.name == "disagree");
    let environment = disagree.expect("the trap").environment();
    let heard = survey(&environment);
    let whole: Vec<Contract> = heard
        .iter()
        .filter(|heard| heard.whole)
        .map(|heard| heard.contract)
        .collect();
    assert!(whole.len() >= 2, "{heard:#?}");
}
