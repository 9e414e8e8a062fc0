//! Whether the libraries hold the calls that are needed.

use super::super::{Finding, System};
use super::{Check, Group};

pub(super) const CHECK: Check = Check {
    id: "symbols",
    group: Group::Ascend,
    asks: "Do the libraries hold every call that is needed?",
    judge,
};

fn judge(_: &System) -> Finding {
    Finding::skip("")
}
