//! What calls straight between buffers take of memory.

use crate::sync::{AtomicU64, Ordering};
use crate::types::ReduceOp;
use crate::world::World;

/// Nothing but the buffers takes memory: nothing went through staging.
#[test]
fn calls_over_region_memory_stage_nothing() {
    const COUNT: usize = 1 << 20;
    let most = AtomicU64::new(0);
    World::threads(2, |world| {
        let comm = world.everyone().unwrap();
        let mut buffer = world.alloc::<f32>(COUNT).unwrap();
        buffer.fill(1.5);
        for _ in 0..3 {
            comm.all_reduce_in_place(&mut buffer, ReduceOp::Max)
                .unwrap();
        }
        let (first, rest) = buffer.split_at_mut(COUNT / 4);
        comm.all_gather(first, &mut rest[..COUNT / 2]).unwrap();
        comm.all_to_all(first, &mut rest[..COUNT / 4]).unwrap();
        comm.broadcast(&mut buffer, 1).unwrap();
        most.fetch_max(committed(comm.context()), Ordering::Relaxed);
    })
    .unwrap();
    let buffers = 2 * (COUNT * size_of::<f32>()) as u64;
    let most = most.into_inner();
    assert!(
        most >= buffers && most < buffers + (1 << 20),
        "{most} bytes"
    );
}

/// Bytes of the island's memory in use.
fn committed(context: &crate::context::Context) -> u64 {
    let island = context.island.as_ref().unwrap();
    let stat = rustix::fs::fstat(island.arena.file()).unwrap();
    u64::try_from(stat.st_blocks).unwrap() * 512
}

#[test]
fn memory_does_not_grow_with_the_number_of_calls_and_groups() {
    World::threads(3, |world| {
        let everyone = world.everyone().unwrap();
        let mut small = [1_u32; 4];
        let mut ordinary = vec![1_u8; 100_000];
        let mut placed = world.alloc::<u8>(100_000).unwrap();
        let mut calls = |rounds: usize| {
            for round in 0..rounds {
                everyone
                    .all_reduce_in_place(&mut small, ReduceOp::Max)
                    .unwrap();
                if round % 16 == 0 {
                    let group = world.group("short", everyone.members()).unwrap();
                    group
                        .all_reduce_in_place(&mut ordinary, ReduceOp::Max)
                        .unwrap();
                    group
                        .all_reduce_in_place(&mut placed, ReduceOp::Max)
                        .unwrap();
                    drop(world.alloc::<u64>(10_000 + round).unwrap());
                    everyone.barrier().unwrap();
                }
            }
            // Nobody makes or frees anything while the others look.
            everyone.barrier().unwrap();
            let bytes = committed(everyone.context());
            everyone.barrier().unwrap();
            bytes
        };
        let before = calls(320);
        let after = calls(6_400);
        // Groups that are made while the last one's memory is still read lie further up.
        assert!(after <= before + (1 << 20), "{before} bytes, then {after}");
    })
    .unwrap();
}

#[test]
fn sixteen_idle_ranks_take_few_pages() {
    let most = AtomicU64::new(0);
    World::threads(16, |world| {
        let comm = world.everyone().unwrap();
        comm.barrier().unwrap();
        most.fetch_max(committed(comm.context()), Ordering::Relaxed);
        comm.barrier().unwrap();
    })
    .unwrap();
    // For each rank its slot's headers, its directory's page, and nothing of the staging.
    assert!(most.into_inner() <= 16 * (64 << 10));
}
