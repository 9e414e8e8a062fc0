//! Telling a verdict to everybody, and remembering whose doing it makes of what comes later.

use std::collections::BTreeSet;

use super::Arbiter;
use crate::rendezvous::Act;
use crate::watch::verdict::Verdict;
use crate::watch::wire::{ToOwner, ToRank, encode};

/// After a mismatch that leaves the group usable ranks may go on. One that ends this soon did not.
const FOLLOWS_MS: u64 = 2000;
/// Verdicts that are remembered. A world that has this many has long ended.
const TOLD_MAX: usize = 256;

/// A verdict that everybody has.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) verdict: Verdict,
    /// Ranks that share its fate: what they do later is its doing.
    victims: BTreeSet<u32>,
    /// Until when; for ever where the group has ended.
    until_ms: u64,
}

impl Told {
    /// Whether a verdict tells what this one has led to.
    fn has_led_to(&self, later: &Verdict, now_ms: u64) -> bool {
        let is_victim = |rank: &u32| self.victims.contains(rank);
        self.until_ms >= now_ms && !later.blamed.is_empty() && later.blamed.iter().all(is_victim)
    }

    /// Takes up what it has led to.
    fn add(&mut self, later: &Verdict, victims: BTreeSet<u32>) {
        let ends = &mut self.verdict.ends;
        ends.extend(&later.ends);
        ends.sort_unstable();
        ends.dedup();
        let cascade = format!("{}: {}", later.what, later.place);
        self.verdict.cascades.push(cascade);
        self.victims.extend(victims);
    }
}

impl Arbiter {
    /// Tells everybody; what follows from an earlier verdict is told as that one (ARBITER-1).
    pub(super) fn publish(&mut self, verdict: Verdict) -> Vec<Act> {
        let now_ms = self.seen_ms;
        let victims = self.victims_of(&verdict);
        let led = |told: &&mut Told| verdict.about.is_none() && told.has_led_to(&verdict, now_ms);
        let first = self.told.iter_mut().find(led);
        let verdict = if let Some(first) = first {
            first.add(&verdict, victims);
            first.verdict.clone()
        } else {
            if self.told.len() < TOLD_MAX {
                let until_ms = match verdict.about {
                    Some(_) => now_ms + FOLLOWS_MS,
                    None => u64::MAX,
                };
                self.told.push(Told {
                    verdict: verdict.clone(),
                    victims,
                    until_ms,
                });
            }
            verdict
        };
        vec![
            Act::TellAll(encode(&ToRank::Verdict(Box::new(verdict.clone())))),
            Act::Report(encode(&ToOwner::Verdict(Box::new(verdict)))),
        ]
    }

    /// Who waits in the calls that a verdict ends, who is blamed, and who calls on a group that has ended: such
    /// a rank gets the verdict, and may go because of it.
    fn victims_of(&self, verdict: &Verdict) -> BTreeSet<u32> {
        let ended = verdict.ends.iter().map(|end| Some(*end));
        let groups = ended.chain([verdict.about]);
        self.scene
            .waiting_in(&verdict.ends)
            .chain(groups.flat_map(|call| self.scene.members_of(call)))
            .chain(verdict.blamed.iter().copied())
            .collect()
    }
}
