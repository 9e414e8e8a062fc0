//! Since when the fault keeps somebody waiting.

use std::collections::BTreeSet;

use super::rank::{Life, Player, Pressed, circle};
use super::scenario::{Fault, Seat};
use super::sim_world::Stage;
use crate::error::ErrorKind;

impl Stage<'_> {
    /// Notes since when the fault keeps somebody waiting.
    pub(super) fn press(&mut self) {
        let (plan, culprit) = (self.plan, self.plan.culprit);
        if plan.fault == Fault::Inverted {
            return self.press_circle();
        }
        if plan.fault.is_harmless() || self.pressed.is_some() {
            return;
        }
        // A rank that serves and is stopped keeps others waiting too.
        let serves = |player: &Player| plan.seat == Seat::Rank(player.rank) && player.is_stopped;
        self.is_excused |= self.players.iter().any(serves);
        // With a rank that serves ends the world.
        self.is_excused |= self.desk_is_gone && plan.seat == Seat::Rank(culprit);
        let waits_for = |by: usize, whom: usize, is_strict: bool| {
            let player = &self.players[by];
            let is_up = player.life == Life::Working && player.runs();
            player.call.as_ref().is_some_and(|call| {
                is_up
                    && call.ending.is_none()
                    && plan.groups[call.group].contains(&whom)
                    && player.seen[call.group][whom] < call.seq
                    && (!is_strict || self.players[whom].entered[call.group] < call.seq)
            })
        };
        let others = || (0..plan.ranks).filter(|rank| *rank != culprit);
        let is_pressed = match plan.fault {
            Fault::Mismatched => others().any(|rank| {
                let call = self.players[rank].call.as_ref();
                call.and_then(|call| call.ending.as_ref())
                    .is_some_and(|end| matches!(end.kind, ErrorKind::Mismatch { .. }))
            }),
            Fault::Cut => {
                let is_missed = |(by, group, seq): &(usize, usize, u64)| {
                    let call = self.players[*by].call.as_ref();
                    call.is_some_and(|call| (call.group, call.seq) == (*group, *seq))
                };
                self.lost.iter().any(is_missed)
            }
            Fault::Destroyed => others().any(|by| {
                let group = self.players[by].call.as_ref().map(|call| call.group);
                let gone = &self.players[culprit].destroyed;
                group.is_some_and(|group| gone.contains_key(&group)) && waits_for(by, culprit, true)
            }),
            _ => {
                let is_out = self.has_struck && self.is_out(culprit);
                // What it sent last may be on its way, and nobody waits for the dead.
                self.is_excused |= is_out && others().any(|by| waits_for(by, culprit, false));
                is_out && others().any(|by| waits_for(by, culprit, true))
            }
        };
        if is_pressed {
            self.pressed = Some(Pressed {
                since_us: self.now_us,
                circle: BTreeSet::new(),
            });
        }
    }

    /// A circle of waits keeps its ranks waiting from the moment on when the last of them has come to it.
    fn press_circle(&mut self) {
        if self.circle.is_some() {
            // Its verdict is told.
            return;
        }
        let ranks = circle(&self.players, self.plan);
        let before = self.pressed.as_ref().map(|pressed| &pressed.circle);
        if ranks.contains(&self.plan.culprit) && before != Some(&ranks) {
            self.pressed = Some(Pressed {
                since_us: self.now_us,
                circle: ranks,
            });
        }
    }

    fn is_out(&self, rank: usize) -> bool {
        let player = &self.players[rank];
        player.is_stopped || matches!(player.life, Life::Busy | Life::Dead | Life::Left)
    }
}
