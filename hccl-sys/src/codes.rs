//! The five-figure codes in messages of the vendor: what they mean, and what to do.
//!
//! A message of `aclGetRecentErrMsg` or of a log looks like `[PID: 7] ... Title(EI0006): ...`. A
//! result code says which call failed; these codes say why.

/// A code of the vendor's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VendorCode {
    /// Such as `EI0006`.
    pub code: &'static str,
    /// The vendor's title, where one is known.
    pub title: Option<&'static str>,
    /// What happened, in one fragment.
    pub meaning: &'static str,
    /// What to do about it, in one fragment.
    pub remedy: &'static str,
}

macro_rules! codes {
    ($($code:literal $(($title:literal))?: $meaning:literal, $remedy:literal;)*) => {
        /// Every code that is known, in the order of the codes.
        pub const CODES: &[VendorCode] = &[
            $(VendorCode {
                code: $code,
                title: codes!(@title $($title)?),
                meaning: $meaning,
                remedy: $remedy,
            },)*
        ];
    };
    (@title) => { None };
    (@title $title:literal) => { Some($title) };
}

codes! {
    "EE1001": "an argument of a call of the runtime is wrong",
        "read the argument that the message names";
    "EE1002": "a stream did not finish within the given time",
        "find the rank that did not issue the operation; the work is still on the device";
    "EE9999": "inner error of the runtime",
        "look for an earlier message; else collect the plog files";
    "EH9999": "inner error of ACL",
        "look for an earlier message; else collect the plog files";
    "EI0001" ("Config_Error_Invalid_Environment_Variable"):
        "a variable of the environment is out of its range, or no network interface matches it",
        "the message names the variable and its range; `muster doctor` checks all of them";
    "EI0002" ("Communication_Error_Timeout"):
        "a device waited HCCL_EXEC_TIMEOUT for a peer that did not come",
        "blame the rank without this message, or the earliest one; compare operation, count and \
         type between ranks; if all agree, they are further apart in time than the timeout";
    "EI0003" ("Invalid_Argument_Collective_Communication_Operator"):
        "an argument of a call of HCCL is wrong: null, type, operation, count or config",
        "correct the call that the message names";
    "EI0004" ("File_Operation_Error_Parse"):
        "the rank table cannot be read, or is no JSON",
        "check the path and the file; `muster ranktable` validates it";
    "EI0005" ("Invalid_Argument"):
        "arguments of one operation differ between ranks",
        "the message shows both values; make all ranks issue the same call";
    "EI0006" ("Communication_Error_Get_Socket"):
        "the link to a peer was not made within HCCL_CONNECT_TIMEOUT",
        "see whether the peer reached this operation or died, whether its network is up, and \
         whether ports and TLS agree; raise the timeout only if ranks start far apart";
    "EI0007" ("Resource_Error"):
        "streams, notifies or queue pairs of the device are used up",
        "use fewer communicators, and destroy those that are done";
    "EI0008" ("Package_Error_Incorrect_HCCL_Version"):
        "the ranks run different versions of HCCL",
        "install the same CANN on all hosts";
    "EI0009" ("Communication_Error_Initialize_Transport"):
        "the network port of a device cannot be used",
        "check it with hccn_tool -i N -link -g, -ip -g and -ping -g";
    "EI0010" ("Communication_Error_P2P"):
        "devices of one server cannot reach each other's memory",
        "set HCCL_INTRA_ROCE_ENABLE=1";
    "EI0011" ("Resource_Error_Insufficient_Device_Memory"):
        "device memory for a communicator is used up",
        "lower HCCL_BUFFSIZE (each communicator takes twice as much) or use fewer communicators";
    "EI0012" ("Execution_Error_SDMA"):
        "a copy between devices of one server failed",
        "a peer died, a buffer was freed before the stream was done, or a link is broken";
    "EI0013" ("Execution_Error_ROCE_CQE"):
        "sending over the network was given up after all repetitions",
        "check the network, and whether the peer exited";
    "EI0014" ("Config_Error_Ranktable"):
        "a value in the rank table is wrong",
        "correct the value that the message names; `muster ranktable` validates the file";
    "EI0015" ("Communication_Error_Ranktable_Detect"):
        "some ranks did not come to the exchange with the root; the message names them",
        "start all ranks within HCCL_CONNECT_TIMEOUT; check HCCL_SOCKET_IFNAME and HCCL_IF_IP";
    "EI0016" ("Config_Error"):
        "a setting is wrong, or TLS is on for some ranks and off for others",
        "compare the settings of all ranks";
    "EI0017" ("Config_Error_Ranktable"):
        "a key is missing in the rank table",
        "add the key that the message names; `muster ranktable` validates the file";
    "EI0018" ("Execution_Error_UB_CQE"):
        "sending over the unified bus was given up after all repetitions",
        "check the links, and whether the peer exited";
    "EI0019" ("Communication_Error_Bind_IP_Port"):
        "a port of the host, 60000 and up, is taken",
        "set HCCL_IF_BASE_PORT or HCCL_HOST_SOCKET_PORT_RANGE to free ports, one range a job";
    "EI0020" ("Communication_Error_Bind_IP_Port"):
        "a port of the device, 16666 if nothing else is said, is taken",
        "set HCCL_NPU_SOCKET_PORT_RANGE on all ranks";
    "EJ0001": "the device's communication service did not start: an earlier process still holds \
         the device, or two ranks use one device",
        "end the earlier process and wait ten seconds; give each rank its own device";
    "EJ0002": "the network port of a device is down",
        "check the cable and hccn_tool -i N -link -g";
    "EJ0003": "an address and port cannot be bound: 98 says in use, 99 no such address",
        "set HCCL_IF_BASE_PORT, HCCL_HOST_SOCKET_PORT_RANGE or HCCL_NPU_SOCKET_PORT_RANGE to free \
         ports; check HCCL_IF_IP";
    "EJ0004": "the address of a device's network port is wrong",
        "check /etc/hccn.conf";
    "EL0004": "memory could not be had",
        "see what else uses the device's memory";
    "EZ9999": "an operator failed inside",
        "look for an earlier message; else collect the plog files";
}

/// The known codes in a text, each once, in the order in which they first occur.
///
/// A code counts only where it stands alone: `XEI0001` and `EI00012` are none.
#[must_use]
pub fn find(text: &str) -> Vec<&'static VendorCode> {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric();
    let bytes = text.as_bytes();
    let mut places: Vec<(usize, &'static VendorCode)> = Vec::new();
    for known in CODES {
        let alone = |at: &usize| {
            let before = at.checked_sub(1).and_then(|at| bytes.get(at));
            let after = bytes.get(at + known.code.len());
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        };
        let first = text.match_indices(known.code).map(|(at, _)| at).find(alone);
        places.extend(first.map(|at| (at, known)));
    }
    places.sort_by_key(|(at, _)| *at);
    places.into_iter().map(|(_, known)| known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_found_once_each_in_the_order_of_the_text_and_only_alone() {
        let text = "[PID: 7] T(EI0006): no link\nEI00012 XEI0001 EI0002, EI0006 again EJ0003";
        let codes: Vec<&str> = find(text).iter().map(|known| known.code).collect();
        assert_eq!(codes, ["EI0006", "EI0002", "EJ0003"]);
        assert!(find("").is_empty());
        assert!(find("all fine").is_empty());
    }

    #[test]
    fn every_code_is_listed_once_in_order_and_says_what_to_do() {
        assert!(CODES.windows(2).all(|pair| pair[0].code < pair[1].code));
        for known in CODES {
            assert_eq!(known.code.len(), 6, "{known:?}");
            assert!(!known.meaning.is_empty() && !known.remedy.is_empty());
            assert_eq!(find(known.code), [known]);
        }
        assert!(find("EI9998").is_empty());
    }
}
