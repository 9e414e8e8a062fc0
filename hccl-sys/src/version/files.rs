//! The files in which toolkits and drivers state their versions.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::Version;

/// Where the driver's installer says where it put the driver.
pub const DRIVER_INSTALL_INFO: &str = "/etc/ascend_install.info";
/// Where the driver is if that file says nothing.
const DRIVER_ROOT: &str = "/usr/local/Ascend";
/// Bytes of such a file that are read; the vendor's have a few hundred.
const BYTES_MAX: u64 = 64 * 1024;
/// Packages whose versions must agree with the toolkit's: those that communication consists of.
const PACKAGES: [&str; 7] = [
    "acl", "compiler", "hccl", "hcomm", "opp", "runtime", "toolkit",
];

/// Where in an installation a version stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layout {
    /// `<arch>-linux/ascend_<name>_install.info`.
    InstallInfo,
    /// `include/version/cann_version.h`, from CANN 8.5 on.
    Header,
    /// `version.cfg`, a line for each package.
    VersionCfg,
    /// `<package>/version.info`.
    PackageInfo,
    /// `share/info/<package>/version.info`, from CANN 8.5 on.
    ShareInfo,
}

/// A version that a file states.
#[derive(Clone, Debug)]
pub struct VersionFile {
    /// The file.
    pub path: PathBuf,
    /// Its kind.
    pub layout: Layout,
    /// The package it speaks of, such as `hccl`, or `Ascend-cann-toolkit`.
    pub package: String,
    /// The release, such as `8.1.RC1`.
    pub version: Version,
    /// The internal number of the build, such as `7.7.0.1.238`, where it is stated apart.
    pub internal: Option<String>,
    /// Everything else that the file states.
    pub fields: BTreeMap<String, String>,
}

/// What the files of an installation of CANN state.
#[derive(Clone, Debug)]
pub struct Toolkit {
    /// The installation.
    pub root: PathBuf,
    /// What was read, the most trustworthy file first.
    pub files: Vec<VersionFile>,
    /// Files that are there and state no readable version, with the reason.
    pub unreadable: Vec<(PathBuf, String)>,
}

impl Toolkit {
    /// Reads the version files of all layouts below `root`, which is what `ASCEND_HOME_PATH`
    /// names, or the folder above its `latest`. A few small files are read.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let mut toolkit = Self {
            root: root.to_owned(),
            files: Vec::new(),
            unreadable: Vec::new(),
        };
        let latest = root.join("latest");
        let roots = [Some(root.to_owned()), latest.is_dir().then_some(latest)];
        for root in roots.into_iter().flatten() {
            toolkit.read_root(&root);
        }
        let is_part = |file: &VersionFile| !file.package.contains("toolkit");
        toolkit
            .files
            .sort_by_key(|file| (file.layout, is_part(file)));
        toolkit
    }

    fn read_root(&mut self, root: &Path) {
        for folder in children(root, |name| name.ends_with("-linux")) {
            let is_info =
                |name: &str| name.starts_with("ascend_") && name.ends_with("_install.info");
            for path in children(&folder, is_info) {
                self.take(&path, Layout::InstallInfo, "toolkit");
            }
        }
        self.take(
            &root.join("include/version/cann_version.h"),
            Layout::Header,
            "toolkit",
        );
        self.take(&root.join("version.cfg"), Layout::VersionCfg, "toolkit");
        for package in PACKAGES {
            let folders = [
                (root.join(package), Layout::PackageInfo),
                (root.join("share/info").join(package), Layout::ShareInfo),
            ];
            for (folder, layout) in folders {
                self.take(&folder.join("version.info"), layout, package);
            }
        }
    }

    /// Reads one file, if it is there.
    fn take(&mut self, path: &Path, layout: Layout, package: &str) {
        let text = match read(path) {
            Ok(None) => return,
            Ok(Some(text)) => text,
            Err(error) => {
                self.unreadable.push((path.to_owned(), error.to_string()));
                return;
            }
        };
        match stated(&text, layout, package) {
            Ok(statements) => self
                .files
                .extend(statements.into_iter().map(|one| VersionFile {
                    path: path.to_owned(),
                    layout,
                    package: one.package,
                    version: one.version,
                    internal: one.internal,
                    fields: one.fields,
                })),
            Err(reason) => self.unreadable.push((path.to_owned(), reason)),
        }
    }

    /// The version of the installation: what its most trustworthy file states.
    #[must_use]
    pub fn version(&self) -> Option<&Version> {
        self.files.first().map(|file| &file.version)
    }

    /// Files that state another release than [`Toolkit::version`]: parts of two installations.
    pub fn disagreeing(&self) -> impl Iterator<Item = &VersionFile> {
        let version = self.version();
        self.files
            .iter()
            .filter(move |file| Some(&file.version) != version)
    }
}

/// What a file states of one package.
struct Statement {
    package: String,
    version: Version,
    internal: Option<String>,
    fields: BTreeMap<String, String>,
}

/// What the text of a file states; the reason where it is nothing.
fn stated(text: &str, layout: Layout, package: &str) -> Result<Vec<Statement>, String> {
    let parse = |text: &str| text.parse::<Version>().map_err(|error| error.to_string());
    let fields = fields(text);
    let get = |key: &str| fields.get(key).filter(|value| !value.is_empty());
    match layout {
        Layout::InstallInfo => Ok(vec![Statement {
            package: get("package_name")
                .map_or(package, String::as_str)
                .to_owned(),
            version: parse(get("version").ok_or("no line version=")?)?,
            internal: get("innerversion").cloned(),
            fields,
        }]),
        Layout::Header => Ok(vec![Statement {
            package: package.to_owned(),
            version: parse(header_version(text).ok_or("no CANN_VERSION_STR")?)?,
            internal: None,
            fields: BTreeMap::new(),
        }]),
        Layout::PackageInfo | Layout::ShareInfo => {
            let number = get("Version");
            let release = get("version_dir").or(number).ok_or("no line Version=")?;
            let version = parse(release)?;
            // Where the release is not named apart, `Version` may be the internal number of the
            // build, which is longer; then the file states no release.
            let is_release = version.numbers().len() <= 3 && version.suffix().is_none();
            if get("version_dir").is_none() && !is_release {
                return Ok(Vec::new());
            }
            Ok(vec![Statement {
                package: package.to_owned(),
                version,
                internal: get("version_dir").and(number).cloned(),
                fields,
            }])
        }
        Layout::VersionCfg => running_versions(&fields),
    }
}

/// Lines such as `hccl_running_version=[7.7.0.1.238:8.1.RC1]`, or with the release alone.
fn running_versions(fields: &BTreeMap<String, String>) -> Result<Vec<Statement>, String> {
    let mut statements = Vec::new();
    for (key, value) in fields {
        let Some(package) = key.strip_suffix("_running_version") else {
            continue;
        };
        if !PACKAGES.contains(&package) {
            continue;
        }
        let inside = value
            .strip_prefix('[')
            .and_then(|rest| rest.split_once(']'))
            .map_or(value.as_str(), |(inside, _)| inside);
        let (internal, release) = match inside.split_once(':') {
            Some((internal, release)) => (Some(internal.to_owned()), release),
            None => (None, inside),
        };
        statements.push(Statement {
            package: package.to_owned(),
            version: release
                .parse()
                .map_err(|error: super::VersionError| error.to_string())?,
            internal,
            fields: BTreeMap::new(),
        });
    }
    if statements.is_empty() {
        return Err("no line ..._running_version=".to_owned());
    }
    Ok(statements)
}

/// The text between quotes of `#define CANN_VERSION_STR "9.0.0"`.
fn header_version(text: &str) -> Option<&str> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let is_it = words.next() == Some("#define") && words.next() == Some("CANN_VERSION_STR");
        is_it
            .then(|| words.next())
            .flatten()
            .map(|word| word.trim_matches('"'))
    })
}

/// Lines `key=value`; the first of a key counts. Comments begin with `#`.
fn fields(text: &str) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    for line in text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
    {
        if let Some((key, value)) = line.split_once('=') {
            let value = value.trim().to_owned();
            fields.entry(key.trim().to_owned()).or_insert(value);
        }
    }
    fields
}

/// The beginning of a file, or nothing if there is none.
fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // A file where a folder should be on the way: there is nothing.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// What lies in a folder under a name of this kind, in the order of the names.
fn children(folder: &Path, is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_str().is_some_and(&is_wanted))
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    paths
}

/// What the files of the driver state.
#[derive(Clone, Debug)]
pub struct Driver {
    /// The file that was read, or would be.
    pub path: PathBuf,
    /// The version, such as `24.1.rc2`.
    pub version: Option<Version>,
    /// Everything that the file states, such as `Innerversion` and `compatible_version`.
    pub fields: BTreeMap<String, String>,
    /// Why there is no version.
    pub problem: Option<String>,
}

impl Driver {
    /// Reads the version of the driver on this host.
    #[must_use]
    pub fn read() -> Self {
        Self::read_below(Path::new("/"))
    }

    /// The same for the host whose files lie below `host`: where [`DRIVER_INSTALL_INFO`] leads to, else in the usual place.
    ///
    /// In a container that file is often missing, and the driver is mounted.
    #[must_use]
    pub fn read_below(host: &Path) -> Self {
        let below = |path: &str| host.join(path.trim_start_matches('/'));
        let info = read(&below(DRIVER_INSTALL_INFO));
        let info = info.ok().flatten().unwrap_or_default();
        let named = fields(&info).remove("Driver_Install_Path_Param");
        let named = named.filter(|path| !path.is_empty());
        let root = below(named.as_deref().unwrap_or(DRIVER_ROOT));
        let path = root.join("driver/version.info");
        let (fields, problem) = match read(&path) {
            Ok(Some(text)) => (fields(&text), None),
            Ok(None) => (BTreeMap::new(), Some("no such file".to_owned())),
            Err(error) => (BTreeMap::new(), Some(error.to_string())),
        };
        let stated = fields
            .get("Version")
            .or_else(|| fields.get("package_version"));
        let (version, problem) = match (stated.map(|text| text.parse::<Version>()), problem) {
            (_, Some(problem)) => (None, Some(problem)),
            (Some(Ok(version)), None) => (Some(version), None),
            (Some(Err(error)), None) => (None, Some(error.to_string())),
            (None, None) => (None, Some("no line Version=".to_owned())),
        };
        Self {
            path,
            version,
            fields,
            problem,
        }
    }
}
