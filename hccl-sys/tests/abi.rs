//! The bindings agree with the vendor's headers, and this file would notice if they did not.
//!
//! `data/abi_facts.json` was printed by a program compiled against six sets of headers. Everything
//! in it is compared with everything in the bindings, in both directions where both are complete.

mod abi_support;

use abi_support::{Bindings, compare, facts};
use hccl_sys::headers::Headers;
use serde_json::{Value, json};

#[test]
fn bindings_and_headers_agree_in_every_version() {
    let differences = compare(&facts(), &Bindings::of_this_crate());
    assert!(differences.is_empty(), "{differences:#?}");
}

/// Changes one thing in the facts, and expects exactly this to be noticed.
fn altered(path: &[&str], value: Value, expected: &str) {
    let mut facts = facts();
    let mut place = &mut facts;
    for key in path {
        place = match key.parse::<usize>() {
            Ok(index) => place.get_mut(index),
            Err(_) => place.get_mut(*key),
        }
        .expect("a place of the facts");
    }
    assert_ne!(*place, value, "nothing would be changed at {path:?}");
    *place = value;
    let differences = compare(&facts, &Bindings::of_this_crate());
    assert!(
        differences.iter().any(|line| line.contains(expected)),
        "{path:?}: {differences:#?}"
    );
    assert!(differences.len() <= 2, "one change, but {differences:#?}");
}

#[test]
fn one_altered_offset_size_or_alignment_is_noticed_in_every_version() {
    for headers in Headers::ALL {
        let structs = |key| ["abi", headers.key(), "hccl_structs", key];
        let offset = "HcclCommConfig.hcclOpExpansionMode";
        altered(&structs(offset), json!(292), offset);
        altered(
            &structs("HcclSendRecvItem.remoteRank"),
            json!(24),
            "remoteRank",
        );
        let size = "sizeof(HcclCommConfig.hcclUdi)";
        altered(&structs(size), json!(127), "hcclUdi");
        altered(
            &structs("sizeof(HcclRootInfo)"),
            json!(4100),
            "HcclRootInfo",
        );
        let alignment = "alignof(HcclSendRecvItem)";
        altered(&structs(alignment), json!(4), alignment);
        let config = "sizeof(HcclCommConfig)";
        altered(&structs(config), json!(304), config);
    }
}

#[test]
fn one_altered_number_is_noticed_in_every_version() {
    for headers in Headers::ALL {
        let key = headers.key();
        let at = |section, name| ["abi", key, section, name];
        altered(&at("HcclResult", "HCCL_E_AGAIN"), json!(29), "HCCL_E_AGAIN");
        altered(
            &at("HcclResult", "HCCL_E_RESERVED"),
            json!(7),
            "HCCL_E_RESERVED",
        );
        altered(
            &at("HcclDataType", "HCCL_DATA_TYPE_BFP16"),
            json!(27),
            "BFP16",
        );
        altered(
            &at("acl_enums", "ACL_EVENT_RECORDED_STATUS_COMPLETE"),
            json!(0),
            "ACL_EVENT_RECORDED_STATUS_COMPLETE",
        );
        altered(
            &at("aclError", "ACL_ERROR_RT_STREAM_SYNC_TIMEOUT"),
            json!(507_047),
            "ACL_ERROR_RT_STREAM_SYNC_TIMEOUT",
        );
        altered(
            &at("hccl_constants", "HCCL_COMM_CONFIG_MAGIC_WORD"),
            json!(1),
            "MAGIC_WORD",
        );
    }
}

#[test]
fn one_altered_byte_of_a_fresh_config_is_noticed_in_every_version() {
    for headers in Headers::ALL {
        let key = headers.key();
        let image = [
            "abi",
            key,
            "HcclCommConfigInit_image_over_0xAA",
            "2",
            "offset",
        ];
        altered(&image, json!(284), "HcclCommConfigInit");
    }
}

#[test]
fn one_altered_argument_is_noticed() {
    let argument = |name, at| ["functions", name, "args", at];
    altered(
        &argument("HcclAllReduce", "2"),
        json!("uint32_t count"),
        "HcclAllReduce",
    );
    altered(
        &argument("HcclAlltoAllV", "1"),
        json!("const void *sdispls"),
        "HcclAlltoAllV",
    );
    // An event where a stream stands: both are void pointers in the end.
    altered(
        &argument("aclrtStreamWaitEvent", "0"),
        json!("aclrtEvent stream"),
        "aclrtStreamWaitEvent",
    );
    altered(
        &argument("aclrtMemcpy", "2"),
        json!("void *src"),
        "aclrtMemcpy",
    );
    altered(
        &["functions", "HcclReduce", "args"],
        json!(["void *sendBuf", "void *recvBuf"]),
        "HcclReduce",
    );
    altered(
        &["functions", "aclrtGetSocName", "returns"],
        json!("char *"),
        "aclrtGetSocName",
    );
    altered(
        &["functions", "HcclGroupStart", "declared_in"],
        json!({"head": "hccl/hccl_comm.h"}),
        "HcclGroupStart",
    );
}

#[test]
fn one_altered_row_of_the_config_history_is_noticed() {
    altered(
        &["HcclCommConfig_history", "7", "size"],
        json!(2100),
        "version 8",
    );
}
