//! The table of variables that muster reads for itself: one self-describing row each.
//!
//! What launchers set is not here; each contract in [`crate::launch`] names its own.

use std::path::PathBuf;
use std::time::Duration;

use super::parse::{
    self, AlgoSource, CallSitesChoice, InterfaceNames, PeerReadsChoice, TransportChoice,
};
use crate::kernel::Kernels;
use crate::processors::Bind;
use crate::rendezvous::Endpoint;

/// What can be said of a variable without knowing its type.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Name in the environment.
    pub name: &'static str,
    /// What holds where it is not set.
    pub default: &'static str,
    /// What may be written there.
    pub allowed: &'static str,
    /// What it does, one sentence.
    pub meaning: &'static str,
    /// Whether a text parses.
    pub accepts: fn(&str) -> bool,
}

/// A variable together with the type it holds; read with [`super::Environment::read`].
#[derive(Clone, Copy, Debug)]
pub struct Row<T> {
    pub(super) variable: Variable,
    pub(super) parse: fn(&str) -> Option<T>,
}

impl<T> Row<T> {
    /// The row without its type.
    #[must_use]
    pub const fn variable(&self) -> Variable {
        self.variable
    }
}

/// Declares the rows and the list of all of them, so that none can be missing from the list.
macro_rules! table {
    ($($row:ident: $type:ty = $name:literal, $parse:path, default $default:literal, allowed $allowed:literal, $meaning:literal;)*) => {
        $(
            #[doc = concat!("`", $name, "`: ", $meaning)]
            pub const $row: Row<$type> = Row {
                variable: Variable {
                    name: $name,
                    default: $default,
                    allowed: $allowed,
                    meaning: $meaning,
                    accepts: |text| $parse(text).is_some(),
                },
                parse: $parse,
            };
        )*

        /// Every variable that muster reads for itself, in the order of the documentation.
        #[must_use]
        pub fn rows() -> Vec<Variable> {
            vec![$($row.variable()),*]
        }
    };
}

table! {
    RANK: u32 = "MUSTER_RANK", parse::number,
        default "from the launcher", allowed "a whole number from 0, less than the world size",
        "Rank of this process; with MUSTER_WORLD_SIZE it outranks every launcher.";
    WORLD_SIZE: u32 = "MUSTER_WORLD_SIZE", parse::world_size,
        default "from the launcher", allowed "a whole number from 1 to 16777216",
        "Number of ranks.";
    LOCAL_RANK: u32 = "MUSTER_LOCAL_RANK", parse::number,
        default "from the launcher", allowed "a whole number from 0, less than the local world size",
        "Number of this rank among those of its host.";
    LOCAL_WORLD_SIZE: u32 = "MUSTER_LOCAL_WORLD_SIZE", parse::world_size,
        default "from the launcher", allowed "a whole number from 1 to the world size",
        "Number of ranks on this host.";
    NODE_RANK: u32 = "MUSTER_NODE_RANK", parse::number,
        default "from the launcher", allowed "a whole number from 0, less than the number of nodes",
        "Number of this host.";
    NNODES: u32 = "MUSTER_NNODES", parse::positive,
        default "from the launcher", allowed "a whole number from 1",
        "Number of hosts.";
    RENDEZVOUS: Endpoint = "MUSTER_RENDEZVOUS", parse::endpoint,
        default "derived, see docs/launch.md", allowed "HOST:PORT or tcp://HOST:PORT, an IPv6 address in brackets",
        "Where the ranks meet: an address of rank 0's host and a free port.";
    JOB_ID: String = "MUSTER_JOB_ID", parse::job_id,
        default "from the launcher", allowed "1 to 128 printable ASCII characters without spaces",
        "Name of the job: ranks of another job are refused.";
    ATTEMPT: u32 = "MUSTER_ATTEMPT", parse::number,
        default "from the launcher, else 0", allowed "a whole number from 0",
        "Which start of the job this is: ranks of another attempt are refused.";
    SECRET_FD: i32 = "MUSTER_SECRET_FD", parse::descriptor,
        default "none", allowed "a descriptor number: 0, or above 2",
        "Inherited descriptor (pipe or file) from which the job secret is read.";
    SECRET_FILE: PathBuf = "MUSTER_SECRET_FILE", parse::absolute_path,
        default "a per-user file, see docs/launch.md", allowed "an absolute path",
        "File with the job secret; it must be yours or root's, and no other user may read it.";
    LAUNCHER_PID: u32 = "MUSTER_LAUNCHER_PID", parse::positive,
        default "none", allowed "a process id",
        "Process whose death ends this rank; set by muster for the ranks that it starts.";
    DEADLINE_S: Duration = "MUSTER_DEADLINE_S", parse::deadline,
        default "the command's own (verify: 30)", allowed "seconds, more than 0, up to 86400, decimals allowed",
        "Longest time that one operation may wait.";
    TRANSPORT: TransportChoice = "MUSTER_TRANSPORT", parse::transport,
        default "auto", allowed "auto, shm or tcp",
        "What carries bytes between ranks; auto is shared memory within a host and TCP between hosts.";
    IFNAME: InterfaceNames = "MUSTER_IFNAME", parse::interfaces,
        default "the interface that leads to the rendezvous", allowed "names of network interfaces, separated by commas",
        "The interface on which ranks listen for ranks of other hosts: the first of them that has an address, those that are up before those that are down.";
    TCP_STREAMS: u8 = "MUSTER_TCP_STREAMS", parse::streams,
        default "1", allowed "a whole number from 1 to 16",
        "Connections between two ranks that share no memory, for each group: large messages use all of them.";
    ALGO: AlgoSource = "MUSTER_ALGO", parse::algo,
        default "the built-in table", allowed "lines of a selection table, or @FILE with such lines",
        "Rules that override the selection of algorithms.";
    CALL_SITES: CallSitesChoice = "MUSTER_CALL_SITES", parse::call_sites,
        default "habit", allowed "habit, strict or off",
        "How ranks compare their call sites: habit finds calls that a rank has skipped, strict allows no difference.";
    DUMP_DIR: PathBuf = "MUSTER_DUMP_DIR", parse::absolute_path,
        default "none: no dumps are written", allowed "an absolute path",
        "Folder into which each rank writes its dump with a verdict and on SIGUSR1: two files a rank.";
    RECORD_DIR: PathBuf = "MUSTER_RECORD_DIR", parse::absolute_path,
        default "none: nothing is recorded", allowed "an absolute path",
        "Folder into which each rank records its calls, for muster replay: one file a rank.";
    REGION_BYTES: u64 = "MUSTER_REGION_BYTES", parse::bytes,
        default "16 GiB of address space; memory is used as it is written", allowed "a whole number above 0, optionally with KiB, MiB or GiB",
        "Size of the shared memory region of each rank.";
    PEER_READS: PeerReadsChoice = "MUSTER_PEER_READS", parse::peer_reads,
        default "auto", allowed "auto, never or always",
        "Whether ranks of one host read large blocks of each other's ordinary memory by system call, instead of staging them; auto does so if it is allowed and faster.";
    CHECKSUM: bool = "MUSTER_CHECKSUM", parse::switch,
        default "off", allowed "on or off",
        "Whether messages over sockets carry a checksum of their data, so that a bit that changes on the way is a DATA verdict; headers always carry one.";
    PIN: Bind = "MUSTER_PIN", parse::bind,
        default "off", allowed "off, on, core or numa",
        "What each rank is bound to: on is its share of the processors of its host, core one core, numa the processors of one memory node. A rank that its launcher has bound stays there.";
    ISA: Kernels = "MUSTER_ISA", parse::kernels,
        default "the widest that the processor has", allowed "scalar, avx2, avx512, avx512_bf16, neon or neon_bf16, of those that this processor has",
        "Vector instructions for reducing and copying, for tests and measurements; all give the same results.";
    SEED: u64 = "MUSTER_SEED", parse::seed,
        default "1, shown in the report", allowed "a whole number from 0 to 18446744073709551615, or 0x and hexadecimal digits",
        "Seed of everything random, to replay a run.";
    TORCH: bool = "MUSTER_TORCH", parse::gloo,
        default "none: torch.distributed keeps its gloo", allowed "gloo",
        "Whether every gloo group of a Python program becomes a group of muster; see docs/python.md.";
    EMU_DEVICES: u32 = "MUSTER_EMU_DEVICES", parse::number,
        default "16", allowed "a whole number from 0 to 64",
        "Number of devices that the emulator of HCCL has; 0 is a host without one.";
    EMU_MEMORY: u64 = "MUSTER_EMU_MEMORY", parse::bytes,
        default "64 GiB of address space; memory is used as it is written", allowed "a whole number above 0, optionally with KiB, MiB or GiB",
        "Memory of each emulated device.";
    EMU_SOC: String = "MUSTER_EMU_SOC", parse::text,
        default "Ascend910B2", allowed "a name of docs/emulator.md, such as Ascend910B2, Ascend910_9391 or Ascend310P3",
        "The chip to emulate; it decides the reported name and what is supported.";
    EMU_CANN: String = "MUSTER_EMU_CANN", parse::text,
        default "the version of the installed tree, else 8.5.0", allowed "a version such as 8.1.RC1 or 8.5.0",
        "The CANN version to emulate.";
    EMU_FAULT: String = "MUSTER_EMU_FAULT", parse::text,
        default "none", allowed "the grammar of docs/emulator.md",
        "Faults that the emulator injects.";
    EMU_POISON: String = "MUSTER_EMU_POISON", parse::text,
        default "0xff", allowed "a byte: 0 to 255, or 0x00 to 0xff",
        "What every byte of fresh memory of an emulated device holds.";
    EMU_BOUNDS: String = "MUSTER_EMU_BOUNDS", parse::text,
        default "exact", allowed "exact or granule",
        "Where an allocation of an emulated device ends: at its size, or at what the vendor reserves for it.";
    EMU_CONNECT_TIMEOUT_MS: u32 = "MUSTER_EMU_CONNECT_TIMEOUT_MS", parse::positive,
        default "HCCL_CONNECT_TIMEOUT", allowed "milliseconds, a whole number from 1",
        "How long ranks may take to find each other on the emulator; for tests, below what HCCL_CONNECT_TIMEOUT allows.";
    EMU_EXEC_TIMEOUT_MS: u32 = "MUSTER_EMU_EXEC_TIMEOUT_MS", parse::positive,
        default "HCCL_EXEC_TIMEOUT", allowed "milliseconds, a whole number from 1",
        "How long an emulated operator waits for other ranks; for tests, below what HCCL_EXEC_TIMEOUT allows.";
    TAP: String = "MUSTER_TAP", parse::text,
        default "records calls", allowed "0 switches the tap off",
        "Whether the tap in front of HCCL records calls; with 0 it only forwards them.";
    TAP_EVENTS: String = "MUSTER_TAP_EVENTS", parse::text,
        default "at most one pending event on each stream", allowed "0 switches events off",
        "Whether the tap puts events behind calls, and so sees which are complete.";
    TAP_STACKS: String = "MUSTER_TAP_STACKS", parse::text,
        default "stacks are written when a verdict names the rank", allowed "0 switches it off",
        "Whether the tap lets Python programs write their stacks when a signal comes.";
    TAP_JOB: String = "MUSTER_TAP_JOB", parse::text,
        default "SLURM_JOB_ID, else MASTER_ADDR and MASTER_PORT", allowed "any text, the same for all processes of a job",
        "Tells jobs of one user apart that run with the tap; `muster tap run` sets it.";
    TAP_DIR: PathBuf = "MUSTER_TAP_DIR", parse::absolute_path,
        default "none", allowed "an absolute path",
        "The folder of the tap that `muster tap exec` puts in front of HCCL; `muster tap run` sets it.";
    NO_COLOR: bool = "NO_COLOR", parse::present,
        default "colours on a terminal", allowed "any text",
        "Switches colours off.";
    HOME: PathBuf = "HOME", parse::absolute_path,
        default "none", allowed "an absolute path",
        "Parent of .cache/muster, where the per-user secret lies when the session has no runtime directory or the job spans hosts.";
    XDG_RUNTIME_DIR: PathBuf = "XDG_RUNTIME_DIR", parse::absolute_path,
        default "none", allowed "an absolute path",
        "Parent of muster/, where the per-user secret lies when all ranks are on one host.";
    HCCL_SO_PATH: PathBuf = "HCCL_SO_PATH", parse::path,
        default "none", allowed "a path",
        "The vendor's collective library; tried before every other place.";
    ASCEND_HOME_PATH: PathBuf = "ASCEND_HOME_PATH", parse::path,
        default "none", allowed "a path",
        "Root of the Ascend toolkit; its lib64 is searched.";
    ASCEND_TOOLKIT_HOME: PathBuf = "ASCEND_TOOLKIT_HOME", parse::path,
        default "none", allowed "a path",
        "Root of the Ascend toolkit; its lib64 is searched after ASCEND_HOME_PATH.";
    DEVICE_MAP: Vec<u32> = "MUSTER_DEVICE_MAP", parse::device_ids,
        default "the device of the local rank's own number", allowed "logical device ids, each once, separated by commas",
        "Devices of the local ranks: local rank i drives the i-th id, counted from 0.";
    HCCL_EXEC_TIMEOUT: Duration = "HCCL_EXEC_TIMEOUT", parse::whole_seconds,
        default "the vendor's own (1836); verify sets one below its deadline", allowed "whole seconds from 0; 0 waits for ever",
        "How long a device waits for its peers before HCCL reports an error.";
    LD_LIBRARY_PATH: String = "LD_LIBRARY_PATH", parse::text,
        default "none", allowed "any text",
        "Read by the loader, not by muster; shown when the vendor library is not found.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_rows_are_filled_in() {
        let rows = rows();
        for (position, row) in rows.iter().enumerate() {
            assert!(rows[..position].iter().all(|other| other.name != row.name));
            assert!(!row.default.is_empty() && !row.allowed.is_empty());
            assert!(row.meaning.ends_with('.'), "{}", row.name);
        }
    }
}
