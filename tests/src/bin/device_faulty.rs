//! A rank that drives a device and misbehaves on request: what the tests over the emulator start.
//!
//! `device_faulty MODE`: rank 1 has the fault. Every rank prints the error that its call ended with,
//! then what an exchange of objects gave after it, and ends well.

#![expect(
    clippy::print_stdout,
    reason = "what a rank says is what the test reads"
)]

use std::error::Error;
use std::time::Duration;

use muster_comm::config::Environment;
use muster_comm::device::{Device, DeviceBuffer, DeviceCommunicator, DeviceOptions, Runtime};
use muster_comm::error::CommError;
use muster_comm::types::ReduceOp;
use muster_comm::world::World;

/// Elements of a buffer.
const COUNT: usize = 24;
/// Deadline of a call, and the vendor's own limit below it.
const DEADLINE: Duration = Duration::from_secs(4);
const VENDOR_LIMIT: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn Error>> {
    let mode = std::env::args().nth(1).ok_or("no mode")?;
    let world = World::from_env()?;
    let runtime = Runtime::load(&Environment::capture().vendor_places()?)?;
    if runtime.emulated().is_none() {
        return Err("this program is for the emulator only".into());
    }
    let device = runtime.device(world.rank().0)?;
    let group = world.everyone()?;
    let mut options = DeviceOptions::default();
    options.exec_timeout = Some(VENDOR_LIMIT);
    let comm = group.on_device(&device, &options)?;
    comm.set_deadline(DEADLINE);
    let values = vec![1.0_f32; COUNT];
    let buffer = DeviceBuffer::from_slice(&device, &values)?;
    comm.all_reduce_in_place(&buffer, ReduceOp::Sum)?;
    match second(&mode, &comm, &device, &buffer)? {
        Ok(()) => println!("call: ok"),
        Err(error) => {
            println!("call: {error}");
            if mode == "ends" {
                return Err(error.into());
            }
        }
    }
    let objects = comm.host().all_gather_object(&comm.rank())?;
    println!("objects: {objects:?}");
    world.leave();
    Ok(())
}

/// The second call, in which the ranks are at odds.
fn second(
    mode: &str,
    comm: &DeviceCommunicator,
    device: &Device,
    buffer: &DeviceBuffer<f32>,
) -> Result<Result<(), CommError>, Box<dyn Error>> {
    let odd = comm.rank() == 1;
    let other = DeviceBuffer::from_slice(device, &vec![0.0_f32; COUNT * comm.size()])?;
    Ok(match mode {
        "well" => comm.all_reduce_in_place(buffer, ReduceOp::Max),
        "collective" if odd => comm.all_gather(buffer, &other),
        "count" if odd => comm.all_reduce_in_place(&buffer.slice(..COUNT / 2), ReduceOp::Max),
        "op" if odd => comm.all_reduce_in_place(buffer, ReduceOp::Min),
        "root" => comm.broadcast(buffer, usize::from(odd)),
        "absent" | "ends" if odd => Ok(()),
        "dead" if odd => std::process::abort(),
        "stopped" if odd => {
            rustix::process::kill_process(
                rustix::process::getpid(),
                rustix::process::Signal::STOP,
            )?;
            Ok(())
        }
        "absent" | "collective" | "count" | "dead" | "ends" | "op" | "stopped" => {
            comm.all_reduce_in_place(buffer, ReduceOp::Max)
        }
        unknown => return Err(format!("unknown mode {unknown}").into()),
    })
}
