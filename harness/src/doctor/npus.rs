//! Near which memory node each Ascend device is, as its place on the PCI bus tells.

use muster_comm::launch::Detected;
use muster_comm::processors::{CpuList, Topology};

use super::System;

const FUNCTIONS: &str = "/sys/bus/pci/devices";
/// Huawei's number on the PCI bus.
const VENDOR: &str = "0x19e5";
/// Processing accelerators.
const CLASS: &str = "0x1200";

/// An Ascend device on the PCI bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Npu {
    /// The number of its node `/dev/davinciN`: its place in the order of PCI addresses. No file tells the numbers; `npu-smi info -t topo`
    /// asks the driver.
    pub number: u32,
    /// Its PCI address.
    pub address: String,
    /// Its memory node; `None` where the firmware does not tell.
    pub node: Option<u32>,
}

impl System {
    /// All Ascend devices on the PCI bus.
    #[must_use]
    pub fn npus(&self) -> Vec<Npu> {
        let told = |address: &str, file: &str| self.read(format!("{FUNCTIONS}/{address}/{file}"));
        let is_npu = |address: &String| {
            told(address, "vendor").as_deref() == Some(VENDOR)
                && told(address, "class").is_some_and(|class| class.starts_with(CLASS))
        };
        let addresses = self.names(FUNCTIONS).into_iter().filter(is_npu);
        (0..)
            .zip(addresses)
            .map(|(number, address)| Npu {
                number,
                node: told(&address, "numa_node").and_then(|node| node.parse().ok()),
                address,
            })
            .collect()
    }

    /// Those that this process drives if it is a rank; all that are visible if it is none.
    #[must_use]
    pub fn own_npus(&self) -> Vec<Npu> {
        let visible = self.visible_devices().map(|visible| visible.ids);
        let local = match self.launched() {
            Ok(Detected::Identity(identity)) => identity.local_rank,
            Ok(Detected::PerNode(_) | Detected::Standalone { .. }) | Err(_) => None,
        };
        let is_own = |npu: &Npu| match (&visible, local) {
            (Some(ids), _) if ids.len() == 1 => ids[0] == npu.number,
            (Some(ids), Some(local)) => ids.get(local as usize) == Some(&npu.number),
            (Some(ids), None) => ids.contains(&npu.number),
            (None, Some(local)) => local == npu.number,
            (None, None) => true,
        };
        self.npus().into_iter().filter(is_own).collect()
    }

    /// The processors that this process may use, by memory node.
    #[must_use]
    pub fn topology(&self) -> Topology {
        Topology::seen(&|path| self.try_read(path).ok())
    }

    /// All processors of a memory node, and whether they may be used or not.
    pub(super) fn cpus_of_node(&self, node: u32) -> CpuList {
        let text = self.read(format!("/sys/devices/system/node/node{node}/cpulist"));
        text.and_then(|text| CpuList::parse(&text))
            .unwrap_or_default()
    }
}
