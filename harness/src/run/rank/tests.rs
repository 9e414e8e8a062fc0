//! Jobs whose ranks are threads.

use std::sync::Mutex;

use muster_comm::layout::Matrix;

use super::*;
use crate::check::collect::Collector;
use crate::run::job::{MatrixSpec, Transport};
use crate::run::work::{Checks, Work};
use crate::verify::model;

fn job(matrix: &str, inject: &[&str]) -> Job {
    Job {
        matrix: MatrixSpec::of(
            matrix,
            &matrix
                .parse::<Matrix>()
                .expect(matrix)
                .layout()
                .expect(matrix),
        ),
        work: Work::Verify(Checks::default()),
        deadline_ms: 20_000,
        transport: Transport::Auto,
        inject: inject
            .iter()
            .map(|text| text.parse().expect(text))
            .collect(),
        seed: 7,
        hccl: None,
        bind: None,
        rules: None,
    }
}

/// Runs a job with ranks that are threads, and gives back its cases and what ranks returned.
fn cases(job: &Job) -> (Vec<model::Case>, Vec<Result<bool, Failure>>) {
    let layout = job.matrix.layout().expect("a legal layout");
    let world_size = job.matrix.world_size;
    let collector = Mutex::new(Collector::new(job.work.catalogue(&layout), world_size));
    let outcomes = World::threads(world_size as usize, |world| {
        let rank = world.rank().0;
        run(&world, job, &layout, Clock::now(), &mut |bytes| {
            collector.lock().expect("no panic").take(rank, bytes);
            Ok(())
        })
    })
    .expect("a world of threads");
    let collector = collector.into_inner().expect("no panic");
    for state in collector.ranks() {
        assert_eq!(state.failed, None);
        assert_eq!(state.garbled, None);
    }
    (collector.report(&job.matrix.name, world_size), outcomes)
}

#[test]
fn every_case_of_a_matrix_passes_on_ranks_that_are_threads() {
    // Growth is that of the process, in which several tests run at once here.
    let of_interest = |case: &&model::Case| case.check != "lifecycle";
    for matrix in ["tp1", "tp2", "tp2pp2", "tp3"] {
        let (cases, _) = cases(&job(matrix, &[]));
        for case in cases.iter().filter(of_interest) {
            assert!(case.passed, "{}", case.headline());
        }
    }
}

#[test]
fn every_kind_of_fault_is_found_and_put_on_the_rank_that_has_it() {
    for kind in ["bitflip", "swap-blocks", "drop-contribution"] {
        for collective in [
            "all_reduce",
            "all_gather",
            "all_to_all_v",
            "reduce_scatter",
            "broadcast",
        ] {
            let fault = format!("{kind}:rank=1,collective={collective}");
            let mut job = job("tp3", &[&fault]);
            job.work = Work::Verify(Checks {
                counts: vec![100],
                ..Checks::default()
            });
            let (cases, outcomes) = cases(&job);
            let failed: Vec<&model::Case> = cases
                .iter()
                .filter(|case| !case.passed && case.check == "collective")
                .collect();
            assert!(!failed.is_empty(), "{fault} was not found");
            assert!(outcomes.contains(&Ok(false)), "{fault}: {outcomes:?}");
            for case in failed {
                let detail = case.detail.as_ref().expect("a detail");
                assert_eq!(
                    case.collective.as_deref(),
                    Some(collective),
                    "{fault}: {}",
                    case.headline()
                );
                assert!(detail.first_wrong.is_some(), "{fault}: {}", case.headline());
                assert_eq!(detail.blamed, [1], "{fault}: {}", case.headline());
            }
        }
    }
}
