//! One grid over consecutive ranks: sizes, an order, and every group that follows from them.
//!
//! This is the whole arithmetic of a layout. The first axis of the order changes fastest with the
//! rank number; a group over a set of axes holds the ranks that agree in all other axes.
//!
//! GRID-1: coordinates and rank numbers are each other's inverse. GRID-2: the groups over any set
//! of axes are a partition of the ranks. GRID-3: members ascend, groups are listed by lowest member.

use crate::types::{MAX_WORLD_SIZE, Rank};

use super::axis::{Axis, AxisSet, Param, Part, Sizes};
use super::error::LayoutError;
use super::groups::Groups;
use super::order;

/// Where a rank stands in a grid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Coordinates {
    /// Tensor parallel rank (etp in the expert part).
    pub tp: u32,
    /// Context parallel rank; 0 in the expert part.
    pub cp: u32,
    /// Expert parallel rank; 0 in the dense part.
    pub ep: u32,
    /// Data parallel rank (edp in the expert part).
    pub dp: u32,
    /// Pipeline stage.
    pub pp: u32,
}

impl Coordinates {
    /// The coordinate along an axis.
    #[must_use]
    pub const fn of(&self, axis: Axis) -> u32 {
        match axis {
            Axis::Cp => self.cp,
            Axis::Dp => self.dp,
            Axis::Ep => self.ep,
            Axis::Pp => self.pp,
            Axis::Tp => self.tp,
        }
    }

    fn set(&mut self, axis: Axis, value: u32) {
        match axis {
            Axis::Cp => self.cp = value,
            Axis::Dp => self.dp = value,
            Axis::Ep => self.ep = value,
            Axis::Pp => self.pp = value,
            Axis::Tp => self.tp = value,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Side {
    axis: Axis,
    size: u32,
    stride: u32,
}

/// A grid of ranks, what Megatron calls a rank generator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grid {
    offset: u32,
    world: u32,
    /// Fastest changing axis first, so strides ascend.
    sides: [Side; 5],
}

impl Grid {
    /// A grid with these sizes in this order, over the ranks from `rank_offset` on.
    ///
    /// `part` only names the grid in errors.
    ///
    /// # Errors
    /// A size below 1, a product above [`MAX_WORLD_SIZE`], ep and cp both above 1, an order that
    /// leaves out an axis of a size above 1, names an unknown one or one twice, or a negative offset.
    pub fn new(
        part: Part,
        sizes: Sizes,
        order: &str,
        rank_offset: i64,
    ) -> Result<Self, LayoutError> {
        let mut world: u64 = 1;
        for axis in Axis::ALL {
            let size = positive(Param::of(axis, part), sizes.of(axis))?;
            world = world.saturating_mul(size);
        }
        let world = u32::try_from(world)
            .ok()
            .filter(|world| *world <= MAX_WORLD_SIZE)
            .ok_or(LayoutError::WorldTooLarge { got: world })?;
        if sizes.ep > 1 && sizes.cp > 1 {
            return Err(LayoutError::EpAndCpInOneGrid {
                ep: sizes.ep,
                cp: sizes.cp,
            });
        }
        let offset = checked_offset(rank_offset, world)?;
        let axes = order::complete(order, part, &sizes)?;
        let mut stride: u32 = 1;
        let sides = axes.map(|axis| {
            // Each size divides the world size, which fits u32.
            let size = u32::try_from(sizes.of(axis)).unwrap_or(1);
            let side = Side { axis, size, stride };
            stride *= size;
            side
        });
        Ok(Self {
            offset,
            world,
            sides,
        })
    }

    /// Number of ranks.
    #[must_use]
    pub fn world_size(&self) -> u32 {
        self.world
    }

    /// Number of the first rank.
    #[must_use]
    pub fn rank_offset(&self) -> u32 {
        self.offset
    }

    /// The axes from the fastest changing to the slowest.
    #[must_use]
    pub fn order(&self) -> [Axis; 5] {
        self.sides.map(|side| side.axis)
    }

    /// Size of an axis.
    #[must_use]
    pub fn size(&self, axis: Axis) -> u32 {
        self.side(axis).size
    }

    /// Where a rank stands; `None` for a rank outside the grid.
    #[must_use]
    pub fn coordinates(&self, rank: Rank) -> Option<Coordinates> {
        let place = self.place(rank)?;
        let mut coordinates = Coordinates::default();
        for side in &self.sides {
            coordinates.set(side.axis, place / side.stride % side.size);
        }
        Some(coordinates)
    }

    /// The rank that stands there; `None` for a coordinate outside the grid.
    #[must_use]
    pub fn rank_at(&self, coordinates: Coordinates) -> Option<Rank> {
        let mut place = 0;
        for side in &self.sides {
            let coordinate = coordinates.of(side.axis);
            if coordinate >= side.size {
                return None;
            }
            place += coordinate * side.stride;
        }
        Some(Rank(self.offset + place))
    }

    /// The groups over a set of axes, in Megatron's sequence.
    #[must_use]
    pub fn groups(&self, axes: AxisSet) -> Groups {
        let firsts = self
            .places(axes.complement())
            .into_iter()
            .map(|place| self.offset + place)
            .collect();
        Groups::new(firsts, self.places(axes))
    }

    /// The position in [`groups`](Self::groups) of the group that holds a rank.
    #[must_use]
    pub fn group_index(&self, axes: AxisSet, rank: Rank) -> Option<usize> {
        let place = self.place(rank)?;
        let mut index = 0;
        let mut weight = 1;
        for side in self.sides.iter().filter(|side| !axes.contains(side.axis)) {
            index += place / side.stride % side.size * weight;
            weight *= side.size;
        }
        Some(Rank(index).index())
    }

    /// The members of the group over a set of axes that holds a rank.
    #[must_use]
    pub fn group_of(&self, axes: AxisSet, rank: Rank) -> Option<Vec<Rank>> {
        let first = self.first_of(axes, rank)?;
        let offsets = self.places(axes);
        Some(offsets.iter().map(|offset| Rank(first + offset)).collect())
    }

    /// Places of the ranks whose coordinates outside `axes` are all 0, ascending.
    pub(super) fn places(&self, axes: AxisSet) -> Vec<u32> {
        let mut places = vec![0];
        for side in self.sides.iter().filter(|side| axes.contains(side.axis)) {
            // A slower axis has the larger stride, so appending whole blocks keeps the list sorted.
            let block = places.len();
            for step in 1..side.size {
                for index in 0..block {
                    places.push(places[index] + step * side.stride);
                }
            }
        }
        places
    }

    /// The lowest member of the group over `axes` that holds a rank.
    pub(super) fn first_of(&self, axes: AxisSet, rank: Rank) -> Option<u32> {
        let place = self.place(rank)?;
        let inside: u32 = self
            .sides
            .iter()
            .filter(|side| axes.contains(side.axis))
            .map(|side| place / side.stride % side.size * side.stride)
            .sum();
        Some(self.offset + place - inside)
    }

    pub(super) fn stride(&self, axis: Axis) -> u32 {
        self.side(axis).stride
    }

    fn place(&self, rank: Rank) -> Option<u32> {
        rank.0
            .checked_sub(self.offset)
            .filter(|place| *place < self.world)
    }

    fn side(&self, axis: Axis) -> Side {
        let found = self.sides.iter().find(|side| side.axis == axis);
        *found.expect("order::complete yields every axis")
    }
}

/// A size as a number that can be multiplied, or the error that names it.
pub(super) fn positive(param: Param, got: i64) -> Result<u64, LayoutError> {
    u64::try_from(got)
        .ok()
        .filter(|size| *size > 0)
        .ok_or(LayoutError::SizeNotPositive { param, got })
}

fn checked_offset(got: i64, world: u32) -> Result<u32, LayoutError> {
    let highest = MAX_WORLD_SIZE - world;
    u32::try_from(got)
        .ok()
        .filter(|offset| *offset <= highest)
        .ok_or(LayoutError::RankOffset { got, highest })
}
