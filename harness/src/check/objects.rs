//! Objects of any serde type over a group: nothing in them, a little, and a lot on some ranks only.
//!
//! Metrics and rollouts travel this way; uneven sizes are what breaks naive implementations.

use muster_comm::collective::Communicator;
use muster_comm::error::CommError;
use muster_comm::types::Collective;
use serde::{Deserialize, Serialize};

use crate::check::cases::ObjectShape;
use crate::check::message::Wrong;

/// An object with the things that real ones have: text, numbers, options, nesting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Parcel {
    sender: u32,
    label: Option<String>,
    values: Vec<u64>,
    nested: Vec<(i8, f64)>,
}

impl Parcel {
    /// The object of member `index`. All members can make it, so all can judge it.
    fn of(index: usize, shape: ObjectShape, seed: u64) -> Vec<Self> {
        let count = shape.count(index);
        let sender = u32::try_from(index).unwrap_or(u32::MAX);
        match shape {
            ObjectShape::Empty => Vec::new(),
            ObjectShape::Small | ObjectShape::LargeUneven => vec![Self {
                sender,
                label: index
                    .is_multiple_of(2)
                    .then(|| format!("rank {index} says «hello»")),
                values: (0..count as u64)
                    .map(|at| at.wrapping_mul(seed | 1) ^ u64::from(sender))
                    .collect(),
                nested: vec![(-3, f64::from(sender)), (7, 0.5)],
            }],
        }
    }
}

/// Checks an object collective with objects of one shape.
///
/// # Errors
/// The first error of a call.
pub fn check(
    comm: &Communicator,
    collective: Collective,
    shape: ObjectShape,
    seed: u64,
) -> Result<Option<Wrong>, CommError> {
    let len = comm.size();
    let all: Vec<Vec<Parcel>> = (0..len)
        .map(|index| Parcel::of(index, shape, seed))
        .collect();
    let me = comm.rank();
    // Another root for each shape, as far as there are members.
    let root = shape.count(1) % len;
    let at_root = me == root;
    let wrong = if collective == Collective::AllGatherObject {
        compare(comm, &all, &comm.all_gather_object(&all[me])?)
    } else if collective == Collective::GatherObject {
        match (at_root, comm.gather_object(&all[me], root)?) {
            (true, Some(got)) => compare(comm, &all, &got),
            (false, None) => None,
            (_, got) => Some(misplaced(at_root, got.is_some())),
        }
    } else if collective == Collective::BroadcastObject {
        let got = comm.broadcast_object(at_root.then_some(&all[root]), root)?;
        compare(comm, std::slice::from_ref(&all[root]), &[got])
    } else {
        let got = comm.scatter_object(if at_root { &all } else { &[] }, root)?;
        compare(comm, std::slice::from_ref(&all[me]), &[got])
    };
    Ok(wrong)
}

fn compare(comm: &Communicator, expected: &[Vec<Parcel>], got: &[Vec<Parcel>]) -> Option<Wrong> {
    if expected.len() != got.len() {
        return Some(Wrong {
            expected: expected.len().to_string(),
            got: got.len().to_string(),
            text: format!("{} objects expected, got {}", expected.len(), got.len()),
            ..Wrong::default()
        });
    }
    let index = expected
        .iter()
        .zip(got)
        .position(|(expected, got)| expected != got)?;
    let blamed = if expected.len() == comm.size() {
        comm.members().get(index)
    } else {
        None
    };
    Some(Wrong {
        element: Some(index as u64),
        differing: None,
        expected: shortened(&expected[index]),
        got: shortened(&got[index]),
        blamed: blamed.map(|rank| rank.0).into_iter().collect(),
        text: format!("object {index} is not the one that was sent"),
    })
}

fn misplaced(expected: bool, got: bool) -> Wrong {
    Wrong {
        expected: expected.to_string(),
        got: got.to_string(),
        text: "objects arrived where they should not, or not where they should".to_owned(),
        ..Wrong::default()
    }
}

/// An object as text that fits a line.
fn shortened(object: &[Parcel]) -> String {
    /// Characters after which an object is cut off.
    const CHARACTERS_MAX: usize = 80;
    let whole = format!("{object:?}");
    if whole.chars().count() <= CHARACTERS_MAX {
        return whole;
    }
    let cut: String = whole.chars().take(CHARACTERS_MAX).collect();
    format!("{cut}… ({} bytes)", whole.len())
}
