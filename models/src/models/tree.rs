//! The exchange of a large group over a tree: who has heard from the root sees what all members published, and who differs from
//! somebody hears of it (SLOT-6).

use std::sync::Arc;

use loom::thread;

use super::slot::{peer, slots, until};
use crate::arena::Arena;
use crate::shm::slot::{Differs, Entry, PeerSlot, Slot};
use crate::shm::tree::Tree;

/// What all members say in a call, but for the one that makes another call.
fn entry(seq: u64, is_odd: bool) -> Entry {
    Entry {
        call: seq + u64::from(is_odd) * 100,
        payload_len: 8,
        ..Entry::default()
    }
}

/// What all members do.
#[derive(Clone, Copy, Debug)]
struct Program {
    tree: Tree,
    members: usize,
    calls: u64,
    /// Whether each call has a barrier behind the exchange.
    has_barrier: bool,
    /// A member that makes other calls.
    odd: Option<usize>,
    /// Whether members wait. Else they look once, and go no further where it is too early: three ranks that wait are too many orders.
    waits: bool,
}

impl Program {
    /// A member gives its entry and a payload.
    fn publish(&self, arena: &Arena, slot: &Slot, me: usize, seq: u64) -> Entry {
        let mine = entry(seq, self.odd == Some(me));
        arena.put(slot.payload(seq, mine.room), seq * 100 + me as u64);
        slot.publish(seq, &mine);
        mine
    }

    /// One member's part.
    fn run(&self, arena: &Arena, slot: &Slot, me: usize, peers: &[PeerSlot]) {
        let last = self.members - 1;
        let theirs = peers[last];
        for seq in 1..=self.calls {
            let mine = self.publish(arena, slot, me, seq);
            let Some(differs) = self.meet(arena, (slot, peers), (me, &mine), (seq, 0)) else {
                return;
            };
            assert_eq!(
                differs.has(Differs::CALL),
                self.odd.is_some(),
                "member {me}"
            );
            if me != last {
                // The one that is furthest from all others.
                assert_eq!(theirs.entry(arena, seq), entry(seq, self.odd == Some(last)));
                let payload = arena.take(theirs.payload(arena, seq, mine.room));
                assert_eq!(payload, seq * 100 + last as u64);
            }
            if self.has_barrier {
                slot.advance(seq, 1);
                self.meet(arena, (slot, peers), (me, &mine), (seq, 1));
                if me == last {
                    // All have read it.
                    arena.put(slot.payload(seq, mine.room), 0);
                }
            }
        }
    }

    fn meet(
        &self,
        arena: &Arena,
        (slot, peers): (&Slot, &[PeerSlot]),
        (me, mine): (usize, &Entry),
        (seq, tick): (u64, u32),
    ) -> Option<Differs> {
        let mut differs = Differs::default();
        for child in self.tree.children(me) {
            let theirs = peers[child];
            let part = || {
                let child = (child, &theirs);
                self.tree.part(child, arena, (seq, tick), mine)
            };
            differs = differs.and(self.look(part)?);
        }
        if !self.tree.is_leaf(me) {
            slot.gather(seq, tick, differs);
        }
        if me == 0 {
            return Some(differs);
        }
        self.look(|| peers[0].gathered(arena, seq, tick))
    }

    /// Looks for something, once or until it is there.
    fn look<T>(&self, mut at: impl FnMut() -> Option<T>) -> Option<T> {
        let mut found = at();
        if self.waits {
            until(|| {
                if found.is_none() {
                    found = at();
                }
                found.is_some()
            });
        }
        found
    }
}

/// A root and a leaf make calls with a barrier in each.
///
/// # Panics
/// Where one goes on before the other has come, or does not see what the leaf gave.
pub fn a_root_and_a_leaf_meet(calls: u64) {
    let program = Program {
        tree: Tree::with_radix(2, 2),
        members: 2,
        calls,
        has_barrier: true,
        odd: None,
        waits: true,
    };
    run(program, &[1]);
}

/// A root, a leaf below a member that is neither, and that one. The other child of the root has come before.
///
/// # Panics
/// Where the root goes on before the leaf has come, does not see what it gave, or does not hear that it differs.
pub fn the_root_sees_a_leaf_that_it_does_not_look_at(odd: Option<usize>) {
    let program = Program {
        tree: Tree::with_radix(4, 2),
        members: 4,
        calls: 1,
        has_barrier: false,
        odd,
        waits: false,
    };
    run(program, &[2, 3]);
}

/// Runs member 0 on this thread and these on others; the rest only gives its entries of the first call.
fn run(program: Program, threads: &[usize]) {
    let arena = Arc::new(Arena::new(program.members));
    let mut slots: Vec<Option<Slot>> = slots(&arena, program.members)
        .into_iter()
        .map(Some)
        .collect();
    for (me, slot) in slots.iter().enumerate().skip(1) {
        if let Some(slot) = slot.as_ref().filter(|_| !threads.contains(&me)) {
            program.publish(&arena, slot, me, 1);
        }
    }
    // Looking for them is another model.
    let peers: Vec<PeerSlot> = (0..program.members)
        .map(|local| peer(&arena, local))
        .collect();
    let mut running = Vec::new();
    for me in threads {
        let slot = slots[*me].take().expect("each runs once");
        let (arena, peers, me) = (Arc::clone(&arena), peers.clone(), *me);
        running.push(thread::spawn(move || {
            program.run(&arena, &slot, me, &peers);
            // Kept until all have ended: looking for it again is not part of this.
            slot
        }));
    }
    let root = slots[0].take().expect("the root is no thread");
    program.run(&arena, &root, 0, &peers);
    for thread in running {
        drop(thread.join().expect("the rank ends well"));
    }
}
