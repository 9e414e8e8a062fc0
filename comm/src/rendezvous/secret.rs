//! The job secret, the two proofs of the handshake, and the seal on every later frame.
//!
//! Knows keys and bytes; no sockets, no messages.
//!
//! - `PROOF-1`: both sides contribute a fresh 32-byte nonce, and both proofs cover both nonces and
//!   everything else said before, so a recorded handshake proves nothing in another one.
//! - `PROOF-2`: the two directions use different labels, so a proof cannot be sent back.
//! - `PROOF-3`: the secret itself never leaves this file except by [`Secret::expose`].
//! - `SEAL-1`: a frame's tag covers its place in its direction, so a frame that was changed,
//!   repeated, dropped or reordered on the way ends the connection.

use std::fmt;

/// Bytes of a nonce.
pub(super) const NONCE_BYTES: usize = 32;
/// Bytes of a proof.
pub(super) const PROOF_BYTES: usize = 32;
/// Bytes of a frame's tag: half a MAC is beyond forging and keeps small frames small.
pub(super) const TAG_BYTES: usize = 16;

/// What every rank of one job knows and nobody else: 256 bits from the system's generator.
///
/// It travels from the launcher to the ranks by an inherited descriptor or a file that only its
/// owner can read, never by arguments, reports or the network.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl Secret {
    /// A fresh secret.
    ///
    /// # Errors
    /// If the system's generator gives nothing.
    pub fn random() -> Result<Self, std::io::Error> {
        Ok(Self(random_bytes()?))
    }

    /// The secret with these bytes, as [`Self::expose`] gave them.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A secret derived from what a user put into a file. As strong as what it is made of.
    #[must_use]
    pub fn from_text(text: &[u8]) -> Self {
        Self(blake3::derive_key("muster 1 job secret from text", text))
    }

    /// The bytes themselves, for handing them to a rank over an inherited descriptor.
    #[must_use]
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// 32 bytes from the system's generator.
pub(super) fn random_bytes() -> Result<[u8; NONCE_BYTES], std::io::Error> {
    let mut bytes = [0; NONCE_BYTES];
    let mut filled = 0;
    while filled < bytes.len() {
        let more =
            rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
        filled += more;
    }
    Ok(bytes)
}

/// The handshake as both sides saw it: the opening and the two nonces, under the secret.
pub(super) struct Transcript {
    digest: [u8; 32],
    key: [u8; 32],
}

impl Transcript {
    /// The transcript of `opening` (the joiner's whole first frame, nonce included) answered by
    /// `challenge` (the coordinator's nonce).
    pub(super) fn new(secret: &Secret, opening: &[u8], challenge: &[u8; NONCE_BYTES]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("muster 1 control handshake transcript");
        hasher.update(&(opening.len() as u64).to_le_bytes());
        hasher.update(opening);
        hasher.update(challenge);
        Self {
            digest: hasher.finalize().into(),
            key: blake3::derive_key("muster 1 control handshake key", &secret.0),
        }
    }

    /// What the joiner shows to prove that it knows the secret.
    pub(super) fn joiner_proof(&self) -> blake3::Hash {
        self.keyed(b"joiner proof")
    }

    /// What the coordinator shows.
    pub(super) fn coordinator_proof(&self) -> blake3::Hash {
        self.keyed(b"coordinator proof")
    }

    /// Whether `shown` is the joiner's proof; compared in constant time.
    pub(super) fn joiner_is_proved(&self, shown: &[u8; PROOF_BYTES]) -> bool {
        self.joiner_proof() == blake3::Hash::from_bytes(*shown)
    }

    /// Whether `shown` is the coordinator's proof; compared in constant time.
    pub(super) fn coordinator_is_proved(&self, shown: &[u8; PROOF_BYTES]) -> bool {
        self.coordinator_proof() == blake3::Hash::from_bytes(*shown)
    }

    /// The seal of frames from the joiner to the coordinator.
    pub(super) fn joiner_seal(&self) -> Seal {
        Seal::new(self.keyed(b"joiner frames").into())
    }

    /// The seal of frames from the coordinator to the joiner.
    pub(super) fn coordinator_seal(&self) -> Seal {
        Seal::new(self.keyed(b"coordinator frames").into())
    }

    fn keyed(&self, label: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&self.digest);
        hasher.update(label);
        hasher.finalize()
    }
}

/// Tags for the frames of one direction of one connection, in order.
pub(super) struct Seal {
    key: [u8; 32],
    frames: u64,
}

impl Seal {
    fn new(key: [u8; 32]) -> Self {
        Self { key, frames: 0 }
    }

    /// The tag of the next frame, given the digest of its body. The digest of a body that goes to
    /// many ranks is made once.
    pub(super) fn next(&mut self, body: &[u8; 32]) -> [u8; TAG_BYTES] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&self.frames.to_le_bytes());
        hasher.update(body);
        self.frames += 1;
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&hasher.finalize().as_bytes()[..TAG_BYTES]);
        tag
    }

    /// Whether `tag` is the tag of the next frame of this direction, whose body is `body`.
    pub(super) fn admits(&mut self, body: &[u8], tag: &[u8; TAG_BYTES]) -> bool {
        let expected = self.next(blake3::hash(body).as_bytes());
        // Accumulated without an early exit: the time taken says nothing about where they differ.
        expected
            .iter()
            .zip(tag)
            .fold(0, |sum, (a, b)| sum | (a ^ b))
            == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_its_own_handshake_and_direction_only() {
        let secret = Secret::from_bytes([7; 32]);
        let one = Transcript::new(&secret, b"opening", &[1; 32]);
        let proof = *one.joiner_proof().as_bytes();
        assert!(one.joiner_is_proved(&proof));
        assert!(!one.coordinator_is_proved(&proof), "PROOF-2");
        let other_nonce = Transcript::new(&secret, b"opening", &[2; 32]);
        assert!(!other_nonce.joiner_is_proved(&proof), "PROOF-1");
        let other_opening = Transcript::new(&secret, b"openinG", &[1; 32]);
        assert!(!other_opening.joiner_is_proved(&proof), "PROOF-1");
        let other_secret = Transcript::new(&Secret::from_bytes([8; 32]), b"opening", &[1; 32]);
        assert!(!other_secret.joiner_is_proved(&proof));
    }

    #[test]
    fn a_frame_is_admitted_once_and_in_its_place_only() {
        let transcript = Transcript::new(&Secret::from_bytes([7; 32]), b"opening", &[1; 32]);
        let mut sender = transcript.joiner_seal();
        let first = sender.next(blake3::hash(b"first").as_bytes());
        let second = sender.next(blake3::hash(b"second").as_bytes());
        assert!(transcript.joiner_seal().admits(b"first", &first));
        assert!(
            !transcript.joiner_seal().admits(b"First", &first),
            "changed"
        );
        assert!(
            !transcript.joiner_seal().admits(b"second", &second),
            "out of order"
        );
        assert!(
            !transcript.coordinator_seal().admits(b"first", &first),
            "sent back"
        );
        let mut receiver = transcript.joiner_seal();
        assert!(receiver.admits(b"first", &first));
        assert!(!receiver.admits(b"first", &first), "repeated");
    }

    #[test]
    fn a_secret_does_not_show_itself() {
        let secret = Secret::from_bytes([0xAB; 32]);
        let shown = format!("{secret:?}").to_lowercase();
        assert!(!shown.contains("ab") && !shown.contains("171"), "{shown}");
    }
}
