//! Strangers at every door: what they say, and whether they are shown out.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use muster_comm::sync::{Clock, Deadline};

use crate::drill::clean;
use crate::drill::process_group::Stage;

/// Within this time a stranger must be shown out.
const SHOWN_OUT: Duration = Duration::from_millis(2500);
/// How often that is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Talks to every port on which a process of the run listens, and waits until all strangers have been
/// shown out; says who has not.
pub(super) fn talk(stage: &mut Stage<'_>, said: &[Vec<u8>], at_once: usize) -> Vec<String> {
    let ports = clean::ports_of(&clean::marked(&stage.mark));
    if ports.is_empty() {
        return vec!["nobody listens anywhere".to_owned()];
    }
    let mut strangers = Vec::new();
    for port in &ports {
        for text in said {
            for _ in 0..at_once {
                // A door that is closed already has shown this one out.
                let Ok(mut stranger) = TcpStream::connect(("127.0.0.1", *port)) else {
                    continue;
                };
                let _ = stranger.set_nonblocking(true);
                // Cut off in the middle is shown out as well.
                let _ = stranger.write(text);
                strangers.push((*port, stranger));
            }
        }
    }
    let deadline = Deadline::after(SHOWN_OUT);
    while !strangers.is_empty() && !deadline.passed() {
        strangers.retain_mut(|(_, stranger)| is_open(stranger));
        stage.pause(LOOK_EVERY);
    }
    // The look itself takes time when the machine is busy.
    Clock::pause(LOOK_EVERY);
    strangers
        .iter()
        .map(|(port, _)| {
            let bound = SHOWN_OUT.as_millis();
            format!("a stranger is still at port {port} after {bound} ms")
        })
        .collect()
}

/// Whether the other side keeps the connection.
fn is_open(stranger: &mut TcpStream) -> bool {
    let mut bytes = [0; 512];
    match stranger.read(&mut bytes) {
        Ok(0) => false,
        Ok(_) => true,
        Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
    }
}
