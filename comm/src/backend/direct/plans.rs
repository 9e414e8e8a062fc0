//! Plans that a communicator has made, so that the next call of the same shape need not make them.

use std::sync::Arc;

use crate::algo::{Algorithm, Plan};
use crate::backend::segment::Part;

/// Plans that a communicator remembers: those of the shapes that a training step has, segments and
/// their rests.
const PLANS_MAX: usize = 32;

/// Plans by what they are for, the last used ones in front.
#[derive(Debug, Default)]
pub(super) struct Plans(Vec<(&'static str, Part, Arc<Plan>)>);

impl Plans {
    /// The plan, made where it is not remembered; why there is none.
    pub(super) fn of(
        &mut self,
        algorithm: &'static Algorithm,
        part: Part,
        n: usize,
        me: usize,
    ) -> Result<Arc<Plan>, String> {
        let known = |(name, known, _): &(&'static str, Part, Arc<Plan>)| {
            std::ptr::eq(*name, algorithm.name) && *known == part
        };
        if let Some(place) = self.0.iter().position(known) {
            self.0[..=place].rotate_right(1);
        } else {
            // In place or not, the plan for separate buffers is right: peers read copies.
            let problem = part.problem(n, me).map_err(|error| error.to_string())?;
            let plan = algorithm.plan(&problem, me, false);
            let plan = Arc::new(plan.map_err(|error| error.to_string())?);
            self.0.truncate(PLANS_MAX - 1);
            self.0.insert(0, (algorithm.name, part, plan));
        }
        Ok(Arc::clone(&self.0[0].2))
    }
}
