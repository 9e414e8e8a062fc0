//! An emulated toolkit, laid out by the program itself, and runs of the program on it.

use std::path::Path;

use muster_tests::{Ended, Running, binary, start};

/// An emulated toolkit in a folder of its own, which goes when this does.
pub(crate) struct Toolkit {
    folder: tempfile::TempDir,
}

impl Toolkit {
    pub(crate) fn install() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("toolkit");
        let target = target.to_str().expect("text");
        start(binary(), &["emu", "install", target], &[])
            .wait()
            .expect_code(0);
        Self { folder }
    }

    pub(crate) fn home(&self) -> String {
        let latest = self.folder.path().join("toolkit/latest");
        assert!(Path::new(&latest).exists(), "a tree with a version");
        latest.to_str().expect("text").to_owned()
    }

    /// Runs the program with its toolkit here.
    pub(crate) fn run(&self, words: &[&str], variables: &[(&str, &str)]) -> Ended {
        self.begin(words, variables).wait()
    }

    /// Starts it.
    pub(crate) fn begin(&self, words: &[&str], variables: &[(&str, &str)]) -> Running {
        let home = self.home();
        let mut all = vec![("ASCEND_HOME_PATH", home.as_str())];
        all.extend_from_slice(variables);
        start(binary(), words, &all)
    }
}
