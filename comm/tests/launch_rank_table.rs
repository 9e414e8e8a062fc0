//! A rank table completes an identity if it is right, and is refused in full if it is not.

use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_comm::config::Environment;
use muster_comm::launch::rank_table::{Look, RankTableError, complete, load, look};
use muster_comm::launch::{Detected, Identity, detect};
use muster_comm::sync::Deadline;
use muster_comm::types::Rank;
use serde_json::{Value, json};

/// Two servers with two devices each, the second one listed by name.
fn table() -> Value {
    let device = |id: u32, rank: u32| {
        json!({
            "device_id": id.to_string(),
            "device_ip": format!("192.168.{rank}.1"),
            "rank_id": rank.to_string(),
        })
    };
    json!({
        "status": "completed",
        "version": "1.0",
        "server_count": "2",
        "server_list": [
            {"server_id": "10.0.0.1", "device": [device(0, 0), device(1, 1)]},
            {"server_id": "node-b", "device": [device(4, 2), device(5, 3)]},
        ],
    })
}

fn findings(table: &Value) -> Vec<String> {
    match look(&table.to_string()) {
        Err(findings) => findings.iter().map(ToString::to_string).collect(),
        Ok(look) => vec![format!("{look:?}")],
    }
}

fn write(folder: &Path, table: &Value) -> PathBuf {
    let path = folder.join("hccl.json");
    std::fs::write(&path, table.to_string()).expect("a file");
    path
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_millis(50))
}

fn identity(pairs: &[(&str, &str)]) -> Identity {
    let answer = detect(&Environment::from_pairs(pairs.iter().copied()), None);
    let Ok(Detected::Identity(identity)) = answer else {
        unreachable!("{answer:?}");
    };
    identity
}

/// The identity of rank 2 of `size`, completed by `table`.
fn completed(table: &Value, size: &str) -> Result<Identity, RankTableError> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = write(folder.path(), table).display().to_string();
    let pairs = [
        ("RANK_ID", "2"),
        ("RANK_SIZE", size),
        ("DEVICE_ID", "4"),
        ("RANK_TABLE_FILE", path.as_str()),
    ];
    let mut identity = identity(&pairs);
    complete(&mut identity, &Environment::from_pairs(pairs), soon())?;
    Ok(identity)
}

#[test]
fn a_right_table_tells_where_a_rank_lies_and_where_to_meet() {
    let identity = completed(&table(), "4").expect("a right table");
    assert_eq!(
        identity.local_rank,
        Some(0),
        "device 4 is the first of its server"
    );
    assert_eq!(identity.local_world_size, Some(2));
    assert_eq!((identity.node_rank, identity.nnodes), (Some(1), Some(2)));
    let hint = identity.endpoint.expect("rank 0 has a server");
    assert_eq!(hint.endpoint.host(), "10.0.0.1");
    assert!(identity.notes.is_empty(), "{:?}", identity.notes);
    let Ok(Look::Ready(table)) = look(&table().to_string()) else {
        panic!("a right table");
    };
    assert_eq!(table.world_size(), 4);
    assert_eq!(table.device_of(Rank(3)), Some(5));
    assert_eq!(table.host_of(Rank(3)), Some("node-b"));
    assert_eq!(table.device_of(Rank(4)), None);
}

#[test]
fn a_table_of_another_size_than_the_variables_is_refused() {
    let error = completed(&table(), "8").expect_err("4 is not 8");
    assert!(
        matches!(
            error,
            RankTableError::Differs {
                mine: 8,
                theirs: 4,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn without_a_table_nothing_changes() {
    let pairs = [("RANK_ID", "0"), ("RANK_SIZE", "1")];
    let mut found = identity(&pairs);
    complete(&mut found, &Environment::from_pairs(pairs), soon()).expect("no table");
    assert_eq!(found, identity(&pairs));
}

#[test]
fn all_that_is_wrong_is_told_at_once_with_its_place() {
    let mut wrong = table();
    wrong["version"] = json!("3.0");
    wrong["server_count"] = json!("3");
    wrong["server_list"][0]["device"][1]["rank_id"] = json!("0");
    wrong["server_list"][1]["device"][0]["device_ip"] = json!("here");
    wrong["server_list"][1]["device"][1]["device_id"] = json!("4");
    assert_eq!(
        findings(&wrong),
        [
            "/version: is \"3.0\"; allowed: \"1.0\", \"1.2\" or \"2.0\"",
            "/server_count: is 3 where 2 are listed",
            "/server_list/0/device/1/rank_id: is 0, the rank of /server_list/0/device/0 too",
            "/server_list/1/device/0/device_ip: is \"here\"; an IPv4 or IPv6 address belongs here",
            "/server_list/1/device/1/device_id: is 4, the device of /server_list/1/device/0 too",
            "/server_list: has no rank 1, though it has 2: ranks are 0, 1, 2 ...",
        ]
    );
}

#[test]
fn each_rule_is_broken_by_itself() {
    let cases: [(&str, Value, &str); 8] = [
        ("/status", json!("done"), "/status: is \"done\""),
        (
            "/server_list",
            json!({}),
            "/server_list: is an object; a list belongs here",
        ),
        ("/server_list", json!([]), "/server_list: is empty"),
        (
            "/server_list/0/device/0/rank_id",
            json!(0),
            "rank_id: is 0; allowed: a number in quotes",
        ),
        (
            "/server_list/0/device/0/rank_id",
            json!("-1"),
            "rank_id: is \"-1\"",
        ),
        (
            "/server_list/0/device/1/rank_id",
            json!("7"),
            "has ranks 0 and 7 and none between",
        ),
        (
            "/server_list/0/device",
            json!([]),
            "/server_list/0/device: is empty",
        ),
        (
            "/server_list/0/server_id",
            json!(""),
            "/server_list/0/server_id: is \"\"; a text belongs here",
        ),
    ];
    for (pointer, value, expected) in cases {
        let mut wrong = table();
        *wrong.pointer_mut(pointer).expect(pointer) = value;
        let found = findings(&wrong);
        assert!(
            found.iter().any(|finding| finding.contains(expected)),
            "{pointer}: {found:?}"
        );
    }
    assert_eq!(findings(&json!([1])), ["the table: is no JSON object"]);
    let error = look("{").expect_err("no JSON");
    assert!(error[0].to_string().starts_with("the table: is no JSON"));
}

#[test]
fn a_table_that_is_being_made_is_waited_for_until_the_deadline() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut unfinished = table();
    unfinished["status"] = json!("initializing");
    let path = write(folder.path(), &unfinished);
    let error = load(&path, soon()).expect_err("never completed");
    assert!(
        matches!(&error, RankTableError::NotReady { status, .. } if status == "initializing"),
        "{error}"
    );
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| load(&path, Deadline::after(Duration::from_secs(30))));
        // A rename, as ConfigMaps are replaced: the reader never sees half a table.
        let next = folder.path().join("next");
        std::fs::write(&next, table().to_string()).expect("a file");
        std::fs::rename(&next, &path).expect("renamed");
        let loaded = waiting.join().expect("no panic").expect("completed");
        assert_eq!(loaded.world_size(), 4);
    });
}

#[test]
fn a_folder_a_pipe_or_a_missing_file_is_no_table() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .expect("a pipe");
    for path in [folder.path().to_owned(), folder.path().join("none"), pipe] {
        let error = load(&path, soon()).expect_err("no table");
        assert!(
            matches!(error, RankTableError::Unreadable { .. }),
            "{error}"
        );
    }
}
