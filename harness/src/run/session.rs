//! The one way in which a command runs its jobs, whoever starts the ranks: job by job, world by world,
//! until one fails.

use std::cell::RefCell;
use std::sync::Arc;

use muster_comm::config::Environment;
use muster_comm::launch::Identity;
use muster_comm::layout::FrameworkLayout;

use super::job::Job;
use super::{Finished, Progress, binding, joined, local};
use crate::exit::Exit;
use crate::fail::Failure;
use crate::world::signals::Interrupts;

/// What comes after a world of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next world of the job.
    World,
    /// The next job: this one has measured enough.
    Job,
    /// Nothing: it failed.
    Nothing,
}

impl Next {
    /// What comes after a world with or without a verdict.
    #[must_use]
    pub const fn after(has_failed: bool) -> Self {
        if has_failed {
            Self::Nothing
        } else {
            Self::World
        }
    }
}

/// What a command makes of its jobs. `job` is the place of a job among all.
pub trait Session {
    /// A job begins.
    ///
    /// # Errors
    /// If it cannot be shown.
    fn begin(&mut self, job: usize) -> Result<(), Failure>;
    /// Ranks told something.
    ///
    /// # Errors
    /// If it cannot be shown.
    fn take(&mut self, job: usize, so_far: Progress) -> Result<(), Failure>;
    /// A world of ranks has ended, the `world`th of its job; gives back what comes next.
    ///
    /// # Errors
    /// If it cannot be shown.
    fn end(&mut self, job: usize, world: usize, finished: Finished) -> Result<Next, Failure>;
    /// There will be no more worlds of a job.
    ///
    /// # Errors
    /// If it cannot be shown.
    fn close(&mut self, _job: usize) -> Result<(), Failure> {
        Ok(())
    }
    /// A job is not run, for one before it failed.
    fn skip(&mut self, _job: usize) {}
    /// Prints the result and says how the whole run ended.
    ///
    /// # Errors
    /// If it cannot be written.
    fn publish(&mut self) -> Result<Exit, Failure>;
}

/// Runs jobs: in ranks that are started here, or in those among which this process is one.
///
/// # Errors
/// If the host cannot carry the ranks, they do not come together, or the result cannot be written.
pub fn run(
    session: &mut dyn Session,
    jobs: &[(Job, FrameworkLayout)],
    environment: &Environment,
    identity: Option<&Identity>,
) -> Result<Exit, Failure> {
    match identity {
        None => locally(session, jobs),
        Some(identity) => among_others(session, jobs, environment, identity),
    }
}

fn locally(session: &mut dyn Session, jobs: &[(Job, FrameworkLayout)]) -> Result<Exit, Failure> {
    for (job, layout) in jobs {
        local::make_sure_that_it_fits(job, layout)?;
    }
    let interrupts = Arc::new(Interrupts::install()?);
    let mut has_failed = false;
    for (place, (job, layout)) in jobs.iter().enumerate() {
        if has_failed {
            session.skip(place);
            continue;
        }
        session.begin(place)?;
        if place == 0 {
            binding::announce(job.bind.unwrap_or_default(), job.matrix.world_size);
        }
        for (world, work) in job.work.worlds(layout).into_iter().enumerate() {
            let job = Job {
                work,
                ..job.clone()
            };
            let mut shown = Ok(());
            let outcome = local::run(&job, layout, &interrupts, &mut |so_far| {
                let taken = session.take(place, so_far);
                if shown.is_ok() {
                    shown = taken;
                }
            });
            shown?;
            // What was proved before must not be lost with this one.
            let finished =
                outcome.unwrap_or_else(|failure| Finished::not_started(&job, layout, failure));
            let next = session.end(place, world, finished)?;
            has_failed = next == Next::Nothing;
            if next != Next::World {
                break;
            }
        }
        session.close(place)?;
    }
    session.publish()
}

/// A session that two callbacks share.
struct Shared<'a> {
    session: &'a mut dyn Session,
    /// Jobs that have begun.
    begun: usize,
    shown: Result<(), Failure>,
}

impl Shared<'_> {
    fn begin_up_to(&mut self, job: usize) -> Result<(), Failure> {
        while self.begun <= job {
            self.begun += 1;
            self.session.begin(self.begun - 1)?;
        }
        Ok(())
    }
}

fn among_others(
    session: &mut dyn Session,
    jobs: &[(Job, FrameworkLayout)],
    environment: &Environment,
    identity: &Identity,
) -> Result<Exit, Failure> {
    let shared = RefCell::new(Shared {
        session,
        begun: 0,
        shown: Ok(()),
    });
    joined::run(
        jobs,
        environment,
        identity,
        &mut |place, so_far| {
            let mut shared = shared.borrow_mut();
            let taken = shared
                .begin_up_to(place)
                .and_then(|()| shared.session.take(place, so_far));
            if shared.shown.is_ok() {
                shared.shown = taken;
            }
        },
        &mut |all| {
            let mut shared = shared.borrow_mut();
            std::mem::replace(&mut shared.shown, Ok(()))?;
            let ran = all.len();
            for (place, finished) in all.into_iter().enumerate() {
                shared.begin_up_to(place)?;
                shared.session.end(place, 0, finished)?;
                shared.session.close(place)?;
            }
            (ran..jobs.len()).for_each(|place| shared.session.skip(place));
            shared.session.publish()
        },
    )
}
