//! Hosts with broken rank tables and launchers, or with what earlier jobs left.

use muster_harness::doctor::Status::{Fail, Warn};

use super::{Broken, broken, process};
use crate::host::Host;

pub(super) const JOBS: &[Broken] = &[
    broken(
        "launcher",
        Fail,
        &["openmpi says rank 1 of 2", "slurm says rank 0 of 4"],
        "--launcher",
        |host| {
            host.set("OMPI_COMM_WORLD_RANK", "1")
                .set("OMPI_COMM_WORLD_SIZE", "2")
                .set("SLURM_PROCID", "0")
                .set("SLURM_STEP_ID", "0")
                .set("SLURM_STEP_NUM_TASKS", "4");
        },
    ),
    broken(
        "rank-table",
        Fail,
        &["/server_list/0/device/1/rank_id", "is 0, the rank of"],
        "muster ranktable",
        |host| {
            table(host, "0");
        },
    ),
    broken(
        "rank-table",
        Fail,
        &["cannot be read", "/nowhere.json"],
        "RANK_TABLE_FILE",
        |host| {
            host.set("RANK_TABLE_FILE", "/nowhere.json");
        },
    ),
    broken(
        "rank-table",
        Fail,
        &["RANK_SIZE is 8", "2 ranks"],
        "RANK_SIZE=2",
        |host| {
            table(host, "1");
            host.set("RANK_ID", "0").set("RANK_SIZE", "8");
        },
    ),
    broken(
        "rank-table",
        Fail,
        &["10.0.0.7", "no address of this host"],
        "RANK_ID",
        |host| {
            table(host, "1");
            host.set("RANK_ID", "0").set("RANK_SIZE", "2");
        },
    ),
    broken(
        "device-holders",
        Warn,
        &["python3 (pid 4711)", "/dev/davinci0"],
        "kill 4711",
        |host| {
            process(host);
            host.link("/proc/4711/fd/7", "/dev/davinci0");
        },
    ),
    broken(
        "leftover-memory",
        Warn,
        &["Open MPI", "nobody maps"],
        "rm -- /dev/shm/vader_segment.fox.1",
        |host| {
            let file = "/dev/shm/vader_segment.fox.1";
            host.file(file, "left");
            let hour = std::time::Duration::from_secs(3600);
            let open = std::fs::File::options()
                .write(true)
                .open(host.place(file))
                .expect("a file");
            open.set_modified(std::time::SystemTime::now() - hour)
                .expect("a time");
        },
    ),
];

/// A table of two ranks, the second with this number.
fn table(host: &mut Host, second: &str) {
    let text = format!(
        r#"{{"status":"completed","version":"1.0","server_count":"1","server_list":[
        {{"server_id":"10.0.0.7","device":[{{"device_id":"0","rank_id":"0"}},
        {{"device_id":"1","rank_id":"{second}"}}]}}]}}"#
    );
    host.file("/etc/hccl.json", &text)
        .set("RANK_TABLE_FILE", "/etc/hccl.json");
}
