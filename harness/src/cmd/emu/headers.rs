//! The headers of an emulated toolkit: names, types and numbers of the tables of `hccl-sys`, as far
//! as the version that is played has them.
//!
//! HEADERS-1: nothing here is the vendor's text: every declaration is made from a row of a table.

use std::fmt::Write as _;

use hccl_sys::headers::Headers;
use hccl_sys::symbols::{Acl, Family, Hccl, Row};
use hccl_sys::types as sys;
use hccl_sys::types::{CommConfigField, CommConfigRow, HcclCommConfig, Named};
use hccl_sys::version::Version;

/// First line of every header.
const MARK: &str = "/* emulated: made by muster from its own tables; not a header of the vendor */";

/// A header by its path below `include`, and its text.
pub(super) type Header = (&'static str, String);

/// The enums of HCCL.
const HCCL_ENUMS: [(&str, &[Named]); 9] = [
    ("HcclResult", sys::HcclResult::VALUES),
    ("HcclDataType", sys::HcclDataType::VALUES),
    ("HcclReduceOp", sys::HcclReduceOp::VALUES),
    ("HcclSendRecvType", sys::HcclSendRecvType::VALUES),
    ("HcclConfig", sys::HcclConfig::VALUES),
    (
        "HcclCommConfigCapability",
        sys::HcclCommConfigCapability::VALUES,
    ),
    ("HcclCMDType", sys::HcclCMDType::VALUES),
    ("HcclCommStatus", sys::HcclCommStatus::VALUES),
    ("HcclCommStatePhase", sys::HcclCommStatePhase::VALUES),
];

/// Those of the runtime.
const ACL_ENUMS: [(&str, &[Named]); 17] = [
    ("aclrtRunMode", sys::AclrtRunMode::VALUES),
    ("aclrtMemMallocPolicy", sys::AclrtMemMallocPolicy::VALUES),
    ("aclrtMemcpyKind", sys::AclrtMemcpyKind::VALUES),
    ("aclrtMemAttr", sys::AclrtMemAttr::VALUES),
    ("aclrtEventStatus", sys::AclrtEventStatus::VALUES),
    (
        "aclrtEventRecordedStatus",
        sys::AclrtEventRecordedStatus::VALUES,
    ),
    ("aclrtEventWaitStatus", sys::AclrtEventWaitStatus::VALUES),
    ("aclrtStreamStatus", sys::AclrtStreamStatus::VALUES),
    (
        "aclrtCallbackBlockType",
        sys::AclrtCallbackBlockType::VALUES,
    ),
    ("aclrtLastErrLevel", sys::AclrtLastErrLevel::VALUES),
    ("aclrtDeviceStatus", sys::AclrtDeviceStatus::VALUES),
    ("aclrtDevAttr", sys::AclrtDevAttr::VALUES),
    (
        "aclrtFloatOverflowMode",
        sys::AclrtFloatOverflowMode::VALUES,
    ),
    (
        "aclrtMemGranularityOptions",
        sys::AclrtMemGranularityOptions::VALUES,
    ),
    ("aclrtHostRegisterType", sys::AclrtHostRegisterType::VALUES),
    ("aclrtReduceKind", sys::AclrtReduceKind::VALUES),
    ("aclCANNPackageName", sys::AclCANNPackageName::VALUES),
];

/// Handles, which are pointers to nothing that a program may look at.
const HANDLES: [&str; 5] = [
    "aclrtStream",
    "aclrtEvent",
    "aclrtContext",
    "aclrtNotify",
    "aclrtDrvMemHandle",
];

/// Structs of the runtime whose insides the tables do not have.
const OPAQUE: [&str; 6] = [
    "aclrtExceptionInfo",
    "aclrtMallocConfig",
    "aclrtPhysicalMemProp",
    "aclCANNPackageVersion",
    "aclrtUuid",
    "aclrtPtrAttributes",
];

/// Types of HCCL's functions that only authors of operators use: no number of theirs is known.
const HCCL_NUMBERS: [&str; 4] = [
    "HcclConfigType",
    "HcclHeterogMode",
    "CommTopo",
    "EndpointAttr",
];
const HCCL_OPAQUE: [&str; 2] = ["CommLink", "EndpointDesc"];

/// The headers of one version.
pub(super) fn headers(cann: &Version) -> Vec<Header> {
    let set = set(cann);
    let only = |text: &str| format!("{MARK}\n#pragma once\n{text}");
    vec![
        ("acl/acl_base.h", guarded(&acl_base(set))),
        ("acl/acl_rt.h", guarded(&acl_rt(set))),
        (
            "acl/acl.h",
            only("#include \"acl/acl_base.h\"\n#include \"acl/acl_rt.h\"\n"),
        ),
        ("hccl/hccl_types.h", guarded(&hccl_types(set))),
        (
            "hccl/hccl_comm.h",
            guarded(&hccl(set, |row| !is_operator(row))),
        ),
        (
            "hccl/hccl.h",
            guarded(&format!(
                "#include \"hccl/hccl_comm.h\"\n{}",
                hccl(set, is_operator)
            )),
        ),
    ]
}

/// The newest set of headers that is no newer than the version; the oldest for what came before.
fn set(cann: &Version) -> Headers {
    let is_no_newer = |set: &&Headers| {
        let version: Option<Version> = set.key().parse().ok();
        version.is_some_and(|version| version <= *cann)
    };
    let cann_sets = [
        Headers::Cann8_1Rc1,
        Headers::Cann8_5_0,
        Headers::Cann9_0_0,
        Headers::Cann9_1_0Beta1,
    ];
    let newest = cann_sets.iter().rev().find(is_no_newer);
    newest.copied().unwrap_or(Headers::Cann8_1Rc1)
}

fn guarded(body: &str) -> String {
    let includes: String = body
        .lines()
        .filter(|line| line.starts_with("#include"))
        .fold(String::new(), |mut text, line| {
            text.push_str(line);
            text.push('\n');
            text
        });
    let rest: Vec<&str> = body
        .lines()
        .filter(|line| !line.starts_with("#include"))
        .collect();
    format!(
        "{MARK}\n#pragma once\n{includes}\n#ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n{}\n\n\
         #ifdef __cplusplus\n}}\n#endif\n",
        rest.join("\n")
    )
}

fn acl_base(set: Headers) -> String {
    let mut text = String::from("#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n");
    text.push_str("typedef int aclError;\n");
    constant(&mut text, "ACL_SUCCESS", 0);
    constants(&mut text, sys::AclError::VALUES, set);
    constants(&mut text, sys::ACL_CONSTANTS, set);
    enumeration(&mut text, "aclDataType", sys::AclDataType::VALUES, set);
    for name in HANDLES {
        line(&mut text, &format!("typedef void *{name};"));
    }
    text
}

fn acl_rt(set: Headers) -> String {
    let mut text = String::from("#include \"acl/acl_base.h\"\n");
    for (name, values) in ACL_ENUMS {
        enumeration(&mut text, name, values, set);
    }
    for name in OPAQUE {
        line(&mut text, &format!("typedef struct {name} {name};"));
    }
    text.push_str(
        "typedef void (*aclrtCallback)(void *userData);\n\
         typedef void (*aclrtHostFunc)(void *args);\n\
         typedef void (*aclrtExceptionInfoCallback)(aclrtExceptionInfo *exceptionInfo);\n",
    );
    prototypes(&mut text, Acl::ROWS, set, |_| true);
    text
}

fn hccl_types(set: Headers) -> String {
    let mut text = String::from("#include <string.h>\n#include \"acl/acl_base.h\"\n");
    constants(&mut text, sys::HCCL_CONSTANTS, set);
    for (name, values) in HCCL_ENUMS {
        enumeration(&mut text, name, values, set);
    }
    for name in HCCL_NUMBERS {
        line(&mut text, &format!("typedef int32_t {name};"));
    }
    for name in HCCL_OPAQUE {
        line(&mut text, &format!("typedef struct {name} {name};"));
    }
    text.push_str(
        "typedef void *HcclComm;\n\
         typedef void *HcclCommSymWindow;\n\
         typedef HcclResult (*HcclCommStateCallback)(HcclComm comm, HcclCommStatePhase phase, void *args);\n\
         typedef union { int32_t value; } HcclConfigValue;\n\
         typedef struct { char internal[HCCL_ROOT_INFO_BYTES]; } HcclRootInfo;\n\
         typedef struct {\n    HcclSendRecvType sendRecvType;\n    void *buf;\n    uint64_t count;\n    \
         HcclDataType dataType;\n    uint32_t remoteRank;\n} HcclSendRecvItem;\n",
    );
    comm_config(&mut text, set);
    text
}

/// The struct of the version, and the function that fills it.
fn comm_config(text: &mut String, set: Headers) {
    let stated = sys::HCCL_CONSTANTS
        .iter()
        .find(|named| named.name == "HCCL_COMM_CONFIG_VERSION" && named.headers.contains(set));
    let row = stated
        .and_then(|named| u32::try_from(named.value).ok())
        .and_then(CommConfigRow::of_version)
        .unwrap_or(CommConfigRow::SAFEST);
    let fields = CommConfigField::ALL
        .into_iter()
        .filter(|field| row.has(*field));
    text.push_str("typedef struct HcclCommConfigDef {\n    char reserved[24];\n");
    for field in fields.clone() {
        let (_, bytes) = field.place();
        let declared = match (field, bytes) {
            (CommConfigField::ExecTimeOut, _) => format!("int32_t {field}"),
            (_, 1) => format!("uint8_t {field}"),
            (_, 4) => format!("uint32_t {field}"),
            (_, 8) => format!("uint64_t {field}"),
            _ => format!("char {field}[{bytes}]"),
        };
        line(text, &format!("    {declared};"));
    }
    text.push_str("} HcclCommConfig;\n");
    text.push_str(
        "static inline void HcclCommConfigInit(HcclCommConfig *config)\n{\n    \
         const size_t size = sizeof(HcclCommConfig);\n    \
         const uint32_t head[2] = {HCCL_COMM_CONFIG_MAGIC_WORD, HCCL_COMM_CONFIG_VERSION};\n    \
         memset(config, 0, sizeof *config);\n    \
         memcpy(config->reserved, &size, sizeof size);\n    \
         memcpy(config->reserved + 8, head, sizeof head);\n",
    );
    let unset = HcclCommConfig::new(row);
    for field in fields {
        let (start, bytes) = field.place();
        let value = &unset.as_bytes()[start..start + bytes];
        let number = value
            .iter()
            .rev()
            .fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        if bytes <= 8 && number != 0 {
            let number = if field == CommConfigField::ExecTimeOut {
                "-1".to_owned()
            } else {
                format!("{number}u")
            };
            line(text, &format!("    config->{field} = {number};"));
        }
    }
    text.push_str("}\n");
}

/// The functions of HCCL that `wanted` chooses.
fn hccl(set: Headers, wanted: impl Fn(&Row) -> bool) -> String {
    let mut text = String::from("#include \"acl/acl_rt.h\"\n#include \"hccl/hccl_types.h\"\n");
    prototypes(&mut text, Hccl::ROWS, set, wanted);
    text
}

/// Whether it moves data: those have a communicator and a stream.
fn is_operator(row: &Row) -> bool {
    row.family == Family::Hccl
        && row.prototype.is_some_and(|prototype| {
            prototype
                .arguments
                .iter()
                .any(|(_, kind)| *kind == "AclrtStream")
        })
}

fn prototypes(text: &mut String, rows: &[Row], set: Headers, wanted: impl Fn(&Row) -> bool) {
    for row in rows {
        if row.headers.contains(set)
            && wanted(row)
            && let Some(prototype) = row.c_prototype()
        {
            // Without arguments C wants to be told so.
            line(text, &format!("{};", prototype.replace("()", "(void)")));
        }
    }
}

fn constants(text: &mut String, values: &[Named], set: Headers) {
    for named in values {
        if named.headers.contains(set) && named.name != "ACL_SUCCESS" {
            constant(text, named.name, named.value);
        }
    }
}

fn constant(text: &mut String, name: &str, value: i64) {
    let suffix = if value > i64::from(i32::MAX) { "u" } else { "" };
    line(text, &format!("#define {name} {value}{suffix}"));
}

/// An enum; a number where the tables have no name for it.
fn enumeration(text: &mut String, name: &str, values: &[Named], set: Headers) {
    let known: Vec<String> = values
        .iter()
        .filter(|named| named.headers.contains(set))
        .map(|named| format!("    {} = {}", named.name, named.value))
        .collect();
    if known.is_empty() {
        line(text, &format!("typedef int32_t {name};"));
    } else {
        let body = known.join(",\n");
        line(text, &format!("typedef enum {{\n{body}\n}} {name};"));
    }
}

fn line(text: &mut String, line: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_its_own_numbers_and_functions() {
        let text = |cann: &str| {
            let version: Version = cann.parse().expect("a version");
            headers(&version)
                .into_iter()
                .fold(String::new(), |all, (_, text)| all + &text)
        };
        let (old, new) = (text("8.1.RC1"), text("9.0.0"));
        assert!(old.contains("#define HCCL_COMM_CONFIG_VERSION 5\n"));
        assert!(new.contains("#define HCCL_COMM_CONFIG_VERSION 10\n"));
        assert!(!old.contains("HcclGroupStart") && new.contains("HcclGroupStart(void);"));
        assert!(!old.contains("hcclAlgo") && new.contains("char hcclAlgo[1600];"));
        for text in [old, new] {
            assert!(text.contains("HCCL_DATA_TYPE_BFP16 = 11"));
            assert!(text.contains("aclError aclrtSetDevice(int32_t deviceId);"));
        }
        assert_eq!(
            set(&"8.0.0".parse().expect("a version")),
            Headers::Cann8_1Rc1
        );
        assert_eq!(
            set(&"9.9.0".parse().expect("a version")),
            Headers::Cann9_1_0Beta1
        );
    }
}
