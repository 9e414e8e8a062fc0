//! Under other launchers: the same command joins the ranks it finds, and rank 0 reports.

use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_comm::sync::Clock;
use muster_tests::{Ended, Running, binary, find_program, send, skipped, start};
use rustix::process::Signal;

/// Starts ranks of the tool as torchrun does.
fn torchrun(world_size: u32, args: &[&str], job: &str) -> Vec<Running> {
    muster_tests::torchrun(binary(), args, world_size, job, &[])
}

fn job(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

fn wait(ranks: Vec<Running>) -> Vec<Ended> {
    ranks.into_iter().map(Running::wait).collect()
}

const SHORT: [&str; 6] = [
    "--dtypes", "f32,bf16", "--sizes", "0,33", "--format", "json",
];

#[test]
fn ranks_of_torchrun_join_and_rank_0_reports() {
    let args = [&["verify", "tp2ep2@4", "tp2"], SHORT.as_slice()].concat();
    let all = wait(torchrun(4, &args, &job("pass")));
    for ended in &all {
        ended.expect_code(0);
    }
    let report = all[0].json();
    assert_eq!(report["passed"], true);
    assert_eq!(report["matrices"][0]["outcome"], "passed");
    assert_eq!(
        report["matrices"][1]["outcome"], "skipped",
        "a world of 2 does not fit 4 ranks"
    );
    for other in &all[1..] {
        assert_eq!(other.stdout, "");
        assert!(other.notices().is_empty(), "{}", other.stderr);
    }
}

#[test]
fn all_ranks_return_the_verdict_of_rank_0() {
    let args = [
        &[
            "verify",
            "tp2@4",
            "--inject",
            "bitflip:rank=3,collective=all_gather",
        ],
        SHORT.as_slice(),
    ]
    .concat();
    let all = wait(torchrun(4, &args, &job("inject")));
    for ended in &all {
        ended.expect_code(40);
    }
    assert_eq!(all[0].json()["verdict"]["blamed"], serde_json::json!([3]));
}

#[test]
fn a_world_that_fits_no_matrix_is_refused_on_every_rank() {
    for ended in wait(torchrun(3, &["verify", "tp2", "tp8"], &job("misfit"))) {
        ended.expect_code(2);
        for part in ["3 ranks", "tp2@2", "@3"] {
            assert!(
                ended.stderr.contains(part),
                "{part:?} is missing from {}",
                ended.stderr
            );
        }
    }
}

#[test]
fn a_rank_that_dies_is_named_by_rank_0() {
    let ranks = torchrun(
        4,
        &["verify", "tp2ep2@4", "--format", "json"],
        &job("death"),
    );
    Clock::pause(Duration::from_millis(700));
    let victim = ranks[2].pid();
    let hit = send(victim, Signal::KILL).is_ok();
    let all = wait(ranks);
    if all[0].code == Some(0) {
        // Done before the signal came.
        return;
    }
    assert!(hit);
    all[0].expect_code(20);
    assert_eq!(all[0].json()["verdict"]["blamed"], serde_json::json!([2]));
    for survivor in [&all[1], &all[3]] {
        assert!(survivor.code == Some(20), "{survivor:?}");
    }
}

#[test]
fn a_launcher_that_stops_its_ranks_gets_a_report_of_what_there_is() {
    let ranks = torchrun(4, &["verify", "tp2ep2@4", "--format", "json"], &job("stop"));
    Clock::pause(Duration::from_millis(400));
    for rank in &ranks {
        let _ = send(rank.pid(), Signal::TERM);
    }
    let all = wait(ranks);
    if all[0].code == Some(0) {
        // Done before the signal came.
        return;
    }
    // Whether the signal or the first of its victims is seen first is a matter of microseconds.
    assert!(matches!(all[0].code, Some(20 | 80)), "{:?}", all[0]);
    assert_eq!(all[0].json()["passed"], false);
    for other in &all[1..] {
        assert_ne!(other.code, Some(0), "{other:?}");
    }
}

/// The variables of a rank that somebody starts by hand.
fn by_hand<'a>(
    rank: &'a str,
    world_size: &'a str,
    endpoint: &'a str,
    job: &'a str,
) -> [(&'a str, &'a str); 4] {
    [
        ("MUSTER_RANK", rank),
        ("MUSTER_WORLD_SIZE", world_size),
        ("MUSTER_RENDEZVOUS", endpoint),
        ("MUSTER_JOB_ID", job),
    ]
}

/// An endpoint with a port that nobody has just now.
fn endpoint() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    format!("tcp://{}", listener.local_addr().expect("an address"))
}

#[test]
fn a_rank_that_never_comes_is_named_on_every_rank() {
    let (endpoint, job) = (endpoint(), job("missing"));
    let args = ["verify", "tp3", "--deadline", "1s"];
    let all = wait(
        ["0", "2"]
            .map(|rank| start(binary(), &args, &by_hand(rank, "3", &endpoint, &job)))
            .into(),
    );
    for ended in &all {
        ended.expect_code(10);
        let told = format!("{}{}", ended.stdout, ended.stderr);
        assert!(
            told.contains("rank 1") || told.contains("ranks 1"),
            "{told}"
        );
    }
}

#[test]
fn a_rank_that_comes_twice_is_named_on_every_rank() {
    let (endpoint, job) = (endpoint(), job("twice"));
    let args = ["verify", "tp3", "--deadline", "20s"];
    let all = wait(
        ["0", "1", "1"]
            .map(|rank| start(binary(), &args, &by_hand(rank, "3", &endpoint, &job)))
            .into(),
    );
    for ended in &all {
        ended.expect_code(11);
        let told = format!("{}{}", ended.stdout, ended.stderr);
        assert!(told.contains("rank 1 is claimed by"), "{told}");
    }
}

#[test]
fn world_sizes_that_disagree_are_named_on_every_rank() {
    let (endpoint, job) = (endpoint(), job("sizes"));
    let args = ["verify", "tp2", "tp3", "--deadline", "20s"];
    let all = wait(
        [("0", "2"), ("1", "3")]
            .map(|(rank, size)| start(binary(), &args, &by_hand(rank, size, &endpoint, &job)))
            .into(),
    );
    for ended in &all {
        ended.expect_code(11);
    }
}

#[test]
fn a_port_that_is_taken_is_told_with_its_owner() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let endpoint = format!("tcp://{}", listener.local_addr().expect("an address"));
    let job = job("taken");
    let ended = start(
        binary(),
        &["verify", "tp2", "--deadline", "2s"],
        &by_hand("0", "2", &endpoint, &job),
    )
    .wait();
    ended.expect_code(12);
    let owner = format!("pid {}", std::process::id());
    assert!(
        ended.stderr.contains(&owner),
        "{owner} is missing from {}",
        ended.stderr
    );
}

#[test]
fn contracts_that_disagree_are_refused_and_both_are_shown() {
    let variables = [
        ("RANK", "0"),
        ("WORLD_SIZE", "4"),
        ("LOCAL_RANK", "0"),
        ("LOCAL_WORLD_SIZE", "4"),
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("OMPI_COMM_WORLD_SIZE", "2"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
    ];
    let ended = start(binary(), &["verify"], &variables).wait();
    ended.expect_code(2);
    for part in ["RANK=0", "OMPI_COMM_WORLD_RANK=1"] {
        assert!(
            ended.stderr.contains(part),
            "{part:?} is missing from {}",
            ended.stderr
        );
    }
}

/// Whose mpirun.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mpi {
    Mpich,
    OpenMpi,
}

/// For Open MPI, which does not start as root by itself.
pub(crate) const ALLOW_ROOT: [(&str, &str); 2] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
];

/// The mpirun, or says that there is none.
pub(crate) fn find_mpirun(mpi: Mpi) -> Option<PathBuf> {
    let names = match mpi {
        Mpi::Mpich => ["mpirun.mpich", "mpiexec.hydra"],
        Mpi::OpenMpi => ["mpirun.openmpi", "mpirun"],
    };
    let found = names.iter().find_map(|name| find_program(name));
    let found = found.filter(|program| is_of(mpi, program));
    if found.is_none() {
        skipped(&format!(
            "no mpirun of {mpi:?} is installed (apt-get install openmpi-bin mpich)"
        ));
    }
    found
}

/// Starts ranks under a real mpirun, or says that there is none.
fn mpirun(mpi: Mpi, world_size: &str, args: &[&str]) -> Option<Running> {
    let program = find_mpirun(mpi)?;
    let options: &[&str] = match mpi {
        Mpi::Mpich => &[],
        Mpi::OpenMpi => &["--oversubscribe"],
    };
    let muster = binary().to_str().expect("a path in text");
    let words = [options, &["-n", world_size, muster], args].concat();
    Some(start(&program, &words, &ALLOW_ROOT))
}

/// Whether a plain `mpirun` is the one that is meant.
fn is_of(mpi: Mpi, program: &Path) -> bool {
    let version = start(program, &["--version"], &[]).wait().stdout;
    match mpi {
        Mpi::Mpich => version.contains("HYDRA"),
        // Under a name of a distribution, as `mpirun.openmpi`, it calls itself by the name of its runtime.
        Mpi::OpenMpi => version.contains("Open MPI") || version.contains("OpenRTE"),
    }
}

fn joins(mpi: Mpi) {
    let args = [&["verify", "tp2ep2@4"], SHORT.as_slice()].concat();
    let Some(run) = mpirun(mpi, "4", &args) else {
        return;
    };
    let ended = run.wait();
    ended.expect_code(0);
    assert_eq!(ended.json()["passed"], true);
}

#[test]
fn ranks_of_open_mpi_join_and_rank_0_reports() {
    joins(Mpi::OpenMpi);
}

#[test]
fn ranks_of_mpich_join_and_rank_0_reports() {
    joins(Mpi::Mpich);
}

#[test]
fn mpirun_passes_on_the_code_of_wrong_data() {
    let fault = "drop-contribution:rank=1,collective=all_gather";
    let args = [&["verify", "tp2@2", "--inject", fault], SHORT.as_slice()].concat();
    if let Some(run) = mpirun(Mpi::OpenMpi, "2", &args) {
        let ended = run.wait();
        ended.expect_code(40);
        assert!(ended.stdout.contains("\"blamed\":[1]"), "{}", ended.stdout);
    }
}

#[test]
fn bench_measures_in_the_ranks_of_another_launcher() {
    let args = [
        "bench",
        "all_reduce",
        "barrier",
        "-b",
        "8",
        "-e",
        "1K",
        "-n",
        "20",
        "--rounds",
        "2",
        "--format",
        "json",
    ];
    let ranks = torchrun(3, &args, &job("bench"));
    let ended: Vec<Ended> = ranks.into_iter().map(Running::wait).collect();
    for (rank, ended) in ended.iter().enumerate() {
        ended.expect_code(0);
        assert!(rank == 0 || ended.stdout.is_empty(), "{}", ended.stdout);
    }
    let document = ended[0].json();
    let records = document["records"].as_array().expect("records");
    assert_eq!(records.len(), 4);
    for record in records {
        assert_eq!(record["ranks"], 3);
        assert_eq!(record["samples_us"].as_array().expect("rounds").len(), 2);
    }
}
