//! Versions of a toolkit, as its files say them, and whether it is a real one.

use super::System;

/// A part of a toolkit that says its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) file: String,
}

/// Parts whose versions must be one.
const PARTS: [&str; 6] = ["hccl", "hcomm", "runtime", "compiler", "toolkit", "opp"];

/// The value of `key=value`, upper and lower case alike, quotes and brackets taken off.
fn value(text: &str, key: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once('=')?;
        let value = value.trim().trim_matches(['"', '[', ']']);
        let value = value.rsplit(':').next().unwrap_or(value);
        let fits = found.trim().eq_ignore_ascii_case(key) && !value.is_empty();
        fits.then(|| value.to_owned())
    })
}

impl System {
    /// The version of the toolkit at `root`, and the file that says it.
    pub(super) fn toolkit_version(&self, root: &str) -> Option<(String, String)> {
        for folder in self.names(root) {
            let file = format!("{root}/{folder}/ascend_toolkit_install.info");
            let version = self.read(&file).and_then(|text| value(&text, "version"));
            if let Some(version) = version {
                return Some((version, file));
            }
        }
        let file = format!("{root}/version.cfg");
        let text = self.read(&file).unwrap_or_default();
        for key in [
            "toolkit_running_version",
            "toolkit_installed_version",
            "version",
        ] {
            if let Some(version) = value(&text, key) {
                return Some((version, file));
            }
        }
        let part = self.toolkit_parts(root).into_iter().next()?;
        Some((part.version, part.file))
    }

    /// Versions of the parts of the toolkit at `root`, in both layouts.
    pub(super) fn toolkit_parts(&self, root: &str) -> Vec<Part> {
        let mut found = Vec::new();
        for name in PARTS {
            for file in [
                format!("{root}/{name}/version.info"),
                format!("{root}/share/info/{name}/version.info"),
            ] {
                let Some(text) = self.read(&file) else {
                    continue;
                };
                // The internal number differs between parts of one release; this does not.
                if let Some(version) = value(&text, "version_dir") {
                    let name = name.to_owned();
                    found.push(Part {
                        name,
                        version,
                        file,
                    });
                }
            }
        }
        found
    }

    /// Whether the first toolkit found, or a library that loaded, is the emulator and no hardware.
    #[must_use]
    pub fn emulated(&self) -> bool {
        let marked = |text: &str| text.to_ascii_lowercase().contains("emulat");
        let toolkits = self.toolkits();
        let by_version = toolkits.first().is_some_and(|(root, _)| {
            self.toolkit_version(root)
                .is_some_and(|(version, _)| marked(&version))
                || self
                    .read(format!("{root}/version.cfg"))
                    .is_some_and(|text| marked(&text))
        });
        by_version
    }
}
