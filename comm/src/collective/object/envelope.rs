//! The envelope of an object: a mark, a version, the codec and the length.

use postcard::take_from_bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

const MARK: [u8; 2] = *b"mo";
const VERSION: u8 = 1;
/// What serde encodes.
const CODEC_POSTCARD: u8 = 1;
/// Parts that the caller has encoded; see `parts`.
pub(super) const CODEC_PARTS: u8 = 2;
pub(super) const HEADER_BYTES: usize = MARK.len() + 2 + size_of::<u64>();

/// These bytes and the envelope of an object behind them.
pub(super) fn append<T: Serialize>(mut bytes: Vec<u8>, object: &T) -> Result<Vec<u8>, String> {
    begin(&mut bytes, CODEC_POSTCARD, 0);
    let body_at = bytes.len();
    let mut bytes = postcard::to_extend(object, bytes).map_err(|error| error.to_string())?;
    let len = bytes.len() - body_at;
    bytes[body_at - size_of::<u64>()..body_at].copy_from_slice(&(len as u64).to_le_bytes());
    Ok(bytes)
}

/// The header of a body of `len` bytes.
pub(super) fn begin(bytes: &mut Vec<u8>, codec: u8, len: usize) {
    bytes.extend(MARK);
    bytes.extend([VERSION, codec]);
    bytes.extend((len as u64).to_le_bytes());
}

/// The object in an envelope.
pub(super) fn decode<T: DeserializeOwned>(envelope: &[u8]) -> Result<T, String> {
    let (object, rest) =
        take_from_bytes(open(envelope, CODEC_POSTCARD)?).map_err(|error| error.to_string())?;
    match rest.len() {
        0 => Ok(object),
        left => Err(format!("{left} bytes are left over: another type was sent")),
    }
}

/// The body of an envelope.
pub(super) fn open(envelope: &[u8], codec: u8) -> Result<&[u8], String> {
    let Some((header, body)) = envelope.split_at_checked(HEADER_BYTES) else {
        return Err(format!(
            "{} bytes, an envelope has at least {HEADER_BYTES}",
            envelope.len()
        ));
    };
    if header[..2] != MARK {
        return Err("it does not begin as an object".to_owned());
    }
    if header[2..4] != [VERSION, codec] {
        return Err(format!(
            "version {} codec {}, wanted is version {VERSION} codec {codec}",
            header[2], header[3]
        ));
    }
    let len = header[4..]
        .iter()
        .rev()
        .fold(0_u64, |len, byte| len << 8 | u64::from(*byte));
    if len != body.len() as u64 {
        return Err(format!("it says {len} bytes and has {}", body.len()));
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arbitrary_bytes_are_refused_or_opened_and_never_panic(bytes: Vec<u8>) {
            let opened = open(&bytes, CODEC_POSTCARD);
            prop_assert!(opened.is_err() || bytes.starts_with(&MARK));
        }
    }
}
