//! Why a rank could not join its world, in words, as an exit code and as a verdict.

use std::io::Write;
use std::path::Path;

use crate::error::verdict::Verdict;
use crate::launch::ExchangeError;
use crate::rendezvous::RendezvousError;
use crate::sync::Clock;
use crate::transport::tcp::TcpError;
use crate::types::Rank;
use crate::watch::{autodump, bring_up};

/// Why a rank could not join its world.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BringUpError {
    /// The ranks did not find each other.
    #[error("{error}")]
    Rendezvous {
        /// The error.
        error: RendezvousError,
        /// When: where the coordinator said so, in milliseconds since 1970, the same for all ranks.
        at_unix_ms: u64,
    },
    /// The launcher did not bring the place of meeting to this rank.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// No way to listen for links from other hosts.
    #[error("cannot listen for links: {0}")]
    Listen(#[from] TcpError),
    /// Something that a peer said during bring-up makes no sense.
    #[error("rank {peer} said what cannot be understood during bring-up: {what}")]
    Malformed {
        /// The peer.
        peer: Rank,
        /// What is wrong.
        what: String,
    },
}

impl From<RendezvousError> for BringUpError {
    fn from(error: RendezvousError) -> Self {
        Self::Rendezvous {
            error,
            at_unix_ms: Clock::wall_ms(),
        }
    }
}

impl BringUpError {
    /// The same as a verdict, where the ranks did not find each other: what the coordinator told all
    /// ranks becomes the same line on all of them.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        match self {
            Self::Rendezvous { error, at_unix_ms } => Some(bring_up::verdict(error, *at_unix_ms)),
            Self::Exchange(_) | Self::Listen(_) | Self::Malformed { .. } => None,
        }
    }

    /// Prints the line of the verdict, if there is one, as every rank does that cannot join.
    pub fn tell(&self) {
        if let Some(verdict) = self.verdict() {
            // Whoever closed stderr does not want to read this.
            let _ = std::io::stderr()
                .lock()
                .write_all(format!("{verdict}\n").as_bytes());
        }
    }

    /// Writes the dump of a rank that cannot join, if there is a verdict and it has a number. Where that fails, one line says so.
    pub(super) fn keep(&self, folder: &Path, rank: i64, world_size: i64) {
        let Some(verdict) = self.verdict() else {
            return;
        };
        let (Ok(rank), Ok(world_size)) = (u32::try_from(rank), u32::try_from(world_size)) else {
            return;
        };
        if let Err(error) = autodump::keep_without_world(folder, rank, world_size, &verdict) {
            let line = format!(
                "muster: rank {rank}: no dump in {}: {error}\n",
                folder.display()
            );
            // As above.
            let _ = std::io::stderr().lock().write_all(line.as_bytes());
        }
    }

    /// The documented exit code of this class of error.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Rendezvous { error, .. } => error.exit_code(),
            Self::Exchange(error) => error.exit_code(),
            Self::Listen(_) => 60,
            Self::Malformed { .. } => 11,
        }
    }

    /// One sentence on what to do.
    #[must_use]
    pub fn help(&self) -> &'static str {
        match self {
            Self::Rendezvous { error, .. } => error.help(),
            Self::Exchange(error) => error.help(),
            Self::Listen(_) => "raise the limit on descriptors (ulimit -n), or free the port",
            Self::Malformed { .. } => "make sure that all ranks run the same build",
        }
    }
}
