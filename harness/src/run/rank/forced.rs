//! How the calls of a job are made to go one way.

use muster_comm::algo::Table;
use muster_comm::kernel::{Isa, Kernels};

use crate::fail::Failure;
use crate::run::job::{Forced, Job};

/// Rules that force the calls of a job to go one way, in front of those that it has anyway.
pub(super) fn table(forced: &Forced, job: &Job) -> Result<Option<Table>, Failure> {
    let Some(mut rules) = forced.rules() else {
        return Ok(None);
    };
    rules.push_str(job.rules.as_deref().unwrap_or_default());
    let table = Table::with_overrides(&rules);
    table
        .map(Some)
        .map_err(|error| Failure::usage(error.to_string()))
}

/// The vector instructions of a job, until it is over: the next one may have others.
pub(super) struct Instructions(Kernels);

impl Instructions {
    pub(super) fn of(forced: &Forced) -> Result<Self, Failure> {
        let before = Self(Kernels::current());
        if let Some(name) = &forced.isa {
            let isa = Isa::ALL.into_iter().find(|isa| isa.name() == name);
            let kernels = isa.and_then(|isa| Kernels::new(isa).ok());
            let missing = || Failure::usage(format!("this processor has no {name} instructions"));
            kernels.ok_or_else(missing)?.use_everywhere();
        }
        Ok(before)
    }
}

impl Drop for Instructions {
    fn drop(&mut self) {
        self.0.use_everywhere();
    }
}
