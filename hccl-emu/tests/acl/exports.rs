//! Every name that the facts know is there, and what is not emulated says so.

use std::ffi::CString;

use crate::support::*;

/// What the headers of all versions declare.
fn facts() -> serde_json::Value {
    let text = include_str!("../../../hccl-sys/tests/data/abi_facts.json");
    serde_json::from_str(text).expect("the facts are JSON")
}

#[test]
fn every_function_of_every_version_is_exported() {
    let facts = facts();
    let functions = facts["functions"].as_object().expect("functions");
    assert!(functions.len() > 500);
    let missing: Vec<&String> = functions
        .keys()
        .filter(|name| symbol(&CString::new(name.as_str()).expect("no NUL")).is_none())
        .collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
}

#[test]
fn codes_have_the_values_of_the_headers() {
    let facts = facts();
    let head = facts["abi"]["head"]["aclError"].as_object().expect("codes");
    for (name, code) in muster_emu::runtime::AclError::ALL {
        let listed = head
            .get(&format!("ACL_ERROR_{name}"))
            .and_then(serde_json::Value::as_i64);
        assert_eq!(listed, Some(i64::from(code.0)), "{name}");
    }
}

#[test]
fn what_is_not_emulated_refuses_by_its_kind_and_is_named() {
    let call = |name: &str| {
        let address = symbol(&CString::new(name).expect("no NUL")).expect("exported");
        // SAFETY: these functions look at no argument and return at most a pointer, in the register
        // that a number would be in.
        unsafe { std::mem::transmute::<Pointer, extern "C" fn() -> i32>(address) }
    };
    for (name, code) in [
        ("aclrtLaunchKernel", 207_000),
        ("aclmdlRICaptureBegin", 207_000),
        ("aclprofInit", 200_001),
        // No header declares it; clients look for it by name.
        ("aclprofWarmup", 200_001),
        ("aclopExecuteV2", 200_001),
        ("HcclEngineCtxCreate", 5),
        ("rtKernelLaunch", 207_000),
    ] {
        refused(call(name)(), code, &[name, "is not emulated"]);
    }
    for name in [
        "aclCreateGraphDumpOpt",
        "aclprofCreateConfig",
        "aclmdlGetNumInputs",
    ] {
        assert_eq!(call(name)(), 0);
        assert!(recent().contains(name));
    }
}
