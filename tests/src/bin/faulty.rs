//! A rank that misbehaves on request: what the tests of `muster run` start.
//!
//! `faulty MODE`: each mode plants one fault, on the last rank where one rank has it.

use std::error::Error;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use muster_comm::collective::{Communicator, PointToPoint};
use muster_comm::sync::Clock;
use muster_comm::types::{Rank, ReduceOp};
use muster_comm::world::World;

/// Calls before a fault, so that the ranks are at work.
const CALLS_BEFORE: u32 = 3;
/// Calls of a program that ends well.
const CALLS: u32 = 40;
/// Memory that a rank of a large world may take for itself, page tables included.
const OWN_KIBIBYTES_MAX: u64 = 8 << 10;
/// Longer than any deadline of the tests.
const FOR_EVER: Duration = Duration::from_secs(600);

fn main() -> Result<(), Box<dyn Error>> {
    let mode = std::env::args().nth(1).ok_or("no mode")?;
    let world = World::from_env()?;
    let last = world.rank().index() + 1 == world.size();
    let everyone = world.everyone()?;
    step(&everyone, calls_before(&mode))?;
    match mode.as_str() {
        "well" => step(&everyone, CALLS)?,
        "many" | "manyodd" => many(&everyone, last && mode == "manyodd")?,
        "loop" => step(&everyone, u32::MAX)?,
        "late" => {
            if last {
                Clock::pause(Duration::from_millis(1500));
            }
            step(&everyone, CALLS)?;
        }
        "slow" => loop {
            if last {
                Clock::pause(Duration::from_millis(15));
            }
            step(&everyone, 1)?;
        },
        "never" => {
            if last {
                Clock::pause(FOR_EVER);
            }
            step(&everyone, CALLS)?;
        }
        "early" if last => return Ok(()),
        "early" => step(&everyone, CALLS)?,
        // Another program in place of this one: the process goes on, and its connections end.
        "execs" if last => return Err(Command::new("sleep").arg("30").exec().into()),
        "execs" => step(&everyone, CALLS)?,
        "async" => asynchronous(&world, last, Duration::ZERO)?,
        "asynclate" => asynchronous(&world, last, Duration::from_millis(1500))?,
        "hog" => {
            if last {
                hog();
            }
            step(&everyone, u32::MAX)?;
        }
        // No fault: calls that wait and calls that do not, by turns on one group.
        "turns" => {
            for length in 1..=CALLS as usize {
                let work = everyone.all_reduce_async(vec![1_i32; length], ReduceOp::Sum);
                work.wait()?;
                everyone.all_reduce_in_place(&mut [1_i32; 99], ReduceOp::Sum)?;
            }
        }
        "destroyed" => destroyed(&world, &everyone, last)?,
        "inversion" => inversion(&world, last)?,
        "ring" => ring(&everyone)?,
        "skip" => {
            if !last {
                everyone.all_reduce_in_place(&mut [1_i32; 5], ReduceOp::Sum)?;
            }
            everyone.broadcast(&mut [0_i32; 7], 0)?;
        }
        "leftout" => leave_out(&everyone, last)?,
        "branches" => branches(&everyone)?,
        "members" => members(&world, last)?,
        "splits" => splits(&everyone, last)?,
        "unreceived" => unreceived(&everyone)?,
        "sentlate" => sent_late(&world, &everyone, last, true)?,
        "sentunmet" => sent_late(&world, &everyone, last, false)?,
        "halfbatch" => half_batch(&everyone, last)?,
        "object" => object(&everyone, last)?,
        "gatherobject" => gather_object(&everyone, last)?,
        "crossed" => crossed(&everyone)?,
        other => return Err(format!("unknown mode {other}").into()),
    }
    world.leave();
    Ok(())
}

/// Calls before what a mode does. Large worlds make none, as each rank then looks at all others.
fn calls_before(mode: &str) -> u32 {
    if mode.starts_with("many") {
        0
    } else {
        CALLS_BEFORE
    }
}

/// Some calls of a program that works.
fn step(group: &Communicator, calls: u32) -> Result<(), Box<dyn Error>> {
    for _ in 0..calls {
        group.all_reduce_in_place(&mut [1.0_f32; 64], ReduceOp::Sum)?;
        Clock::pause(Duration::from_millis(2));
    }
    Ok(())
}

/// What a rank of a large world does: it meets the others, says how much memory it takes, and meets them once more, or makes another
/// call. No fault otherwise.
fn many(everyone: &Communicator, odd: bool) -> Result<(), Box<dyn Error>> {
    everyone.barrier()?;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let kibibytes = |name: &str| {
        let mut lines = status.lines();
        let line = lines.find_map(|line| line.strip_prefix(name)?.strip_suffix("kB"));
        line.map_or(Ok(0), |number| number.trim().parse::<u64>())
    };
    let (anonymous, tables) = (kibibytes("RssAnon:")?, kibibytes("VmPTE:")?);
    if anonymous == 0 || anonymous + tables > OWN_KIBIBYTES_MAX {
        let what = format!("it takes {anonymous} KiB, and {tables} KiB of page tables");
        return Err(what.into());
    }
    if odd {
        everyone.all_reduce_in_place(&mut [1_i32; 5], ReduceOp::Sum)?;
    } else {
        everyone.barrier()?;
    }
    Ok(())
}

/// Takes memory until there is none, or 2 GiB are taken.
fn hog() {
    const PIECE: usize = 4 << 20;
    let mut taken: Vec<Vec<u8>> = Vec::new();
    while taken.len() * PIECE < 2 << 30 {
        // Every page is written.
        taken.push(vec![1; PIECE]);
        std::hint::black_box(taken.last());
    }
}

/// One rank destroys a group after its first call, and goes on elsewhere; the others make a second one.
fn destroyed(world: &World, everyone: &Communicator, odd: bool) -> Result<(), Box<dyn Error>> {
    let all: Vec<Rank> = (0..world.size()).map(Rank::from_index).collect();
    let group = world.group("g1", &all)?;
    step(&group, if odd { 1 } else { 2 })?;
    drop(group);
    step(everyone, CALLS)
}

/// One rank uses two groups in the other order.
fn inversion(world: &World, odd: bool) -> Result<(), Box<dyn Error>> {
    let all: Vec<Rank> = (0..world.size()).map(Rank::from_index).collect();
    let (one, two) = (world.group("g1", &all)?, world.group("g2", &all)?);
    let (first, second) = if odd { (&two, &one) } else { (&one, &two) };
    first.all_reduce_in_place(&mut [1_i32; 9], ReduceOp::Sum)?;
    second.all_reduce_in_place(&mut [1_i32; 9], ReduceOp::Sum)?;
    Ok(())
}

/// One rank starts its call on the second group first. Where it then waits for it at once, nobody can go
/// on; where it does other things for a while and comes to the first group, all is well.
fn asynchronous(world: &World, odd: bool, other: Duration) -> Result<(), Box<dyn Error>> {
    let all: Vec<Rank> = (0..world.size()).map(Rank::from_index).collect();
    let (one, two) = (world.group("g1", &all)?, world.group("g2", &all)?);
    if odd {
        let work = two.all_reduce_async(vec![1_i32; 9], ReduceOp::Sum);
        if other.is_zero() {
            work.wait()?;
            one.all_reduce_in_place(&mut [1_i32; 9], ReduceOp::Sum)?;
        } else {
            Clock::pause(other);
            one.all_reduce_in_place(&mut [1_i32; 9], ReduceOp::Sum)?;
            work.wait()?;
        }
        return Ok(());
    }
    one.all_reduce_in_place(&mut [1_i32; 9], ReduceOp::Sum)?;
    two.all_reduce_in_place(&mut [1_i32; 9], ReduceOp::Sum)?;
    Ok(())
}

/// Everybody receives from its neighbour before anybody has sent.
fn ring(group: &Communicator) -> Result<(), Box<dyn Error>> {
    let (me, n) = (group.rank(), group.size());
    let mut got = [0_i32; 4];
    group.recv(&mut got, (me + n - 1) % n)?;
    group.send(&[1_i32; 4], (me + 1) % n)?;
    Ok(())
}

/// In a loop of three sums of one shape, one rank leaves the second out, once.
fn leave_out(group: &Communicator, odd: bool) -> Result<(), Box<dyn Error>> {
    for at in 0..CALLS {
        group.all_reduce_in_place(&mut [1_i32; 5], ReduceOp::Sum)?;
        if !(odd && at == CALLS / 2) {
            group.all_reduce_in_place(&mut [2_i32; 5], ReduceOp::Sum)?;
        }
        group.all_reduce_in_place(&mut [3_i32; 5], ReduceOp::Sum)?;
    }
    Ok(())
}

/// Ranks that make the same calls at different places, by right.
fn branches(group: &Communicator) -> Result<(), Box<dyn Error>> {
    for at in 0..CALLS as usize {
        if group.rank() == 0 {
            group.all_reduce_in_place(&mut [1_i32; 5], ReduceOp::Sum)?;
        } else {
            group.all_reduce_in_place(&mut [2_i32; 5], ReduceOp::Sum)?;
        }
        if (group.rank() + at).is_multiple_of(3) {
            group.all_reduce_in_place(&mut [3_i32; 5], ReduceOp::Sum)?;
        } else {
            group.all_reduce_in_place(&mut [4_i32; 5], ReduceOp::Sum)?;
        }
    }
    Ok(())
}

/// One rank makes the group from another list.
fn members(world: &World, odd: bool) -> Result<(), Box<dyn Error>> {
    let mut list: Vec<Rank> = (0..world.size()).map(Rank::from_index).collect();
    if odd {
        list.swap(0, 1);
    }
    let group = world.group("ep1", &list)?;
    group.all_reduce_in_place(&mut [1_i32; 9], ReduceOp::Sum)?;
    Ok(())
}

/// The last rank leaves out the receive of a message that its neighbour sends it.
fn unreceived(group: &Communicator) -> Result<(), Box<dyn Error>> {
    let (me, n) = (group.rank(), group.size());
    if me + 2 == n {
        group.send(&[1_i32; 8], me + 1)?;
    }
    step(group, 1)
}

/// The first rank sends to the last one after that has destroyed the group, in which they met before or did not.
fn sent_late(
    world: &World,
    everyone: &Communicator,
    last: bool,
    meets: bool,
) -> Result<(), Box<dyn Error>> {
    let (first, other) = (Rank(0), Rank::from_index(world.size() - 1));
    let sends = world.rank() == first;
    let pair = (sends || last).then(|| world.group("pair", &[first, other]));
    let mut pair = pair.transpose()?;
    let mut buffer = [1_i32; 8];
    match &pair {
        Some(pair) if meets && sends => pair.send(&buffer, 1)?,
        Some(pair) if meets => pair.recv(&mut buffer, 0)?,
        Some(_) | None => {}
    }
    if last {
        pair = None;
    }
    everyone.barrier()?;
    if let Some(pair) = pair {
        pair.send(&buffer, 1)?;
    }
    Ok(())
}

/// Ranks of a ring send to both neighbours and receive from both; one leaves a receive out.
fn half_batch(group: &Communicator, odd: bool) -> Result<(), Box<dyn Error>> {
    let (me, n) = (group.rank(), group.size());
    let (before, after) = ((me + n - 1) % n, (me + 1) % n);
    let send = [1_i32; 8];
    let (mut from_before, mut from_after) = ([0_i32; 8], [0_i32; 8]);
    let mut batch = vec![
        PointToPoint::send(&send, before),
        PointToPoint::send(&send, after),
        PointToPoint::recv(&mut from_before, before),
    ];
    if !odd {
        batch.push(PointToPoint::recv(&mut from_after, after));
    }
    group.batch_send_recv(&batch)?;
    step(group, 1)
}

/// One rank gathers objects of another type.
fn object(group: &Communicator, odd: bool) -> Result<(), Box<dyn Error>> {
    if odd {
        group.all_gather_object(&(1_u8, 2_u8, u64::MAX))?;
    } else {
        group.all_gather_object(&"a text".to_owned())?;
    }
    Ok(())
}

/// The same, where only rank 0 gets objects.
fn gather_object(group: &Communicator, odd: bool) -> Result<(), Box<dyn Error>> {
    if odd {
        group.gather_object(&(1_u8, 2_u8, u64::MAX), 0)?;
    } else {
        group.gather_object(&"a text".to_owned(), 0)?;
    }
    step(group, 1)
}

/// Two ranks each reduce to the other, and do not wait for each other.
fn crossed(group: &Communicator) -> Result<(), Box<dyn Error>> {
    let root = 1 - group.rank();
    let work = group.start(move |group| {
        let mut sum = [0_i32; 8];
        group.reduce(&[1_i32; 8], &mut sum, ReduceOp::Sum, root)
    });
    work.wait()?;
    Ok(())
}

/// One rank sends rank 0 more than that expects.
fn splits(group: &Communicator, odd: bool) -> Result<(), Box<dyn Error>> {
    let n = group.size();
    let mut send = vec![4; n];
    if odd {
        send[0] = 6;
    }
    let data = vec![1_i32; send.iter().sum()];
    let mut got = vec![0_i32; 4 * n];
    group.all_to_all_v(&data, &send, &mut got, &vec![4; n])?;
    Ok(())
}
