//! The checks, one file each, in the order in which they are listed.

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

/// Declares the files and the list of all checks, so that none can be missing from the list.
macro_rules! checks {
    ($($file:ident),* $(,)?) => {
        $(mod $file;)*

        /// Every check.
        pub static CHECKS: &[Check] = &[$($file::CHECK),*];
    };
}

checks! {
    devices,
    device_permissions,
    containers,
    driver,
    toolkit,
    versions,
    libraries,
    symbols,
    library_path,
    python_acl,
    torch_npu,
    visible_devices,
    variable_names,
    variable_values,
    variable_conflicts,
    muster_variables,
    preload,
    ray,
    process_start,
    threads,
    interface,
    host_address,
    host_name,
    master_address,
    master_port,
    host_ports,
    port_reservation,
    mtu,
    reverse_path,
    whitelist,
    shared_memory,
    memory,
    memory_lock,
    descriptors,
    processes,
    panic_on_oom,
    overcommit,
    huge_pages,
    transparent_huge_pages,
    numa_balancing,
    affinity,
    cpu_quota,
    clock_source,
    clock_sync,
    core_dumps,
    ptrace,
    log_folder,
    launcher,
    rank_table,
    device_holders,
    leftover_memory,
}

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
