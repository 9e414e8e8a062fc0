//! The variables of HCCL, the Ascend runtime, torch_npu and hccl_test: what each may hold.
//!
//! Facts from the vendor's documents and sources; where products differ, the union of what they take
//! is allowed and the text says which product takes what.

mod grammar;
mod hccl;
mod runtime;
mod torch;
mod vllm;

/// Whose variable it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// HCCL reads it, once, at the first call; a bad value fails that call.
    Hccl,
    /// The test programs of the toolkit.
    HcclTest,
    /// A way to start ranks: rank table, TensorFlow.
    Launch,
    /// The Ascend runtime, its logs and its installation.
    Runtime,
    /// torch_npu.
    TorchNpu,
    /// vllm-ascend.
    VllmAscend,
}

impl Owner {
    /// The name of whoever reads the variable.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hccl => "HCCL",
            Self::HcclTest => "hccl_test",
            Self::Launch => "rank start",
            Self::Runtime => "Ascend runtime",
            Self::TorchNpu => "torch_npu",
            Self::VllmAscend => "vllm-ascend",
        }
    }
}

/// A variable of the vendor's stack.
#[derive(Clone, Copy, Debug)]
pub struct Vendor {
    /// Its name.
    pub name: &'static str,
    /// Who reads it.
    pub owner: Owner,
    /// What it does, one fragment.
    pub meaning: &'static str,
    /// What holds where it is not set.
    pub default: &'static str,
    /// What may be written there.
    pub allowed: &'static str,
    /// Whether a value is one of these.
    pub fits: fn(&str) -> bool,
}

const fn row(
    owner: Owner,
    name: &'static str,
    meaning: &'static str,
    default: &'static str,
    allowed: &'static str,
    fits: fn(&str) -> bool,
) -> Vendor {
    Vendor {
        name,
        owner,
        meaning,
        default,
        allowed,
        fits,
    }
}

/// All of them.
pub fn vendor_variables() -> impl Iterator<Item = &'static Vendor> {
    let rows = hccl::ROWS.iter().chain(runtime::ROWS);
    rows.chain(torch::ROWS).chain(vllm::ROWS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_unique_and_filled_in() {
        let rows: Vec<&Vendor> = vendor_variables().collect();
        assert!(rows.len() > 80, "{}", rows.len());
        for (position, row) in rows.iter().enumerate() {
            assert!(
                !row.meaning.is_empty() && !row.allowed.is_empty(),
                "{}",
                row.name
            );
            assert!(
                rows[..position].iter().all(|other| other.name != row.name),
                "{} stands twice",
                row.name
            );
        }
    }

    #[test]
    fn documented_defaults_and_examples_fit_their_own_grammar() {
        for (name, value) in [
            ("HCCL_CONNECT_TIMEOUT", "120"),
            ("HCCL_CONNECT_TIMEOUT", "7200"),
            ("HCCL_EXEC_TIMEOUT", "0"),
            ("HCCL_ALGO", "level0:NA;level1:ring;level2:H-D_R"),
            (
                "HCCL_ALGO",
                "allreduce=level0:NA;level1:NHR/allgather=level0:NA;level1:ring",
            ),
            (
                "HCCL_DFS_CONFIG",
                "connection_fault_detection_time:20,cluster_heartbeat:on",
            ),
            ("HCCL_OP_RETRY_ENABLE", "L1:0, L2:1"),
            (
                "HCCL_OP_RETRY_PARAMS",
                "MaxCnt:1, HoldTime:5000, IntervalTime:1000",
            ),
            ("HCCL_DEBUG_CONFIG", "^alg,task"),
            ("HCCL_HOST_SOCKET_PORT_RANGE", "60000-60050,61000"),
            ("HCCL_NPU_SOCKET_PORT_RANGE", "auto"),
            ("HCCL_DETERMINISTIC", "strict"),
            ("HCCL_RDMA_TC", "132"),
            ("STREAMS_PER_DEVICE", "32"),
            ("VLLM_ASCEND_ENABLE_NZ", "2"),
            ("PYTORCH_NPU_ALLOC_CONF", "expandable_segments:True"),
            (
                "PYTORCH_NPU_ALLOC_CONF",
                "max_split_size_mb:128,garbage_collection_threshold:0.9",
            ),
            // It may be newer than this table.
            ("PYTORCH_NPU_ALLOC_CONF", "some_other_option:5"),
        ] {
            let row = vendor_variables().find(|row| row.name == name).expect(name);
            assert!((row.fits)(value), "{name}={value}");
        }
        for (name, value) in [
            ("HCCL_CONNECT_TIMEOUT", "119"),
            ("HCCL_CONNECT_TIMEOUT", "10s"),
            ("HCCL_RDMA_TC", "130"),
            ("HCCL_RDMA_SL", "8"),
            ("HCCL_IF_BASE_PORT", "80"),
            ("HCCL_IF_IP", "10.0.0.256"),
            ("HCCL_ALGO", "ring"),
            ("HCCL_ALGO", "level0:NA;level1:rnig"),
            ("HCCL_DFS_CONFIG", "connection_fault_detection_time:5"),
            ("HCCL_OP_RETRY_PARAMS", "MaxCnt:11"),
            ("HCCL_DETERMINISTIC", "yes"),
            ("HCCL_SOCKET_FAMILY", "ipv6"),
            ("STREAMS_PER_DEVICE", "16"),
            ("VLLM_ASCEND_ENABLE_NZ", "no"),
            ("VLLM_ASCEND_ENABLE_MLAPO", "true"),
            ("PYTORCH_NPU_ALLOC_CONF", "expandable_segment:True"),
            ("PYTORCH_NPU_ALLOC_CONF", "expandable_segments:true"),
            ("PYTORCH_NPU_ALLOC_CONF", "expandable_segments=True"),
            ("PYTORCH_NPU_ALLOC_CONF", "garbage_collection_threshold:1.5"),
        ] {
            let row = vendor_variables().find(|row| row.name == name).expect(name);
            assert!(!(row.fits)(value), "{name}={value}");
        }
    }
}
