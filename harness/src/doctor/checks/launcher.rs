//! Whether the environment says one thing about who this process is.

use muster_comm::launch::{Detected, LaunchError};

use super::super::{Finding, Problem, System};

pub(super) fn judge(system: &System) -> Finding {
    match system.launched() {
        Ok(Detected::Identity(identity)) => Finding::ok(
            format!(
                "{} started this process as rank {} of {}",
                identity.source.contract, identity.rank.0, identity.world_size
            ),
            identity.source.to_string(),
        ),
        Ok(Detected::PerNode(node)) => Finding::ok(
            format!(
                "{} started this process as node {}",
                node.source.contract, node.node_rank
            ),
            node.source.to_string(),
        ),
        Ok(Detected::Standalone { notes }) => match notes.first() {
            Some(note) => Problem::warn(
                note.clone(),
                "environment",
                "start the command through the launcher: see `muster env --explain`",
            )
            .into(),
            None => Finding::ok("no launcher started this process", "environment"),
        },
        Err(error) => {
            let remedy = match &error {
                LaunchError::Disagree { first, second } => {
                    format!("unset the variables of one, or choose: --launcher {} or --launcher {}", first.contract, second.contract)
                }
                LaunchError::Config(_)
                | LaunchError::Contradiction { .. }
                | LaunchError::Incomplete { .. }
                | LaunchError::NotARank { .. }
                | LaunchError::Unsupported { .. } => "see `muster env --explain`, and unset what an earlier launcher left in this shell".to_owned(),
            };
            Problem::fail(error.to_string(), "environment", remedy).into()
        }
    }
}
