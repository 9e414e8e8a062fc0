//! Programs in C, compiled by the system's compiler against a header made from the facts, run over
//! the emulator as processes: what they check they check themselves.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use support::{Bench, Generation};

fn processes(generation: Generation, sizes: &[usize]) {
    let bench = Bench::new();
    let program = bench.compile("cc", "processes", generation);
    for ranks in sizes {
        for ended in bench.ranks(&program, generation, *ranks, &[], &[]) {
            ended.assert_passed();
        }
    }
}

#[test]
fn all_operators_are_right_over_processes_of_the_old_generation() {
    processes(Generation::Old, &[1, 2, 4]);
}

#[test]
fn all_operators_are_right_over_processes_of_the_new_generation() {
    processes(Generation::New, &[3, 8]);
}

/// A rank table of version 1.0 for devices of one server.
fn rank_table(ranks: usize) -> String {
    let devices: Vec<String> = (0..ranks)
        .map(|rank| {
            format!(
                r#"{{"device_id":"{rank}","device_ip":"192.168.100.{}","rank_id":"{rank}"}}"#,
                rank + 1
            )
        })
        .collect();
    format!(
        r#"{{"version":"1.0","status":"completed","server_count":"1","server_list":[{{"server_id":"10.0.0.1","device":[{}]}}]}}"#,
        devices.join(",")
    )
}

#[test]
fn devices_of_one_process_work_together_in_threads_however_they_met() {
    let bench = Bench::new();
    let table = bench.path("ranktable.json");
    std::fs::write(&table, rank_table(4)).unwrap();
    for generation in [Generation::Old, Generation::New] {
        let program = bench.compile("cc", "threads", generation);
        for way in ["all", "root", "table", "group"] {
            if way == "group" && generation == Generation::Old {
                continue;
            }
            let arguments = ["4", way, table.to_str().unwrap()];
            bench
                .run(&program, generation, &arguments, &[])
                .assert_passed();
        }
    }
}

#[test]
fn processes_meet_by_a_rank_table_without_being_told_a_port() {
    let bench = Bench::new();
    let table = bench.path("ranktable.json");
    std::fs::write(&table, rank_table(4)).unwrap();
    let program = bench.compile("cc", "processes", Generation::Old);
    let more = [table.to_str().unwrap()];
    for ended in bench.ranks(&program, Generation::Old, 4, &[], &more) {
        ended.assert_passed();
    }
}

#[test]
fn sixteen_devices_of_one_process_work_together() {
    let bench = Bench::new();
    let program = bench.compile("cc", "threads", Generation::New);
    let arguments = ["16", "all", ""];
    bench
        .run(&program, Generation::New, &arguments, &[])
        .assert_passed();
}

#[test]
fn a_port_that_is_taken_is_named_with_its_owner_under_the_code_of_the_generation() {
    let bench = Bench::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let variables = [("HCCL_HOST_SOCKET_PORT_RANGE", port.as_str())];
    for (generation, code) in [(Generation::Old, "EJ0003"), (Generation::New, "EI0019")] {
        let program = bench.compile("cc", "processes", generation);
        let ended = bench
            .ranks(&program, generation, 1, &variables, &[])
            .remove(0);
        assert_eq!(ended.code, Some(1), "{}", ended.said);
        assert!(ended.said.contains("gave 7, want 0"), "{}", ended.said);
        assert!(ended.said.contains(code), "{}", ended.said);
        let owner = format!("pid {}", std::process::id());
        assert!(ended.said.contains(&owner), "{}", ended.said);
    }
}

#[test]
fn wrong_calls_get_the_vendors_codes_and_say_what_is_wrong() {
    let bench = Bench::new();
    let program = bench.compile("cc", "misuse", Generation::New);
    bench
        .run(&program, Generation::New, &[], &[])
        .assert_passed();
}

#[test]
fn faults_on_purpose_look_like_the_vendors_on_every_rank() {
    let bench = Bench::new();
    let program = bench.compile("cc", "faults", Generation::New);
    for (scenario, fault) in [
        ("hang", "hang:rank=1,op=all_gather,k=2"),
        ("hang_force", "hang:rank=1"),
        ("hang_device", "hang:rank=1,comm=*"),
        ("slow", "slow:rank=2,ms=100"),
        ("async_error", "async_error:rank=0,op=all_reduce"),
        ("link_down", "link_down:rank=0,peer=1,after=1"),
        ("oom", "oom:rank=1,bytes=33554432"),
        ("device_lost", "device_lost:rank=1,op=all_reduce"),
        ("init_timeout", "init_timeout:rank=1"),
        ("mismatch", ""),
        ("dead", ""),
    ] {
        let variables = [
            ("MUSTER_EMU_FAULT", fault),
            ("MUSTER_EMU_EXEC_TIMEOUT_MS", "400"),
            (
                "MUSTER_EMU_CONNECT_TIMEOUT_MS",
                if scenario == "init_timeout" {
                    "500"
                } else {
                    "60000"
                },
            ),
        ];
        let marks = bench.path(&format!("mark-{scenario}"));
        let more = [scenario, marks.to_str().unwrap()];
        for ended in bench.ranks(&program, Generation::New, 3, &variables, &more) {
            let (how, said) = (&ended.how, &ended.said);
            assert_eq!(ended.code, Some(0), "{scenario}: {how}: {said}");
            ended.assert_passed();
        }
    }
}

#[test]
fn sends_meet_their_receives_however_they_are_batched() {
    let bench = Bench::new();
    let program = bench.compile("cc", "messages", Generation::Old);
    for (rank, ended) in bench
        .ranks(&program, Generation::Old, 2, &[], &[])
        .into_iter()
        .enumerate()
    {
        ended.assert_passed();
        // Nobody may take for an NPU's what a client prints.
        let notices = ended.said.matches("no NPU takes part").count();
        assert_eq!(notices, usize::from(rank == 0), "{}", ended.said);
    }
}

#[test]
fn the_first_messages_may_go_round_a_ring() {
    let bench = Bench::new();
    let program = bench.compile("cc", "messages", Generation::New);
    for ranks in [3, 4, 7] {
        for ended in bench.ranks(&program, Generation::New, ranks, &[], &[]) {
            ended.assert_passed();
        }
    }
}

#[test]
fn ranks_that_all_send_first_wait_for_each_other_until_the_deadline() {
    let bench = Bench::new();
    let program = bench.compile("cc", "messages", Generation::Old);
    let variables = [("MUSTER_EMU_EXEC_TIMEOUT_MS", "400")];
    for ended in bench.ranks(&program, Generation::Old, 2, &variables, &["first"]) {
        ended.assert_passed();
    }
}

#[test]
fn texts_of_failed_calls_are_printed_where_the_vendors_log_would_be() {
    let bench = Bench::new();
    let program = bench.compile("cc", "misuse", Generation::New);
    for (value, is_printed) in [("1", true), ("0", false)] {
        let variables = [("ASCEND_SLOG_PRINT_TO_STDOUT", value)];
        let ended = bench.run(&program, Generation::New, &[], &variables);
        ended.assert_passed();
        let found = ended.said.contains("[ERROR] muster-emu: [PID");
        assert_eq!(found, is_printed, "{}", ended.said);
    }
}

#[test]
fn a_variable_that_cannot_be_used_fails_the_first_call_and_is_named_on_stderr() {
    let bench = Bench::new();
    let program = bench.compile("cc", "misuse", Generation::New);
    for (name, value, what) in [
        ("MUSTER_EMU_FAULT", "hung:rank=1", "did you mean hang?"),
        ("HCCL_CONNECT_TIMEOUT", "5", "[120, 7200]"),
    ] {
        let ended = bench.run(&program, Generation::New, &[], &[(name, value)]);
        assert_eq!(ended.code, Some(1), "{}", ended.said);
        assert!(ended.said.contains("gave 1, want 15"), "{}", ended.said);
        assert!(ended.said.contains("EI0001"), "{}", ended.said);
        let line = format!("muster-emu (emulated): environment variable {name}");
        assert!(ended.said.contains(&line), "{}", ended.said);
        assert!(ended.said.contains(what), "{}", ended.said);
    }
}

/// The names of Open MPI that the sweep uses.
const OPEN_MPI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c/openmpi");

/// A program of the shape of hccl_test under Open MPI; says so and passes where there is none.
#[test]
fn a_sweep_under_open_mpi_is_right_at_every_size() {
    let bench = Bench::new();
    let version = std::process::Command::new("mpirun")
        .arg("--version")
        .output();
    let is_open_mpi =
        version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("Open MPI"));
    if !is_open_mpi {
        skipped();
        return;
    }
    for (generation, ranks) in [(Generation::Old, "4"), (Generation::New, "3")] {
        let program = bench.compile_with(
            "cc",
            "sweep",
            generation,
            &["-I", OPEN_MPI, "-l:libmpi.so.40"],
        );
        let mpirun = std::path::Path::new("mpirun");
        let arguments = [
            "--allow-run-as-root",
            "--oversubscribe",
            "-n",
            ranks,
            program.to_str().unwrap(),
            "8",
        ];
        let ended = bench.run(mpirun, generation, &arguments, &[]);
        assert_eq!(ended.code, Some(0), "{}", ended.said);
        assert_eq!(ended.said.matches("success").count(), 4, "{}", ended.said);
        assert!(!ended.said.contains("failed"), "{}", ended.said);
    }
}

#[expect(clippy::print_stdout, reason = "a skipped test has to say so")]
fn skipped() {
    println!("skipped: no Open MPI here");
}
