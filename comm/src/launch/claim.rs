//! What one contract says about this process, in full or in part.

use super::contract::Contract;
use super::endpoint::Place;
use super::error::{LaunchError, Statement};
use super::reader::Reader;

/// What one contract says about this process.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) contract: Contract,
    /// Something of the contract is set that speaks of a rank.
    pub(super) present: bool,
    pub(super) rank: Option<u32>,
    pub(super) world_size: Option<u32>,
    pub(super) local_rank: Option<u32>,
    pub(super) local_world_size: Option<u32>,
    pub(super) node_rank: Option<u32>,
    pub(super) nnodes: Option<u32>,
    pub(super) place: Place,
    pub(super) job_id: Option<String>,
    pub(super) attempt: Option<u32>,
    pub(super) variables: Vec<(String, String)>,
    /// What is needed and is not set.
    pub(super) missing: Vec<&'static str>,
    /// A reason or way out for what is missing.
    pub(super) why: &'static str,
    /// Why this contract, if it is the one to believe, gives no rank all the same.
    pub(super) refusal: Option<LaunchError>,
    /// Remarks that hold whoever is believed.
    pub(super) notes: Vec<String>,
}

impl Claim {
    pub(super) fn new(contract: Contract) -> Self {
        Self {
            contract,
            present: false,
            rank: None,
            world_size: None,
            local_rank: None,
            local_world_size: None,
            node_rank: None,
            nnodes: None,
            place: Place::default(),
            job_id: None,
            attempt: None,
            variables: Vec::new(),
            missing: Vec::new(),
            why: "",
            refusal: None,
            notes: Vec::new(),
        }
    }

    /// Rank and world size, if the contract is set in full.
    pub(super) fn pair(&self) -> Option<(u32, u32)> {
        let whole = self.present && self.missing.is_empty();
        whole.then_some((self.rank?, self.world_size?))
    }

    pub(super) fn statement(&self) -> Box<Statement> {
        Box::new(Statement {
            contract: self.contract,
            rank: self.rank,
            world_size: self.world_size,
            local_rank: self.local_rank,
            variables: self.variables.clone(),
        })
    }

    pub(super) fn incomplete(&self) -> LaunchError {
        LaunchError::Incomplete {
            contract: self.contract,
            present: self.variables.clone(),
            missing: self.missing.clone(),
            why: self.why,
        }
    }

    /// Names what a required value is called, if it is not there.
    pub(super) fn require(&mut self, value: Option<u32>, name: &'static str) {
        if value.is_none() {
            self.missing.push(name);
        }
    }

    /// Takes the variables over and checks the numbers against each other.
    pub(super) fn finish(mut self, reader: &Reader<'_>) -> Result<Self, LaunchError> {
        self.variables = reader.used();
        if !self.present {
            return Ok(self);
        }
        let below = [
            ("rank", self.rank, "world size", self.world_size),
            (
                "local rank",
                self.local_rank,
                "local world size",
                self.local_world_size,
            ),
            ("node rank", self.node_rank, "number of nodes", self.nnodes),
        ];
        for (what, index, of, size) in below {
            if let (Some(index), Some(size)) = (index, size)
                && index >= size
            {
                return Err(
                    reader.contradiction(format!("{what} {index} is not below {of} {size}"))
                );
            }
        }
        for (what, part) in [
            ("local world size", self.local_world_size),
            ("number of nodes", self.nnodes),
        ] {
            if let (Some(part), Some(world_size)) = (part, self.world_size)
                && part > world_size
            {
                return Err(
                    reader.contradiction(format!("{what} {part} exceeds world size {world_size}"))
                );
            }
        }
        Ok(self)
    }
}
