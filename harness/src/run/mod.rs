//! Running one matrix: as the launcher of its ranks, as one of them, or as a guest of another
//! launcher; and finding the one cause when it fails.

pub mod local;
pub mod procstate;
pub mod rank;
pub mod verdict;

use muster_comm::layout::{GroupKind, Layout};

use crate::check::cases::{Catalogue, KindGroups, Selection};
use crate::check::job::Job;
use crate::fail::Failure;

/// The layout of a job's matrix.
///
/// # Errors
/// A failure of class USAGE that names the rule which the matrix breaks.
pub fn layout(job: &Job) -> Result<Layout, Failure> {
    let matrix = &job.matrix;
    let mut builder = Layout::builder()
        .world(matrix.world_size)
        .tp(matrix.tp)
        .cp(matrix.cp)
        .pp(matrix.pp)
        .ep(matrix.ep);
    if let Some(etp) = matrix.etp {
        builder = builder.etp(etp);
    }
    if let Some(order) = &job.order {
        builder = builder.order(order.clone());
    }
    builder
        .build()
        .map_err(|error| Failure::usage(format!("matrix {}: {error}", matrix.name)))
}

/// All groups of a layout and all questions to them.
#[must_use]
pub fn catalogue(job: &Job, layout: &Layout) -> Catalogue {
    let kinds = GroupKind::ALL
        .into_iter()
        .map(|kind| KindGroups {
            kind: kind.name().to_owned(),
            groups: layout
                .groups(kind)
                .iter()
                .map(|members| members.iter().map(|rank| rank.0).collect())
                .collect(),
        })
        .collect();
    let selection = Selection {
        dtypes: &job.dtypes,
        counts: &job.counts,
    };
    Catalogue::new(kinds, job.matrix.world_size, selection)
}
