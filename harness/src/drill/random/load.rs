//! Busy loops beside the runs.

use std::process::{Child, Command, Stdio};

use crate::fail::Failure;
use crate::world::ranks::own_program;

/// Processes that keep processors busy, until this is dropped. Each is tied to the thread that makes it, so it
/// ends with the drill however that ends.
#[derive(Debug)]
pub struct Load {
    loops: Vec<Child>,
}

impl Load {
    /// Starts this many.
    ///
    /// # Errors
    /// A failure of class RESOURCE where one cannot be started.
    pub fn start(count: u32) -> Result<Self, Failure> {
        let mut load = Self { loops: Vec::new() };
        let own = std::process::id().to_string();
        for _ in 0..count {
            let one = Command::new(own_program())
                .args([
                    "__exec",
                    "--launcher",
                    &own,
                    "--",
                    "sh",
                    "-c",
                    "while :; do :; done",
                ])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .map_err(|error| Failure::resource(format!("no busy loop: {error}")))?;
            load.loops.push(one);
        }
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for one in &mut self.loops {
            // One that is gone needs no end.
            let _ = one.kill();
            let _ = one.wait();
        }
    }
}
