//! Whether worker processes are started in a way that the runtime survives.

use super::super::{Finding, Problem, System};

const METHODS: [&str; 1] = ["VLLM_WORKER_MULTIPROC_METHOD"];

pub(super) fn judge(system: &System) -> Finding {
    for name in METHODS {
        let Some(value) = system.text(name) else {
            continue;
        };
        if value == "fork" && system.wants_hccl() {
            return Problem::fail(
                format!("{name} is fork: a child forked after aclInit dies or hangs in its first ACL or HCCL call"),
                format!("{name}={value}"),
                format!("export {name}=spawn"),
            )
            .into();
        }
        return Finding::ok(
            format!("workers are started by {value}"),
            format!("{name}={value}"),
        );
    }
    Finding::skip("no variable chooses how workers are started")
}
