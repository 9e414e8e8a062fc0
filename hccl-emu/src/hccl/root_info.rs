//! What stands in the 4108 bytes of `HcclRootInfo`: where the root is, and the secret of the
//! communicator that it is for.
//!
//! The bytes are opaque to clients, which carry them to the other ranks as they are.

use std::net::{IpAddr, SocketAddr};

use hccl_sys::types::HCCL_ROOT_INFO_BYTES;
use muster_comm::rendezvous::Secret;

/// Says that the bytes are the emulator's, in a way that a person sees in a dump.
const MAGIC: &[u8; 16] = b"muster-emulated\0";
/// Changes with the layout.
const VERSION: u32 = 1;
/// Bytes of the address as text, and of the identifier, as the vendor has them.
const ADDRESS_BYTES: usize = 64;
pub(crate) const IDENTIFIER_BYTES: usize = 128;
const SECRET_BYTES: usize = 32;

const AT_VERSION: usize = MAGIC.len();
const AT_PORT: usize = AT_VERSION + 4;
const AT_ADDRESS: usize = AT_PORT + 4;
const AT_IDENTIFIER: usize = AT_ADDRESS + ADDRESS_BYTES;
const AT_SECRET: usize = AT_IDENTIFIER + IDENTIFIER_BYTES;
const AT_CHECK: usize = AT_SECRET + SECRET_BYTES;
const USED: usize = AT_CHECK + SECRET_BYTES;
const _: () = assert!(USED <= HCCL_ROOT_INFO_BYTES);

/// What a root tells the other ranks.
#[derive(Clone, Debug)]
pub(crate) struct RootInfo {
    pub(crate) address: SocketAddr,
    /// Name of the communicator unless it is given one.
    pub(crate) identifier: String,
    pub(crate) secret: Secret,
}

impl RootInfo {
    pub(crate) fn encode(&self) -> [u8; HCCL_ROOT_INFO_BYTES] {
        let mut bytes = [0; HCCL_ROOT_INFO_BYTES];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, MAGIC);
        put(AT_VERSION, &VERSION.to_le_bytes());
        put(AT_PORT, &u32::from(self.address.port()).to_le_bytes());
        put(AT_ADDRESS, self.address.ip().to_string().as_bytes());
        let name = self.identifier.as_bytes();
        put(AT_IDENTIFIER, &name[..name.len().min(IDENTIFIER_BYTES - 1)]);
        put(AT_SECRET, self.secret.expose());
        let check = check(&bytes);
        bytes[AT_CHECK..USED].copy_from_slice(&check);
        bytes
    }

    /// What these bytes say; in words what is wrong with them otherwise.
    pub(crate) fn decode(bytes: &[u8; HCCL_ROOT_INFO_BYTES]) -> Result<Self, &'static str> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Err("is empty: it was never filled, or never arrived");
        }
        if &bytes[..MAGIC.len()] != MAGIC {
            return Err("was not made by HcclGetRootInfo of the emulator");
        }
        if word(bytes, AT_VERSION) != VERSION {
            return Err("was made by another version of the emulator");
        }
        if bytes[AT_CHECK..USED] != check(bytes) {
            return Err("was changed on its way");
        }
        let ip: Option<IpAddr> = text(&bytes[AT_ADDRESS..AT_IDENTIFIER]).parse().ok();
        let port = u16::try_from(word(bytes, AT_PORT)).ok();
        let (Some(ip), Some(port)) = (ip, port) else {
            return Err("has no address");
        };
        let mut secret = [0; SECRET_BYTES];
        secret.copy_from_slice(&bytes[AT_SECRET..AT_CHECK]);
        Ok(Self {
            address: SocketAddr::new(ip, port),
            identifier: text(&bytes[AT_IDENTIFIER..AT_SECRET]),
            secret: Secret::from_bytes(secret),
        })
    }
}

/// Not against people, but against bytes that were cut off or overwritten.
fn check(bytes: &[u8; HCCL_ROOT_INFO_BYTES]) -> [u8; SECRET_BYTES] {
    blake3::derive_key("muster 2026 emulated root info v1", &bytes[..AT_CHECK])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&field[..end.unwrap_or(field.len())]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> RootInfo {
        RootInfo {
            address: "[::1]:60005".parse().unwrap(),
            identifier: "127.0.0.1%lo_60000_0_1700000000000000".to_owned(),
            secret: Secret::from_bytes([9; 32]),
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let read = RootInfo::decode(&info().encode()).unwrap();
        assert_eq!(read.address, info().address);
        assert_eq!(read.identifier, info().identifier);
        assert_eq!(read.secret.expose(), info().secret.expose());
    }

    #[test]
    fn bytes_that_no_root_wrote_are_told_apart() {
        let bytes = info().encode();
        let mut changed = bytes;
        changed[AT_IDENTIFIER] ^= 1;
        let mut cut = bytes;
        cut[AT_SECRET..].fill(0);
        let mut newer = bytes;
        newer[AT_VERSION] = 2;
        for (bytes, what) in [
            ([0; HCCL_ROOT_INFO_BYTES], "is empty"),
            ([7; HCCL_ROOT_INFO_BYTES], "was not made"),
            (newer, "another version"),
            (changed, "was changed"),
            (cut, "was changed"),
        ] {
            let error = RootInfo::decode(&bytes).unwrap_err();
            assert!(error.contains(what), "{error}");
        }
    }
}
