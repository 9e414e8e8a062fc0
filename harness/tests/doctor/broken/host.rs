//! Hosts with too little memory, limits, processors, or a wrong clock.

use muster_harness::doctor::Space;
use muster_harness::doctor::Status::{Fail, Warn};

use super::{Broken, broken};
use crate::host::Host;

pub(super) const HOST: &[Broken] = &[
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
        "npu-affinity",
        Warn,
        &["devices 4-7", "memory node 1", "CPUs 0-31"],
        "--cpunodebind=1",
        |host| {
            let status = "Uid:\t0\t0\t0\t0\nCpus_allowed_list:\t0-31\n";
            host.file("/proc/self/status", status);
        },
    ),
    broken(
        "npu-affinity",
        Warn,
        &["device 5", "memory node 1", "CPUs 0-7"],
        "CPUs 32-63",
        |host| {
            let status = "Uid:\t0\t0\t0\t0\nCpus_allowed_list:\t0-7\n";
            host.file("/proc/self/status", status)
                .set("ASCEND_RT_VISIBLE_DEVICES", "5");
        },
    ),
    broken(
        "npu-affinity",
        Warn,
        &["device 6", "memory node 1", "CPUs 0-7"],
        "CPUs 32-63",
        |host| {
            host.file("/proc/self/cgroup", "0::/job\n")
                .file("/sys/fs/cgroup/job/cpuset.cpus.effective", "0-7\n")
                .set("ASCEND_RT_VISIBLE_DEVICES", "6");
        },
    ),
    broken(
        "npu-affinity",
        Warn,
        &["1 of 8 devices", "does not tell"],
        "firmware",
        |host| {
            host.npu(2, "-1");
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
        &["/home/ada/file", "no folder"],
        "ASCEND_PROCESS_LOG_PATH",
        |host| {
            host.file("/home/ada/file", "")
                .set("ASCEND_PROCESS_LOG_PATH", "/home/ada/file/log");
        },
    ),
];

fn limits(host: &mut Host, files: &str, hard: &str, locked: &str) {
    let text = format!(
        "Max open files            {files}    {hard}    files\n\
         Max locked memory         {locked}   {locked}  bytes\n"
    );
    host.file("/proc/self/limits", &text);
}
