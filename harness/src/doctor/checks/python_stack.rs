//! Whether what the training and serving stacks import is installed.

use super::super::python::{interpreter, module, package};
use super::super::system::listed;
use super::super::{Finding, Problem, System};

/// A module of a stack, what it imports, and how that is installed.
const STACKS: [(&str, &[(&str, &str)]); 3] = [
    (
        "mindspeed",
        &[
            ("torch", "pip install torch"),
            ("torch_npu", "pip install torch_npu"),
        ],
    ),
    ("megatron.core", &[("torch", "pip install torch")]),
    (
        "vllm_ascend",
        &[
            ("vllm", "pip install vllm"),
            ("torch_npu", "pip install torch_npu"),
        ],
    ),
];

pub(super) fn judge(system: &System) -> Finding {
    let Some(python) = interpreter(system) else {
        return Finding::skip("no Python in PATH");
    };
    let mut problems = Vec::new();
    let mut found = Vec::new();
    for (stack, needs) in STACKS {
        let Some(place) = module(system, stack) else {
            continue;
        };
        let version =
            package(system, stack).map_or_else(String::new, |(version, _)| format!(" {version}"));
        found.push(format!("{stack}{version}"));
        for (needed, remedy) in needs {
            if module(system, needed).is_some() {
                continue;
            }
            problems.push(Problem::fail(
                format!("{stack} is installed and {needed}, which it imports, is not"),
                format!("{place}; {python} finds no {needed}"),
                format!("{remedy}, in the version that {stack} names, for this Python"),
            ));
        }
    }
    if found.is_empty() {
        return Finding::skip("neither MindSpeed, Megatron-LM nor vllm-ascend is installed");
    }
    Finding::of(problems, || {
        Finding::ok(format!("{} find what they import", listed(&found)), python)
    })
}
