//! Ranks on several hosts, as network namespaces play them: what shares no network name space shares no memory.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use muster_tests::{Ended, Running, binary, find_program, skipped, start, until};
use serde_json::{Value, json};

use crate::joined::{ALLOW_ROOT, Mpi, find_mpirun};

/// Two hosts on two wires, each a network namespace; removed at the end.
struct Hosts {
    names: [String; 2],
}

impl Hosts {
    /// Where the first of them is reached.
    const ADDRESS: &'static str = "10.198.0.1";

    /// `None` where this machine does not let us.
    fn make(mark: &str) -> Option<Self> {
        let names = ["a", "b"].map(|host| format!("spread-{mark}-{}-{host}", std::process::id()));
        let hosts = Self { names };
        let [a, b] = &hosts.names;
        let wire = |name: &str, network: &str| {
            let pair = ["link", "add", name, "netns", a, "type", "veth"];
            let ends = [(a, 1), (b, 2)].map(|(host, last)| (host, format!("{network}.{last}/24")));
            ip(&[&pair[..], &["peer", "name", name, "netns", b]].concat())
                && ends.iter().all(|(host, address)| {
                    ip(&["-n", host, "address", "add", address, "dev", name])
                        && ip(&["-n", host, "link", "set", name, "up"])
                })
        };
        let is_made = ip(&["netns", "add", a])
            && ip(&["netns", "add", b])
            && [a, b]
                .iter()
                .all(|host| ip(&["-n", host, "link", "set", "lo", "up"]))
            && wire("eth0", "10.198.0")
            && wire("eth1", "10.199.0");
        is_made.then_some(hosts)
    }

    /// Bytes that have left the hosts by this interface.
    fn sent(&self, interface: &str) -> u64 {
        let counter = format!("/sys/class/net/{interface}/statistics/tx_bytes");
        let of_host = |host: &String| {
            let words = ["netns", "exec", host, "cat", &counter];
            let output = Command::new("ip").args(words).output().expect("it runs");
            let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            text.parse::<u64>().expect("a number")
        };
        self.names.iter().map(of_host).sum()
    }

    /// Starts ranks 0 to 3, two on each host, or three and one.
    fn run(&self, job: &str, first: u32, args: &[&str], more: &[(&str, &str)]) -> Vec<Ended> {
        let endpoint = format!("tcp://{}:29417", Self::ADDRESS);
        let ip = find_program("ip").expect("the hosts were made with it");
        let program = binary().to_str().expect("text");
        let ranks = (0..4).map(|rank: u32| {
            let host = &self.names[usize::from(rank >= first)];
            let words = [&["netns", "exec", host, program], args].concat();
            let rank = rank.to_string();
            let variables = [
                ("MUSTER_RANK", rank.as_str()),
                ("MUSTER_WORLD_SIZE", "4"),
                ("MUSTER_RENDEZVOUS", &endpoint),
                ("MUSTER_JOB_ID", job),
            ];
            start(&ip, &words, &[&variables, more].concat())
        });
        let ranks: Vec<Running> = ranks.collect();
        ranks.into_iter().map(Running::wait).collect()
    }

    /// Runs a program under an mpirun with two ranks on each host, which are not told where to meet; `None` where there is no
    /// mpirun. A script takes the place of ssh: it starts what it is given on the host that it is given.
    fn launch(&self, mpi: Mpi, words: &[&str]) -> Option<Ended> {
        let mpirun = find_mpirun(mpi)?;
        let folder = tempfile::tempdir().expect("a folder");
        let agent = folder.path().join("agent");
        // All hosts have the same name and the same /tmp, in which daemons of Open MPI make the same folder.
        let script = "#!/bin/sh\n\
            while [ \"${1#-}\" != \"$1\" ]; do shift; done\n\
            host=$1; shift; export TMPDIR=\"${0%/*}/$host\"; mkdir -p \"$TMPDIR\"\n\
            exec ip netns exec \"$host\" sh -c \"$*\"\n";
        std::fs::write(&agent, script).expect("a script");
        let permissions = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&agent, permissions).expect("it can be run");
        let agent = agent.to_str().expect("text");
        let [a, b] = &self.names;
        let (hosts, slots) = (format!("{a},{b}"), format!("{a}:2,{b}:2"));
        let options: Vec<&str> = match mpi {
            Mpi::Mpich => [
                ["-iface", "eth0", "-localhost", a, "-launcher", "ssh"],
                ["-launcher-exec", agent, "-hosts", &hosts, "-ppn", "2"],
            ]
            .concat(),
            Mpi::OpenMpi => vec!["--mca", "plm_rsh_agent", agent, "--host", &slots],
        };
        let ip = find_program("ip").expect("the hosts were made with it");
        let mpirun = mpirun.to_str().expect("text");
        let words = [
            &["netns", "exec", a, mpirun],
            options.as_slice(),
            &["-n", "4"],
            words,
        ]
        .concat();
        let own = folder.path().to_str().expect("text");
        let variables = [ALLOW_ROOT.as_slice(), &[("TMPDIR", own)]].concat();
        // The daemons of an mpirun on other hosts end a moment after itself.
        Some(start(&ip, &words, &variables).wait_for_all())
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            ip(&["netns", "delete", name]);
        }
    }
}

fn ip(words: &[&str]) -> bool {
    let output = Command::new("ip").args(words).output();
    output.is_ok_and(|output| output.status.success())
}

#[test]
fn plans_of_two_levels_are_taken_where_ranks_share_hosts_and_span_them() {
    let Some(hosts) = Hosts::make("plans") else {
        return skipped("network namespaces cannot be made here");
    };
    let args = [
        "bench",
        "all_reduce",
        "reduce",
        "broadcast",
        "all_gather",
        "all_gather_v",
        "reduce_scatter",
        "reduce_scatter_v",
        "all_to_all",
        "gather",
        "scatter_v",
        "barrier",
        "-b",
        "64",
        "-e",
        "1M",
        "-f",
        "128",
        "-n",
        "5",
        "--format",
        "json",
    ];
    for first in [2, 3] {
        let job = format!("plans-{first}-{}", std::process::id());
        let all = hosts.run(&job, first, &args, &[]);
        for ended in &all {
            ended.expect_code(0);
        }
        let document = all[0].json();
        let records = document["records"].as_array().expect("records");
        assert!(records.len() > 24, "{records:?}");
        for record in records {
            let call = record["collective"].as_str().expect("a name");
            assert!(record["wrong"] == 0 || call == "barrier", "{record}");
            // Much of this goes without a detour.
            let is_straight = ["all_to_all", "gather", "scatter_v"].contains(&call)
                && record["bytes"].as_u64() >= Some(1 << 20);
            let is_two_level = record["taken"] == "hierarchical";
            assert_eq!(is_two_level, !is_straight, "{record}");
        }
    }
}

#[test]
fn no_byte_more_than_needed_leaves_a_host() {
    let Some(hosts) = Hosts::make("bytes") else {
        return skipped("network namespaces cannot be made here");
    };
    // What leaves both hosts together, in halves of the largest buffer; two ranks on each.
    let halves = [
        ("all_reduce", 4),
        ("all_gather", 2),
        ("all_gather_v", 2),
        ("reduce_scatter", 2),
        ("reduce_scatter_v", 2),
        ("broadcast", 2),
        ("reduce", 2),
        ("all_to_all", 4),
        ("gather", 1),
        ("scatter", 1),
    ];
    for (call, halves) in halves {
        let args = [
            "bench", call, "-b", "4M", "-e", "4M", "-n", "4", "-w", "1", "-c", "0", "--format",
            "json",
        ];
        let job = format!("bytes-{call}-{}", std::process::id());
        let before = hosts.sent("eth0");
        let all = hosts.run(&job, 2, &args, &[]);
        let sent = hosts.sent("eth0") - before;
        for ended in &all {
            ended.expect_code(0);
        }
        let record = all[0].json()["records"][0].clone();
        assert_eq!(record["calls_per_sample"], 1, "{record}");
        let bytes = record["bytes"].as_u64().expect("a size");
        // A cold call, one to warm up, and the timed ones.
        let calls = 2 + record["samples"].as_u64().expect("a number");
        let least = calls * halves * bytes / 2;
        // Headers of packets, acknowledgements, and what ranks say beside the calls.
        let most = least + least / 10 + (256 << 10);
        assert!(
            (least..most).contains(&sent),
            "{call}: {sent} bytes, {least} needed"
        );
    }
}

#[test]
fn data_goes_over_the_interface_that_is_named() {
    let Some(hosts) = Hosts::make("rail") else {
        return skipped("network namespaces cannot be made here");
    };
    let args = ["bench", "all_reduce", "-b", "4M", "-e", "4M", "-n", "4"];
    let job = format!("rail-{}", std::process::id());
    // The first name is of no interface of these hosts.
    let all = hosts.run(&job, 2, &args, &[("MUSTER_IFNAME", "ib0,eth1")]);
    for ended in &all {
        ended.expect_code(0);
    }
    let (control, data) = (hosts.sent("eth0"), hosts.sent("eth1"));
    assert!(
        control < 1 << 20 && data > 16 << 20,
        "{control} bytes by eth0, {data} by eth1"
    );
    let all = hosts.run(&job, 2, &args, &[("MUSTER_IFNAME", "ib0")]);
    for ended in &all {
        let reason =
            "MUSTER_IFNAME is \"ib0\", and no interface of that name has an address; there are ";
        assert!(
            ended.expect_code(2).stderr.contains(reason),
            "{}",
            ended.stderr
        );
        assert!(ended.stderr.contains("eth1 (10.199.0."), "{}", ended.stderr);
    }
}

#[test]
fn every_algorithm_is_right_between_hosts_over_one_and_over_several_connections() {
    let Some(hosts) = Hosts::make("streams") else {
        return skipped("network namespaces cannot be made here");
    };
    let args = [
        "verify",
        "tp4",
        "--algo",
        "auto,pairwise",
        "--sizes",
        "3,100000",
        "--dtypes",
        "f32",
        "--format",
        "json",
    ];
    for streams in ["1", "4"] {
        let job = format!("streams-{streams}-{}", std::process::id());
        let all = hosts.run(&job, 2, &args, &[("MUSTER_TCP_STREAMS", streams)]);
        for ended in &all {
            ended.expect_code(0);
        }
        assert_eq!(all[0].json()["passed"], true);
    }
}

#[test]
fn top_shows_the_ranks_of_all_hosts_where_the_rendezvous_is_served() {
    let Some(hosts) = Hosts::make("top") else {
        return skipped("network namespaces cannot be made here");
    };
    let ip = find_program("ip").expect("the hosts were made with it");
    let endpoint = format!("tcp://{}:29417", Hosts::ADDRESS);
    let rank = |rank: usize| {
        let (host, rank) = (&hosts.names[rank / 2], rank.to_string());
        let variables = [
            ("MUSTER_RANK", rank.as_str()),
            ("MUSTER_WORLD_SIZE", "4"),
            ("MUSTER_RENDEZVOUS", &endpoint),
            ("MUSTER_JOB_ID", "top"),
            ("MUSTER_DEADLINE_S", "60"),
        ];
        let words = ["netns", "exec", host, env!("CARGO_BIN_EXE_faulty"), "never"];
        start(&ip, &words, &variables)
    };
    let ranks: Vec<Running> = (0..4).map(rank).collect();
    let look = |host: &String| {
        let pid = ranks[0].pid().to_string();
        let program = binary().to_str().expect("text");
        let top = [program, "top", &pid, "--format", "json", "--every", "700ms"];
        let seen = start(&ip, &[&["netns", "exec", host], &top[..]].concat(), &[]).wait();
        (seen.code == Some(0)).then(|| seen.json()["jobs"][0].clone())
    };
    let is_waiting = |job: &Value| job["groups"][0]["waiting"] == 3;
    let mut seen = Value::Null;
    until("three ranks that wait", || {
        seen = look(&hosts.names[0]).unwrap_or_default();
        is_waiting(&seen)
    });
    let names = seen["hosts"].as_array().expect("hosts");
    assert_eq!(names.len(), 2, "{seen}");
    let is_told = |name: &&Value| !name.as_str().unwrap_or_default().starts_with("net:");
    assert_eq!(
        names.iter().filter(is_told).count(),
        2,
        "told by the ranks: {seen}"
    );
    let row = |rank: usize| &seen["ranks"][rank];
    assert_eq!((&row(0)["host"], &row(3)["host"]), (&names[0], &names[1]));
    assert_eq!(row(2)["waits_for"], json!([3]), "{seen}");
    assert_eq!(row(3)["state"], "outside", "{seen}");
    // The other host has nobody who tells: boards are read there.
    let other = look(&hosts.names[1]).expect("the boards of this machine");
    let name = other["hosts"][0].as_str().unwrap_or_default();
    assert!(name.starts_with("net:"), "{other}");
    for rank in &ranks {
        rank.signal(rustix::process::Signal::KILL);
    }
    for rank in ranks {
        let _ended = rank.wait();
    }
}

/// Ranks that an mpirun has started on two hosts find each other by its means, and say so.
fn meet(mpi: Mpi, mark: &str, means: &str) {
    let Some(hosts) = Hosts::make(mark) else {
        return skipped("network namespaces cannot be made here");
    };
    let muster = binary().to_str().expect("text");
    let args = [
        muster, "verify", "tp2ep2@4", "tp2dp2@4", "--dtypes", "f32", "--sizes", "0,33", "--format",
        "json",
    ];
    let Some(ended) = hosts.launch(mpi, &args) else {
        return;
    };
    ended.expect_code(0);
    let report = ended.json();
    assert_eq!(report["passed"], true);
    assert_eq!(report["matrices"][0]["outcome"], "passed");
    let ended = hosts.launch(mpi, &[muster, "env", "--explain"]);
    let ended = ended.expect("it was there before");
    ended.expect_code(0);
    let line = format!("by {means} of the launcher");
    assert_eq!(ended.stdout.matches(&line).count(), 4, "{}", ended.stdout);
}

#[test]
fn ranks_of_open_mpi_on_two_hosts_meet_by_pmix() {
    meet(Mpi::OpenMpi, "pmix", "PMIx");
}

#[test]
fn ranks_of_mpich_on_two_hosts_meet_by_pmi() {
    meet(Mpi::Mpich, "pmi", "PMI-1");
}

#[test]
fn a_rank_that_never_comes_is_named_where_the_launcher_tells_who_has_come() {
    let Some(hosts) = Hosts::make("never") else {
        return skipped("network namespaces cannot be made here");
    };
    let muster = binary().to_str().expect("text");
    for (mpi, missing) in [
        (Mpi::OpenMpi, ["3", "rank 3 of 4 missing"]),
        (Mpi::OpenMpi, ["0", "rank 0 of 4 missing"]),
        (Mpi::Mpich, ["3", "not all ranks have come to it"]),
    ] {
        let script = format!(
            "[ \"$OMPI_COMM_WORLD_RANK$PMI_RANK\" = {} ] && exec sleep 8; exec \"$0\" \"$@\"",
            missing[0]
        );
        let words = [
            "sh",
            "-c",
            &script,
            muster,
            "verify",
            "tp2ep2@4",
            "--deadline",
            "2s",
        ];
        let Some(ended) = hosts.launch(mpi, &words) else {
            continue;
        };
        assert!(ended.code != Some(0), "{}", ended.stdout);
        assert!(
            ended.stderr.contains(missing[1]),
            "{mpi:?}: {}",
            ended.stderr
        );
    }
}
