//! Bad input: refused before anything starts, with what was given and what is allowed.

use muster_tests::muster;

/// Runs a command line that cannot be understood, and gives back what it was told.
fn refused(args: &[&str]) -> String {
    let ended = muster(args);
    ended.expect_code(2);
    assert!(
        ended.stdout.is_empty(),
        "{args:?} printed a result: {}",
        ended.stdout
    );
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    ended.stderr
}

#[test]
fn nonsense_is_answered_with_what_is_allowed() {
    for (args, parts) in [
        (vec!["verify", "pt2"], vec!["tp"]),
        (
            vec!["verify", "banana"],
            vec!["banana", "axes: tp, cp, pp, dp, ep, etp"],
        ),
        (vec!["verify", "tp0"], vec!["tp", "0"]),
        (vec!["verify", "tp2@0"], vec!["0"]),
        (vec!["verify", "tp2@3"], vec!["3"]),
        (vec!["verify", "tp-4"], vec!["tp"]),
        (
            vec!["verify", "tp2@16777216"],
            vec!["16777216", "at most 1024"],
        ),
        (vec!["verify", "tp99999999999999999999"], vec!["too large"]),
        (
            vec!["verify", "vllm0.12:tp2"],
            vec!["of vllm-ascend", "0.13"],
        ),
        (vec!["verify", "vllm:tp4dcp3"], vec!["legal: 1, 2, 4"]),
        (
            vec!["verify", "vllm:tp2", "--etp", "1"],
            vec!["are for layouts of Megatron"],
        ),
        (
            vec!["verify", "--preset", "qwen3-30b-a3b-9"],
            vec!["did you mean qwen3-30b-a3b-"],
        ),
        (
            vec!["verify", "--dtypes", "f31"],
            vec!["did you mean f32?", "bf16"],
        ),
        (vec!["verify", "--sizes", "-1"], vec!["--sizes"]),
        (vec!["verify", "--sizes", "99999999999"], vec!["67108864"]),
        (vec!["verify", "--deadline", "0s"], vec!["1ms to 24 hours"]),
        (vec!["verify", "--etp", "0"], vec!["etp"]),
        (vec!["verify", "--order", "tp-tp"], vec!["tp"]),
        (
            vec!["verify", "--inject", "bitflop:rank=1"],
            vec!["did you mean bitflip?"],
        ),
        (
            vec!["verify", "tp2", "--inject", "bitflip:rank=7"],
            vec!["strikes no rank", "tp2@2"],
        ),
        (vec!["verify", "--transprot", "tcp"], vec!["--transport"]),
        (vec!["verfiy"], vec!["verify"]),
        (
            vec!["run", "-n", "2", "--", "/nope"],
            vec!["/nope cannot be run: No such file or directory"],
        ),
        (
            vec!["run", "-n", "2", "--", "/etc"],
            vec!["/etc cannot be run"],
        ),
        (
            vec!["run", "-n", "2", "--", "no-such-program"],
            vec!["no folder of PATH"],
        ),
        (vec![], vec!["Usage"]),
    ] {
        let told = refused(&args);
        for part in parts {
            assert!(
                told.contains(part),
                "{args:?}: {part:?} is missing from\n{told}"
            );
        }
    }
}

#[test]
fn the_vendor_backend_without_a_device_is_refused_with_what_was_looked_for() {
    let ended = muster(&["verify", "tp1", "--backend", "hccl"]);
    ended.expect_code(60);
    for part in ["davinci", "libhccl.so", "--backend host"] {
        assert!(
            ended.stderr.contains(part),
            "{part:?} is missing from\n{}",
            ended.stderr
        );
    }
}

#[test]
fn buffers_that_no_host_can_hold_are_refused_before_anything_starts() {
    let ended = muster(&["verify", "tp8", "--dtypes", "f64", "--sizes", "67108864"]);
    ended.expect_code(60);
    for part in ["MiB of memory, available are", "--sizes"] {
        assert!(
            ended.stderr.contains(part),
            "{part:?} is missing from\n{}",
            ended.stderr
        );
    }
}

#[test]
fn too_few_descriptors_are_named_with_the_need() {
    let muster = muster_tests::binary().display().to_string();
    let script = format!("ulimit -n 40 && exec {muster} verify tp8");
    let shell = std::path::Path::new("/bin/sh");
    let ended = muster_tests::start(shell, &["-c", &script], &[]).wait();
    ended.expect_code(60);
    for part in ["descriptors", "40", "ulimit -Hn"] {
        assert!(
            ended.stderr.contains(part),
            "{part:?} is missing from\n{}",
            ended.stderr
        );
    }
}

#[test]
fn malformed_variables_are_named_with_what_is_allowed() {
    for (name, value, part) in [
        ("MUSTER_DEADLINE_S", "soon", "MUSTER_DEADLINE_S"),
        ("MUSTER_TRANSPORT", "rdma", "auto, shm or tcp"),
        ("MUSTER_RANK", "-3", "MUSTER_RANK"),
    ] {
        let run = muster_tests::start(muster_tests::binary(), &["verify", "tp1"], &[(name, value)]);
        let ended = run.wait();
        ended.expect_code(2);
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
    }
}

#[test]
fn help_teaches_with_examples_and_all_exit_codes() {
    for args in [vec!["--help"], vec!["verify", "--help"]] {
        let ended = muster(&args);
        ended.expect_code(0);
        for part in ["Examples:", "muster verify", "PEER_DEAD", "INTERRUPTED"] {
            assert!(
                ended.stdout.contains(part),
                "{args:?}: {part:?} is missing from\n{}",
                ended.stdout
            );
        }
    }
}

#[test]
fn an_option_that_a_launcher_does_not_have_is_no_program() {
    let args = ["run", "-n", "2", "--deadline", "2s", "--", "true"];
    let ended = muster(&args);
    let reason = "unexpected argument '--deadline'";
    assert!(
        ended.expect_code(2).stderr.contains(reason),
        "{}",
        ended.stderr
    );
}
