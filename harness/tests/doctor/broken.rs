//! Broken hosts, each with one thing wrong: the check, how bad it is, who is to blame, what to do.

use muster_harness::doctor::{CHECKS, Space, Status};

use crate::host::{Host, TOOLKIT};

/// A way to break a host, and what must be said about it.
struct Broken {
    id: &'static str,
    status: Status,
    /// Words that the finding must hold: the culprit.
    culprit: &'static [&'static str],
    /// A word that the remedy must hold: the fix.
    fix: &'static str,
    how: fn(&mut Host),
}

const fn broken(
    id: &'static str,
    status: Status,
    culprit: &'static [&'static str],
    fix: &'static str,
    how: fn(&mut Host),
) -> Broken {
    Broken {
        id,
        status,
        culprit,
        fix,
        how,
    }
}

use Status::{Fail, Warn};

const ASCEND: &[Broken] = &[
    broken(
        "devices",
        Fail,
        &["/dev/davinci_manager"],
        "--device",
        |host| {
            host.remove("/dev/davinci_manager");
        },
    ),
    broken(
        "devices",
        Fail,
        &["16 ranks", "8 devices", "EJ0001"],
        "at most 8",
        |host| {
            host.ranks = Some(16);
        },
    ),
    broken(
        "devices",
        Fail,
        &["vdavinci0", "virtual"],
        "whole devices",
        |host| {
            host.without_npu().file("/dev/vdavinci0", "");
        },
    ),
    broken(
        "devices",
        Fail,
        &["ASCEND_RT_VISIBLE_DEVICES"],
        "unset",
        |host| {
            host.without_npu().set("ASCEND_RT_VISIBLE_DEVICES", "0,1");
        },
    ),
    broken(
        "device-permissions",
        Fail,
        &["user id 1000", "/dev/davinci3"],
        "usermod -aG",
        |host| {
            let status =
                "Uid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\nGroups:\t1000\n";
            for device in 0..8 {
                host.mode(&format!("/dev/davinci{device}"), 0o666);
            }
            for node in ["davinci_manager", "devmm_svm", "hisi_hdc"] {
                host.mode(&format!("/dev/{node}"), 0o666);
            }
            host.file("/proc/self/status", status)
                .mode("/dev/davinci3", 0o640);
        },
    ),
    broken(
        "containers",
        Fail,
        &["driver is not mounted", "/usr/local/Ascend/driver/lib64"],
        "docker run -v",
        |host| {
            host.file("/.dockerenv", "")
                .remove("/usr/local/Ascend/driver");
        },
    ),
    broken(
        "containers",
        Fail,
        &["/dev/devmm_svm"],
        "--device=/dev/devmm_svm",
        |host| {
            host.file("/.dockerenv", "").remove("/dev/devmm_svm");
        },
    ),
    broken(
        "driver",
        Fail,
        &["libascend_hal.so"],
        "/usr/local/Ascend/driver/lib64",
        |host| {
            host.remove("/usr/local/Ascend/driver/lib64");
        },
    ),
    broken(
        "toolkit",
        Fail,
        &["ASCEND_HOME_PATH", "/opt/nowhere"],
        "set_env.sh",
        |host| {
            host.set("ASCEND_HOME_PATH", "/opt/nowhere");
        },
    ),
    broken(
        "toolkit",
        Fail,
        &["no CANN toolkit"],
        "install the toolkit",
        |host| {
            host.remove("/usr/local/Ascend/ascend-toolkit")
                .unset("ASCEND_HOME_PATH")
                .unset("ASCEND_TOOLKIT_HOME");
        },
    ),
    broken(
        "versions",
        Fail,
        &["mixture", "8.1.RC1", "8.2.RC1", "runtime"],
        "one version",
        |host| {
            let file = format!("{TOOLKIT}/runtime/version.info");
            host.file(&file, "Version=7.8.0\nversion_dir=8.2.RC1\n");
        },
    ),
    broken(
        "versions",
        Fail,
        &["8.5.0", "libhcomm.so"],
        "install the toolkit again",
        |host| {
            for part in ["hccl", "runtime"] {
                host.file(
                    &format!("{TOOLKIT}/{part}/version.info"),
                    "version_dir=8.5.0\n",
                );
            }
            let info = format!("{TOOLKIT}/x86_64-linux/ascend_toolkit_install.info");
            host.file(&info, "version=8.5.0\n");
        },
    ),
    broken(
        "versions",
        Fail,
        &[
            "ASCEND_HOME_PATH",
            "8.1.RC1",
            "ASCEND_TOOLKIT_HOME",
            "8.2.RC1",
        ],
        "one set_env.sh",
        |host| {
            host.file(
                "/opt/cann/version.cfg",
                "toolkit_running_version=[8.2.RC1:8.2.RC1]\n",
            )
            .set("ASCEND_TOOLKIT_HOME", "/opt/cann");
        },
    ),
    broken(
        "library-path",
        Fail,
        &["/runtime/lib64/stub", "libascend_hal.so"],
        "take",
        |host| {
            let stub = format!("{TOOLKIT}/runtime/lib64/stub");
            host.file(&format!("{stub}/libascend_hal.so"), "")
                .set("LD_LIBRARY_PATH", &format!("{stub}:{TOOLKIT}/lib64"));
        },
    ),
    broken(
        "library-path",
        Fail,
        &["/opt/old/lib64", "ASCEND_HOME_PATH"],
        "fresh shell",
        |host| {
            host.file("/opt/old/lib64/libhccl.so", "")
                .set("LD_LIBRARY_PATH", "/opt/old/lib64");
        },
    ),
    broken("python-acl", Warn, &["acl"], "PYTHONPATH", |host| {
        host.unset("PYTHONPATH");
    }),
    broken(
        "torch-npu",
        Fail,
        &["torch_npu 2.5.1", "torch 2.6.0"],
        "pip install torch==2.5.1",
        |host| {
            let packages = "/usr/lib/python3.11/site-packages";
            host.file(
                &format!("{packages}/torch_npu-2.5.1.dist-info/METADATA"),
                "",
            )
            .file(
                &format!("{packages}/torch-2.6.0+cpu.dist-info/METADATA"),
                "",
            );
        },
    ),
    broken(
        "visible-devices",
        Fail,
        &["cut short", "only 0 is kept"],
        "export ASCEND_RT_VISIBLE_DEVICES=0,1,2",
        |host| {
            host.set("ASCEND_RT_VISIBLE_DEVICES", "0, 1,2");
        },
    ),
    broken(
        "visible-devices",
        Fail,
        &["/dev/davinci9"],
        "ASCEND_RT_VISIBLE_DEVICES",
        |host| {
            host.set("ASCEND_RT_VISIBLE_DEVICES", "0,9");
        },
    ),
    broken(
        "visible-devices",
        Fail,
        &["ASCEND_VISIBLE_DEVICES"],
        "0,2-5",
        |host| {
            host.set("ASCEND_VISIBLE_DEVICES", "first");
        },
    ),
];

const VARIABLES: &[Broken] = &[
    broken(
        "variable-names",
        Fail,
        &["HCCL_CONECT_TIMEOUT", "did you mean HCCL_CONNECT_TIMEOUT?"],
        "export HCCL_CONNECT_TIMEOUT",
        |host| {
            host.set("HCCL_CONECT_TIMEOUT", "1800");
        },
    ),
    broken(
        "variable-names",
        Warn,
        &["HCCL_MAGIC_CARPET"],
        "unset HCCL_MAGIC_CARPET",
        |host| {
            host.set("HCCL_MAGIC_CARPET", "1");
        },
    ),
    broken(
        "variable-values",
        Fail,
        &["HCCL_CONNECT_TIMEOUT", "\"5\"", "EI0001"],
        "120 to 7200",
        |host| {
            host.set("HCCL_CONNECT_TIMEOUT", "5");
        },
    ),
    broken(
        "variable-values",
        Fail,
        &["HCCL_RDMA_TC", "HCCL_BUFFSIZE"],
        "multiple of 4",
        |host| {
            host.set("HCCL_RDMA_TC", "131")
                .set("HCCL_BUFFSIZE", "200MB");
        },
    ),
    broken(
        "variable-conflicts",
        Fail,
        &["HCCL_INTRA_PCIE_ENABLE", "HCCL_INTRA_ROCE_ENABLE"],
        "unset both",
        |host| {
            host.set("HCCL_INTRA_PCIE_ENABLE", "1")
                .set("HCCL_INTRA_ROCE_ENABLE", "1");
        },
    ),
    broken(
        "variable-conflicts",
        Fail,
        &["HCCL_EVENT_TIMEOUT (900 s)", "HCCL_EXEC_TIMEOUT (1836 s)"],
        "HCCL_EVENT_TIMEOUT=1868",
        |host| {
            host.set("HCCL_EVENT_TIMEOUT", "900");
        },
    ),
    broken(
        "variable-conflicts",
        Warn,
        &["HCCL_CONNECT_TIMEOUT of 120 s"],
        "HCCL_CONNECT_TIMEOUT=1800",
        |host| {
            host.set("HCCL_CONNECT_TIMEOUT", "120");
        },
    ),
    broken(
        "variable-conflicts",
        Warn,
        &["HCCL_NPU_SOCKET_PORT_RANGE"],
        "HCCL_NPU_SOCKET_PORT_RANGE=auto",
        |host| {
            host.set("HCCL_HOST_SOCKET_PORT_RANGE", "auto");
        },
    ),
    broken(
        "muster-variables",
        Warn,
        &["MUSTER_TRANSPROT", "MUSTER_TRANSPORT"],
        "export MUSTER_TRANSPORT",
        |host| {
            host.set("MUSTER_TRANSPROT", "tcp");
        },
    ),
    broken(
        "muster-variables",
        Fail,
        &["MUSTER_DEADLINE_S", "soon"],
        "unset MUSTER_DEADLINE_S",
        |host| {
            host.set("MUSTER_DEADLINE_S", "soon");
        },
    ),
    broken(
        "preload",
        Fail,
        &["LD_PRELOAD", "/opt/libjemalloc.so"],
        "unset LD_PRELOAD",
        |host| {
            host.set("LD_PRELOAD", "/opt/libjemalloc.so");
        },
    ),
    broken(
        "ray",
        Warn,
        &["Ray", "ASCEND_RT_VISIBLE_DEVICES"],
        "RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES=1",
        |host| {
            host.set("RAY_ADDRESS", "10.0.0.5:6379");
        },
    ),
    broken(
        "process-start",
        Fail,
        &["VLLM_WORKER_MULTIPROC_METHOD", "fork"],
        "spawn",
        |host| {
            host.set("VLLM_WORKER_MULTIPROC_METHOD", "fork");
        },
    ),
    broken(
        "threads",
        Warn,
        &["512 threads", "64 processors"],
        "OMP_NUM_THREADS=8",
        |host| {
            host.set("OMP_NUM_THREADS", "64");
        },
    ),
];

const NETWORK: &[Broken] = &[
    broken(
        "interface",
        Fail,
        &["bond0", "HCCL_SOCKET_IFNAME", "EI0001"],
        "HCCL_SOCKET_IFNAME==eth0",
        |host| {
            host.set("HCCL_SOCKET_IFNAME", "=bond0");
        },
    ),
    broken(
        "interface",
        Fail,
        &["eth0", "down"],
        "ip link set eth0 up",
        |host| {
            host.file("/sys/class/net/eth0/operstate", "down\n")
                .set("HCCL_SOCKET_IFNAME", "eth");
        },
    ),
    broken(
        "interface",
        Fail,
        &["leaves no interface"],
        "HCCL_SOCKET_IFNAME",
        |host| {
            host.set("HCCL_SOCKET_IFNAME", "^eth,lo");
        },
    ),
    broken(
        "host-address",
        Fail,
        &["10.9.9.9", "no address of this host"],
        "HCCL_SOCKET_IFNAME",
        |host| {
            host.set("HCCL_IF_IP", "10.9.9.9");
        },
    ),
    broken(
        "host-name",
        Warn,
        &["fox", "loopback"],
        "/etc/hosts",
        |host| {
            host.script.resolves = Ok(vec!["127.0.1.1".parse().expect("an address")]);
        },
    ),
    broken(
        "master-address",
        Fail,
        &["node-a", "cannot be resolved"],
        "/etc/hosts",
        |host| {
            host.script.resolves = Err("no such name".to_owned());
            host.set("MASTER_ADDR", "node-a");
        },
    ),
    broken(
        "master-port",
        Fail,
        &["60010", "HCCL"],
        "MASTER_PORT",
        |host| {
            host.set("MASTER_PORT", "60010");
        },
    ),
    broken(
        "master-port",
        Fail,
        &["29500", "python3 (pid 4711)"],
        "kill 4711",
        |host| {
            listener(host, 29_500);
            host.set("MASTER_PORT", "29500");
        },
    ),
    broken(
        "host-ports",
        Fail,
        &["60007", "60000-60031", "python3 (pid 4711)"],
        "HCCL_IF_BASE_PORT=60032",
        |host| {
            listener(host, 60_007);
        },
    ),
    broken(
        "port-reservation",
        Warn,
        &["60000-60031"],
        "ip_local_reserved_ports",
        |host| {
            host.file("/proc/sys/net/ipv4/ip_local_reserved_ports", "\n");
        },
    ),
    broken(
        "mtu",
        Warn,
        &["eth0", "9000", "eth1", "1500"],
        "ip link set eth1 mtu 9000",
        |host| {
            second_interface(host);
            host.file("/sys/class/net/eth0/mtu", "9000\n")
                .set("HCCL_SOCKET_IFNAME", "eth");
        },
    ),
    broken(
        "reverse-path",
        Warn,
        &["eth0", "eth1", "rp_filter"],
        "rp_filter=2",
        |host| {
            second_interface(host);
            host.file("/proc/sys/net/ipv4/conf/all/rp_filter", "1\n");
        },
    ),
    broken(
        "whitelist",
        Fail,
        &["HCCL_WHITELIST_FILE"],
        "unset HCCL_WHITELIST_DISABLE",
        |host| {
            host.set("HCCL_WHITELIST_DISABLE", "0");
        },
    ),
    broken(
        "whitelist",
        Fail,
        &["no address of this host"],
        "/host_ip",
        |host| {
            host.file(
                "/etc/peers.json",
                r#"{"host_ip":["10.0.0.9"],"device_ip":[]}"#,
            )
            .set("HCCL_WHITELIST_DISABLE", "0")
            .set("HCCL_WHITELIST_FILE", "/etc/peers.json");
        },
    ),
];

const HOST: &[Broken] = &[
    broken(
        "shared-memory",
        Fail,
        &["64 MiB", "SIGBUS"],
        "--shm-size",
        |host| {
            host.script.space = Space {
                total: 64 << 20,
                free: 60 << 20,
            };
        },
    ),
    broken(
        "shared-memory",
        Fail,
        &["full"],
        "leftover-memory",
        |host| {
            host.script.space = Space {
                total: 64 << 30,
                free: 4096,
            };
        },
    ),
    broken(
        "memory",
        Fail,
        &["the control group", "8 ranks"],
        "--memory",
        |host| {
            host.file("/sys/fs/cgroup/job/memory.max", "536870912\n")
                .file("/sys/fs/cgroup/job/memory.current", "100000000\n");
        },
    ),
    broken(
        "memory-lock",
        Warn,
        &["64 KiB", "8 ranks"],
        "ulimit -l unlimited",
        |host| {
            limits(host, "65536", "65536", "65536");
        },
    ),
    broken(
        "descriptors",
        Fail,
        &["64 files", "8 ranks"],
        "nofile",
        |host| {
            limits(host, "64", "1024", "unlimited");
        },
    ),
    broken(
        "processes",
        Fail,
        &["only 10 more", "8 ranks"],
        "--pids-limit",
        |host| {
            host.file("/sys/fs/cgroup/job/pids.max", "100\n")
                .file("/sys/fs/cgroup/job/pids.current", "90\n");
        },
    ),
    broken(
        "panic-on-oom",
        Warn,
        &["panics the whole host"],
        "vm.panic_on_oom=0",
        |host| {
            host.file("/proc/sys/vm/panic_on_oom", "1\n");
        },
    ),
    broken(
        "overcommit",
        Warn,
        &["vm.overcommit_memory=2"],
        "vm.overcommit_memory=0",
        |host| {
            host.file("/proc/sys/vm/overcommit_memory", "2\n");
        },
    ),
    broken(
        "huge-pages",
        Warn,
        &["reserved as huge pages that nobody uses"],
        "vm.nr_hugepages=0",
        |host| {
            host.file(
            "/proc/meminfo",
            "MemTotal: 1000000 kB\nHugePages_Total: 400\nHugePages_Free: 400\nHugepagesize: 2048 kB\n",
        );
        },
    ),
    broken(
        "transparent-huge-pages",
        Warn,
        &["defrag=always"],
        "madvise",
        |host| {
            host.file(
                "/sys/kernel/mm/transparent_hugepage/defrag",
                "[always] madvise never\n",
            );
        },
    ),
    broken(
        "numa-balancing",
        Warn,
        &["NUMA balancing"],
        "kernel.numa_balancing=0",
        |host| {
            host.file("/proc/sys/kernel/numa_balancing", "1\n");
        },
    ),
    broken(
        "affinity",
        Warn,
        &["8 ranks", "2 processors"],
        "taskset",
        |host| {
            host.file(
                "/proc/self/status",
                "Uid:\t0\t0\t0\t0\nCpus_allowed_list:\t0-1\n",
            );
        },
    ),
    broken(
        "cpu-quota",
        Warn,
        &["2.0 processors", "8 ranks"],
        "--cpus",
        |host| {
            host.file("/sys/fs/cgroup/job/cpu.max", "200000 100000\n");
        },
    ),
    broken("clock-source", Warn, &["hpet"], "echo tsc >", |host| {
        let file = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        host.file(file, "hpet\n");
    }),
    broken("clock-sync", Warn, &["in step"], "chronyd", |host| {
        host.remove("/proc/700");
    }),
    broken(
        "core-dumps",
        Warn,
        &["/usr/bin/apport"],
        "core_pattern",
        |host| {
            host.file("/proc/sys/kernel/core_pattern", "|/usr/bin/apport %p\n");
        },
    ),
    broken(
        "ptrace",
        Warn,
        &["stack of a rank that hangs"],
        "ptrace_scope",
        |host| {
            host.file("/proc/sys/kernel/yama/ptrace_scope", "3\n");
        },
    ),
    broken(
        "log-folder",
        Fail,
        &["/root/file", "no folder"],
        "ASCEND_PROCESS_LOG_PATH",
        |host| {
            host.file("/root/file", "")
                .set("ASCEND_PROCESS_LOG_PATH", "/root/file/log");
        },
    ),
];

const JOBS: &[Broken] = &[
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

/// Another process, that is visible in full.
fn process(host: &mut Host) {
    host.file("/proc/4711/stat", "4711 (python3) S 1 1 1 0\n")
        .file("/proc/4711/cmdline", "python3\0train.py\0")
        .file("/proc/4711/maps", "");
}

/// That process listens on a port.
fn listener(host: &mut Host, port: u16) {
    process(host);
    let line = format!("   0: 00000000:{port:04X} 00000000:0000 0A 0:0 0:0 0 0 0 4242 1\n");
    host.file("/proc/net/tcp", &line)
        .link("/proc/4711/fd/3", "socket:[4242]");
}

fn second_interface(host: &mut Host) {
    let trie = "Local:\n     |-- 10.0.0.5\n        /32 host LOCAL\n     |-- 10.0.1.5\n        /32 host LOCAL\n";
    host.file("/proc/net/fib_trie", trie)
        .file("/sys/class/net/eth1/mtu", "1500\n")
        .file("/sys/class/net/eth1/operstate", "up\n");
}

fn limits(host: &mut Host, files: &str, hard: &str, locked: &str) {
    let text = format!(
        "Max open files            {files}    {hard}    files\n\
         Max locked memory         {locked}   {locked}  bytes\n"
    );
    host.file("/proc/self/limits", &text);
}

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

fn all() -> impl Iterator<Item = &'static Broken> {
    [ASCEND, VARIABLES, NETWORK, HOST, JOBS]
        .into_iter()
        .flatten()
}

#[test]
fn each_broken_host_is_told_by_its_check_with_culprit_and_fix() {
    let mut wrong = Vec::new();
    for case in all() {
        let mut host = Host::healthy();
        (case.how)(&mut host);
        let finding = host.judge(case.id);
        let (what, remedy) = (finding.what(), finding.remedy());
        let named = case.culprit.iter().all(|word| what.contains(word));
        let right = finding.status() == case.status && named && remedy.contains(case.fix);
        if !right || finding.evidence().is_empty() {
            wrong.push(format!(
                "{} wanted {:?} with {:?} and {:?}\n  got {:?}: {what}\n  seen: {}\n  do: {remedy}",
                case.id,
                case.status,
                case.culprit,
                case.fix,
                finding.status(),
                finding.evidence()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_healthy_host_with_devices_has_nothing_to_complain_of() {
    let system = Host::healthy();
    let complaints: Vec<String> = CHECKS
        .iter()
        .map(|check| (check.id, system.judge(check.id)))
        .filter(|(_, finding)| finding.status() <= Warn)
        .map(|(id, finding)| format!("{id}: {} ({})", finding.what(), finding.evidence()))
        .collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn a_host_without_a_device_is_fit_and_says_what_runs_there() {
    let mut host = Host::healthy();
    host.without_npu();
    for check in CHECKS {
        let finding = host.judge(check.id);
        assert!(finding.status() > Warn, "{}: {}", check.id, finding.what());
    }
    let devices = host.judge("devices");
    assert_eq!(devices.status(), Status::Skip);
    assert_eq!(
        devices.what(),
        "no Ascend device; the host backend is available"
    );
}

#[test]
fn every_check_has_a_broken_host_of_its_own() {
    // These need libraries that load, and have theirs in the tests of toolkits.
    let elsewhere = ["libraries", "symbols"];
    for check in CHECKS {
        let has = all().any(|case| case.id == check.id) || elsewhere.contains(&check.id);
        assert!(has, "nothing breaks what {} looks at", check.id);
    }
    assert!(all().count() >= 60);
}

#[test]
fn values_of_unknown_variables_are_shown_nowhere() {
    let mut host = Host::healthy();
    for name in [
        "HCCL_SECRET_THING",
        "HCCL_CONECT_TIMEOUT",
        "RAY_TOKEN",
        "AWS_SECRET",
        "MUSTER_SECRTE",
    ] {
        host.set(name, "hush-hush");
    }
    for check in CHECKS {
        let finding = host.judge(check.id);
        let all = format!(
            "{}{}{}",
            finding.what(),
            finding.evidence(),
            finding.remedy()
        );
        assert!(!all.contains("hush"), "{}: {all}", check.id);
    }
}
