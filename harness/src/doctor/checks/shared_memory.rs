//! Whether there is room in `/dev/shm`.

use super::super::system::size;
use super::super::{Finding, Problem, Status, System};

const FOLDER: &str = "/dev/shm";
/// What container engines give by default; data loaders and MPI die in it with SIGBUS.
const CONTAINER_DEFAULT: u64 = 64 << 20;
/// Below this, several ranks with data loaders run out.
const ROOMY: u64 = 1 << 30;
/// Less than this is full.
const FREE_MIN: u64 = 4 << 20;

pub(super) fn judge(system: &System) -> Finding {
    let remedy = "in a container: docker run --shm-size=16g, or in Kubernetes an emptyDir of medium Memory at /dev/shm; else: mount -o remount,size=16g /dev/shm";
    if !system.path(FOLDER).is_dir() {
        return Problem::fail(
            "/dev/shm does not exist: MPI, data loaders and Python's shared memory fail",
            "/dev/shm is no folder",
            "mount -t tmpfs -o size=16g tmpfs /dev/shm",
        )
        .into();
    }
    let space = match system.senses().space(&system.path(FOLDER)) {
        Ok(space) => space,
        Err(error) => return Finding::skip(format!("/dev/shm does not tell its size: {error}")),
    };
    let evidence = format!(
        "/dev/shm: {} of {} free",
        size(space.free),
        size(space.total)
    );
    // One that is tiny and empty is not full.
    if space.free < FREE_MIN && space.free < space.total / 2 {
        return Problem::fail(
            format!("/dev/shm is full: {} of {} are free", size(space.free), size(space.total)),
            evidence,
            "see the check leftover-memory for what to delete, or make it larger: mount -o remount,size=16g /dev/shm",
        )
        .into();
    }
    if space.total < ROOMY {
        let tiny = space.total <= CONTAINER_DEFAULT;
        let status = if tiny && system.wants_hccl() {
            Status::Fail
        } else {
            Status::Warn
        };
        let why = if tiny {
            ", what containers get by default: data loaders and MPI die there with SIGBUS"
        } else {
            ""
        };
        return Problem::new(
            status,
            format!("/dev/shm holds only {}{why}", size(space.total)),
            evidence,
            remedy,
        )
        .into();
    }
    Finding::ok(format!("/dev/shm has {} free", size(space.free)), evidence)
}
