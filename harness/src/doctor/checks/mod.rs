//! The checks: a row each in the table, and a file with the judgement.

mod affinity;
mod clock_source;
mod clock_sync;
mod containers;
mod core_dumps;
mod cpu_quota;
mod descriptors;
mod device_holders;
mod device_permissions;
mod devices;
mod driver;
mod host_address;
mod host_name;
mod host_ports;
mod huge_pages;
mod interface;
mod launcher;
mod leftover_memory;
mod libraries;
mod library_path;
mod log_folder;
mod master_address;
mod master_port;
mod memory;
mod memory_lock;
mod mtu;
mod muster_variables;
mod npu_affinity;
mod numa_balancing;
mod overcommit;
mod panic_on_oom;
mod port_reservation;
mod preload;
mod process_start;
mod processes;
mod ptrace;
mod python_acl;
mod python_stack;
mod rank_table;
mod ray;
mod reverse_path;
mod shared_memory;
mod symbols;
mod threads;
mod toolkit;
mod torch_npu;
mod transparent_huge_pages;
mod variable_conflicts;
mod variable_names;
mod variable_values;
mod versions;
mod visible_devices;
mod whitelist;

use super::{Finding, System};

/// What a check is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// Devices, driver, toolkit, libraries.
    Ascend,
    /// What the environment says.
    Variables,
    /// Interfaces, names, ports.
    Network,
    /// Memory, limits, processors, clock, kernel.
    Host,
    /// Rank tables, launchers, what earlier jobs left.
    Jobs,
}

impl Group {
    /// All groups, in the order of reports.
    pub const ALL: [Self; 5] = [
        Self::Ascend,
        Self::Variables,
        Self::Network,
        Self::Host,
        Self::Jobs,
    ];

    /// The word of reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ascend => "ascend",
            Self::Host => "host",
            Self::Jobs => "jobs",
            Self::Network => "network",
            Self::Variables => "variables",
        }
    }
}

/// One check: a name for programs, a question for people, and a judgement.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Its name, which other programs rely on.
    pub id: &'static str,
    /// What it is about.
    pub group: Group,
    /// The question it answers.
    pub asks: &'static str,
    /// The judgement.
    pub judge: fn(&System) -> Finding,
}

/// The table of checks: the group, and for each check its name, its file, and its question.
macro_rules! checks {
    ($($group:ident { $($id:literal $file:ident $asks:literal)* })*) => {
        &[$($(Check { id: $id, group: Group::$group, asks: $asks, judge: $file::judge },)*)*]
    };
}

/// Every check, in the order of reports. One that is missing here is dead code, which the compiler
/// refuses.
pub static CHECKS: &[Check] = checks! {
    Ascend {
        "devices" devices "Are there Ascend devices, and enough for the ranks?"
        "device-permissions" device_permissions "May this user open the device nodes?"
        "containers" containers "Did this container get devices, managing nodes and the driver?"
        "driver" driver "Is the driver installed, with its libraries?"
        "toolkit" toolkit "Is a CANN toolkit found, and do the variables lead to it?"
        "versions" versions "Do toolkit, its parts and the driver fit together?"
        "libraries" libraries "Do the libraries of the toolkit load?"
        "symbols" symbols "Do the libraries hold every call that their version should have?"
        "library-path" library_path "Does LD_LIBRARY_PATH lead to this toolkit, and to no stubs?"
        "python-acl" python_acl "Does Python find the toolkit's acl module?"
        "torch-npu" torch_npu "Do torch, torch_npu and the toolkit fit each other?"
        "python-stack" python_stack "Do MindSpeed, Megatron-LM and vllm-ascend find what they import?"
        "visible-devices" visible_devices "Are the device masks read as they were meant?"
    }
    Variables {
        "variable-names" variable_names "Is every HCCL, Ascend and torch_npu variable spelt as its reader expects?"
        "variable-values" variable_values "Does every HCCL, Ascend and torch_npu variable hold a value in its range?"
        "variable-conflicts" variable_conflicts "Do the variables agree with each other?"
        "muster-variables" muster_variables "Are muster's own variables known and well formed?"
        "preload" preload "Do the libraries of LD_PRELOAD exist, and are they libraries?"
        "ray" ray "Does Ray offer the devices, and do actors keep those that they were told?"
        "process-start" process_start "Are workers spawned, not forked, once the runtime is up?"
        "threads" threads "Do the OpenMP threads of all ranks fit the processors?"
    }
    Network {
        "interface" interface "Does HCCL_SOCKET_IFNAME name interfaces that exist, are up and have an address?"
        "host-address" host_address "Is HCCL_IF_IP an address of this host, on an interface that is up?"
        "host-name" host_name "Does this host's name lead to an address that other hosts can reach?"
        "master-address" master_address "Does MASTER_ADDR resolve, and to no loopback if there are several hosts?"
        "master-port" master_port "Is MASTER_PORT free, or held by the job's own agent?"
        "host-ports" host_ports "Are the ports that HCCL takes on the host free, and if not, who holds them?"
        "port-reservation" port_reservation "Are HCCL's ports and MASTER_PORT kept out of those that Linux hands out?"
        "mtu" mtu "Do the interfaces in use have one MTU, and none that is too small?"
        "reverse-path" reverse_path "With several interfaces, are packets kept that come in by another one?"
        "whitelist" whitelist "If HCCL checks its peers against a list, is the list there and right?"
    }
    Host {
        "shared-memory" shared_memory "Is /dev/shm there, large enough, and not full?"
        "memory" memory "Is there memory for the ranks, within the limit of the control group?"
        "memory-lock" memory_lock "May this user lock enough memory?"
        "descriptors" descriptors "May a process open enough files and sockets?"
        "processes" processes "Is there room for the processes and threads of all ranks?"
        "panic-on-oom" panic_on_oom "Does a rank that runs out of memory leave the host alive?"
        "overcommit" overcommit "May ranks reserve address space that they do not use yet?"
        "huge-pages" huge_pages "Do reserved huge pages leave enough memory for everything else?"
        "transparent-huge-pages" transparent_huge_pages "Are transparent huge pages made without stopping ranks?"
        "numa-balancing" numa_balancing "Does the kernel leave the pages of ranks where they are?"
        "affinity" affinity "May the ranks use enough processors?"
        "npu-affinity" npu_affinity "May the ranks use processors of the memory nodes that their devices are at?"
        "cpu-quota" cpu_quota "Does the control group leave the ranks enough processor time?"
        "clock-source" clock_source "Is the kernel's clock one that is cheap to read?"
        "clock-sync" clock_sync "Does somebody keep the clock in step with other hosts?"
        "core-dumps" core_dumps "Where do core dumps of ranks go?"
        "ptrace" ptrace "Can the stack of a rank that hangs be looked at?"
        "log-folder" log_folder "Can the runtime write its logs, and is there room for them?"
    }
    Jobs {
        "launcher" launcher "Do all launchers whose variables are set agree about rank and world?"
        "rank-table" rank_table "Is the rank table of RANK_TABLE_FILE right, and does it know this process?"
        "device-holders" device_holders "Are all devices free of processes of earlier jobs?"
        "leftover-memory" leftover_memory "Did jobs that are over leave shared memory behind?"
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_has_a_name_of_its_own_and_asks_something() {
        for (position, check) in CHECKS.iter().enumerate() {
            let plain = |c: char| c.is_ascii_lowercase() || c == '-';
            assert!(check.id.chars().all(plain), "{}", check.id);
            assert!(check.asks.ends_with('?'), "{}", check.id);
            assert!(CHECKS[..position].iter().all(|other| other.id != check.id));
        }
        assert!(CHECKS.is_sorted_by_key(|check| check.group));
    }
}
