//! Raw, dynamically loaded bindings to HCCL and the Ascend runtime (CANN).
