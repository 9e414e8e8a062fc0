//! What came of a program: its document or its lines.

use muster_comm::error::verdict::Verdict;
use serde::Serialize;

use crate::exit::Exit;
use crate::fail::Failure;
use crate::out;

/// Version of the JSON document.
const SCHEMA_VERSION: u32 = 1;

#[derive(Debug, Serialize)]
pub(super) struct RankEnd {
    pub(super) rank: u32,
    pub(super) pid: u32,
    pub(super) ended: String,
}

#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) exit: Exit,
    pub(super) interrupted: bool,
    pub(super) elapsed_ms: u64,
    pub(super) verdict: Option<Verdict>,
    pub(super) ranks: Vec<RankEnd>,
}

impl Outcome {
    pub(super) fn tell(&self, json: bool) -> Result<(), Failure> {
        if json {
            let document = serde_json::json!({
                "schema_version": SCHEMA_VERSION,
                "tool": "muster",
                "passed": self.exit == Exit::Ok,
                "class": self.exit.class(),
                "exit_code": self.exit.code(),
                "interrupted": self.interrupted,
                "elapsed_ms": self.elapsed_ms,
                "verdict": self.verdict,
                "ranks": self.ranks,
            });
            return out::result(&format!("{document:#}\n"));
        }
        if let Some(verdict) = &self.verdict {
            out::note(&out::escaped(&verdict.line()));
        } else if self.interrupted {
            out::note("INTERRUPTED by a signal; the ranks were ended");
        }
        if self.exit != Exit::Ok {
            for end in &self.ranks {
                out::note(&format!("  rank {}: {}", end.rank, end.ended));
            }
        }
        Ok(())
    }
}
