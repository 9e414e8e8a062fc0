//! Strangers: who is let in, who is turned away, and how that is counted.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

use super::conn::{Proving, Seals, Stage};
use super::engine::Engine;
use super::goodbye::Ended;
use super::{CoordinatorEvent, Refusal};
use crate::rendezvous::limits::{REFUSAL_ADDRESSES_MAX, REFUSAL_EVENT_EVERY};
use crate::rendezvous::secret::{PROOF_BYTES, Transcript, random_bytes};
use crate::rendezvous::wire::{Admission, Opening, encode_challenge, plain_frame};
use crate::sync::{AtomicU64, Clock, Ordering};

/// When the owner was last told about refusals of an address, and how many came since.
#[derive(Debug, Default)]
pub(super) struct Notices {
    addresses: HashMap<IpAddr, Notice>,
}

#[derive(Debug)]
struct Notice {
    told: Instant,
    since: u64,
}

impl Notices {
    /// Notes one refusal; says how many there were if the owner is to be told now.
    fn note(&mut self, address: IpAddr, now: Instant) -> Option<u64> {
        if let Some(notice) = self.addresses.get_mut(&address) {
            notice.since += 1;
            if now.duration_since(notice.told) < REFUSAL_EVENT_EVERY {
                return None;
            }
            notice.told = now;
            return Some(std::mem::take(&mut notice.since));
        }
        if self.addresses.len() == REFUSAL_ADDRESSES_MAX {
            self.addresses.clear();
        }
        self.addresses.insert(
            address,
            Notice {
                told: now,
                since: 0,
            },
        );
        Some(1)
    }
}

impl Engine {
    /// The joiner's first frame: answered with a challenge, whatever job it names.
    pub(super) fn opening(&mut self, token: u64, body: &[u8]) {
        let (Some(opening), Ok(nonce)) = (Opening::decode(body), random_bytes()) else {
            self.malformed(token, "no opening");
            return;
        };
        let Some(conn) = self.conns.get_mut(&token) else {
            return;
        };
        conn.stage = Stage::Proving(Box::new(Proving {
            transcript: Transcript::new(&self.secret, body, &nonce),
            attempt: opening.attempt,
            job_id: opening.job_id,
        }));
        conn.queue_plain(plain_frame(&encode_challenge(&nonce)));
        self.silent.remove(&token);
        self.unproved.insert(token);
        self.flush(token);
    }

    /// The joiner's second frame: its proof, which covers the job and the attempt it named.
    pub(super) fn proof(&mut self, token: u64, body: &[u8], proving: &Proving) {
        let shown: Option<[u8; PROOF_BYTES]> = body.try_into().ok();
        let is_proved = shown.is_some_and(|shown| proving.transcript.joiner_is_proved(&shown));
        let why = if proving.job_id != self.membership.job.job_id {
            Refusal::OtherJob
        } else if proving.attempt != self.membership.job.attempt {
            Refusal::OtherAttempt
        } else if !is_proved {
            Refusal::WrongSecret
        } else {
            self.let_in(token, proving);
            return;
        };
        self.refuse(token, why);
        if let Some(conn) = self.conns.get_mut(&token) {
            let refusal = Admission::Refused {
                attempt: self.membership.job.attempt,
                job_id: self.membership.job.job_id.clone(),
            };
            conn.queue_plain(plain_frame(&refusal.encode()));
            self.drain(token);
        }
    }

    fn let_in(&mut self, token: u64, proving: &Proving) {
        let Some(conn) = self.conns.get_mut(&token) else {
            return;
        };
        let proof = Admission::Welcome(proving.transcript.coordinator_proof().into());
        conn.queue_plain(plain_frame(&proof.encode()));
        conn.let_in(Seals {
            read: proving.transcript.joiner_seal(),
            write: proving.transcript.coordinator_seal(),
        });
        self.unproved.remove(&token);
        self.flush(token);
    }

    /// Drops the stranger that has been here longest; silent ones first. Says whether there was
    /// one.
    pub(super) fn evict_oldest(&mut self) -> bool {
        let Some(token) = self
            .silent
            .pop_first()
            .or_else(|| self.unproved.pop_first())
        else {
            return false;
        };
        self.refuse(token, Refusal::Crowded);
        self.end(token, Ended::Quietly);
        true
    }

    /// A connection whose time is up.
    pub(super) fn too_slow(&mut self, token: u64) {
        let is_drained = self
            .conns
            .get(&token)
            .is_some_and(|conn| matches!(conn.stage, Stage::Draining));
        if !is_drained {
            self.refuse(token, Refusal::Slow);
        }
        self.end(token, Ended::Quietly);
    }

    /// Counts a refusal, and tells the owner now and then.
    pub(super) fn refuse(&mut self, token: u64, why: Refusal) {
        self.count(self.io.counters.of(why));
        let Some(address) = self.conns.get(&token).map(|conn| conn.address) else {
            return;
        };
        if let Some(count) = self.notices.note(address, Clock::now()) {
            self.emit(CoordinatorEvent::Refused {
                address,
                why,
                count,
            });
        }
    }

    pub(super) fn count(&self, counter: &AtomicU64) {
        // Relaxed: a statistic that orders nothing.
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
