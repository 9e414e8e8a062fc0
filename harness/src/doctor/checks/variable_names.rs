//! Whether every variable that looks like one of the vendor's is one.

use super::super::{Finding, Problem, System, vendor_variables};

/// Beginnings of names that nobody else uses: an unknown one is a slip, or newer than we are.
const PREFIXES: [&str; 4] = ["HCCL_", "HCOMM_", "TORCH_HCCL_", "P2P_HCCL_"];
/// A name that ends in one of these was probably meant.
const SLIPS_MAX: usize = 3;

pub(super) fn judge(system: &System) -> Finding {
    let known: Vec<&str> = vendor_variables()
        .map(|row| row.name)
        .chain(muster_comm::config::rows().into_iter().map(|row| row.name))
        .chain([super::ray::FLAG])
        .collect();
    let mut problems = Vec::new();
    let mut ours = 0_u32;
    for name in system.environment().names() {
        if known.contains(&name) {
            ours += u32::from(vendor_variables().any(|row| row.name == name));
            continue;
        }
        let theirs = PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        match meant(name, &known) {
            Some(meant) => problems.push(Problem::fail(
                format!("{name} is read by nobody; did you mean {meant}?"),
                format!("{name} is set; the variable is called {meant}"),
                format!("unset {name} and export {meant} instead"),
            )),
            None if theirs => problems.push(Problem::warn(
                format!("{name} is no variable that HCCL or torch_npu are known to read"),
                format!("{name} is set"),
                format!("unset {name}, or look it up in the documents of your CANN version"),
            )),
            None => {}
        }
    }
    Finding::of(problems, || {
        if ours == 0 {
            return Finding::ok(
                "no variable of HCCL, Ascend or torch_npu is set",
                "environment",
            );
        }
        let all = if ours == 1 { "one is" } else { "all are" };
        Finding::ok(
            format!("{ours} variables of HCCL, Ascend and torch_npu are set, {all} spelt right"),
            "environment",
        )
    })
}

/// The known name that differs by a few letters, for names that speak of the vendor's stack.
fn meant<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let upper = name.to_ascii_uppercase();
    let speaks = ["HCCL", "HCOMM", "ASCEND", "NPU"]
        .iter()
        .any(|word| upper.contains(word))
        || [
            "HCLL_",
            "HCC_",
            "ACSEND_",
            "ASEND_",
            "HCL_",
            "TASK_QUEUE",
            "RANK_TABLE",
            "STREAMS_PER",
            "MULTI_STREAM",
            "P2P_HC",
        ]
        .iter()
        .any(|beginning| upper.starts_with(beginning));
    if !speaks {
        return None;
    }
    // The same letters in another order, as in TIMEOUT_CONNECT, are as near as a slip of the pen.
    let words = |name: &str| {
        let mut words: Vec<String> = name.split('_').map(str::to_owned).collect();
        words.sort();
        words
    };
    let distance = |candidate: &str| {
        if words(candidate) == words(&upper) {
            1
        } else {
            strsim::damerau_levenshtein(&upper, candidate)
        }
    };
    known
        .iter()
        .copied()
        .map(|candidate| (distance(candidate), candidate))
        .filter(|(distance, candidate)| *distance <= SLIPS_MAX && *distance * 4 <= candidate.len())
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_pen_are_recognised_and_strangers_left_alone() {
        let known: Vec<&str> = vendor_variables().map(|row| row.name).collect();
        for (name, right) in [
            ("HCCL_CONECT_TIMEOUT", Some("HCCL_CONNECT_TIMEOUT")),
            ("HCCL_TIMEOUT_CONNECT", Some("HCCL_CONNECT_TIMEOUT")),
            ("HCCL_BUFFERSIZE", Some("HCCL_BUFFSIZE")),
            ("HCCL_BUFSIZE", Some("HCCL_BUFFSIZE")),
            ("HCLL_SOCKET_IFNAME", Some("HCCL_SOCKET_IFNAME")),
            ("hccl_connect_timeout", Some("HCCL_CONNECT_TIMEOUT")),
            ("HCCL_SOCKET_IF_NAME", Some("HCCL_SOCKET_IFNAME")),
            (
                "ASCEND_RT_VISIBLE_DEVICE",
                Some("ASCEND_RT_VISIBLE_DEVICES"),
            ),
            ("HCCL_SOMETHING_ELSE_ENTIRELY", None),
            ("NCCL_SOCKET_IFNAME", None),
            ("PATH", None),
        ] {
            assert_eq!(meant(name, &known), right, "{name}");
        }
    }
}
