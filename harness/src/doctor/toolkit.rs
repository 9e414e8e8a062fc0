//! Versions of toolkits and of the driver, and whether a toolkit is a real one.

use std::path::Path;

use hccl_sys::version::{Driver, Toolkit, Version};

use super::System;

impl System {
    /// What the files of the toolkit at `root` state.
    pub(super) fn toolkit(&self, root: &str) -> Toolkit {
        Toolkit::read(&self.path(root))
    }

    /// The version of the toolkit at `root`, and the file that says it.
    pub(super) fn toolkit_version(&self, root: &str) -> Option<(Version, String)> {
        let file = self.toolkit(root).files.into_iter().next()?;
        Some((file.version, self.shown(&file.path)))
    }

    /// What the files of the driver state.
    pub(super) fn driver(&self) -> Driver {
        Driver::read_below(self.root())
    }

    /// The folders of `LD_LIBRARY_PATH`.
    pub(super) fn library_folders(&self) -> impl Iterator<Item = &str> {
        let path = self.text("LD_LIBRARY_PATH").unwrap_or_default();
        path.split(':').filter(|folder| !folder.is_empty())
    }

    /// A path as the host itself calls it.
    pub(super) fn shown(&self, path: &Path) -> String {
        let inside = path.strip_prefix(self.root());
        inside.map_or_else(
            |_| path.display().to_string(),
            |inside| format!("/{}", inside.display()),
        )
    }

    /// Whether the first toolkit found, or a library that loads, is the emulator and no hardware.
    #[must_use]
    pub fn emulated(&self) -> bool {
        self.api().is_some_and(|api| api.emulated().is_some()) || self.is_known_as_emulated()
    }

    /// The same by files and by what is loaded already; loads nothing.
    #[must_use]
    pub fn is_known_as_emulated(&self) -> bool {
        let by_library = self
            .api_if_loaded()
            .is_some_and(|api| api.emulated().is_some());
        let by_version = || {
            let (root, _) = self.toolkits().into_iter().next()?;
            let toolkit = self.toolkit(&root);
            Some(toolkit.version()?.is_emulated())
        };
        by_library || by_version().unwrap_or(false)
    }
}
