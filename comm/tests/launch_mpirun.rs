//! Under a real mpirun every process finds its own rank, and all find the same place to meet.
//!
//! This test binary starts itself under the launcher: each copy runs `a_rank_writes_who_it_is`.
//! Without the launcher (`openmpi-bin`, `mpich`) a test says so and passes.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use muster_comm::config::Environment;
use muster_comm::launch::{Contract, Detected, detect};

/// Tells a copy of this binary where to write what it found.
const REPORT_FOLDER: &str = "LAUNCH_TEST_REPORTS";
const RANKS: usize = 3;

/// Does nothing when run as a test of its own.
#[test]
fn a_rank_writes_who_it_is() {
    let environment = Environment::capture();
    let Some(folder) = environment.text(REPORT_FOLDER).expect("text") else {
        return;
    };
    let Detected::Identity(identity) = detect(&environment, None).expect("one contract") else {
        panic!("started by a launcher");
    };
    let hint = identity.endpoint.expect("one host");
    let report = format!(
        "{} {} {} {:?} {:?}",
        identity.source.contract,
        identity.world_size,
        hint.endpoint,
        identity.job_id,
        identity.local_world_size,
    );
    let path = Path::new(folder).join(identity.rank.to_string());
    // A second process with the same rank would find the file there.
    let written = std::fs::File::create_new(path).map(|mut file| {
        use std::io::Write as _;
        file.write_all(report.as_bytes())
    });
    written
        .expect("no two ranks are the same")
        .expect("written");
}

/// Starts one world and returns what its ranks found, in rank order; `None` without a launcher.
fn reports(launcher: &str, arguments: &[&str]) -> Option<Vec<String>> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut run = Command::new("timeout")
        .args(["60", launcher])
        .args(arguments)
        .args(["-n", &RANKS.to_string()])
        // A shell in between, as job scripts have it.
        .args([
            "sh",
            "-c",
            "\"$0\" --exact a_rank_writes_who_it_is; exit $?",
        ])
        .arg(std::env::current_exe().expect("this binary"))
        .env(REPORT_FOLDER, folder.path())
        // The launcher of this test may be one of these itself.
        .env_remove("RANK")
        .env_remove("WORLD_SIZE")
        // Left open: MPICH's launcher is killed by SIGPIPE where it passes an end on to a rank that has ended.
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("timeout is part of coreutils");
    let stdin = run.stdin.take();
    let status = run.wait_with_output().expect("it was started");
    drop(stdin);
    let code = status.status.code();
    if code == Some(127) {
        skipped(launcher);
        return None;
    }
    let errors = String::from_utf8_lossy(&status.stderr).into_owned();
    assert_eq!(code, Some(0), "{launcher}: {errors}");
    let read = |rank: usize| std::fs::read_to_string(folder.path().join(rank.to_string()));
    Some(
        (0..RANKS)
            .map(|rank| read(rank).expect("every rank"))
            .collect(),
    )
}

#[expect(clippy::print_stdout, reason = "a skipped test has to say so")]
fn skipped(launcher: &str) {
    println!("skipped: no {launcher} here");
}

fn check(contract: Contract, launcher: &str, arguments: &[&str]) {
    let Some(first) = reports(launcher, arguments) else {
        return;
    };
    let mut start = String::new();
    write!(start, "{contract} {RANKS} 127.0.0.1:").expect("a string");
    assert!(first[0].starts_with(&start), "{first:?}");
    assert!(first[0].ends_with(&format!("Some({RANKS})")), "{first:?}");
    let places: BTreeSet<&String> = first.iter().collect();
    assert_eq!(places.len(), 1, "all ranks meet in one place: {first:?}");
    let second = reports(launcher, arguments).expect("it was there before");
    assert_ne!(first, second, "two jobs have names of their own");
}

#[test]
fn ranks_under_open_mpi_find_themselves_and_each_other() {
    let arguments = ["--allow-run-as-root", "--oversubscribe"];
    check(Contract::OpenMpi, "mpirun.openmpi", &arguments);
}

#[test]
fn ranks_under_mpich_find_themselves_and_each_other() {
    check(Contract::Hydra, "mpirun.mpich", &[]);
}
