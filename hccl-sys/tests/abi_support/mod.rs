//! What the bindings say, as data, and the comparison with the facts.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::{align_of, offset_of, size_of};

use hccl_sys::headers::Headers;
use hccl_sys::symbols::{Acl, Api, Hccl, Row, c_type};
use hccl_sys::types::*;
use serde_json::Value;

/// The facts, as they stand in the file.
pub(crate) fn facts() -> Value {
    let text = include_str!("../data/abi_facts.json");
    serde_json::from_str(text).expect("the facts are JSON")
}

/// Names with their numbers, for a section of the facts.
type Section = (&'static str, Vec<Named>);

/// Everything that is compared.
pub(crate) struct Bindings {
    numbers: Vec<Section>,
    /// Sizes, alignments and offsets by the keys of the facts; with the config at its longest.
    layouts: BTreeMap<String, u64>,
    rows: Vec<Row>,
}

impl Bindings {
    pub(crate) fn of_this_crate() -> Self {
        let acl_enums = [
            AclrtRunMode::VALUES,
            AclrtMemMallocPolicy::VALUES,
            AclrtMemcpyKind::VALUES,
            AclrtMemAttr::VALUES,
            AclrtEventStatus::VALUES,
            AclrtEventRecordedStatus::VALUES,
            AclrtEventWaitStatus::VALUES,
            AclrtStreamStatus::VALUES,
            AclrtCallbackBlockType::VALUES,
            AclrtLastErrLevel::VALUES,
            AclDataType::VALUES,
            ACL_CONSTANTS,
        ];
        let api = Api::load(&nowhere());
        let rows = api.capabilities().iter().map(|one| one.row).collect();
        Self {
            numbers: vec![
                ("HcclResult", HcclResult::VALUES.to_vec()),
                ("HcclReduceOp", HcclReduceOp::VALUES.to_vec()),
                ("HcclDataType", HcclDataType::VALUES.to_vec()),
                ("HcclConfig", HcclConfig::VALUES.to_vec()),
                ("HcclSendRecvType", HcclSendRecvType::VALUES.to_vec()),
                (
                    "HcclCommConfigCapability",
                    HcclCommConfigCapability::VALUES.to_vec(),
                ),
                ("HcclCMDType", HcclCMDType::VALUES.to_vec()),
                ("HcclCommStatus", HcclCommStatus::VALUES.to_vec()),
                ("HcclCommStatePhase", HcclCommStatePhase::VALUES.to_vec()),
                ("HcclOpExpansionMode", HcclOpExpansionMode::VALUES.to_vec()),
                ("hccl_constants", HCCL_CONSTANTS.to_vec()),
                ("aclError", AclError::VALUES.to_vec()),
                ("acl_enums", acl_enums.concat()),
            ],
            layouts: layouts(),
            rows,
        }
    }
}

/// Places where nothing can be found.
fn nowhere() -> hccl_sys::search::Places {
    hccl_sys::search::Places {
        installations: Vec::new(),
        ..hccl_sys::search::Places::default()
    }
}

fn layouts() -> BTreeMap<String, u64> {
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    let mut put = |key: &str, value: usize| {
        let value = u64::try_from(value).expect("a small number");
        assert_eq!(found.insert(key.to_owned(), value), None, "{key} twice");
    };
    macro_rules! whole {
        ($($name:literal: $type:ty),* $(,)?) => {$(
            put(concat!("sizeof(", $name, ")"), size_of::<$type>());
            put(concat!("alignof(", $name, ")"), align_of::<$type>());
        )*};
    }
    macro_rules! fields {
        ($struct:ident: $($name:literal = $field:ident: $type:ty),* $(,)?) => {$(
            let key = concat!(stringify!($struct), ".", $name);
            put(key, offset_of!($struct, $field));
            put(&format!("sizeof({key})"), size_of::<$type>());
            // The type that is measured is that of the field.
            let _: fn(&$struct) -> &$type = |whole| &whole.$field;
        )*};
    }
    whole! {
        "HcclComm": HcclComm,
        "HcclRootInfo": HcclRootInfo,
        "HcclConfigValue": HcclConfigValue,
        "HcclSendRecvItem": HcclSendRecvItem,
        "HcclCommConfig": HcclCommConfig,
        "aclrtStream": AclrtStream,
        "aclrtEvent": AclrtEvent,
        "aclrtContext": AclrtContext,
        "aclrtMemMallocPolicy": AclrtMemMallocPolicy,
        "aclrtMemcpyKind": AclrtMemcpyKind,
        "aclrtDrvMemHandle": AclrtDrvMemHandle,
    }
    fields! { HcclRootInfo: "internal" = internal: [u8; 4108] }
    fields! { HcclSendRecvItem:
        "sendRecvType" = send_recv_type: HcclSendRecvType,
        "buf" = buf: *mut std::ffi::c_void,
        "count" = count: u64,
        "dataType" = data_type: HcclDataType,
        "remoteRank" = remote_rank: u32,
    }
    fields! { HcclCommConfig:
        "reserved" = head: CommConfigHeader,
        "hcclBufferSize" = hccl_buffer_size: u32,
        "hcclDeterministic" = hccl_deterministic: u32,
        "hcclCommName" = hccl_comm_name: [std::ffi::c_char; 128],
        "hcclUdi" = hccl_udi: [std::ffi::c_char; 128],
        "hcclOpExpansionMode" = hccl_op_expansion_mode: u32,
        "hcclRdmaTrafficClass" = hccl_rdma_traffic_class: u32,
        "hcclRdmaServiceLevel" = hccl_rdma_service_level: u32,
        "hcclWorldRankID" = hccl_world_rank_id: u32,
        "hcclJobID" = hccl_job_id: u64,
        "aclGraphZeroCopyEnable" = acl_graph_zero_copy_enable: u8,
        "hcclExecTimeOut" = hccl_exec_time_out: i32,
        "hcclAlgo" = hccl_algo: [std::ffi::c_char; 1600],
        "hcclRetryEnable" = hccl_retry_enable: [std::ffi::c_char; 50],
        "hcclRetryParams" = hccl_retry_params: [std::ffi::c_char; 128],
        "hcclBufferName" = hccl_buffer_name: [std::ffi::c_char; 128],
        "hcclQos" = hccl_qos: u32,
        "hcclSymWinMaxMemSizePerRank" = hccl_sym_win_max_mem_size_per_rank: u64,
        "hcclChannelSqDepth" = hccl_channel_sq_depth: u32,
    }
    put("sizeof(void*)", size_of::<*mut u8>());
    put("sizeof(size_t)", size_of::<usize>());
    put("sizeof(int)", size_of::<std::ffi::c_int>());
    put("sizeof(enum)", size_of::<HcclResult>());
    put("sizeof(bool)", size_of::<bool>());
    put("sizeof(aclError)", size_of::<AclError>());
    found
}

/// Every difference between facts and bindings, one line each.
pub(crate) fn compare(facts: &Value, bindings: &Bindings) -> Vec<String> {
    let mut differences = Vec::new();
    for headers in Headers::ALL {
        let abi = &facts["abi"][headers.key()];
        let abi = abi.as_object().expect("an object for each set of headers");
        let row = config_row(abi);
        let mut report = |line: String| differences.push(format!("{}: {line}", headers.key()));
        for (section, content) in abi {
            if section == "HcclCommConfigInit_image_over_0xAA" {
                compare_image(content, row, &mut report);
                continue;
            }
            let content = content.as_object().expect("names and numbers");
            compare_section(section, content, headers, bindings, row, &mut report);
        }
        compare_absent(abi, headers, bindings, row, &mut report);
    }
    compare_functions(facts, bindings, &mut differences);
    compare_history(facts, &mut differences);
    differences
}

/// The row of the config's table that these headers must be.
fn config_row(abi: &serde_json::Map<String, Value>) -> CommConfigRow {
    let version = abi["hccl_constants"]["HCCL_COMM_CONFIG_VERSION"]
        .as_u64()
        .expect("a version");
    CommConfigRow::of_version(u32::try_from(version).expect("a small number"))
        .expect("a version of the table")
}

fn is_layout(key: &str) -> bool {
    key.starts_with("sizeof(") || key.starts_with("alignof(") || key.contains('.')
}

/// What the bindings say of a layout in these headers: the config is as long as its row says, and
/// aligned for its longest field there.
fn layout(bindings: &Bindings, key: &str, row: CommConfigRow) -> Option<u64> {
    if key == "sizeof(HcclCommConfig)" {
        return u64::try_from(row.size()).ok();
    }
    if key == "alignof(HcclCommConfig)" {
        return Some(if row.has(CommConfigField::JobId) {
            8
        } else {
            4
        });
    }
    bindings.layouts.get(key).copied()
}

fn compare_section(
    section: &str,
    content: &serde_json::Map<String, Value>,
    headers: Headers,
    bindings: &Bindings,
    row: CommConfigRow,
    report: &mut impl FnMut(String),
) {
    let numbers = bindings.numbers.iter().find(|(name, _)| *name == section);
    for (key, value) in content {
        if is_layout(key) {
            let ours = layout(bindings, key, row);
            if ours != value.as_u64() {
                report(format!("{key} is {value}, the bindings have {ours:?}"));
            }
            continue;
        }
        let Some((_, ours)) = numbers else {
            report(format!("{section}: the bindings have no such section"));
            return;
        };
        let is_it = |named: &&Named| named.name == key && named.headers.contains(headers);
        let ours: Vec<i64> = ours.iter().filter(is_it).map(|named| named.value).collect();
        if value.as_i64().is_none_or(|value| ours != [value]) {
            report(format!("{key} is {value}, the bindings have {ours:?}"));
        }
    }
}

/// Names and fields that the bindings have for these headers, and the headers do not.
fn compare_absent(
    abi: &serde_json::Map<String, Value>,
    headers: Headers,
    bindings: &Bindings,
    row: CommConfigRow,
    report: &mut impl FnMut(String),
) {
    for (section, ours) in &bindings.numbers {
        for named in ours.iter().filter(|named| named.headers.contains(headers)) {
            if abi
                .get(*section)
                .and_then(|content| content.get(named.name))
                .is_none()
            {
                report(format!("{} is not in {section}", named.name));
            }
        }
    }
    let structs = &abi["hccl_structs"];
    for field in CommConfigField::ALL {
        let key = format!("HcclCommConfig.{field}");
        let there = structs.get(&key).is_some();
        if there != row.has(field) {
            report(format!(
                "{key}: in these headers {there}, in the table the opposite"
            ));
        }
        let (offset, size) = field.place();
        let ours = |key: &str| bindings.layouts.get(key).copied();
        let size_key = format!("sizeof({key})");
        if ours(&key) != u64::try_from(offset).ok() || ours(&size_key) != u64::try_from(size).ok() {
            report(format!(
                "{key}: its place in the table is not its place in the struct"
            ));
        }
    }
}

/// A fresh config holds every byte that `HcclCommConfigInit` of these headers writes.
fn compare_image(image: &Value, row: CommConfigRow, report: &mut impl FnMut(String)) {
    let config = HcclCommConfig::new(row);
    let bytes = config.as_bytes();
    let mut covered = 0;
    for run in image.as_array().expect("runs of bytes") {
        let offset = usize::try_from(run["offset"].as_u64().expect("an offset")).expect("small");
        let hex = run["hex"].as_str().expect("hex digits");
        let expected: Vec<u8> = (0..hex.len() / 2)
            .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("hex digits"))
            .collect();
        covered += expected.len();
        let ours = &bytes[offset..offset + expected.len()];
        if ours != expected {
            report(format!(
                "HcclCommConfigInit at {offset}: {expected:02x?}, a fresh config has {ours:02x?}"
            ));
        }
    }
    assert!(covered > 40, "only {covered} bytes were compared");
}

/// Arguments without names that say nothing to the linker: `const` of the argument itself.
fn argument(text: &str) -> (String, String) {
    let name_at = text
        .rfind(|c: char| !c.is_alphanumeric() && c != '_')
        .map_or(0, |at| at + 1);
    let (kind, name) = text.split_at(name_at);
    (plain(kind), name.to_owned())
}

/// The type with single spaces and without a `const` that only concerns the callee.
fn plain(kind: &str) -> String {
    let kind = kind.trim();
    let kind = kind.strip_suffix("const").unwrap_or(kind).trim();
    let kind = match kind.strip_prefix("const ") {
        Some(rest) if !kind.ends_with('*') => rest,
        _ => kind,
    };
    kind.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace("* *", "**")
}

fn compare_functions(facts: &Value, bindings: &Bindings, differences: &mut Vec<String>) {
    let functions = facts["functions"].as_object().expect("functions");
    let ours: BTreeSet<&str> = bindings.rows.iter().map(|row| row.name).collect();
    assert_eq!(
        ours.len(),
        bindings.rows.len(),
        "a function stands twice in the table"
    );
    for name in functions.keys().filter(|name| name.starts_with("Hccl")) {
        if !ours.contains(name.as_str()) {
            differences.push(format!("{name}: HCCL has it, the table does not"));
        }
    }
    for row in &bindings.rows {
        let Some(function) = functions.get(row.name) else {
            differences.push(format!("{}: no header declares it", row.name));
            continue;
        };
        let declared = function["declared_in"].as_object().expect("headers");
        for headers in Headers::ALL {
            if declared.contains_key(headers.key()) != row.headers.contains(headers) {
                differences.push(format!("{}: marked wrongly for {headers}", row.name));
                break;
            }
        }
        differences.extend(compare_prototype(row, function));
    }
}

fn compare_prototype(row: &Row, function: &Value) -> Option<String> {
    let prototype = row.prototype?;
    let theirs: Vec<(String, String)> = function["args"]
        .as_array()
        .expect("arguments")
        .iter()
        .map(|text| argument(text.as_str().expect("an argument")))
        .collect();
    let ours: Vec<(String, String)> = prototype
        .arguments
        .iter()
        .map(|(name, kind)| (c_type(kind), (*name).to_owned()))
        .collect();
    let result = plain(function["returns"].as_str().expect("a result"));
    if theirs == ours && result == c_type(prototype.returns) {
        return None;
    }
    let ours = row.c_prototype();
    Some(format!(
        "{}: {result} {theirs:?}, the table has {ours:?}",
        row.name
    ))
}

fn compare_history(facts: &Value, differences: &mut Vec<String>) {
    let history = facts["HcclCommConfig_history"].as_array().expect("rows");
    let theirs: Vec<(u64, u64)> = history
        .iter()
        .map(|row| {
            let number = |key: &str| row[key].as_u64().expect("a number");
            (number("version"), number("size"))
        })
        .collect();
    let ours: Vec<(u64, u64)> = CommConfigRow::ALL
        .iter()
        .map(|row| (u64::from(row.version()), row.size() as u64))
        .collect();
    for (theirs, ours) in theirs.iter().zip(&ours) {
        if theirs != ours {
            let (version, size) = theirs;
            differences.push(format!(
                "HcclCommConfig version {version} has {size} bytes, the table has {ours:?}"
            ));
        }
    }
    assert_eq!(theirs.len(), ours.len());
}

// The tables of both structs, so that a function cannot get lost between table and capabilities.
const _: () = {
    assert!(Hccl::ROWS.len() > 60);
    assert!(Acl::ROWS.len() > 120);
};
