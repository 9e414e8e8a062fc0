//! Device communicators over the emulator, with ranks that are threads of this process.
//!
//! The calls of every collective are checked by `verify --backend hccl` (`system/hccl.rs`); here is
//! what it does not do: asynchronous calls on streams, sub-communicators, checked mode, wrong
//! arguments, and the verdicts of calls that differ or never come.

use std::path::Path;
use std::time::Duration;

use muster_comm::collective::Communicator;
use muster_comm::config::Environment;
use muster_comm::device::{
    Device, DeviceBuffer, DeviceCommunicator, DeviceMessage, DeviceOptions, Leaks, Runtime, Stream,
};
use muster_comm::error::verdict::Class;
use muster_comm::error::{CommError, ErrorKind, Field};
use muster_comm::types::{Rank, ReduceOp};
use muster_comm::world::World;
use muster_tests::{binary, start};

/// Deadline of calls that end.
const LONG: Duration = Duration::from_secs(60);
/// Deadline of calls that do not, and the vendor's own limit below it.
const SHORT: Duration = Duration::from_secs(3);
const SHORTER: Duration = Duration::from_secs(1);

/// The emulator of this build, loaded once a process.
fn runtime() -> Runtime {
    static RUNTIME: std::sync::OnceLock<Runtime> = std::sync::OnceLock::new();
    let load = || {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("toolkit");
        let text = target.to_str().expect("text");
        start(binary(), &["emu", "install", text], &[])
            .wait()
            .expect_code(0);
        let home = target.join("latest");
        assert!(Path::new(&home).exists());
        let variables = [("ASCEND_HOME_PATH", home.to_str().expect("text"))];
        let places = Environment::from_pairs(variables)
            .vendor_places()
            .expect("places");
        // What is loaded stays loaded when the folder goes.
        Runtime::load(&places).expect("the emulator loads")
    };
    RUNTIME.get_or_init(load).clone()
}

/// Runs `body` as `n` ranks, each with a device of its own.
fn ranks<T: Send>(n: usize, body: impl Fn(&Communicator, &Device) -> T + Sync) -> Vec<T> {
    ranks_of(n, |_, group, device| body(group, device))
}

fn ranks_of<T: Send>(
    n: usize,
    body: impl Fn(&World, &Communicator, &Device) -> T + Sync,
) -> Vec<T> {
    let runtime = runtime();
    assert!(
        runtime.emulated().is_some(),
        "no hardware is touched by a test"
    );
    World::threads(n, |world| {
        let device = runtime.device(world.rank().0).expect("a device a rank");
        let group = world.everyone().expect("a group");
        group.set_deadline(LONG);
        body(&world, &group, &device)
    })
    .expect("a world of threads")
}

fn on_device(group: &Communicator, device: &Device) -> DeviceCommunicator {
    group
        .on_device(device, &DeviceOptions::default())
        .expect("the ranks connect")
}

/// A communicator whose calls end soon when they do not end well.
fn impatient(group: &Communicator, device: &Device) -> DeviceCommunicator {
    let mut options = DeviceOptions::default();
    options.exec_timeout = Some(SHORTER);
    let comm = group
        .on_device(device, &options)
        .expect("the ranks connect");
    comm.set_deadline(SHORT);
    comm
}

fn buffer(device: &Device, values: &[f32]) -> DeviceBuffer<f32> {
    DeviceBuffer::from_slice(device, values).expect("device memory")
}

#[test]
fn work_on_streams_is_ordered_and_gives_the_sums() {
    let sums = ranks(4, |group, device| -> Result<Vec<f32>, CommError> {
        let comm = on_device(group, device);
        let (first, second) = (
            Stream::new(device).expect("a stream"),
            Stream::new(device).expect("a stream"),
        );
        let values = buffer(device, &[comm.rank() as f32 + 1.0; 100]);
        // One buffer, three calls, two streams: each call waits for the one before.
        let works = [
            comm.on(&first)
                .all_reduce_in_place(&values, ReduceOp::Sum)?,
            comm.on(&second)
                .all_reduce_in_place(&values, ReduceOp::Sum)?,
            comm.on(&first)
                .all_reduce_in_place(&values, ReduceOp::Max)?,
        ];
        for work in works {
            work.wait()?;
        }
        Ok(values.to_vec().expect("a copy"))
    });
    for sum in sums {
        assert_eq!(sum.expect("no error"), [40.0; 100]);
    }
}

#[test]
fn dropped_work_and_buffers_are_held_until_the_device_is_done() {
    let results = ranks(2, |group, device| -> Result<Vec<f32>, CommError> {
        let comm = on_device(group, device);
        let stream = Stream::new(device).expect("a stream");
        let out = buffer(device, &[0.0; 5000]);
        {
            let input = buffer(device, &[2.0; 5000]);
            drop(comm.on(&stream).all_reduce(&input, &out, ReduceOp::Sum)?);
            // The input's last handle goes here, with the call perhaps under way.
        }
        stream.synchronize(LONG).expect("the stream ends");
        Ok(out.to_vec().expect("a copy"))
    });
    for result in results {
        assert_eq!(result.expect("no error"), [4.0; 5000]);
    }
}

#[test]
fn an_average_is_divided_on_the_host_and_refused_on_a_stream() {
    let results = ranks(3, |group, device| {
        let comm = on_device(group, device);
        let values = buffer(device, &[comm.rank() as f32; 7]);
        comm.all_reduce_in_place(&values, ReduceOp::Avg)
            .expect("an average");
        let refused = comm
            .on(comm.stream())
            .all_reduce_in_place(&values, ReduceOp::Avg)
            .map(|_| ())
            .expect_err("no average on a stream");
        assert!(matches!(refused.kind(), ErrorKind::Unsupported { .. }));
        assert!(refused.is_recoverable());
        comm.barrier().expect("still usable");
        values.to_vec().expect("a copy")
    });
    assert!(results.iter().all(|values| *values == [1.0; 7]));
}

#[test]
fn what_is_refused_leaves_the_communicator_usable() {
    let results = ranks(2, |group, device| {
        let comm = on_device(group, device);
        let (short, long) = (buffer(device, &[1.0; 3]), buffer(device, &[1.0; 4]));
        let wrong = comm
            .all_reduce(&short, &long, ReduceOp::Sum)
            .expect_err("lengths differ");
        assert!(
            matches!(wrong.kind(), ErrorKind::InvalidArgument { .. }),
            "{wrong}"
        );
        let bytes = DeviceBuffer::from_slice(device, &[1_u8; 3]).expect("memory");
        let wrong = comm
            .all_reduce_in_place(&bytes, ReduceOp::Sum)
            .expect_err("no u8 sums");
        assert!(wrong.to_string().contains("sum takes i8"), "{wrong}");
        let inside = long.slice(1..3);
        let wrong = comm.all_reduce(&inside, &long.slice(2..4), ReduceOp::Sum);
        assert!(
            wrong
                .expect_err("they overlap")
                .to_string()
                .contains("overlaps")
        );
        let wrong = comm.batch_send_recv(&[DeviceMessage::send(&short, comm.rank())]);
        assert!(wrong.is_err(), "a message to oneself needs its receive");
        comm.all_reduce_in_place(&inside, ReduceOp::Sum)
            .expect("still usable");
        long.to_vec().expect("a copy")
    });
    assert!(results.iter().all(|values| *values == [1.0, 2.0, 2.0, 1.0]));
}

#[test]
fn subgroups_are_split_from_their_parent() {
    let results = ranks_of(4, |world, group, device| {
        let parent = on_device(group, device);
        let me = parent.rank();
        let members: Vec<Rank> = (0..4)
            .filter(|rank| rank % 2 == me % 2)
            .map(Rank::from_index)
            .collect();
        let half = world
            .group(&format!("half-{}", me % 2), &members)
            .expect("a subgroup");
        let comm = parent
            .on_subgroup(&half, &DeviceOptions::default())
            .expect("they connect");
        let values = buffer(device, &[me as f32; 3]);
        comm.all_reduce_in_place(&values, ReduceOp::Sum)
            .expect("a sum");
        parent.barrier().expect("the parent lives on");
        values.to_vec().expect("a copy")[0]
    });
    assert_eq!(results, [2.0, 4.0, 2.0, 4.0]);
}

#[test]
fn checked_mode_names_both_sides_before_anything_is_enqueued() {
    let results = ranks(2, |group, device| {
        let mut options = DeviceOptions::default();
        options.checked = true;
        let comm = group.on_device(device, &options).expect("they connect");
        let values = buffer(device, &[1.0; 8]);
        let count = if comm.rank() == 0 { 8 } else { 4 };
        let wrong = comm
            .all_reduce_in_place(&values.slice(..count), ReduceOp::Sum)
            .expect_err("counts differ");
        assert!(wrong.is_recoverable(), "{wrong}");
        comm.all_reduce_in_place(&values, ReduceOp::Sum)
            .expect("still usable");
        wrong.kind().clone()
    });
    assert_eq!(results[0], results[1], "one story on all ranks");
    assert!(matches!(
        results[0],
        ErrorKind::Mismatch {
            field: Field::Count,
            ..
        }
    ));
}

#[test]
fn different_calls_end_as_one_mismatch_on_all_ranks() {
    let results = ranks(2, |group, device| {
        let comm = impatient(group, device);
        comm.barrier().expect("links");
        let (give, take) = (buffer(device, &[1.0; 8]), buffer(device, &[0.0; 16]));
        let failed = if comm.rank() == 0 {
            comm.all_gather(&give, &take)
        } else {
            comm.all_reduce_in_place(&give, ReduceOp::Sum)
        };
        let failed = failed.expect_err("the calls differ");
        assert!(!failed.is_recoverable());
        let objects = comm
            .host()
            .all_gather_object(&comm.rank())
            .expect("objects go on");
        assert_eq!(objects, [0, 1]);
        failed.kind().clone()
    });
    for kind in &results {
        let text = kind.to_string();
        // Either HCCL itself notices, or the stall reports tell.
        assert!(
            matches!(
                kind,
                ErrorKind::Mismatch {
                    field: Field::Collective,
                    ..
                }
            ) || text.contains("EI0005"),
            "{text}"
        );
    }
}

#[test]
fn who_never_enqueues_is_named_with_its_last_act_and_nothing_waits_for_it() {
    let results = ranks(3, |group, device| {
        let comm = impatient(group, device);
        let values = buffer(device, &[1.0; 8]);
        comm.all_reduce_in_place(&values, ReduceOp::Sum)
            .expect("all come");
        let failed = if comm.rank() == 2 {
            None
        } else {
            let failed = comm
                .all_reduce_in_place(&values, ReduceOp::Max)
                .expect_err("rank 2 does not come");
            assert_eq!(
                comm.failure().map(|error| error.to_string()),
                Some(failed.to_string())
            );
            let verdict = failed.verdict().expect("a verdict");
            assert_eq!(
                (verdict.class, &*verdict.blamed),
                (Class::NotJoined, &[2][..])
            );
            assert!(
                verdict.what.starts_with("all_reduce #2 on world on npu "),
                "{verdict}"
            );
            let site = "rank 2 made all_reduce #1 (f32[8]) at tests/tests/device.rs:";
            assert!(verdict.line().contains(site), "{verdict}");
            Some((failed.kind().clone(), verdict.line()))
        };
        // The rank that did not come stays alive until the others have judged.
        let host = comm.host();
        host.barrier().expect("the host goes on");
        failed
    });
    let failures: Vec<_> = results.iter().flatten().collect();
    assert_eq!(failures.len(), 2);
    assert_eq!(failures[0].1, failures[1].1, "one verdict on all ranks");
    for (kind, _) in failures {
        let ErrorKind::DeviceStalled { blamed, what } = kind else {
            panic!("{kind:?}")
        };
        assert_eq!(*blamed, [Rank(2)], "{what}");
        assert!(
            what.contains("rank 2 never enqueued all_reduce #2 (f32[8])"),
            "{what}"
        );
        assert!(
            what.contains("its last act was all_reduce #1 (f32[8]), completed"),
            "{what}"
        );
    }
    // Where the end was uncertain it was counted, not waited for.
    assert!(Leaks::now().threads < 10, "{}", Leaks::now());
}

#[test]
fn transfers_carry_host_memory_there_and_back() {
    let runtime = runtime();
    let device = runtime.device(9).expect("a device");
    let before = device.memory().expect("sizes").free;
    {
        let stream = Stream::new(&device).expect("a stream");
        let there = DeviceBuffer::<i64>::new(&device, 1000).expect("memory");
        let values: Vec<i64> = (0..1000).collect();
        let sent = there
            .copy_from_async(values.clone(), &stream)
            .expect("a copy");
        let copy = DeviceBuffer::<i64>::new(&device, 1000).expect("memory");
        copy.copy_from_device(&there, &stream).expect("a copy");
        let back = copy.slice(10..).copy_to_async(&stream).expect("a copy");
        assert_eq!(back.wait(LONG).expect("it ends"), values[10..]);
        assert_eq!(sent.wait(LONG).expect("it ends"), values);
        let (start, end) = (
            stream.record().expect("an event"),
            stream.record().expect("an event"),
        );
        stream.synchronize(LONG).expect("it ends");
        assert!(end.time_since(&start).expect("both have come") < LONG);
    }
    assert_eq!(
        device.memory().expect("sizes").free,
        before,
        "everything was given back"
    );
}
