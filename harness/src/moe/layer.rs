//! The place of a rank in an MoE layer: its groups, and who else is where.

use muster_comm::error::CommError;
use muster_comm::layout::{FrameworkLayout, GroupKind};
use muster_comm::types::Rank;
use muster_comm::world::World;
use serde::{Deserialize, Serialize};

use super::exchange::Exchange;
use super::pool::Pool;
use super::workload::Shape;
use crate::bench::rank::Place;

/// What is sent of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Payload {
    /// Two bytes an element, there and back
    Bf16,
    /// Four bytes an element, there and back
    F32,
    /// One byte an element and a scale of four bytes for every 128 there; bf16 back
    Fp8,
}

impl Payload {
    /// The word that options and reports use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::Fp8 => "fp8",
        }
    }

    /// Bytes of a token of `hidden` elements on the way to its expert.
    #[must_use]
    pub const fn dispatch_bytes(self, hidden: usize) -> usize {
        match self {
            Self::Bf16 => 2 * hidden,
            Self::F32 => 4 * hidden,
            Self::Fp8 => hidden + 4 * hidden.div_ceil(super::data::SCALE_BLOCK),
        }
    }

    /// Bytes of a token of `hidden` elements on the way back.
    #[must_use]
    pub const fn combine_bytes(self, hidden: usize) -> usize {
        match self {
            Self::Bf16 | Self::Fp8 => 2 * hidden,
            Self::F32 => 4 * hidden,
        }
    }
}

/// One member of the group in which tokens move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its world rank, which is the number of its tokens' source.
    pub world: usize,
    /// Its expert parallel index: it holds the experts of that part.
    pub ep: usize,
    /// Its expert tensor parallel index: it holds that part of each of its experts.
    pub etp: usize,
}

/// The groups of a rank in an MoE layer.
#[derive(Debug)]
pub struct Layer {
    /// Expert parallel group: tokens go from member to member.
    pub ep: Exchange,
    /// Expert tensor parallel group, where it has more than one member.
    pub etp: Option<Exchange>,
    /// Both at once: counts are exchanged over it.
    pub etp_ep: Exchange,
    /// The members of [`Layer::etp_ep`], in its order.
    pub members: Vec<Member>,
    /// This rank's place among them.
    pub me: usize,
    /// Experts, and over how many ranks.
    pub shape: Shape,
    /// Elements of a token.
    pub hidden: usize,
    /// Memory of steps.
    pub pool: Pool,
}

impl Layer {
    /// Makes the groups of this rank; `place` puts each where rows are to move.
    ///
    /// # Errors
    /// If a group cannot be made or placed.
    ///
    /// # Panics
    /// If the layout does not hold this rank: it belongs to another world.
    pub fn new(
        world: &World,
        layout: &FrameworkLayout,
        shape: Shape,
        hidden: usize,
        place: Place<'_>,
    ) -> Result<Self, CommError> {
        let of = |kind, rank| layout.expert_group_of(kind, rank);
        let index = |kind, rank| {
            let members: Vec<Rank> = of(kind, rank);
            members.iter().position(|member| *member == rank)
        };
        let both = of(GroupKind::EtpEp, world.rank());
        let members: Vec<Member> = both
            .iter()
            .map(|rank| Member {
                world: rank.index(),
                ep: index(GroupKind::Ep, *rank).unwrap_or(0),
                etp: index(GroupKind::Etp, *rank).unwrap_or(0),
            })
            .collect();
        let me = both.iter().position(|rank| *rank == world.rank());
        let etp = of(GroupKind::Etp, world.rank());
        let name = |kind: GroupKind, members: &[Rank]| {
            let first = members.first().map_or(0, |rank| rank.0);
            format!("moe-{}-{first}", kind.name())
        };
        let group = |kind, members: &[Rank]| {
            place(world.group(&name(kind, members), members)?).map(Exchange::from)
        };
        Ok(Self {
            ep: group(GroupKind::Ep, &of(GroupKind::Ep, world.rank()))?,
            etp: (etp.len() > 1)
                .then(|| group(GroupKind::Etp, &etp))
                .transpose()?,
            etp_ep: group(GroupKind::EtpEp, &both)?,
            members,
            #[expect(clippy::expect_used, reason = "documented as a panic")]
            me: me.expect("a rank of the layout"),
            shape,
            hidden,
            pool: Pool::default(),
        })
    }

    /// This rank.
    #[must_use]
    pub fn my(&self) -> Member {
        self.members[self.me]
    }

    /// The place in [`Layer::members`] of who has these indices.
    #[must_use]
    pub fn member(&self, ep: usize, etp: usize) -> usize {
        let wanted = |member: &Member| member.ep == ep && member.etp == etp;
        self.members.iter().position(wanted).unwrap_or(0)
    }

    /// Expert tensor parallel size.
    #[must_use]
    pub fn etp_size(&self) -> usize {
        self.etp.as_ref().map_or(1, Exchange::size)
    }

    /// The experts of an ep index.
    #[must_use]
    pub fn experts_of(&self, ep: usize) -> std::ops::Range<usize> {
        let local = self.shape.local();
        ep * local..(ep + 1) * local
    }
}
