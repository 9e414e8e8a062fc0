//! Which device a rank drives.
//!
//! One device a rank: that of its number among the ranks of its host, unless the user's map or the
//! mask of the process says otherwise. Pure: what the environment, the launcher and the runtime say
//! goes in. A mask renumbers devices from 0, so logical and physical ids are kept apart everywhere.

use std::fmt;

use crate::launch::VisibleDevices;

/// The user's own choice: local rank `i` drives the logical device at place `i`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceMap(Vec<u32>);

impl DeviceMap {
    /// The map of these logical ids; `None` where one stands there twice.
    #[must_use]
    pub fn new(ids: Vec<u32>) -> Option<Self> {
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        sorted.dedup();
        (sorted.len() == ids.len()).then_some(Self(ids))
    }
}

impl fmt::Display for DeviceMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<String> = self.0.iter().map(u32::to_string).collect();
        f.write_str(&ids.join(","))
    }
}

/// The device of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Its logical id: what the runtime takes.
    pub logical: u32,
    /// Its physical id, where a mask tells it.
    pub physical: Option<u32>,
    /// Why this one, one fragment.
    pub how: String,
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {}", self.logical)?;
        if let Some(physical) = self.physical {
            write!(f, " (physical {physical})")?;
        }
        write!(f, ": {}", self.how)
    }
}

/// Why a rank gets no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectionError {
    /// The mask and the runtime disagree on how many devices there are.
    #[error(
        "{variable} names {named} devices and the runtime sees {visible}: it stops at the first \
         entry that it does not take (a space, a repeated or unknown id) and keeps what came before"
    )]
    MaskCut {
        /// The mask.
        variable: &'static str,
        /// Devices that it names.
        named: usize,
        /// Devices that the runtime counts.
        visible: u32,
    },
    /// The user's map has no place for this rank, or names a device that is not visible.
    #[error("local rank {local_rank} under MUSTER_DEVICE_MAP={map}: {why}")]
    Map {
        /// The rank's number on its host.
        local_rank: u32,
        /// The map.
        map: String,
        /// What is wrong with it.
        why: String,
    },
    /// More ranks than devices on this host.
    #[error("local rank {local_rank} has no device: {visible} visible{mask}")]
    TooFew {
        /// The rank's number on its host.
        local_rank: u32,
        /// Devices that the runtime counts.
        visible: u32,
        /// ` (ASCEND_RT_VISIBLE_DEVICES)`, where a mask is set.
        mask: String,
    },
    /// Nothing says which rank of the host this is.
    #[error(
        "nothing says which of {visible} devices this rank drives: the launcher gives no local rank"
    )]
    NoLocalRank {
        /// Devices that the runtime counts.
        visible: u32,
    },
}

impl SelectionError {
    /// One sentence on what to do.
    #[must_use]
    pub fn help(&self) -> &'static str {
        match self {
            Self::MaskCut { .. } => {
                "write the mask as ids in ascending order without spaces: 0,1,2,3"
            }
            Self::Map { .. } => "name one visible device for each rank of the host",
            Self::TooFew { .. } => "start fewer ranks on this host, or make more devices visible",
            Self::NoLocalRank { .. } => {
                "set MUSTER_LOCAL_RANK, give each rank a mask of its own, or set MUSTER_DEVICE_MAP"
            }
        }
    }
}

/// The device of a rank.
///
/// `local_rank` is its number on its host, `visible` the number of devices that the runtime sees,
/// `mask` what `ASCEND_RT_VISIBLE_DEVICES` or the container leaves, `map` the user's own choice.
///
/// A process that sees one device only drives that one: such a mask was made for it alone. So was that of a Ray actor, unless Ray
/// was told to leave the variable alone.
///
/// # Errors
/// [`SelectionError`]: no two ranks are ever given one device in silence.
pub fn select(
    local_rank: Option<u32>,
    visible: u32,
    mask: Option<&VisibleDevices>,
    map: Option<&DeviceMap>,
) -> Result<Selection, SelectionError> {
    // The mask of the container counts devices of the host, of which this process may see fewer.
    let mask = mask.filter(|mask| mask.variable == "ASCEND_RT_VISIBLE_DEVICES");
    if let Some(mask) = mask
        && u32::try_from(mask.physical.len()).ok() != Some(visible)
    {
        return Err(SelectionError::MaskCut {
            variable: mask.variable,
            named: mask.physical.len(),
            visible,
        });
    }
    let chosen = |logical: u32, how: String| Selection {
        logical,
        physical: mask.and_then(|mask| mask.physical_of(logical as usize)),
        how,
    };
    if let Some(map) = map {
        let local_rank = local_rank.ok_or(SelectionError::NoLocalRank { visible })?;
        let wrong = |why: String| SelectionError::Map {
            local_rank,
            map: map.to_string(),
            why,
        };
        let logical = map.0.get(local_rank as usize).copied();
        let logical = logical.ok_or_else(|| wrong(format!("it has {} places", map.0.len())))?;
        if logical >= visible {
            return Err(wrong(format!(
                "device {logical} is not among the {visible} visible ones"
            )));
        }
        return Ok(chosen(logical, format!("MUSTER_DEVICE_MAP={map}")));
    }
    if visible > 0 && mask.is_some_and(|mask| mask.is_own) {
        return Ok(chosen(
            0,
            "the first that Ray gave to this actor".to_owned(),
        ));
    }
    if visible == 1 && (mask.is_some() || local_rank.is_none_or(|rank| rank == 0)) {
        return Ok(chosen(0, "the only one that this process sees".to_owned()));
    }
    let local_rank = local_rank.ok_or(SelectionError::NoLocalRank { visible })?;
    if local_rank >= visible {
        let named = |mask: &VisibleDevices| format!(" ({})", mask.variable);
        return Err(SelectionError::TooFew {
            local_rank,
            visible,
            mask: mask.map_or_else(String::new, named),
        });
    }
    Ok(chosen(local_rank, format!("local rank {local_rank}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(physical: &[u32]) -> VisibleDevices {
        VisibleDevices {
            variable: "ASCEND_RT_VISIBLE_DEVICES",
            physical: physical.to_vec(),
            is_own: false,
        }
    }

    #[test]
    fn a_rank_drives_the_device_of_its_local_number_with_both_its_ids() {
        let chosen = select(Some(1), 3, Some(&mask(&[2, 5, 7])), None).unwrap();
        assert_eq!((chosen.logical, chosen.physical), (1, Some(5)));
        assert_eq!(chosen.to_string(), "device 1 (physical 5): local rank 1");
        let chosen = select(Some(2), 8, None, None).unwrap();
        assert_eq!((chosen.logical, chosen.physical), (2, None));
    }

    #[test]
    fn a_mask_of_one_device_was_made_for_this_rank() {
        let chosen = select(Some(3), 1, Some(&mask(&[6])), None).unwrap();
        assert_eq!((chosen.logical, chosen.physical), (0, Some(6)));
        assert_eq!(select(None, 1, None, None).unwrap().logical, 0);
        // Without a mask the second rank of a host with one device has none.
        assert!(matches!(
            select(Some(1), 1, None, None),
            Err(SelectionError::TooFew { .. })
        ));
    }

    #[test]
    fn an_actor_drives_the_first_of_the_devices_that_ray_gave_it() {
        let own = VisibleDevices {
            is_own: true,
            ..mask(&[4, 6])
        };
        for local_rank in [None, Some(0), Some(1), Some(5)] {
            let chosen = select(local_rank, 2, Some(&own), None).unwrap();
            assert_eq!((chosen.logical, chosen.physical), (0, Some(4)));
        }
        let map = DeviceMap::new(vec![0, 1]).unwrap();
        assert_eq!(
            select(Some(1), 2, Some(&own), Some(&map)).unwrap().logical,
            1
        );
        // A mask that Ray was told to leave alone is that of the node.
        assert_eq!(
            select(Some(1), 2, Some(&mask(&[4, 6])), None)
                .unwrap()
                .logical,
            1
        );
    }

    #[test]
    fn a_map_outranks_the_local_number_and_is_checked() {
        let map = DeviceMap::new(vec![4, 0, 2]).unwrap();
        assert_eq!(select(Some(2), 8, None, Some(&map)).unwrap().logical, 2);
        let text = |result: Result<Selection, SelectionError>| result.unwrap_err().to_string();
        assert!(text(select(Some(3), 8, None, Some(&map))).contains("it has 3 places"));
        assert!(text(select(Some(0), 2, None, Some(&map))).contains("not among the 2 visible"));
        assert!(text(select(None, 8, None, Some(&map))).contains("no local rank"));
        assert_eq!(DeviceMap::new(vec![1, 1]), None);
    }

    #[test]
    fn a_mask_that_the_runtime_cut_short_is_explained() {
        let error = select(Some(0), 2, Some(&mask(&[0, 1, 2, 3])), None).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("names 4 devices and the runtime sees 2"),
            "{error}"
        );
        let container = VisibleDevices {
            variable: "ASCEND_VISIBLE_DEVICES",
            physical: vec![0, 1, 2, 3],
            is_own: false,
        };
        assert!(select(Some(0), 2, Some(&container), None).is_ok());
    }

    #[test]
    fn more_ranks_than_devices_are_refused_with_the_mask_that_is_to_blame() {
        let error = select(Some(2), 2, Some(&mask(&[3, 4])), None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "local rank 2 has no device: 2 visible (ASCEND_RT_VISIBLE_DEVICES)"
        );
        let error = select(None, 8, None, None).unwrap_err();
        assert!(error.help().contains("MUSTER_LOCAL_RANK"));
    }
}
