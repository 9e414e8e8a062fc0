//! Where the vendor's libraries may lie, and whether they load.
//!
//! Up to CANN 8.3 two libraries hold everything, `libhccl.so` and `libascendcl.so`. From 8.5 on
//! `libhcomm.so` and `libacl_rt.so` hold part of the calls, so all four are looked for and the two
//! newer ones may be missing. No file name carries a version.
//!
//! - `SEARCH-1`: a report names every place that was tried, with the loader's own words.
//! - `SEARCH-2`: libraries beside `HCCL_SO_PATH` go before all others, and a newer library is not
//!   taken from another folder than its older partner, so that two installations are not mixed.
//! - `SEARCH-3`: all symbols are bound while loading: a library that lacks something fails here,
//!   with the loader's words, and not in the middle of a run.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::loaded::Handle;

/// Default installations, newest layout last; each has its libraries in `lib64`.
pub const INSTALLATIONS: [&str; 4] = [
    "/usr/local/Ascend/ascend-toolkit/latest",
    "/usr/local/Ascend/cann",
    "/usr/local/Ascend/nnae/latest",
    "/usr/local/Ascend/nnrt/latest",
];
/// Folder of the libraries in an installation.
const LIBRARIES: &str = "lib64";
/// Folder of the files for this machine in an installation.
const MACHINE_FOLDER: &str = if cfg!(target_arch = "aarch64") {
    "aarch64-linux"
} else {
    "x86_64-linux"
};
/// Folder of the device nodes.
const DEVICE_FOLDER: &str = "/dev";
/// Beginning of the name of a device node; a number follows.
const DEVICE_PREFIX: &str = "davinci";

/// A library of the vendor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Library {
    /// `libacl_rt.so`: the runtime's calls from CANN 8.5 on.
    AclRt,
    /// `libascendcl.so`: the runtime, or its front from CANN 8.5 on.
    AscendCl,
    /// `libhccl.so`: collectives; up to CANN 8.3 communicators too.
    Hccl,
    /// `libhcomm.so`: communicators from CANN 8.5 on.
    Hcomm,
}

impl Library {
    /// All of them, in the order in which they are looked for.
    pub const ALL: [Self; 4] = [Self::Hccl, Self::Hcomm, Self::AscendCl, Self::AclRt];

    /// Name of the file, the same on every version.
    #[must_use]
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::AclRt => "libacl_rt.so",
            Self::AscendCl => "libascendcl.so",
            Self::Hccl => "libhccl.so",
            Self::Hcomm => "libhcomm.so",
        }
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.file_name())
    }
}

/// What the search depends on: the variables' values, and the places of the system.
#[derive(Clone, Debug)]
pub struct Places {
    /// Value of `HCCL_SO_PATH`.
    pub hccl_so_path: Option<PathBuf>,
    /// Value of `ASCEND_HOME_PATH`.
    pub ascend_home_path: Option<PathBuf>,
    /// Value of `ASCEND_TOOLKIT_HOME`.
    pub ascend_toolkit_home: Option<PathBuf>,
    /// Value of `LD_LIBRARY_PATH`: the loader reads it, a report shows it.
    pub ld_library_path: Option<String>,
    /// Installations to try where no variable leads anywhere.
    pub installations: Vec<PathBuf>,
    /// Folder of the device nodes.
    pub device_folder: PathBuf,
}

/// No variable set, and the places where the vendor's installer puts things.
impl Default for Places {
    fn default() -> Self {
        Self {
            hccl_so_path: None,
            ascend_home_path: None,
            ascend_toolkit_home: None,
            ld_library_path: None,
            installations: INSTALLATIONS.iter().map(PathBuf::from).collect(),
            device_folder: PathBuf::from(DEVICE_FOLDER),
        }
    }
}

/// Why a place is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// `ASCEND_HOME_PATH` leads there.
    AscendHomePath,
    /// `ASCEND_TOOLKIT_HOME` leads there.
    AscendToolkitHome,
    /// It lies beside the file that `HCCL_SO_PATH` names.
    BesideHcclSoPath,
    /// `HCCL_SO_PATH` names it.
    HcclSoPath,
    /// The vendor's installer puts it there.
    Installation,
    /// The loader searches for the bare name: `LD_LIBRARY_PATH`, then the system's own list.
    Loader,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::AscendHomePath => "ASCEND_HOME_PATH",
            Self::AscendToolkitHome => "ASCEND_TOOLKIT_HOME",
            Self::BesideHcclSoPath => "beside HCCL_SO_PATH",
            Self::HcclSoPath => "HCCL_SO_PATH",
            Self::Installation => "default installation",
            Self::Loader => "loader path",
        })
    }
}

/// One place where a library may lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The library that is looked for.
    pub library: Library,
    /// A path, or a bare name for the loader.
    pub path: PathBuf,
    /// Why it is tried.
    pub why: Why,
}

/// `libhccl.so (loader path)`.
impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.path.display(), self.why)
    }
}

/// Every place to try, library by library, in order.
#[must_use]
pub fn candidates(places: &Places) -> Vec<Candidate> {
    let mut folders: Vec<(PathBuf, Why)> = Vec::new();
    for (root, why) in [
        (&places.ascend_home_path, Why::AscendHomePath),
        (&places.ascend_toolkit_home, Why::AscendToolkitHome),
    ] {
        let Some(root) = root else {
            continue;
        };
        folders.push((root.join(LIBRARIES), why));
        // The first one is a link to this one, and missing where the link was not copied.
        folders.push((root.join(MACHINE_FOLDER).join(LIBRARIES), why));
    }
    let installed = places.installations.iter();
    folders.extend(installed.map(|root| (root.join(LIBRARIES), Why::Installation)));
    let mut found: Vec<Candidate> = Vec::new();
    for library in Library::ALL {
        let name = library.file_name();
        let named = named_by_variable(places, library);
        let bare = std::iter::once((PathBuf::from(name), Why::Loader));
        let filed = folders
            .iter()
            .map(|(folder, why)| (folder.join(name), *why));
        for (path, why) in named.into_iter().chain(bare).chain(filed) {
            // Both toolkit variables usually name one folder: it is tried once.
            let known = |other: &Candidate| other.library == library && other.path == path;
            if !found.iter().any(known) {
                found.push(Candidate { library, path, why });
            }
        }
    }
    found
}

/// The file that `HCCL_SO_PATH` names, or for another library the one beside it.
fn named_by_variable(places: &Places, library: Library) -> Option<(PathBuf, Why)> {
    let named = places.hccl_so_path.as_ref()?;
    if library == Library::Hccl {
        return Some((named.clone(), Why::HcclSoPath));
    }
    // A bare name has no folder, and leaves the search to the loader.
    let folder = named
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())?;
    Some((folder.join(library.file_name()), Why::BesideHcclSoPath))
}

/// A place that did not serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The place.
    pub candidate: Candidate,
    /// Something lies there; for a bare name: in a folder of `LD_LIBRARY_PATH`.
    pub exists: bool,
    /// What the loader said.
    pub message: String,
}

/// What became of one library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The library.
    pub library: Library,
    /// Where it loaded from, if it did.
    pub loaded: Option<Candidate>,
    /// The file that the loader took, which a bare name does not say.
    pub file: Option<PathBuf>,
    /// The places tried before, in order.
    pub failures: Vec<Failure>,
}

/// What a machine has of the vendor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// One outcome a library, in the order of [`Library::ALL`].
    pub outcomes: Vec<Outcome>,
    /// Device nodes, by number.
    pub devices: Vec<PathBuf>,
    /// Where device nodes were looked for, as a pattern.
    pub device_pattern: String,
    /// Value of `LD_LIBRARY_PATH`.
    pub ld_library_path: Option<String>,
}

/// What was found, and the libraries themselves.
pub(crate) struct Opened {
    pub(crate) probe: Probe,
    pub(crate) handles: Vec<(Library, Handle)>,
}

/// Tries every place until each library has loaded or none is left, and looks for devices.
///
/// What loads stays loaded. May take as long as the constructors of the libraries do.
#[must_use]
pub fn probe(places: &Places) -> Probe {
    open(places).probe
}

/// The one way in which libraries are loaded, to look or to use.
pub(crate) fn open(places: &Places) -> Opened {
    let mut outcomes: Vec<Outcome> = Library::ALL.into_iter().map(Outcome::nothing_yet).collect();
    let mut handles = Vec::new();
    for candidate in candidates(places) {
        let partner = partner_file(&outcomes, candidate.library);
        let outcome = outcomes
            .iter_mut()
            .find(|outcome| outcome.library == candidate.library && outcome.loaded.is_none());
        let Some(outcome) = outcome else {
            continue;
        };
        let exists = exists(&candidate, places.ld_library_path.as_deref());
        let loaded = match other_installation(&candidate, partner.as_deref()) {
            Some(message) => Err(message),
            None => Handle::load(&candidate.path),
        };
        match loaded {
            Ok(handle) => {
                outcome.file = handle.file().or_else(|| Some(candidate.path.clone()));
                outcome.loaded = Some(candidate);
                handles.push((outcome.library, handle));
            }
            Err(message) => outcome.failures.push(Failure {
                exists,
                candidate,
                message,
            }),
        }
    }
    let probe = Probe {
        outcomes,
        devices: device_nodes(&places.device_folder),
        device_pattern: format!("{}/{DEVICE_PREFIX}*", places.device_folder.display()),
        ld_library_path: places.ld_library_path.clone(),
    };
    Opened { probe, handles }
}

/// The file of the older library of a newer one, if it loaded.
fn partner_file(outcomes: &[Outcome], library: Library) -> Option<PathBuf> {
    let partner = match library {
        Library::AclRt => Library::AscendCl,
        Library::Hcomm => Library::Hccl,
        Library::AscendCl | Library::Hccl => return None,
    };
    let outcome = outcomes.iter().find(|outcome| outcome.library == partner)?;
    outcome.file.clone()
}

/// Why a newer library is left alone: it lies in another installation than its partner.
fn other_installation(candidate: &Candidate, partner: Option<&Path>) -> Option<String> {
    let partner = partner?;
    let installed = matches!(
        candidate.why,
        Why::AscendHomePath | Why::AscendToolkitHome | Why::Installation
    );
    // What is not there is for the loader to say.
    if !installed || !candidate.path.exists() {
        return None;
    }
    let ours = folders(&candidate.path);
    let together = folders(partner).iter().any(|folder| ours.contains(folder));
    (!together).then(|| format!("left alone: its partner is {}", partner.display()))
}

/// The folder that a file lies in and, if the file is a link, that of its target. A toolkit's
/// common folder of libraries holds links into those of its packages.
fn folders(file: &Path) -> Vec<PathBuf> {
    let lies_in = file.parent().and_then(|folder| folder.canonicalize().ok());
    let target = file.canonicalize().ok();
    let leads_to = target.and_then(|target| target.parent().map(Path::to_owned));
    lies_in.into_iter().chain(leads_to).collect()
}

fn exists(candidate: &Candidate, ld_library_path: Option<&str>) -> bool {
    if candidate.why != Why::Loader {
        return candidate.path.exists();
    }
    ld_library_path
        .unwrap_or_default()
        .split(':')
        .filter(|folder| !folder.is_empty())
        .any(|folder| Path::new(folder).join(&candidate.path).exists())
}

/// Nodes named `davinci` and a number, in the order of the numbers; `davinci_manager` is none.
fn device_nodes(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut nodes: Vec<(u32, PathBuf)> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let digits = name.strip_prefix(DEVICE_PREFIX)?;
            let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
            let number = plain.then(|| digits.parse().ok()).flatten()?;
            Some((number, entry.path()))
        })
        .collect();
    nodes.sort();
    nodes.into_iter().map(|(_, path)| path).collect()
}

impl Outcome {
    fn nothing_yet(library: Library) -> Self {
        Self {
            library,
            loaded: None,
            file: None,
            failures: Vec::new(),
        }
    }

    /// What loaded, in one line; for a bare name with the file that the loader took.
    fn line(&self) -> Option<String> {
        let candidate = self.loaded.as_ref()?;
        let bare = candidate.path.parent() == Some(Path::new(""));
        Some(match &self.file {
            Some(file) if bare => format!("{candidate}: loaded from {}", file.display()),
            _ => format!("{candidate}: loaded"),
        })
    }
}

impl Probe {
    /// What became of one library.
    #[must_use]
    pub fn outcome(&self, library: Library) -> Option<&Outcome> {
        let mut outcomes = self.outcomes.iter();
        outcomes.find(|outcome| outcome.library == library)
    }

    /// Whether collectives and a runtime loaded and there is a device to run them on.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.obstacle().is_none()
    }

    /// In one line without full stop what stands in the way of the vendor's backend, if anything.
    #[must_use]
    pub fn obstacle(&self) -> Option<String> {
        let no_device = self
            .devices
            .is_empty()
            .then(|| format!("no NPU ({})", self.device_pattern));
        let collectives = self.missing(&[Library::Hccl]);
        let runtime = self.missing(&[Library::AscendCl, Library::AclRt]);
        let parts: Vec<String> = [no_device, collectives, runtime]
            .into_iter()
            .flatten()
            .collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// What is wrong, if none of these libraries loaded.
    fn missing(&self, any_of: &[Library]) -> Option<String> {
        let of = |outcome: &&Outcome| any_of.contains(&outcome.library);
        let outcomes: Vec<&Outcome> = self.outcomes.iter().filter(of).collect();
        if outcomes.iter().any(|outcome| outcome.loaded.is_some()) {
            return None;
        }
        // A file that is there and does not load tells more than all the places without one.
        let broken = outcomes
            .iter()
            .flat_map(|outcome| &outcome.failures)
            .find(|failure| failure.exists);
        let names: Vec<&str> = any_of.iter().map(|library| library.file_name()).collect();
        Some(match broken {
            Some(failure) => format!(
                "{} does not load: {}",
                failure.candidate.path.display(),
                failure.message
            ),
            None => format!("no {}", names.join(" or ")),
        })
    }

    /// Everything that was looked for and what came of it, one line each.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for outcome in &self.outcomes {
            for failure in &outcome.failures {
                lines.push(format!("{}: {}", failure.candidate, failure.message));
            }
            lines.extend(outcome.line());
        }
        lines.push(format!(
            "LD_LIBRARY_PATH: {}",
            self.ld_library_path.as_deref().unwrap_or("not set")
        ));
        let nodes = self.devices.len();
        lines.push(format!("{}: {nodes} device nodes", self.device_pattern));
        lines
    }
}
