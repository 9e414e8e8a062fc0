//! The commands themselves, with a real environment on this host.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use muster_harness::doctor::CHECKS;
use serde_json::{Value, json};

/// Runs the tool with these variables and no others.
fn muster(args: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(args)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .envs(variables.iter().copied())
        .output()
        .expect("the tool starts")
}

/// What the doctor says as JSON, and its exit code.
pub(crate) fn doctor(args: &[&str], variables: &[(&str, &str)]) -> (Value, Option<i32>) {
    let args: Vec<&str> = ["doctor", "--format", "json"]
        .iter()
        .chain(args)
        .copied()
        .collect();
    let output = muster(&args, variables);
    let text = String::from_utf8_lossy(&output.stdout);
    let words = String::from_utf8_lossy(&output.stderr);
    let parsed = serde_json::from_str(&text);
    assert!(parsed.is_ok(), "no document: {text}\n{words}");
    (parsed.unwrap_or_default(), output.status.code())
}

/// One check of a JSON document.
pub(crate) fn find<'a>(document: &'a Value, id: &str) -> &'a Value {
    let checks = document["checks"].as_array().expect("checks");
    let found = checks.iter().find(|check| check["id"] == id);
    assert!(found.is_some(), "no {id} in {document}");
    found.expect("asserted")
}

/// One check fails with this culprit and this fix, and the exit code says so.
fn fails(id: &str, variables: &[(&str, &str)], culprit: &str, fix: &str) {
    let (document, code) = doctor(&["--only", id], variables);
    let check = find(&document, id);
    assert_eq!(check["status"], "fail", "{document}");
    let text = |key: &str| check[key].as_str().expect("text");
    assert!(text("finding").contains(culprit), "{document}");
    assert!(text("remedy").contains(fix), "{document}");
    assert!(!text("evidence").is_empty(), "{document}");
    assert_eq!(code, Some(60), "{document}");
}

#[test]
fn the_document_has_exactly_the_promised_fields_and_every_check() {
    let (document, code) = doctor(&[], &[]);
    let keys: Vec<&String> = document.as_object().expect("an object").keys().collect();
    assert_eq!(
        keys,
        [
            "schema_version",
            "tool",
            "command",
            "host",
            "emulated",
            "passed",
            "elapsed_us",
            "checks",
            "machine",
            "origin"
        ]
    );
    assert_eq!(document["schema_version"], 1);
    let checks = document["checks"].as_array().expect("checks");
    let ids: Vec<&str> = checks
        .iter()
        .filter_map(|check| check["id"].as_str())
        .collect();
    let known: Vec<&str> = CHECKS.iter().map(|check| check.id).collect();
    assert_eq!(ids, known);
    for check in checks {
        let keys: Vec<&String> = check.as_object().expect("an object").keys().collect();
        assert_eq!(
            keys,
            [
                "id",
                "group",
                "status",
                "finding",
                "evidence",
                "remedy",
                "elapsed_us",
                "problems",
                "broken"
            ]
        );
        let status = check["status"].as_str().expect("text");
        assert!(["ok", "warn", "fail", "skip"].contains(&status), "{check}");
        assert_ne!(check["finding"], "", "{check}");
        let bad = ["warn", "fail"].contains(&status);
        assert_eq!(check["remedy"] != "", bad, "{check}");
    }
    let failed = checks.iter().any(|check| check["status"] == "fail");
    assert_eq!(document["passed"], json!(!failed));
    assert_eq!(code, Some(if failed { 60 } else { 0 }));
}

#[test]
fn a_misspelt_variable_is_told_with_the_one_that_was_meant() {
    fails(
        "variable-names",
        &[("HCCL_CONECT_TIMEOUT", "600")],
        "did you mean HCCL_CONNECT_TIMEOUT?",
        "export HCCL_CONNECT_TIMEOUT",
    );
}

#[test]
fn a_value_out_of_range_is_told_with_the_range() {
    fails(
        "variable-values",
        &[("HCCL_CONNECT_TIMEOUT", "5")],
        "HCCL_CONNECT_TIMEOUT",
        "120 to 7200",
    );
}

#[test]
fn variables_that_contradict_each_other_are_both_told() {
    let both = [
        ("HCCL_INTRA_PCIE_ENABLE", "1"),
        ("HCCL_INTRA_ROCE_ENABLE", "1"),
    ];
    fails(
        "variable-conflicts",
        &both,
        "HCCL_INTRA_ROCE_ENABLE",
        "unset both",
    );
}

#[test]
fn a_port_that_is_taken_is_told_with_our_own_process() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let base = (port - 3).to_string();
    let who = format!("(pid {})", std::process::id());
    let what = format!("port {port} of HCCL's {base}-{}", port - 3 + 31);
    let (document, code) = doctor(&["--only", "host-ports"], &[("HCCL_IF_BASE_PORT", &base)]);
    let check = find(&document, "host-ports");
    let finding = check["finding"].as_str().expect("text");
    assert!(finding.contains(&what), "{document}");
    assert!(finding.contains(&who), "{document}");
    assert!(
        check["remedy"]
            .as_str()
            .expect("text")
            .contains("HCCL_IF_BASE_PORT=")
    );
    assert_eq!(code, Some(60));
}

#[test]
fn a_master_port_that_is_taken_is_told_with_our_own_process() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener
        .local_addr()
        .expect("an address")
        .port()
        .to_string();
    let who = format!("(pid {})", std::process::id());
    fails("master-port", &[("MASTER_PORT", &port)], &who, "kill");
    // The agent of torchrun holds it by right.
    let agent = [
        ("MASTER_PORT", port.as_str()),
        ("TORCHELASTIC_USE_AGENT_STORE", "True"),
    ];
    let (document, code) = doctor(&["--only", "master-port"], &agent);
    assert_eq!(find(&document, "master-port")["status"], "ok", "{document}");
    assert_eq!(code, Some(0));
}

#[test]
fn a_library_to_be_preloaded_that_is_missing_is_told() {
    fails(
        "preload",
        &[("LD_PRELOAD", "/nowhere/libfast.so")],
        "/nowhere/libfast.so",
        "unset LD_PRELOAD",
    );
}

#[test]
fn an_interface_that_does_not_exist_is_told() {
    fails(
        "interface",
        &[("HCCL_SOCKET_IFNAME", "=nosuch0")],
        "nosuch0",
        "HCCL_SOCKET_IFNAME==",
    );
}

#[test]
fn an_address_of_another_host_is_told() {
    fails(
        "host-address",
        &[("HCCL_IF_IP", "192.0.2.77")],
        "192.0.2.77",
        "HCCL_SOCKET_IFNAME",
    );
}

#[test]
fn two_launchers_that_disagree_are_told() {
    let both = [
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("OMPI_COMM_WORLD_SIZE", "2"),
        ("SLURM_PROCID", "0"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_STEP_NUM_TASKS", "4"),
    ];
    fails("launcher", &both, "openmpi says rank 1 of 2", "--launcher");
    let output = muster(&["env", "--explain"], &both);
    assert_eq!(output.status.code(), Some(2));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("openmpi says rank 1 of 2"), "{words}");
    assert!(words.contains("slurm says rank 0 of 4"), "{words}");
    // The one that is chosen is believed.
    let output = muster(&["env", "--launcher", "slurm"], &both);
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_rank_table_is_told_with_the_place_of_each_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = write_table(
        folder.path(),
        &json!({"status": "completed", "version": "1.0", "server_count": "2", "server_list": []}),
    );
    fails(
        "rank-table",
        &[("RANK_TABLE_FILE", &file)],
        "/server_list",
        "ranktable",
    );
}

#[test]
fn the_text_fits_the_width_and_has_no_colours_in_a_pipe() {
    let variables = [
        ("HCCL_CONNECT_TIMEOUT", "5"),
        ("LD_PRELOAD", "/nowhere/libfast.so"),
    ];
    let output = muster(&["doctor"], &variables);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(!text.contains('\u{1b}'), "{text}");
    let place = |words: &str| {
        text.find(words)
            .unwrap_or_else(|| panic!("no {words} in {text}"))
    };
    assert!(place("fail  ") < place("\nok  "), "{text}");
    assert!(text.contains("not fit: 2 failed"), "{text}");
    for line in text.lines() {
        let words = line.split_whitespace().count();
        assert!(line.chars().count() <= 80 || words <= 2, "{line}");
    }
}

#[test]
fn unknown_checks_are_refused_with_the_one_that_was_meant() {
    let output = muster(&["doctor", "--only", "host-prots"], &[]);
    assert_eq!(output.status.code(), Some(2));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("did you mean host-ports?"), "{words}");
    let list = muster(&["doctor", "--list"], &[]);
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    for check in CHECKS {
        assert!(
            list.contains(check.id) && list.contains(check.asks),
            "{}",
            check.id
        );
    }
}

#[test]
fn a_host_elsewhere_is_judged_by_its_files() {
    let mut host = crate::host::Host::healthy();
    host.file("/proc/sys/vm/panic_on_oom", "2\n");
    let root = host.place("/").display().to_string();
    let (document, _) = doctor(&["--root", &root, "--only", "panic-on-oom,libraries"], &[]);
    assert_eq!(
        find(&document, "panic-on-oom")["status"],
        "warn",
        "{document}"
    );
    assert_eq!(find(&document, "libraries")["status"], "skip", "{document}");
    let output = muster(&["doctor", "--root", "/nowhere"], &[]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_environment_is_explained_with_the_variable_behind_each_number() {
    let variables = [
        ("RANK", "3"),
        ("WORLD_SIZE", "8"),
        ("LOCAL_RANK", "3"),
        ("LOCAL_WORLD_SIZE", "8"),
        ("GROUP_RANK", "0"),
        ("GROUP_WORLD_SIZE", "1"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", "29500"),
        ("TORCHELASTIC_RUN_ID", "r1"),
        ("ASCEND_RT_VISIBLE_DEVICES", "4,5"),
        ("MUSTER_SECRET_FILE", "/home/u/hush-hush"),
        ("SLURM_JOB_ID", "7"),
        ("DATABASE_PASSWORD", "hush-hush"),
    ];
    let output = muster(&["env", "--explain"], &variables);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    for part in [
        "torchrun",
        "(RANK)",
        "(WORLD_SIZE)",
        "(GROUP_RANK)",
        "[4,5]  (ASCEND_RT_VISIBLE_DEVICES)",
        "SLURM_JOB_ID",
        "MUSTER_SECRET_FILE, not shown",
    ] {
        assert!(text.contains(part), "{part} is missing from\n{text}");
    }
    let output = muster(&["env", "--format", "json"], &variables);
    let document: Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert_eq!(document["contract"], "torchrun");
    assert_eq!(document["rank"], json!({"value": 3, "from": ["RANK"]}));
    assert_eq!(document["devices"]["value"], json!([4, 5]));
    assert_eq!(document["unread"], json!(["SLURM_JOB_ID"]));
    let both = format!("{text}{document}");
    assert!(!both.contains("hush"), "{both}");
}

#[test]
fn a_table_that_is_written_is_right_and_one_that_would_be_wrong_is_not_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("hccl.json").display().to_string();
    for version in ["1.0", "1.2", "2.0"] {
        let servers = [
            "--server",
            "10.0.0.1=192.168.1.1,192.168.1.2",
            "--server",
            "10.0.0.2=192.168.1.3,192.168.1.4",
        ];
        let args = [
            &[
                "ranktable",
                "write",
                "--devices",
                "0,1",
                "--version",
                version,
                "--out",
                &file,
            ][..],
            &servers,
        ]
        .concat();
        assert_eq!(muster(&args, &[]).status.code(), Some(0), "{version}");
        let output = muster(&["ranktable", "check", &file], &[]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(0), "{text}");
        assert!(
            text.contains(&format!("right, version {version}, 4 ranks on 2 servers")),
            "{text}"
        );
    }
    let before = std::fs::read(&file).expect("the table");
    let twice = [
        "ranktable",
        "write",
        "--devices",
        "0",
        "--out",
        &file,
        "--server",
        "a=1.1.1.1",
        "--server",
        "b=1.1.1.1",
    ];
    let output = muster(&twice, &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/server_list/1/device/0/device_ip"));
    assert_eq!(std::fs::read(&file).expect("the table"), before);
    let left = std::fs::read_dir(folder.path())
        .expect("the folder")
        .count();
    assert_eq!(left, 1, "something is left beside the table");
}

/// Each version with one thing wrong, and the place of it.
#[test]
fn each_error_of_a_table_is_told_with_its_pointer() {
    let pods = json!([{"super_pod_id": "0", "server_list": [{"server_id": "z"}]}]);
    let level = json!([{"net_layer": 0, "net_instance_id": "s", "net_type": "t", "rank_addr_list": [{"addr_type": "IPV4", "addr": "::1", "ports": []}]}]);
    let server = |devices: Value| json!([{"server_id": "a", "device": devices}]);
    let tables = [
        (
            json!({"status": "completed", "version": "1.0", "server_count": "1", "server_list": server(json!([{"device_id": 0, "rank_id": "0"}]))}),
            "/server_list/0/device/0/device_id",
        ),
        (
            json!({"status": "completed", "version": "1.0", "server_count": "1", "server_list": server(json!([{"device_id": "0", "rank_id": "1"}]))}),
            "/server_list",
        ),
        (
            json!({"status": "completed", "version": "1.0", "server_count": "1", "server_list": server(json!([{"device_id": "0", "rank_id": "0", "host_port": "0"}]))}),
            "/server_list/0/device/0/host_port",
        ),
        (
            json!({"status": "completed", "version": "1.0", "server_count": "1", "server_list": [{"server_id": "a", "devices": []}]}),
            "/server_list/0/device",
        ),
        (
            json!({"status": "completed", "version": "1.2", "server_count": "1", "server_list": server(json!([{"device_id": "0", "rank_id": "0", "super_device_id": "0"}])), "super_pod_list": pods}),
            "/super_pod_list/0/server_list/0/server_id",
        ),
        (
            json!({"status": "completed", "version": "2.0", "rank_count": 1, "rank_list": [{"rank_id": "0", "local_id": 0, "device_id": 0, "level_list": level}]}),
            "/rank_list/0/rank_id",
        ),
        (
            json!({"status": "completed", "version": "2.0", "rank_count": 1, "rank_list": [{"rank_id": 0, "local_id": 0, "device_id": 0, "level_list": level}]}),
            "/rank_list/0/level_list/0/rank_addr_list/0/addr",
        ),
        (
            json!({"status": "completed", "group_count": "1", "group_list": [{"group_name": "hccl_world_group", "device_count": "2", "instance_count": "1", "instance_list": [{"pod_name": "p", "server_id": "a", "devices": [{"device_id": "0", "device_ip": "1.1.1.1"}]}]}]}),
            "/group_list/0/device_count",
        ),
        (
            json!({"status": "done", "version": "1.0", "server_count": "1", "server_list": server(json!([{"device_id": "0", "rank_id": "0"}]))}),
            "/status",
        ),
    ];
    let folder = tempfile::tempdir().expect("a folder");
    for (table, pointer) in tables {
        let file = write_table(folder.path(), &table);
        let output = muster(&["ranktable", "check", &file, "--format", "json"], &[]);
        assert_eq!(output.status.code(), Some(2), "{table}");
        let document: Value = serde_json::from_slice(&output.stdout).expect("one document");
        let findings = document["findings"].as_array().expect("findings");
        assert!(
            findings.iter().any(|finding| finding["pointer"] == pointer),
            "{pointer}: {document}"
        );
        assert_eq!(document["valid"], false);
    }
    let output = muster(&["ranktable", "check", "/nowhere.json"], &[]);
    assert_eq!(output.status.code(), Some(2));
}

fn write_table(folder: &Path, table: &Value) -> String {
    let file = folder.join("table.json");
    std::fs::write(&file, table.to_string()).expect("a file");
    file.display().to_string()
}
