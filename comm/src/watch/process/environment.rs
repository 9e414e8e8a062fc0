//! The variables that a process was started with, as far as they say how a job is set up.
//!
//! ENVIRONMENT-1: only variables of known families are kept, and none whose name speaks of a secret.

use std::collections::BTreeMap;
use std::fs;

/// Beginnings of the names of variables that say how a job is set up.
const FAMILIES: [&str; 15] = [
    "ASCEND_",
    "GLOO_SOCKET_",
    "HCCL_",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "MUSTER_",
    "OMP_",
    "PYTORCH_NPU_",
    "RANK",
    "TORCH_",
    "WORLD_SIZE",
];
/// Parts of names whose values are nobody's business.
const SECRET: [&str; 7] = [
    "SECRET",
    "TOKEN",
    "PASSWORD",
    "PASSWD",
    "CREDENTIAL",
    "KEY",
    "AUTH",
];
/// Longest value that is kept, in characters.
const VALUE_MAX: usize = 300;

/// The variables that a process of this user was started with; this process where there is no number. None where that
/// cannot be read, as of a process that has ended.
#[must_use]
pub fn environment(pid: Option<u32>) -> BTreeMap<String, String> {
    let pid = pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    let bytes = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    known(&bytes)
}

fn known(bytes: &[u8]) -> BTreeMap<String, String> {
    let text = String::from_utf8_lossy(bytes);
    let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
    let is_known = |name: &str| {
        FAMILIES.iter().any(|family| name.starts_with(family))
            && !SECRET.iter().any(|part| name.contains(part))
    };
    pairs
        .filter(|(name, _)| is_known(name))
        .map(|(name, value)| {
            let value = value.chars().take(VALUE_MAX).collect();
            (name.to_owned(), value)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_known_families_are_kept_and_no_secrets() {
        let long = format!("LD_PRELOAD={}", "x".repeat(2 * VALUE_MAX));
        let all = [
            "HCCL_CONNECT_TIMEOUT=1800",
            "RANK=3",
            "HOME=/home/somebody",
            "AWS_ACCESS_KEY_ID=1",
            "MUSTER_SECRET_FD=4",
            "MASTER_ADDR=a=b",
            "no pair",
            &long,
        ];
        let kept = known(all.join("\0").as_bytes());
        let names: Vec<&str> = kept.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            ["HCCL_CONNECT_TIMEOUT", "LD_PRELOAD", "MASTER_ADDR", "RANK"]
        );
        assert_eq!(kept["MASTER_ADDR"], "a=b");
        assert_eq!(kept["LD_PRELOAD"].len(), VALUE_MAX);
    }
}
