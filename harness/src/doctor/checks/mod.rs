//! The checks, one file each, in the order in which they are listed.

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
mod numa_balancing;
mod overcommit;
mod panic_on_oom;
mod port_reservation;
mod preload;
mod process_start;
mod processes;
mod ptrace;
mod python_acl;
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

/// Every check, in the order of reports. One that is missing here is dead code, which the compiler
/// refuses.
pub static CHECKS: &[Check] = &[
    devices::CHECK,
    device_permissions::CHECK,
    containers::CHECK,
    driver::CHECK,
    toolkit::CHECK,
    versions::CHECK,
    libraries::CHECK,
    symbols::CHECK,
    library_path::CHECK,
    python_acl::CHECK,
    torch_npu::CHECK,
    visible_devices::CHECK,
    variable_names::CHECK,
    variable_values::CHECK,
    variable_conflicts::CHECK,
    muster_variables::CHECK,
    preload::CHECK,
    ray::CHECK,
    process_start::CHECK,
    threads::CHECK,
    interface::CHECK,
    host_address::CHECK,
    host_name::CHECK,
    master_address::CHECK,
    master_port::CHECK,
    host_ports::CHECK,
    port_reservation::CHECK,
    mtu::CHECK,
    reverse_path::CHECK,
    whitelist::CHECK,
    shared_memory::CHECK,
    memory::CHECK,
    memory_lock::CHECK,
    descriptors::CHECK,
    processes::CHECK,
    panic_on_oom::CHECK,
    overcommit::CHECK,
    huge_pages::CHECK,
    transparent_huge_pages::CHECK,
    numa_balancing::CHECK,
    affinity::CHECK,
    cpu_quota::CHECK,
    clock_source::CHECK,
    clock_sync::CHECK,
    core_dumps::CHECK,
    ptrace::CHECK,
    log_folder::CHECK,
    launcher::CHECK,
    rank_table::CHECK,
    device_holders::CHECK,
    leftover_memory::CHECK,
];

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
