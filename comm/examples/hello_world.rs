//! The library in twenty lines: a sum, and who took part in it.
//!
//! ```sh
//! cargo build --example hello_world -p muster-comm
//! target/debug/examples/hello_world                                    # 4 ranks as threads
//! mpirun -n 4 target/debug/examples/hello_world                        # 4 processes
//! torchrun --nproc-per-node 4 --no-python target/debug/examples/hello_world
//! ```
#![expect(clippy::print_stdout, reason = "an example shows what it got")]

use muster_comm::{CommError, FromEnvError, ReduceOp, World};

fn hello(world: World) -> Result<(), CommError> {
    let group = world.everyone()?;
    let mut sum = vec![world.rank().0 + 1; 1000];
    group.all_reduce_in_place(&mut sum, ReduceOp::Sum)?;
    let processes: Vec<u32> = group.all_gather_object(&std::process::id())?;
    if group.rank() == 0 {
        println!("sum {} from processes {processes:?}", sum[0]);
    }
    world.leave();
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let results = match World::from_env() {
        Err(FromEnvError::Standalone) => World::threads(4, hello)?,
        world => vec![hello(world?)],
    };
    Ok(results.into_iter().collect::<Result<(), _>>()?)
}
