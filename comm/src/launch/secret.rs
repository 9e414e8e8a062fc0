//! Where the job secret comes from when ranks join a launcher's world.
//!
//! No environment is secret: other users may read it from job records, and containers pass it on.
//! So a secret comes from an inherited descriptor, from a file that only its owner can read, or
//! from a file of the user's own that the first rank creates. What this protects against and what
//! not stands in `docs/launch.md`.
//!
//! - `SECRET-1`: nothing is believed from a file or folder that somebody else could have written.
//! - `SECRET-2`: however many ranks start at once, all read the same per-user secret.
//! - `SECRET-3`: no secret is ever in `Debug` output, in an error, or in a shared folder.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Timespec};
use rustix::io::Errno;

use crate::config::{self, ConfigError, Environment};
use crate::rendezvous::Secret;
use crate::sync::Deadline;

/// Bytes of a secret.
pub const SECRET_BYTES: usize = 32;
/// Fewest bytes of a text that a user may give for a secret: less is guessed too fast.
pub const TEXT_BYTES_MIN: usize = 16;
/// Most bytes that are read for a secret.
pub const TEXT_BYTES_MAX: usize = 4096;
/// Name of the per-user file in its folder.
const FILE_NAME: &str = "secret";
/// Name of our folder within the runtime folder of the session or the cache folder of the user.
const FOLDER_NAME: &str = "muster";
/// How often creation is tried while somebody keeps deleting the file.
const TRIES_MAX: usize = 8;

/// Where a secret was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// An inherited descriptor, used as it is.
    Descriptor(i32),
    /// The file that `MUSTER_SECRET_FILE` names, mixed with the job id.
    File(PathBuf),
    /// The user's own file, mixed with the job id.
    PerUser(PathBuf),
}

/// Why there is no secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// A variable is malformed.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The descriptor gave no end of text in time.
    #[error(
        "descriptor {descriptor} of MUSTER_SECRET_FD gave no end of file within {seconds:.1} s"
    )]
    Late {
        /// The descriptor.
        descriptor: i32,
        /// How long it was given.
        seconds: f64,
    },
    /// The text is too short, too long, or no secret of ours.
    #[error("{place} holds {bytes} bytes; allowed: {allowed}")]
    Length {
        /// Where it was read.
        place: String,
        /// Its length; one above the limit stands for all longer ones.
        bytes: usize,
        /// What would do.
        allowed: &'static str,
    },
    /// There is no folder for a secret of this user.
    #[error("no place for a secret of this user: neither XDG_RUNTIME_DIR nor HOME serves")]
    NoPlace,
    /// Somebody else could read or have written the file or folder.
    #[error("{} {what}", path.display())]
    Unsafe {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it, with both numbers.
        what: String,
    },
    /// The launcher handed the secret to another user than this process runs as.
    #[error(
        "the descriptor of MUSTER_SECRET_FD belongs to user {owner}, and this process runs as user {me}"
    )]
    OtherUser {
        /// Who may read it.
        owner: u32,
        /// Who this process is.
        me: u32,
    },
    /// The system refused.
    #[error("{action} {place}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// On what.
        place: String,
        /// What the system said.
        source: std::io::Error,
    },
}

impl SecretError {
    /// What a user can do about it.
    #[must_use]
    pub fn help(&self) -> &'static str {
        match self {
            Self::Config(_) | Self::Length { .. } | Self::Late { .. } => {
                "give 32 random bytes, for instance from /dev/urandom"
            }
            Self::NoPlace | Self::System { .. } => {
                "set MUSTER_SECRET_FILE to a file that only you can read, the same for all ranks"
            }
            Self::OtherUser { .. } => {
                "run the launcher as the user that the ranks are to be, as in `setpriv --reuid=USER muster run ...`"
            }
            Self::Unsafe { .. } => "make it yours alone: chmod 0600 for a file, 0700 for a folder",
        }
    }
}

/// The secret of a job whose ranks a launcher started.
///
/// Tried in this order: `MUSTER_SECRET_FD`, `MUSTER_SECRET_FILE`, the user's own file. The last one
/// is created at first use; between hosts it serves only where they share the home folder.
/// `deadline` bounds the wait for a descriptor, the only wait there is.
///
/// # Errors
/// If what is named cannot be read in time or is not safe, or there is no place for a file.
pub fn job_secret(
    environment: &Environment,
    job_id: Option<&str>,
    on_one_host: bool,
    deadline: Deadline,
) -> Result<(Secret, SecretSource), SecretError> {
    if let Some(descriptor) = environment.read(&config::SECRET_FD)? {
        let place = format!("descriptor {descriptor}");
        let text = read_descriptor(descriptor, deadline)?;
        let secret = secret_of(&text, &place)?;
        return Ok((secret, SecretSource::Descriptor(descriptor)));
    }
    if let Some(path) = environment.read(&config::SECRET_FILE)? {
        let text = read_named_file(&path)?;
        let secret = secret_of(&text, &path.display().to_string())?;
        return Ok((mix(&secret, job_id), SecretSource::File(path)));
    }
    let (secret, path) = per_user(environment, on_one_host)?;
    Ok((mix(&secret, job_id), SecretSource::PerUser(path)))
}

/// One secret a job, so that what leaks from one does not open another.
fn mix(secret: &Secret, job_id: Option<&str>) -> Secret {
    let text = format!("muster 1 job {}", job_id.unwrap_or_default());
    Secret::from_bytes(*blake3::keyed_hash(secret.expose(), text.as_bytes()).as_bytes())
}

/// 32 bytes are the secret itself; anything else is a text from which one is derived.
fn secret_of(text: &[u8], place: &str) -> Result<Secret, SecretError> {
    if let Ok(secret) = <[u8; SECRET_BYTES]>::try_from(text) {
        return Ok(Secret::from_bytes(secret));
    }
    let trimmed = text.trim_ascii_end();
    if (TEXT_BYTES_MIN..=TEXT_BYTES_MAX).contains(&trimmed.len()) {
        return Ok(Secret::from_text(trimmed));
    }
    Err(SecretError::Length {
        place: place.to_owned(),
        bytes: trimmed.len(),
        allowed: "32 random bytes, or a text of 16 to 4096 bytes",
    })
}

fn system(action: &'static str, place: impl fmt::Display) -> impl FnOnce(Errno) -> SecretError {
    let place = place.to_string();
    move |errno| SecretError::System {
        action,
        place,
        source: errno.into(),
    }
}

/// Reads an inherited descriptor to its end.
///
/// Standard input is read as it is. Others are opened anew under `/proc`, which works for pipes and
/// files and asks for no trust in a number that nobody may have opened.
fn read_descriptor(descriptor: i32, deadline: Deadline) -> Result<Vec<u8>, SecretError> {
    if descriptor == 0 {
        return read_to_end(&std::io::stdin(), descriptor, deadline);
    }
    let place = format!("/proc/self/fd/{descriptor}");
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let me = rustix::process::geteuid().as_raw();
    let opened = rustix::fs::open(&place, flags, Mode::empty()).map_err(|errno| {
        let owner = rustix::fs::stat(&place).map(|stat| stat.st_uid);
        match owner {
            Ok(owner) if errno == Errno::ACCESS && owner != me => {
                SecretError::OtherUser { owner, me }
            }
            _ => system("open", "the descriptor of MUSTER_SECRET_FD")(errno),
        }
    })?;
    read_to_end(&opened, descriptor, deadline)
}

fn read_to_end(
    from: &impl AsFd,
    descriptor: i32,
    deadline: Deadline,
) -> Result<Vec<u8>, SecretError> {
    let failed = |action| system(action, format!("descriptor {descriptor}"));
    let mut text = Vec::new();
    let mut piece = [0; 512];
    while text.len() <= TEXT_BYTES_MAX {
        let left = Timespec::try_from(deadline.left()).ok();
        let mut fds = [PollFd::new(from, PollFlags::IN)];
        let ready = match poll(&mut fds, left.as_ref()) {
            Ok(ready) => ready,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(failed("wait for")(errno)),
        };
        if ready == 0 {
            return Err(SecretError::Late {
                descriptor,
                seconds: deadline.budget().as_secs_f64(),
            });
        }
        match rustix::io::read(from, &mut piece) {
            Ok(0) => return Ok(text),
            Ok(bytes) => text.extend_from_slice(&piece[..bytes]),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(failed("read")(errno)),
        }
    }
    Ok(text)
}

/// Reads a file that the user named. A link is followed: mounted secrets are links.
fn read_named_file(path: &Path) -> Result<Vec<u8>, SecretError> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file =
        rustix::fs::open(path, flags, Mode::empty()).map_err(system("open", path.display()))?;
    check_private(&file, path, FileType::RegularFile)?;
    read_file(file, path)
}

fn read_file(file: OwnedFd, path: &Path) -> Result<Vec<u8>, SecretError> {
    let mut text = Vec::new();
    File::from(file)
        .take(TEXT_BYTES_MAX as u64 + 1)
        .read_to_end(&mut text)
        .map_err(|source| SecretError::System {
            action: "read",
            place: path.display().to_string(),
            source,
        })?;
    Ok(text)
}

/// Whether what was opened is of the right kind, ours (or root's), and closed to everybody else.
fn check_private(opened: &OwnedFd, path: &Path, kind: FileType) -> Result<(), SecretError> {
    let stat = rustix::fs::fstat(opened).map_err(system("inspect", path.display()))?;
    let me = rustix::process::geteuid().as_raw();
    let refuse = |what: String| {
        Err(SecretError::Unsafe {
            path: path.to_owned(),
            what,
        })
    };
    if FileType::from_raw_mode(stat.st_mode) != kind {
        return refuse(format!("is no {}", kind_name(kind)));
    }
    if stat.st_uid != me && stat.st_uid != 0 {
        return refuse(format!("belongs to user {}, not to user {me}", stat.st_uid));
    }
    let mode = stat.st_mode & 0o7777;
    if mode & 0o077 != 0 {
        return refuse(format!(
            "has mode {mode:04o}, open to others; allowed: {:04o}",
            mode & 0o700
        ));
    }
    Ok(())
}

fn kind_name(kind: FileType) -> &'static str {
    if kind == FileType::Directory {
        "folder"
    } else {
        "regular file"
    }
}

/// The user's own secret, created if this is the first rank that ever asks.
fn per_user(
    environment: &Environment,
    on_one_host: bool,
) -> Result<(Secret, PathBuf), SecretError> {
    let (folder, folder_path) = open_folder(environment, on_one_host)?;
    let path = folder_path.join(FILE_NAME);
    for _ in 0..TRIES_MAX {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        match rustix::fs::openat(&folder, FILE_NAME, flags, Mode::empty()) {
            Ok(file) => {
                check_private(&file, &path, FileType::RegularFile)?;
                let bytes = read_file(file, &path)?;
                let found = bytes.len();
                let secret: [u8; SECRET_BYTES] =
                    bytes.try_into().map_err(|_| SecretError::Length {
                        place: path.display().to_string(),
                        bytes: found,
                        allowed: "32 bytes, as muster wrote them",
                    })?;
                return Ok((Secret::from_bytes(secret), path));
            }
            Err(Errno::NOENT) => create(&folder, &path)?,
            Err(errno) => return Err(system("open", path.display())(errno)),
        }
    }
    Err(system("keep", path.display())(Errno::NOENT))
}

/// Opens our folder, making it where it is wanting.
///
/// The runtime folder of the session belongs to one host, so ranks of several hosts use the home
/// folder, which clusters share.
fn open_folder(
    environment: &Environment,
    on_one_host: bool,
) -> Result<(OwnedFd, PathBuf), SecretError> {
    let runtime = environment.read(&config::XDG_RUNTIME_DIR).unwrap_or(None);
    let runtime = runtime.filter(|folder| on_one_host && folder.is_dir());
    let path = match runtime {
        Some(runtime) => runtime.join(FOLDER_NAME),
        None => {
            let home = environment.read(&config::HOME)?;
            let cache = home.ok_or(SecretError::NoPlace)?.join(".cache");
            make_folder(&cache)?;
            cache.join(FOLDER_NAME)
        }
    };
    make_folder(&path)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder =
        rustix::fs::open(&path, flags, Mode::empty()).map_err(system("open", path.display()))?;
    check_private(&folder, &path, FileType::Directory)?;
    Ok((folder, path))
}

fn make_folder(path: &Path) -> Result<(), SecretError> {
    match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(system("make", path.display())(errno)),
    }
}

/// Writes a fresh secret under a name of its own and then gives it the common name, unless another
/// rank was first: nobody ever sees a file that is half written.
fn create(folder: &OwnedFd, path: &Path) -> Result<(), SecretError> {
    let failed = |action| system(action, path.display());
    let mut random = [0; SECRET_BYTES + 8];
    fill_random(&mut random).map_err(failed("draw random bytes for"))?;
    let (secret, tail) = random.split_at(SECRET_BYTES);
    let tail: String = tail.iter().map(|byte| format!("{byte:02x}")).collect();
    let own_name = format!("{FILE_NAME}.new.{tail}");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, own_name.as_str(), flags, Mode::RUSR | Mode::WUSR)
        .map_err(failed("create"))?;
    let published = write_all(&file, secret)
        .and_then(|()| rustix::fs::fsync(&file))
        .map_err(failed("write"))
        .and_then(|()| publish(folder, &own_name).map_err(failed("publish")));
    // After a rename the name is gone already, and a leftover would hold a secret nobody uses.
    let _ = rustix::fs::unlinkat(folder, own_name.as_str(), AtFlags::empty());
    published
}

/// Gives the file its common name if nothing has it; that something has it is no failure.
fn publish(folder: &OwnedFd, own_name: &str) -> Result<(), Errno> {
    let linked = rustix::fs::linkat(folder, own_name, folder, FILE_NAME, AtFlags::empty());
    let outcome = match linked {
        Ok(()) | Err(Errno::EXIST) => linked,
        // Some file systems have no second names.
        Err(_) => {
            rustix::fs::renameat_with(folder, own_name, folder, FILE_NAME, RenameFlags::NOREPLACE)
        }
    };
    match outcome {
        Err(Errno::EXIST) => Ok(()),
        outcome => outcome,
    }
}

fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn fill_random(bytes: &mut [u8]) -> Result<(), Errno> {
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        match rustix::rand::getrandom(&mut bytes[filled..], flags) {
            Ok(more) => filled += more,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
