//! A verdict that waits a moment: ranks that run and have not come tell first where in their program they
//! are.

use std::collections::BTreeSet;

use super::Arbiter;
use crate::error::ErrorKind;
use crate::error::verdict::{CallId, Class, Verdict};
use crate::rendezvous::Act;
use crate::types::Rank;
use crate::watch::stack;
use crate::watch::wire::{ToRank, encode};

/// How long ranks may take to tell. Those whose call is over wait a second for the verdict.
const PATIENCE_MS: u64 = 200;
/// Ranks that are asked.
const ASKED_MAX: usize = 2;

/// A verdict, and who has not answered.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) verdict: Verdict,
    /// The rank whose call it is about.
    asker: u32,
    open: BTreeSet<u32>,
    until_ms: u64,
}

impl Arbiter {
    /// Publishes the verdict on a call whose time was up, once the ranks that it blames have told where
    /// they are.
    pub(super) fn publish_with_stacks(
        &mut self,
        verdict: Verdict,
        call: CallId,
        asker: u32,
    ) -> Vec<Act> {
        let answers = |rank: &u32| {
            let member = self.scene.member(*rank);
            member.is_some_and(|member| member.fate.is_none() && member.silent_ms == 0)
        };
        let asked: BTreeSet<u32> = verdict.blamed.iter().copied().filter(answers).collect();
        // Where a rank is says nothing of one that has destroyed the group.
        let is_missed = matches!(verdict.kind, ErrorKind::Stalled { .. });
        let is_asked = verdict.class == Class::NotJoined && is_missed;
        if !is_asked || asked.is_empty() || asked.len() > ASKED_MAX {
            return self.publish(verdict, &[asker]);
        }
        let ask = encode(&ToRank::Stack { key: call.key });
        let acts = asked
            .iter()
            .map(|rank| Act::Tell(Rank(*rank), ask.clone()))
            .collect();
        self.held.push(Held {
            verdict,
            asker,
            open: asked,
            until_ms: self.seen_ms + PATIENCE_MS,
        });
        acts
    }

    /// A rank has told where it is.
    pub(super) fn told_where(&mut self, rank: u32, stack: &[String]) -> Vec<Act> {
        for held in &mut self.held {
            if held.open.remove(&rank) && !stack.is_empty() {
                held.verdict.evidence.push(stack::in_words(rank, stack));
            }
        }
        self.release()
    }

    /// Publishes what waits no longer.
    pub(super) fn release(&mut self) -> Vec<Act> {
        let now_ms = self.seen_ms;
        let has_read = self.unread_turns == 0;
        let is_over =
            |held: &mut Held| has_read && (held.open.is_empty() || held.until_ms <= now_ms);
        let over: Vec<Held> = self.held.extract_if(.., is_over).collect();
        over.into_iter()
            .flat_map(|held| self.publish(held.verdict, &[held.asker]))
            .collect()
    }
}
