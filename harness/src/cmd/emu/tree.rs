//! The files of an emulated toolkit, as texts and links: what is where in each generation of CANN.
//!
//! Nothing is written here.

use std::fmt::Write as _;
use std::path::PathBuf;

use hccl_sys::search::Library;
use hccl_sys::version::{Version, splits_libraries};

use super::headers;
use crate::cmd::library;

/// Packages that state a version of their own.
const PACKAGES: [&str; 5] = ["compiler", "hccl", "opp", "runtime", "toolkit"];
/// Packages whose libraries are found below the package as well.
const PACKAGES_WITH_LIBRARIES: [&str; 2] = ["compiler", "runtime"];
/// Packages that came with the split of the libraries.
const PACKAGES_SPLIT: [&str; 2] = ["acl", "hcomm"];
/// Libraries of the vendor that torch_npu is linked with, beside those that hold HCCL and the runtime.
const LIBRARIES_OF_TORCH: [&str; 4] = [
    "libacl_op_compiler.so",
    "libacl_tdt_channel.so",
    "libge_runner.so",
    "libgraph.so",
];
/// Driver that goes with the emulated toolkit.
const DRIVER: &str = "25.0.RC1-emulated";
/// First line of every file.
const MARK: &str = "# emulated: laid out by muster, not by the vendor; nothing here drives an NPU";

/// Something in the tree, by its path from the top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// A text file.
    Text(PathBuf, String),
    /// The library itself.
    Library(PathBuf),
    /// A link to a path that is relative to it.
    Link(PathBuf, String),
}

impl Entry {
    /// Its path from the top.
    pub(super) fn path(&self) -> &PathBuf {
        match self {
            Self::Text(path, _) | Self::Library(path) | Self::Link(path, _) => path,
        }
    }
}

/// `8.1.RC1-emulated`.
pub(super) fn version_text(cann: &Version) -> String {
    format!("{}-emulated", cann.as_str())
}

/// `x86_64-linux`.
fn platform() -> String {
    format!("{}-linux", std::env::consts::ARCH)
}

/// What lies in the folder of one version: the one that `latest` leads to.
pub(super) fn version_folder(cann: &Version) -> Vec<Entry> {
    let (platform, version) = (platform(), version_text(cann));
    // Where it is not known whether a version has split libraries, it is taken as a new one.
    let splits = splits_libraries(cann).unwrap_or(true);
    let arch = std::env::consts::ARCH;
    let mut entries = vec![
        Entry::Library(PathBuf::from(format!(
            "{platform}/lib64/{}",
            library::EMULATOR.file
        ))),
        Entry::Link(PathBuf::from("lib64"), format!("{platform}/lib64")),
        Entry::Text(
            PathBuf::from(format!("{platform}/ascend_toolkit_install.info")),
            format!(
                "{MARK}\npackage_name=Ascend-cann-toolkit\nversion={version}\ninnerversion=emulated\n\
                 compatible_version=emulated\narch={arch}\nos=linux\n"
            ),
        ),
    ];
    // Programs such as torch_npu look whether these are there.
    entries.push(Entry::Text(
        PathBuf::from("opp/EMULATED"),
        format!("{MARK}\n"),
    ));
    for package in PACKAGES_WITH_LIBRARIES {
        let path = PathBuf::from(format!("{package}/lib64"));
        entries.push(Entry::Link(path, "../lib64".to_owned()));
    }
    for name in Library::ALL
        .map(Library::file_name)
        .iter()
        .chain(&LIBRARIES_OF_TORCH)
    {
        let path = PathBuf::from(format!("{platform}/lib64/{name}"));
        entries.push(Entry::Link(path, library::EMULATOR.file.to_owned()));
    }
    for (path, text) in headers::headers(cann) {
        let path = PathBuf::from(format!("{platform}/include/{path}"));
        entries.push(Entry::Text(path, text));
    }
    let include = format!("{platform}/include");
    entries.push(Entry::Link(PathBuf::from("include"), include));
    let packages = PACKAGES
        .iter()
        .chain(if splits { &PACKAGES_SPLIT[..] } else { &[] });
    let mut running = format!("{MARK}\n");
    for package in packages {
        let folder = if splits {
            format!("share/info/{package}")
        } else {
            (*package).to_owned()
        };
        entries.push(Entry::Text(
            PathBuf::from(format!("{folder}/version.info")),
            format!("{MARK}\nVersion={version}\nversion_dir={version}\n"),
        ));
        // Writing to a string cannot fail.
        let _ = writeln!(running, "{package}_running_version=[emulated:{version}]");
    }
    if !splits {
        entries.push(Entry::Text(PathBuf::from("version.cfg"), running));
    }
    entries
}

/// What lies at the top beside the folder of the version, whose name is `folder`.
pub(super) fn top(folder: &str, root: &str) -> Vec<Entry> {
    let platform = platform();
    vec![
        Entry::Text(PathBuf::from("set_env.sh"), set_env(root)),
        Entry::Text(
            PathBuf::from("driver/version.info"),
            format!("{MARK}\nVersion={DRIVER}\npackage_version={DRIVER}\n"),
        ),
        // For those who take the top itself as the toolkit.
        Entry::Link(PathBuf::from("lib64"), "latest/lib64".to_owned()),
        Entry::Link(PathBuf::from("include"), "latest/include".to_owned()),
        Entry::Link(PathBuf::from(&platform), format!("latest/{platform}")),
        // Last: what was installed before counts until this link is exchanged.
        Entry::Link(PathBuf::from("latest"), folder.to_owned()),
    ]
}

/// The script that a shell sources, as with the vendor's toolkit.
fn set_env(root: &str) -> String {
    let root = root.replace('\'', "'\\''");
    format!(
        "{MARK}\n\
         export ASCEND_TOOLKIT_HOME='{root}/latest'\n\
         export ASCEND_HOME_PATH=\"$ASCEND_TOOLKIT_HOME\"\n\
         export ASCEND_OPP_PATH=\"$ASCEND_TOOLKIT_HOME/opp\"\n\
         export LD_LIBRARY_PATH=\"$ASCEND_TOOLKIT_HOME/lib64${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}\"\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_says_emulated_and_every_generation_has_its_files() {
        for (cann, file) in [
            ("8.1.RC1", "hccl/version.info"),
            ("8.5.0", "share/info/hcomm/version.info"),
            ("9.0.0", "share/info/hccl/version.info"),
        ] {
            let version: Version = cann.parse().expect("a version");
            let mut entries = version_folder(&version);
            entries.extend(top(cann, "/a 'b'"));
            assert!(
                entries.iter().any(|entry| entry.path().ends_with(file)),
                "{cann}"
            );
            for entry in &entries {
                if let Entry::Text(path, text) = entry {
                    assert!(text.contains("emulated"), "{}", path.display());
                }
            }
            for library in Library::ALL {
                let name = library.file_name();
                assert!(
                    entries.iter().any(|entry| entry.path().ends_with(name)),
                    "{name}"
                );
            }
        }
    }
}
