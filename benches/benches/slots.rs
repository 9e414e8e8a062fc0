//! The exchange of entries that every call between ranks of one host begins with: what no call can be
//! faster than.
//!
//! Two threads take turns to publish an entry and to wait for that of the other, without deadlines, without
//! watching, without comparing. The payload rides in the entry.
#![expect(unsafe_code, reason = "payloads are written by address")]

use std::hint::spin_loop;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use muster_benches::crew;
use muster_comm::sync::Clock;
use muster_comm::transport::shm::arena::{Arena, HEAP_BYTES_MIN};
use muster_comm::transport::shm::heap::Heap;
use muster_comm::transport::shm::slot::{Entry, PAYLOAD_MAX, PayloadClass, PeerSlot, Slot};

/// Bytes of payload.
const SIZES: [usize; 4] = [0, 64, 4 << 10, PAYLOAD_MAX];
/// Key of the group.
const KEY: u64 = 7;

/// One side: publishes entry after entry, each once the other's entry before it was seen and read (`SLOT-1`).
fn exchange(arena: &Arena, mine: &Slot, theirs: PeerSlot, bytes: usize, calls: u64) {
    let mut taken = vec![0_u8; bytes];
    for seq in 1..=calls {
        let room = PayloadClass::for_bytes(bytes, false);
        // SAFETY: the payload is this side's until the entry is published, and has room for `bytes`.
        unsafe { mine.payload(seq, room).write_bytes(1, bytes) };
        let entry = Entry {
            payload_len: bytes as u64,
            room,
            ..Entry::default()
        };
        mine.publish(seq, &entry);
        while theirs.entered(arena, seq) != seq {
            spin_loop();
        }
        let payload = theirs.payload(arena, seq, room);
        // SAFETY: the entry was seen, so `bytes` of payload are there, and stay: the peer writes there again
        // only once it has seen this side's next entry. The target is a vector of that length.
        unsafe { taken.as_mut_ptr().copy_from_nonoverlapping(payload, bytes) };
    }
    assert!(
        taken.iter().all(|byte| *byte == 1),
        "payload of the last entry"
    );
}

/// How long this many exchanges take, slots made anew.
fn timed(bytes: usize, calls: u64) -> Duration {
    let arena = Arc::new(Arena::create(2, HEAP_BYTES_MIN).expect("there is shared memory"));
    let slots = [0, 1].map(|local| {
        let heap = Arc::new(Heap::new(Arc::clone(&arena), local));
        Slot::create(&heap, &arena, local, KEY, KEY, &[0, 1]).expect("room for a slot")
    });
    let found = |local: usize| PeerSlot::find(&arena, local, KEY);
    let peers = [0, 1].map(|local| found(local).expect("a sound directory").expect("the slot"));
    thread::scope(|scope| {
        let (arena, slots) = (&arena, &slots);
        scope.spawn(move || exchange(arena, &slots[1], peers[0], bytes, calls));
        // The first exchange waits until the other thread runs; the more calls, the less that counts.
        let began = Clock::now();
        exchange(arena, &slots[0], peers[1], bytes, calls);
        Clock::now().duration_since(began)
    })
}

fn slots(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("slots/n=2");
    for bytes in SIZES {
        group.bench_function(BenchmarkId::from_parameter(bytes), |bencher| {
            bencher.iter_custom(|calls| timed(bytes, calls));
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = crew::bounded();
    targets = slots
}
criterion_main!(benches);
