//! Hosts whose environment is broken.

use muster_harness::doctor::Status::{Fail, Warn};

use super::{Broken, broken};

pub(super) const VARIABLES: &[Broken] = &[
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
        "variable-conflicts",
        Warn,
        &["fused dispatch up to EP=64", "all 128 ranks"],
        "muster groups",
        |host| {
            host.set("VLLM_ASCEND_ENABLE_FUSED_MC2", "1")
                .set("WORLD_SIZE", "128");
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
        "preload",
        Fail,
        &["/opt/libjemalloc.so", "no library"],
        "unset LD_PRELOAD",
        |host| {
            host.file("/opt/libjemalloc.so", "<html>not found</html>")
                .set("LD_PRELOAD", "/opt/libjemalloc.so");
        },
    ),
    broken(
        "variable-values",
        Fail,
        &["VLLM_ASCEND_ENABLE_NZ", "\"no\"", "vllm-ascend"],
        "export VLLM_ASCEND_ENABLE_NZ=1",
        |host| {
            host.set("VLLM_ASCEND_ENABLE_NZ", "no");
        },
    ),
    broken(
        "variable-values",
        Fail,
        &["PYTORCH_NPU_ALLOC_CONF", "expandable_segment:True"],
        "expandable_segments:True",
        |host| {
            host.set("PYTORCH_NPU_ALLOC_CONF", "expandable_segment:True");
        },
    ),
    broken(
        "variable-names",
        Fail,
        &[
            "RAY_EXPERIMENTAL_NOSET_ASCEND_VISIBLE_DEVICES",
            "did you mean RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES?",
        ],
        "unset",
        |host| {
            host.set("RAY_EXPERIMENTAL_NOSET_ASCEND_VISIBLE_DEVICES", "1");
        },
    ),
    broken(
        "ray",
        Warn,
        &["Ray offers no NPU", "8 devices"],
        "ray start",
        |host| {
            host.raylet("CPU,8.0,memory,1000.0");
        },
    ),
    broken(
        "ray",
        Fail,
        &["16 NPUs", "8 devices"],
        "ray start",
        |host| {
            host.raylet("CPU,8.0,NPU,16.0");
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
