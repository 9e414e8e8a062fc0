//! Where a job secret comes from, and what is refused.

use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_comm::config::Environment;
use muster_comm::launch::secret::{SecretError, SecretSource, job_secret};
use muster_comm::rendezvous::Secret;
use muster_comm::sync::Deadline;

fn deadline() -> Deadline {
    Deadline::after(Duration::from_secs(10))
}

fn ask(pairs: &[(&str, &Path)], job: &str) -> Result<(Secret, SecretSource), SecretError> {
    let pairs = pairs
        .iter()
        .map(|(name, path)| (*name, path.display().to_string()));
    job_secret(&Environment::from_pairs(pairs), Some(job), true, deadline())
}

fn write(path: &Path, text: &[u8], mode: u32) {
    fs::write(path, text).expect("a file");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("metadata").permissions().mode() & 0o7777
}

fn names(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder");
    entries
        .map(|entry| entry.expect("an entry").path())
        .collect()
}

#[test]
fn many_ranks_that_start_at_once_read_the_same_secret_and_leave_one_file() {
    for _ in 0..20 {
        let home = tempfile::tempdir().expect("a folder");
        let secrets: Vec<[u8; 32]> = std::thread::scope(|scope| {
            let ranks: Vec<_> = (0..16)
                .map(|_| {
                    scope.spawn(|| {
                        *ask(&[("HOME", home.path())], "j")
                            .expect("a secret")
                            .0
                            .expose()
                    })
                })
                .collect();
            ranks
                .into_iter()
                .map(|rank| rank.join().expect("no panic"))
                .collect()
        });
        assert!(secrets.iter().all(|secret| *secret == secrets[0]));
        let folder = home.path().join(".cache/muster");
        assert_eq!(names(&folder), [folder.join("secret")]);
        assert_eq!(mode(&folder), 0o700);
        assert_eq!(mode(&folder.join("secret")), 0o600);
    }
}

#[test]
fn users_and_jobs_have_secrets_of_their_own() {
    let (one, two) = (tempfile::tempdir(), tempfile::tempdir());
    let (one, two) = (one.expect("a folder"), two.expect("a folder"));
    let secret = |home: &Path, job| *ask(&[("HOME", home)], job).expect("a secret").0.expose();
    assert_eq!(secret(one.path(), "a"), secret(one.path(), "a"));
    assert_ne!(secret(one.path(), "a"), secret(one.path(), "b"));
    assert_ne!(secret(one.path(), "a"), secret(two.path(), "a"));
}

#[test]
fn the_session_folder_serves_one_host_and_the_home_folder_several() {
    let (home, session) = (tempfile::tempdir(), tempfile::tempdir());
    let (home, session) = (home.expect("a folder"), session.expect("a folder"));
    let environment = Environment::from_pairs([
        ("HOME", home.path().display().to_string()),
        ("XDG_RUNTIME_DIR", session.path().display().to_string()),
    ]);
    let source = |on_one_host| {
        job_secret(&environment, Some("j"), on_one_host, deadline())
            .expect("a secret")
            .1
    };
    let local = session.path().join("muster/secret");
    assert_eq!(source(true), SecretSource::PerUser(local));
    let shared = home.path().join(".cache/muster/secret");
    assert_eq!(source(false), SecretSource::PerUser(shared));
}

#[test]
fn a_file_or_folder_that_others_may_open_is_refused() {
    let home = tempfile::tempdir().expect("a folder");
    ask(&[("HOME", home.path())], "j").expect("a secret");
    let folder = home.path().join(".cache/muster");
    let file = folder.join("secret");
    let refused = || match ask(&[("HOME", home.path())], "j") {
        Err(SecretError::Unsafe { path, what }) => (path, what),
        other => panic!("{other:?}"),
    };

    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("a mode");
    let (path, what) = refused();
    assert_eq!(path, file);
    assert_eq!(what, "has mode 0640, open to others; allowed: 0600");

    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("a mode");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o701)).expect("a mode");
    assert_eq!(refused().0, folder);

    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("a mode");
    fs::remove_file(&file).expect("removed");
    fs::create_dir(&file).expect("a folder");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o700)).expect("a mode");
    assert_eq!(refused().1, "is no regular file");
}

#[test]
fn links_in_place_of_the_secret_or_its_folder_are_not_followed() {
    let home = tempfile::tempdir().expect("a folder");
    let elsewhere = home.path().join("elsewhere");
    fs::create_dir(&elsewhere).expect("a folder");
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o700)).expect("a mode");
    write(&elsewhere.join("bait"), &[7; 32], 0o600);
    let cache = home.path().join(".cache");
    fs::create_dir(&cache).expect("a folder");

    symlink(&elsewhere, cache.join("muster")).expect("a link");
    let error = ask(&[("HOME", home.path())], "j").expect_err("a link");
    assert!(matches!(error, SecretError::System { .. }), "{error}");

    fs::remove_file(cache.join("muster")).expect("removed");
    fs::create_dir(cache.join("muster")).expect("a folder");
    fs::set_permissions(cache.join("muster"), fs::Permissions::from_mode(0o700)).expect("a mode");
    symlink(elsewhere.join("bait"), cache.join("muster/secret")).expect("a link");
    let error = ask(&[("HOME", home.path())], "j").expect_err("a link");
    assert!(matches!(error, SecretError::System { .. }), "{error}");
}

#[test]
fn a_named_file_is_believed_if_it_is_private_and_long_enough() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("named");
    let ask = || ask(&[("MUSTER_SECRET_FILE", &file)], "j");

    write(&file, b"correct horse battery staple\n", 0o600);
    let (secret, source) = ask().expect("a secret");
    assert_eq!(source, SecretSource::File(file.clone()));
    write(&file, b"correct horse battery staple", 0o400);
    assert_eq!(ask().expect("the same text").0.expose(), secret.expose());

    write(&file, b"correct horse battery staple\n", 0o644);
    assert!(matches!(ask(), Err(SecretError::Unsafe { .. })));
    fs::remove_file(&file).expect("removed");
    write(&file, b"short\n", 0o600);
    let error = ask().expect_err("too short");
    assert!(
        matches!(error, SecretError::Length { bytes: 5, .. }),
        "{error}"
    );
    write(&file, &[b'x'; 5000], 0o600);
    let error = ask().expect_err("too long");
    assert!(
        matches!(error, SecretError::Length { bytes: 4097, .. }),
        "{error}"
    );
    fs::remove_file(&file).expect("removed");
    assert!(matches!(ask(), Err(SecretError::System { .. })));
}

#[test]
fn a_descriptor_is_read_to_its_end_and_used_as_it_is() {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    writer.write_all(&[9; 32]).expect("written");
    drop(writer);
    let number = reader.as_raw_fd().to_string();
    let environment = Environment::from_pairs([("MUSTER_SECRET_FD", number)]);
    let (secret, source) = job_secret(&environment, Some("j"), true, deadline()).expect("a secret");
    assert_eq!(secret.expose(), &[9; 32]);
    assert_eq!(source, SecretSource::Descriptor(reader.as_raw_fd()));
}

#[test]
fn a_descriptor_that_never_ends_is_given_up_at_the_deadline() {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    writer.write_all(&[9; 32]).expect("written");
    let number = reader.as_raw_fd().to_string();
    let environment = Environment::from_pairs([("MUSTER_SECRET_FD", number)]);
    let soon = Deadline::after(Duration::from_millis(50));
    let error = job_secret(&environment, Some("j"), true, soon).expect_err("no end");
    assert!(matches!(error, SecretError::Late { .. }), "{error}");
    drop(writer);
}

#[test]
fn without_home_and_session_there_is_no_place_and_none_in_a_shared_folder() {
    let error = ask(&[], "j").expect_err("no place");
    assert!(matches!(error, SecretError::NoPlace), "{error}");
    let gone = Path::new("/nonexistent/home");
    let error = ask(&[("HOME", gone), ("XDG_RUNTIME_DIR", gone)], "j").expect_err("no folder");
    assert!(
        error.to_string().starts_with("make /nonexistent/home"),
        "{error}"
    );
}
