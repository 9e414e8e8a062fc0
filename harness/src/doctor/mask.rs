//! `ASCEND_RT_VISIBLE_DEVICES` as the runtime reads it: up to the first item that it does not take.

use super::System;

/// The variable.
pub(super) const RUNTIME: &str = "ASCEND_RT_VISIBLE_DEVICES";
/// Devices of one host that any mask may name.
pub(super) const DEVICES_MAX: u32 = 1024;

/// What a mask leaves visible.
#[derive(Debug)]
pub(super) struct Visible {
    /// The devices, in the order of the mask.
    pub(super) ids: Vec<u32>,
    /// What the runtime stopped at.
    pub(super) stop: Option<String>,
}

impl System {
    /// What the mask leaves visible; `None` where there is none.
    pub(super) fn visible_devices(&self) -> Option<Visible> {
        Some(taken(self.text(RUNTIME)?, self))
    }
}

fn taken(text: &str, system: &System) -> Visible {
    let devices = system.devices();
    let count = u32::try_from(devices.len()).unwrap_or(u32::MAX);
    let mut ids = Vec::new();
    for item in text.split(',') {
        // In a container nodes keep the numbers of the host, and the runtime counts from 0.
        let is_absent = |id: u32| count > 0 && id >= count && !devices.contains(&id);
        let stop = if item.contains(|c: char| c.is_ascii_whitespace()) {
            format!("it stops at the space in {item:?}")
        } else if item.is_empty() {
            "it stops at an empty item".to_owned()
        } else if !item.bytes().all(|byte| byte.is_ascii_digit()) {
            format!("it stops at {item:?}, which is no number")
        } else {
            match item.parse().ok().filter(|id| *id < DEVICES_MAX) {
                None => format!("it stops at {item}, which is no device"),
                Some(id) if ids.contains(&id) => format!("it stops at the second {id}"),
                Some(id) if is_absent(id) => {
                    format!("it stops at {id}, there is no /dev/davinci{id}")
                }
                Some(id) => {
                    ids.push(id);
                    continue;
                }
            }
        };
        return Visible {
            ids,
            stop: Some(stop),
        };
    }
    Visible { ids, stop: None }
}
