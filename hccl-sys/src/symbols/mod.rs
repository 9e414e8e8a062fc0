//! The vendor's functions, looked up one by one in what loaded.
//!
//! Versions of CANN differ in what they have and in which library has it. So each function is an
//! option of its own: [`Api`] holds what was found, a missing one is a [`MissingSymbol`] that names
//! the files which were asked, and [`Api::capabilities`] shows all of them.
//!
//! - `SYMBOL-1`: nothing is linked; a missing library or function is a value and never a panic.
//! - `SYMBOL-2`: the libraries stay loaded for the life of the process, so addresses stay good.
//! - `SYMBOL-3`: an emulator is recognised by a symbol of its own, in whichever library it is.

#![expect(unsafe_code, reason = "addresses become functions here")]

mod acl;
mod hccl;
mod table;

use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

pub use acl::Acl;
pub use hccl::Hccl;
pub use table::{Family, MissingSymbol, Prototype, Row, c_type};

use crate::loaded::{Handle, file_of};
use crate::search::{Library, Opened, Places, Probe, open};

/// What an emulator exports beside the vendor's names: its version, as text that stays.
pub const EMULATOR_VERSION_SYMBOL: &str = "muster_emu_version";

/// Where a function was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The library that was asked for it.
    pub library: Library,
    /// The file that has it: the library itself, or one that it depends on.
    pub file: PathBuf,
}

/// A function, and where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    /// The function.
    pub row: Row,
    /// Where it is, if anywhere.
    pub found: Option<Found>,
}

/// The vendor's functions as this machine has them. Cheap to clone; usable from any thread.
#[derive(Clone)]
pub struct Api {
    inner: Arc<Inner>,
}

struct Inner {
    hccl: Hccl,
    acl: Acl,
    probe: Probe,
    capabilities: Vec<Capability>,
    emulated: Option<String>,
}

impl Api {
    /// Loads what these places have and looks every function up.
    ///
    /// Always succeeds: what is missing is said by [`Api::probe`] and [`Api::capabilities`], and by
    /// each function when it is asked for. Takes as long as loading takes, plus microseconds.
    #[must_use]
    pub fn load(places: &Places) -> Self {
        let Opened { probe, handles } = open(places);
        let mut finder = Finder {
            handles: &handles,
            probe: &probe,
            capabilities: Vec::new(),
        };
        let hccl = Hccl::resolve(&mut finder);
        for (name, headers) in hccl::OPERATOR_AUTHORS {
            finder.look(&Row {
                name,
                family: Family::Hccl,
                headers: *headers,
                prototype: None,
            });
        }
        let acl = Acl::resolve(&mut finder);
        let capabilities = finder.capabilities;
        let emulated = handles
            .iter()
            .find_map(|(_, handle)| emulator_version(handle));
        let inner = Inner {
            hccl,
            acl,
            probe,
            capabilities,
            emulated,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The functions of HCCL.
    #[must_use]
    pub fn hccl(&self) -> &Hccl {
        &self.inner.hccl
    }

    /// The functions of the runtime.
    #[must_use]
    pub fn acl(&self) -> &Acl {
        &self.inner.acl
    }

    /// Which libraries loaded and from where, and what was tried in vain.
    #[must_use]
    pub fn probe(&self) -> &Probe {
        &self.inner.probe
    }

    /// Every function of the tables, found or not: HCCL's, then the runtime's.
    #[must_use]
    pub fn capabilities(&self) -> &[Capability] {
        &self.inner.capabilities
    }

    /// Whether a function of this name was found.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        let is_it = |capability: &&Capability| capability.row.name == name;
        let capability = self.inner.capabilities.iter().find(is_it);
        capability.is_some_and(|capability| capability.found.is_some())
    }

    /// The version of the emulator, if any of the loaded libraries is one.
    ///
    /// Where this is not `None`, no result says anything about hardware.
    #[must_use]
    pub fn emulated(&self) -> Option<&str> {
        self.inner.emulated.as_deref()
    }
}

/// How much was found.
impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.capabilities();
        let found = all.iter().filter(|one| one.found.is_some()).count();
        f.debug_struct("Api")
            .field("found", &format_args!("{found} of {}", all.len()))
            .field("emulated", &self.inner.emulated)
            .finish_non_exhaustive()
    }
}

/// Looks functions up, and keeps the table of what was found.
pub(crate) struct Finder<'a> {
    handles: &'a [(Library, Handle)],
    probe: &'a Probe,
    capabilities: Vec<Capability>,
}

impl Finder<'_> {
    /// The files in which functions of a family are looked for.
    pub(crate) fn files(&self, family: Family) -> Vec<PathBuf> {
        let outcomes = self.probe.outcomes.iter();
        outcomes
            .filter(|outcome| family.libraries().contains(&outcome.library))
            .filter_map(|outcome| outcome.file.clone())
            .collect()
    }

    /// The function of a row, as a pointer of type `F`.
    ///
    /// # Safety
    /// - `F` is a pointer to a function with the C signature that the vendor gives this name.
    pub(crate) unsafe fn find<F: Copy>(&mut self, row: &Row) -> Option<F> {
        const {
            assert!(size_of::<Option<F>>() == size_of::<*mut c_void>());
        }
        let address = self.look(row)?;
        // SAFETY: same size, asserted above; the address is not null and is that of the function
        // of this name, whose type is the caller's duty. The library is never unloaded.
        Some(unsafe { std::mem::transmute_copy(&address) })
    }

    /// The address of a row's name in the first library that has it or depends on one that does.
    fn look(&mut self, row: &Row) -> Option<*mut c_void> {
        let libraries = row.family.libraries();
        let found = libraries.into_iter().find_map(|library| {
            let (_, handle) = self.handles.iter().find(|(loaded, _)| *loaded == library)?;
            Some((library, handle.address(row.name)?))
        });
        self.capabilities.push(Capability {
            row: *row,
            found: found.map(|(library, address)| Found {
                library,
                file: file_of(address).unwrap_or_else(|| PathBuf::from(library.file_name())),
            }),
        });
        found.map(|(_, address)| address)
    }
}

/// What an emulator says of itself, if the library is one.
fn emulator_version(handle: &Handle) -> Option<String> {
    let address = handle.address(EMULATOR_VERSION_SYMBOL)?;
    // SAFETY: the name is this project's own, and means a function of this type.
    let version: unsafe extern "C" fn() -> *const c_char = unsafe { std::mem::transmute(address) };
    // SAFETY: it takes nothing and only returns.
    let text = unsafe { version() };
    if text.is_null() {
        return Some("unknown version".to_owned());
    }
    // SAFETY: by its contract the text is closed with a zero and stays for ever.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}
