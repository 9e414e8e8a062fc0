//! A host in a folder: healthy by default, to be broken one thing at a time.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use hccl_sys::search::Places;
use hccl_sys::symbols::Api;
use muster_comm::config::Environment;
use muster_harness::doctor::{CHECKS, Finding, Resolved, Senses, Space, System};

/// Where the devices of the PCI bus are.
const PCI: &str = "/sys/bus/pci/devices";
/// Root of the toolkit of a healthy host.
pub(crate) const TOOLKIT: &str = "/usr/local/Ascend/ascend-toolkit/latest";

/// Senses that say what a test wants.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    /// What every name resolves to; `None` where there is no resolver.
    pub(crate) resolves: Option<Resolved>,
    /// What every file system has.
    pub(crate) space: Space,
}

impl Senses for Script {
    fn resolve(&self, _: &str) -> Option<Resolved> {
        self.resolves.clone()
    }

    fn space(&self, _: &Path) -> Result<Space, String> {
        Ok(self.space)
    }

    fn load(&self, _: &Places) -> Option<Api> {
        None
    }
}

/// A host with eight devices, one interface, a toolkit and a driver.
pub(crate) struct Host {
    root: tempfile::TempDir,
    variables: Vec<(String, String)>,
    /// The senses.
    pub(crate) script: Script,
    /// What `--ranks` says.
    pub(crate) ranks: Option<u32>,
}

const FILES: &[(&str, &str)] = &[
    ("/dev/davinci_manager", ""),
    ("/dev/devmm_svm", ""),
    ("/dev/hisi_hdc", ""),
    ("/dev/shm/.keep", ""),
    (
        "/usr/local/Ascend/driver/version.info",
        "Version=24.1.rc3\n",
    ),
    ("/usr/local/Ascend/driver/lib64/driver/libascend_hal.so", ""),
    ("/usr/local/Ascend/ascend-toolkit/latest/set_env.sh", ""),
    (
        "/usr/local/Ascend/ascend-toolkit/latest/lib64/libhccl.so",
        "",
    ),
    (
        "/usr/local/Ascend/ascend-toolkit/latest/lib64/libascendcl.so",
        "",
    ),
    (
        "/usr/local/Ascend/ascend-toolkit/latest/python/site-packages/acl.so",
        "",
    ),
    (
        "/usr/local/Ascend/ascend-toolkit/latest/x86_64-linux/ascend_toolkit_install.info",
        "package_name=Ascend-cann-toolkit\nversion=8.1.RC1\narch=x86_64\n",
    ),
    (
        "/usr/local/Ascend/ascend-toolkit/latest/hccl/version.info",
        "Version=7.7.0.1.238\nversion_dir=8.1.RC1\n",
    ),
    (
        "/usr/local/Ascend/ascend-toolkit/latest/runtime/version.info",
        "Version=7.7.0.1.238\nversion_dir=8.1.RC1\n",
    ),
    ("/usr/local/bin/npu-smi", ""),
    ("/usr/bin/python3", ""),
    ("/etc/group", "root:x:0:\nHwHiAiUser:x:1001:\n"),
    ("/home/ada/.keep", ""),
    (
        "/proc/self/status",
        "Name:\tmuster\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t0\nCpus_allowed_list:\t0-63\n",
    ),
    (
        "/proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units\n\
         Max core file size        0                    unlimited            bytes\n\
         Max processes             unlimited            unlimited            processes\n\
         Max open files            65536                65536                files\n\
         Max locked memory         unlimited            unlimited            bytes\n",
    ),
    ("/proc/self/cgroup", "0::/job\n"),
    ("/proc/cpuinfo", "processor\t: 0\nprocessor\t: 1\n"),
    ("/proc/loadavg", "0.1 0.1 0.1 1/1000 4711\n"),
    (
        "/proc/meminfo",
        "MemTotal:       263000000 kB\nMemAvailable:   200000000 kB\nCommitLimit:    131000000 kB\n\
         Committed_AS:   130000000 kB\nHugePages_Total:       0\nHugePages_Free:        0\n\
         Hugepagesize:       2048 kB\n",
    ),
    ("/proc/sys/kernel/hostname", "fox\n"),
    ("/proc/sys/kernel/threads-max", "1000000\n"),
    ("/proc/sys/kernel/pid_max", "4194304\n"),
    ("/proc/sys/kernel/numa_balancing", "0\n"),
    ("/proc/sys/kernel/core_pattern", "core\n"),
    ("/proc/sys/kernel/yama/ptrace_scope", "1\n"),
    ("/proc/sys/vm/panic_on_oom", "0\n"),
    ("/proc/sys/vm/overcommit_memory", "0\n"),
    ("/proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n"),
    (
        "/proc/sys/net/ipv4/ip_local_reserved_ports",
        "60000-60031\n",
    ),
    ("/proc/sys/net/ipv4/conf/all/rp_filter", "0\n"),
    ("/proc/sys/net/ipv4/conf/eth0/rp_filter", "0\n"),
    ("/proc/net/tcp", "  sl  local_address rem_address   st\n"),
    (
        "/proc/net/route",
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n\
         eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\n\
         eth0\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\n\
         eth1\t0001000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\n",
    ),
    (
        "/proc/net/fib_trie",
        "Local:\n     |-- 10.0.0.5\n        /32 host LOCAL\n     |-- 127.0.0.1\n        /32 host LOCAL\n",
    ),
    ("/proc/2/stat", "2 (kthreadd) S 0 0 0 0\n"),
    ("/proc/2/maps", ""),
    ("/proc/2/fd/.keep", ""),
    ("/proc/700/stat", "700 (chronyd) S 1 1 1 0\n"),
    ("/proc/700/maps", ""),
    ("/proc/700/fd/.keep", ""),
    ("/sys/class/net/lo/mtu", "65536\n"),
    ("/sys/class/net/lo/operstate", "unknown\n"),
    ("/sys/class/net/eth0/mtu", "1500\n"),
    ("/sys/class/net/eth0/operstate", "up\n"),
    ("/sys/fs/cgroup/job/memory.max", "max\n"),
    ("/sys/fs/cgroup/job/cpu.max", "max 100000\n"),
    ("/sys/fs/cgroup/job/pids.max", "max\n"),
    (
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "always [madvise] never\n",
    ),
    (
        "/sys/kernel/mm/transparent_hugepage/defrag",
        "always defer [madvise] never\n",
    ),
    ("/sys/devices/system/node/node0/meminfo", ""),
    ("/sys/devices/system/node/node1/meminfo", ""),
    ("/sys/devices/system/node/online", "0-1\n"),
    ("/sys/devices/system/node/node0/cpulist", "0-31\n"),
    ("/sys/devices/system/node/node1/cpulist", "32-63\n"),
    ("/sys/devices/system/cpu/online", "0-63\n"),
    (
        "/sys/devices/system/clocksource/clocksource0/current_clocksource",
        "tsc\n",
    ),
    (
        "/sys/devices/system/clocksource/clocksource0/available_clocksource",
        "tsc hpet acpi_pm\n",
    ),
];

impl Host {
    /// A host on which every check is content.
    pub(crate) fn healthy() -> Self {
        let mut host = Self {
            root: tempfile::tempdir().expect("a folder"),
            variables: Vec::new(),
            script: Script {
                resolves: Some(Ok(vec!["10.0.0.5".parse().expect("an address")])),
                space: Space {
                    total: 64 << 30,
                    free: 60 << 30,
                },
            },
            ranks: None,
        };
        for (path, text) in FILES {
            host.file(path, text);
        }
        for device in 0..8 {
            host.file(&format!("/dev/davinci{device}"), "");
            host.npu(device, &(device / 4).to_string());
        }
        for (name, value) in [
            ("ASCEND_HOME_PATH", TOOLKIT.to_owned()),
            ("ASCEND_TOOLKIT_HOME", TOOLKIT.to_owned()),
            ("LD_LIBRARY_PATH", format!("{TOOLKIT}/lib64")),
            ("PYTHONPATH", format!("{TOOLKIT}/python/site-packages")),
            ("PATH", "/usr/local/bin:/usr/bin".to_owned()),
            ("HOME", "/home/ada".to_owned()),
            ("OMP_NUM_THREADS", "8".to_owned()),
        ] {
            host.set(name, &value);
        }
        host
    }

    /// Writes a file.
    pub(crate) fn file(&mut self, path: &str, text: &str) -> &mut Self {
        let place = self.place(path);
        fs::create_dir_all(place.parent().expect("a folder")).expect("folders");
        fs::write(place, text).expect("a file");
        self
    }

    /// Makes a link, to somewhere that need not exist.
    pub(crate) fn link(&mut self, path: &str, target: &str) -> &mut Self {
        let place = self.place(path);
        fs::create_dir_all(place.parent().expect("a folder")).expect("folders");
        symlink(target, place).expect("a link");
        self
    }

    /// Removes a file or a folder.
    pub(crate) fn remove(&mut self, path: &str) -> &mut Self {
        let place = self.place(path);
        if place.is_dir() {
            fs::remove_dir_all(place).expect("removed");
        } else {
            fs::remove_file(place).expect("removed");
        }
        self
    }

    /// Sets the mode of a file.
    pub(crate) fn mode(&mut self, path: &str, mode: u32) -> &mut Self {
        fs::set_permissions(self.place(path), fs::Permissions::from_mode(mode)).expect("a mode");
        self
    }

    /// Installs a package for Python: its code and its version.
    pub(crate) fn package(&mut self, name: &str, version: &str) -> &mut Self {
        let folder = "/usr/lib/python3.11/site-packages";
        self.file(&format!("{folder}/{name}/__init__.py"), "")
            .file(&format!("{folder}/{name}-{version}.dist-info/METADATA"), "")
    }

    /// Runs a raylet that offers these resources.
    pub(crate) fn raylet(&mut self, offers: &str) -> &mut Self {
        let line =
            format!("raylet\0--raylet_socket_name=/tmp/r\0--static_resource_list={offers}\0");
        self.file("/proc/800/stat", "800 (raylet) S 1 1 1 0\n")
            .file("/proc/800/cmdline", &line)
            .file("/proc/800/maps", "")
            .file("/proc/800/fd/.keep", "")
    }

    /// Sets a variable.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> &mut Self {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Unsets a variable.
    pub(crate) fn unset(&mut self, name: &str) -> &mut Self {
        self.variables.retain(|(known, _)| known != name);
        self
    }

    /// Puts a device onto the PCI bus, at a memory node.
    pub(crate) fn npu(&mut self, device: u32, node: &str) -> &mut Self {
        let place = format!("{PCI}/0000:c{device}:00.0");
        for (file, text) in [
            ("vendor", "0x19e5"),
            ("class", "0x120000"),
            ("numa_node", node),
        ] {
            self.file(&format!("{place}/{file}"), &format!("{text}\n"));
        }
        self
    }

    /// Takes the devices, the driver and the toolkit away, and every variable of theirs.
    pub(crate) fn without_npu(&mut self) -> &mut Self {
        for device in 0..8 {
            self.remove(&format!("/dev/davinci{device}"));
            self.remove(&format!("{PCI}/0000:c{device}:00.0"));
        }
        for path in [
            "/dev/davinci_manager",
            "/dev/devmm_svm",
            "/dev/hisi_hdc",
            "/usr/local/Ascend",
        ] {
            self.remove(path);
        }
        for name in [
            "ASCEND_HOME_PATH",
            "ASCEND_TOOLKIT_HOME",
            "LD_LIBRARY_PATH",
            "PYTHONPATH",
        ] {
            self.unset(name);
        }
        self
    }

    /// The folder of the host.
    pub(crate) fn place(&self, path: &str) -> std::path::PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    /// The host as checks see it.
    pub(crate) fn system(&self) -> System {
        let environment = Environment::from_pairs(self.variables.clone());
        System::at(self.root.path(), environment, Box::new(self.script.clone()))
            .with_ranks(self.ranks)
    }

    /// What one check says.
    pub(crate) fn judge(&self, id: &str) -> Finding {
        let check = CHECKS.iter().find(|check| check.id == id);
        (check.expect(id).judge)(&self.system())
    }
}
