//! Variables of vllm-ascend, which reads them as whole numbers: any other word ends the program.
//!
//! Source: `vllm_ascend/envs.py` and the page on additional configuration of its documents.

use super::grammar::whole;
use super::{Owner, Vendor, row};

const NUMBER: &str = "a whole number: 0 is off, any other is on";

fn number(text: &str) -> bool {
    whole(text.trim(), 0, u64::from(u32::MAX))
}

const fn switch(name: &'static str, meaning: &'static str, default: &'static str) -> Vendor {
    row(Owner::VllmAscend, name, meaning, default, NUMBER, number)
}

/// All of them.
pub(super) const ROWS: &[Vendor] = &[
    row(
        Owner::VllmAscend,
        "VLLM_ASCEND_ENABLE_NZ",
        "which weights are cast to the format FRACTAL_NZ",
        "1",
        "0 (none), 1 (quantised ones), 2 (all that can be)",
        |text| whole(text.trim(), 0, 2),
    ),
    row(
        Owner::VllmAscend,
        "VLLM_ASCEND_FLASHCOMM2_PARALLEL_SIZE",
        "ranks of the output projection's groups",
        "0",
        "a whole number; 0 is off",
        number,
    ),
    row(
        Owner::VllmAscend,
        "VLLM_ASCEND_ENABLE_FUSED_MC2",
        "the fused dispatch of experts (A3, up to EP=64; before MegaMoe up to 32)",
        "0",
        "a whole number; 0 is off",
        number,
    ),
    switch(
        "VLLM_ASCEND_ENABLE_MLAPO",
        "the fused preparation of MLA",
        "1",
    ),
    switch(
        "VLLM_ASCEND_BALANCE_SCHEDULING",
        "balanced scheduling of requests",
        "0",
    ),
    switch("VLLM_ASCEND_ENABLE_FLASHCOMM", "sequence parallelism", "0"),
    switch("VLLM_ASCEND_ENABLE_FLASHCOMM1", "sequence parallelism", "0"),
    switch(
        "VLLM_ASCEND_ENABLE_MATMUL_ALLREDUCE",
        "matrix product and all_reduce in one operator",
        "0",
    ),
    switch(
        "VLLM_ASCEND_ENABLE_CONTEXT_PARALLEL",
        "context parallelism",
        "0",
    ),
    switch(
        "VLLM_ASCEND_FUSION_OP_TRANSPOSE_KV_CACHE_BY_BLOCK",
        "the fused transposition of KV blocks",
        "1",
    ),
    switch(
        "VLLM_ASCEND_SFA_SORT_TOPK",
        "sorted indices in sparse attention",
        "1",
    ),
];
