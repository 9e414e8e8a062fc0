//! The host as checks see it: files below a root, the environment, and three senses that are no
//! files.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use hccl_sys::search::{INSTALLATIONS, Places};
use hccl_sys::symbols::Api;
use muster_comm::config::Environment;
use muster_comm::launch::{self, Detected, LaunchError};
use rustix::fs::{Mode, OFlags};

use super::process::{self, Process};

/// Most bytes of a file that a check reads: rank tables of large jobs are the largest.
const READ_BYTES_MAX: u64 = 64 << 20;

/// Room in a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// All of it.
    pub total: u64,
    /// What an ordinary user can still write.
    pub free: u64,
}

/// Addresses of a host name, or what the resolver said.
pub type Resolved = Result<Vec<IpAddr>, String>;

/// What a host tells by other ways than files.
pub trait Senses: Send + Sync {
    /// Addresses of a host name; may wait for a name server. `None` where there is no resolver to ask.
    fn resolve(&self, host: &str) -> Option<Resolved>;

    /// Room in the file system that holds `path`.
    ///
    /// # Errors
    /// What the system said.
    fn space(&self, path: &Path) -> Result<Space, String>;

    /// Loads the vendor's libraries, which runs their constructors; `None` where they are not to
    /// be run.
    fn load(&self, places: &Places) -> Option<Api>;
}

/// The senses of the host this process runs on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Live;

impl Senses for Live {
    fn resolve(&self, host: &str) -> Option<Resolved> {
        let found = (host, 0).to_socket_addrs();
        let found = found.map(|found| found.map(|address| address.ip()).collect());
        Some(found.map_err(|error| error.to_string()))
    }

    fn space(&self, path: &Path) -> Result<Space, String> {
        let told = rustix::fs::statvfs(path).map_err(|errno| errno.to_string())?;
        Ok(Space {
            total: told.f_blocks.saturating_mul(told.f_frsize),
            free: told.f_bavail.saturating_mul(told.f_frsize),
        })
    }

    fn load(&self, places: &Places) -> Option<Api> {
        Some(Api::load(places))
    }
}

/// No senses but those that need only files: for a host that is elsewhere, seen through a copy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Elsewhere;

/// Why a sense of a host elsewhere has nothing to say.
const ELSEWHERE: &str = "not told by files, and the host is not this one";

impl Senses for Elsewhere {
    fn resolve(&self, _: &str) -> Option<Resolved> {
        None
    }

    fn space(&self, _: &Path) -> Result<Space, String> {
        Err(ELSEWHERE.to_owned())
    }

    fn load(&self, _: &Places) -> Option<Api> {
        None
    }
}

/// How many ranks this host is to carry, and how that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranks {
    /// Their number, at least one.
    pub count: u32,
    /// One fragment for evidence.
    pub how: String,
}

/// A host, or a picture of one below a root.
pub struct System {
    root: PathBuf,
    environment: Environment,
    senses: Box<dyn Senses>,
    asked: Option<u32>,
    api: OnceLock<Option<Api>>,
    processes: OnceLock<Vec<Process>>,
    sockets: OnceLock<BTreeMap<u64, usize>>,
}

impl fmt::Debug for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("System")
            .field("root", &self.root)
            .field("environment", &self.environment)
            .finish_non_exhaustive()
    }
}

impl System {
    /// The host this process runs on.
    #[must_use]
    pub fn here(environment: Environment) -> Self {
        Self::at("/", environment, Box::new(Live))
    }

    /// The host whose files lie below `root`.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>, environment: Environment, senses: Box<dyn Senses>) -> Self {
        Self {
            root: root.into(),
            environment,
            senses,
            asked: None,
            api: OnceLock::new(),
            processes: OnceLock::new(),
            sockets: OnceLock::new(),
        }
    }

    /// The same host, asked about this many ranks.
    #[must_use]
    pub fn with_ranks(mut self, ranks: Option<u32>) -> Self {
        self.asked = ranks;
        self
    }

    /// Where the host's `/` lies.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The environment that a job would start in.
    #[must_use]
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// The value of a variable; `None` where it is not set, empty, or no text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.environment.text(name).ok().flatten()
    }

    /// Where `path` lies; what is not absolute is taken as it is.
    #[must_use]
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        match path.strip_prefix("/") {
            Ok(inside) => self.root.join(inside),
            Err(_) => path.to_owned(),
        }
    }

    /// Whether something lies at `path`, links followed.
    #[must_use]
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).exists()
    }

    /// The text of a regular file.
    ///
    /// # Errors
    /// What the system said, or that it is no regular file, no text, or too large.
    pub fn try_read(&self, path: impl AsRef<Path>) -> Result<String, String> {
        let file = self.open(path)?;
        let mut text = String::new();
        let bytes = file
            .take(READ_BYTES_MAX + 1)
            .read_to_string(&mut text)
            .map_err(|error| error.to_string())?;
        if bytes as u64 > READ_BYTES_MAX {
            return Err(format!("it is larger than {READ_BYTES_MAX} bytes"));
        }
        Ok(text)
    }

    fn open(&self, path: impl AsRef<Path>) -> Result<File, String> {
        // Without NONBLOCK a pipe of that name would be waited for.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened = rustix::fs::open(self.path(path), flags, Mode::empty());
        let file = File::from(opened.map_err(|errno| errno.to_string())?);
        let kind = file.metadata().map_err(|error| error.to_string())?;
        if kind.is_file() {
            Ok(file)
        } else {
            Err("it is no regular file".to_owned())
        }
    }

    /// Whether a file that can be read begins as a library does; `None` where it cannot be read.
    #[must_use]
    pub fn is_elf(&self, path: impl AsRef<Path>) -> Option<bool> {
        let mut magic = Vec::new();
        self.open(path).ok()?.take(4).read_to_end(&mut magic).ok()?;
        Some(magic == b"\x7fELF")
    }

    /// Addresses of a host: of an address itself, by the resolver, or by the host's own `/etc/hosts` where there is no resolver.
    /// `None` where none of them tells.
    #[must_use]
    pub fn resolve(&self, host: &str) -> Option<Resolved> {
        if let Ok(address) = host.parse() {
            return Some(Ok(vec![address]));
        }
        self.senses
            .resolve(host)
            .or_else(|| Some(Ok(self.in_hosts_file(host)?)))
    }

    fn in_hosts_file(&self, host: &str) -> Option<Vec<IpAddr>> {
        let text = self.read("/etc/hosts")?;
        let lines = text.lines().filter_map(|line| line.split('#').next());
        let of_line = |line: &str| {
            let mut words = line.split_whitespace();
            let address: IpAddr = words.next()?.parse().ok()?;
            words
                .any(|name| name.eq_ignore_ascii_case(host))
                .then_some(address)
        };
        let found: Vec<IpAddr> = lines.filter_map(of_line).collect();
        (!found.is_empty()).then_some(found)
    }

    /// The text of a file without white space around it, if it can be read.
    #[must_use]
    pub fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        self.try_read(path).ok().map(|text| text.trim().to_owned())
    }

    /// The number that a file holds and nothing else.
    #[must_use]
    pub fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.read(path)?.parse().ok()
    }

    /// Names in a folder, sorted; none where it cannot be read.
    #[must_use]
    pub fn names(&self, folder: impl AsRef<Path>) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(folder)).into_iter().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// Where a link leads, as it is written.
    #[must_use]
    pub fn link(&self, path: impl AsRef<Path>) -> Option<String> {
        let target = std::fs::read_link(self.path(path)).ok()?;
        target.into_os_string().into_string().ok()
    }

    /// What lies at a path, links followed.
    #[must_use]
    pub fn metadata(&self, path: impl AsRef<Path>) -> Option<std::fs::Metadata> {
        std::fs::metadata(self.path(path)).ok()
    }

    /// The senses.
    #[must_use]
    pub fn senses(&self) -> &dyn Senses {
        self.senses.as_ref()
    }

    /// Where the vendor's libraries are looked for.
    #[must_use]
    pub fn places(&self) -> Places {
        let file = |name: &str| self.text(name).map(|text| self.path(text));
        let installed = |root: &str| self.path(root);
        Places {
            hccl_so_path: file("HCCL_SO_PATH"),
            ascend_home_path: file("ASCEND_HOME_PATH"),
            ascend_toolkit_home: file("ASCEND_TOOLKIT_HOME"),
            ld_library_path: self.text("LD_LIBRARY_PATH").map(str::to_owned),
            installations: INSTALLATIONS.iter().map(|root| installed(root)).collect(),
            device_folder: self.path("/dev"),
        }
    }

    /// The vendor's functions, for which the libraries are loaded once; `None` where they are not
    /// to be loaded.
    #[must_use]
    pub fn api(&self) -> Option<&Api> {
        let loaded = self.api.get_or_init(|| self.senses.load(&self.places()));
        loaded.as_ref()
    }

    /// The same, where somebody has loaded them already.
    #[must_use]
    pub fn api_if_loaded(&self) -> Option<&Api> {
        self.api.get()?.as_ref()
    }

    /// One line about the host: its name, its size, and what it has of the vendor.
    #[must_use]
    pub fn about(&self) -> String {
        let name = self.read("/proc/sys/kernel/hostname").unwrap_or_default();
        let mut parts = vec![format!("host {name}").trim_end().to_owned()];
        let cpus = self.read("/proc/cpuinfo").unwrap_or_default();
        let cpus = cpus
            .lines()
            .filter(|line| line.starts_with("processor"))
            .count();
        if cpus > 0 {
            parts.push(count(cpus as u64, "processor"));
        }
        let devices = self.devices().len() as u64;
        parts.push(match devices {
            0 if self.is_known_as_emulated() => "emulated Ascend toolkit".to_owned(),
            0 => "no Ascend device; the host backend is available".to_owned(),
            _ => count(devices, "Ascend device"),
        });
        parts.join(", ")
    }

    /// Numbers of the device nodes `/dev/davinci0` and so on, ascending.
    #[must_use]
    pub fn devices(&self) -> Vec<u32> {
        let number = |name: &String| -> Option<u32> {
            let digits = name.strip_prefix("davinci")?;
            let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| digits.parse().ok()).flatten()
        };
        let mut numbers: Vec<u32> = self.names("/dev").iter().filter_map(number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Roots of toolkits that are there, without repetition: by the variables, then the default
    /// places; each with how it was found.
    #[must_use]
    pub fn toolkits(&self) -> Vec<(String, &'static str)> {
        let mut found: Vec<(String, &'static str)> = Vec::new();
        let by_variable = ["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"]
            .into_iter()
            .filter_map(|name| Some((self.text(name)?.trim_end_matches('/').to_owned(), name)));
        let by_default = INSTALLATIONS
            .iter()
            .map(|root| ((*root).to_owned(), "default installation"));
        for (root, how) in by_variable.chain(by_default) {
            let known = found.iter().any(|(other, _)| *other == root);
            if !known && self.path(&root).is_dir() {
                found.push((root, how));
            }
        }
        found
    }

    /// Whether anything here speaks of HCCL: a device, a toolkit, or a variable of it. Where
    /// nothing does, what only HCCL needs is no fault of the host.
    #[must_use]
    pub fn wants_hccl(&self) -> bool {
        let speaks = |name: &str| {
            ["HCCL_", "TORCH_HCCL_", "ASCEND_", "HCOMM_"]
                .iter()
                .any(|prefix| name.starts_with(prefix))
        };
        !self.devices().is_empty()
            || !self.toolkits().is_empty()
            || self.environment.names().any(speaks)
    }

    /// What the launch contracts say of this process.
    ///
    /// # Errors
    /// As [`launch::detect`].
    pub fn launched(&self) -> Result<Detected, LaunchError> {
        launch::detect(&self.environment, None)
    }

    /// How many ranks this host is to carry, if anything says so: the user, the launcher, or the
    /// number of devices.
    #[must_use]
    pub fn ranks(&self) -> Option<Ranks> {
        if let Some(count) = self.asked {
            let how = "--ranks".to_owned();
            return Some(Ranks { count, how });
        }
        let launched = match self.launched() {
            Ok(Detected::Identity(identity)) => identity
                .local_world_size
                .map(|count| (count, identity.source.contract)),
            Ok(Detected::PerNode(node)) => node
                .procs_per_node
                .map(|count| (count, node.source.contract)),
            Ok(Detected::Standalone { .. }) | Err(_) => None,
        };
        if let Some((count, contract)) = launched {
            let how = format!("launcher {contract}");
            return Some(Ranks { count, how });
        }
        let (devices, how) = match self.visible_devices() {
            Some(visible) if !visible.ids.is_empty() => {
                (visible.ids, "one for each device that the mask leaves")
            }
            Some(_) | None => (self.devices(), "one for each device"),
        };
        let count = u32::try_from(devices.len()).unwrap_or(u32::MAX);
        (count > 0).then(|| Ranks {
            count,
            how: how.to_owned(),
        })
    }

    /// All processes that can be seen, by id.
    #[must_use]
    pub fn processes(&self) -> &[Process] {
        self.processes.get_or_init(|| process::all(self))
    }

    /// The process that holds a socket, by the socket's inode, if that can be seen.
    #[must_use]
    pub fn holder_of(&self, inode: u64) -> Option<&Process> {
        let holders = self
            .sockets
            .get_or_init(|| process::holders(self.processes()));
        self.processes().get(*holders.get(&inode)?)
    }
}

/// A number of bytes for people.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    for (unit, shift) in UNITS {
        let whole = bytes >> shift;
        if whole >= 10 {
            return format!("{whole} {unit}");
        }
        if whole > 0 {
            let tenths = (u128::from(bytes) * 10) >> shift;
            return if tenths.is_multiple_of(10) {
                format!("{} {unit}", tenths / 10)
            } else {
                format!("{}.{} {unit}", tenths / 10, tenths % 10)
            };
        }
    }
    format!("{bytes} bytes")
}

/// `1 rank`, `2 ranks`.
pub(super) fn count(number: impl Into<u64>, one: &str) -> String {
    let number = number.into();
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {one}{ending}")
}

/// `a`, `a and b`, `a, b and c`.
pub(super) fn listed<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    match items.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_lists_read_like_a_sentence() {
        assert_eq!(size(64 << 20), "64 MiB");
        assert_eq!(size(1536 << 20), "1.5 GiB");
        assert_eq!(size(2 << 30), "2 GiB");
        assert_eq!(size(100), "100 bytes");
        assert_eq!(listed(["a", "b", "c"]), "a, b and c");
        assert_eq!(count(1_u32, "rank"), "1 rank");
    }
}
