//! Where the ranks may meet when the launcher gives no address of ours.
//!
//! The port is derived from what all ranks of a job share, so that no message is needed to agree
//! on it, and two jobs of one host rarely choose the same. It lies below the range from which the
//! system hands out ports. A launcher's own port (`MASTER_PORT`) is never used: somebody holds it.

use super::error::LaunchError;
use super::identity::EndpointHint;
use super::reader::host;
use crate::config::{self, ConfigError, Environment};

/// First port of the range that derived ports lie in.
pub const PORT_FIRST: u16 = 20_000;
/// Number of ports in that range; it ends below 32768, where Linux begins to hand out ports.
pub const PORT_COUNT: u16 = 10_000;
/// Longest job id that is carried as it is.
const JOB_ID_CHARS_MAX: usize = 128;

/// The port of a job: `20000 + fnv(job_id, attempt) % 10000`, or the next one if that is taken.
///
/// FNV-1a over the job id, a zero byte and the attempt in decimal.
#[must_use]
pub fn derive_port(job_id: &str, attempt: u32, taken: Option<u16>) -> u16 {
    let attempt = attempt.to_string();
    let bytes = job_id
        .bytes()
        .chain(std::iter::once(0))
        .chain(attempt.bytes());
    let offset = u16::try_from(fnv(bytes) % u64::from(PORT_COUNT)).unwrap_or(0);
    let port = PORT_FIRST + offset;
    if taken == Some(port) {
        PORT_FIRST + (offset + 1) % PORT_COUNT
    } else {
        port
    }
}

/// FNV-1a, 64 bits.
fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    bytes.fold(OFFSET_BASIS, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(PRIME)
    })
}

/// Remark where no variable names the job.
const NO_JOB: &str = "nothing tells this job from another one: set MUSTER_RENDEZVOUS and \
                      MUSTER_JOB_ID alike for all ranks";
/// Remark where no variable names the host of rank 0.
const NO_HOST: &str = "the launcher does not tell where rank 0 runs: set \
                       MUSTER_RENDEZVOUS=tcp://HOST:PORT alike for all ranks";

/// Whether a remark is one of [`choose`].
pub(super) fn is_remark(note: &str) -> bool {
    note == NO_JOB || note == NO_HOST
}

/// What is known about the meeting place of a job.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    /// A host that all ranks reach and rank 0 is expected on, and where that was read.
    pub(super) host: Option<(String, &'static str)>,
    /// A port on that host that somebody else holds.
    pub(super) taken: Option<u16>,
}

/// The meeting place of a job, or a remark on what is wanting.
///
/// # Errors
/// If `MUSTER_RENDEZVOUS` is malformed.
pub(super) fn choose(
    environment: &Environment,
    mut place: Place,
    on_one_host: bool,
    job_id: Option<&str>,
    attempt: u32,
) -> Result<(Option<EndpointHint>, Option<String>), LaunchError> {
    if let Some(endpoint) = environment.read(&config::RENDEZVOUS)? {
        let how = "MUSTER_RENDEZVOUS".to_owned();
        return Ok((Some(EndpointHint { endpoint, how }), None));
    }
    let Some(job_id) = job_id else {
        return Ok((None, Some(NO_JOB.to_owned())));
    };
    if place.host.is_none() {
        // Under mpirun users pass on MASTER_ADDR for torch's sake.
        let master = environment.text("MASTER_ADDR")?.and_then(host);
        place.host = master.map(|host| (host, "MASTER_ADDR"));
    }
    let (host, from) = match &place.host {
        _ if on_one_host => ("127.0.0.1", "all ranks are on one host"),
        Some((host, from)) => (host.as_str(), *from),
        None => {
            return Ok((None, Some(NO_HOST.to_owned())));
        }
    };
    let port = derive_port(job_id, attempt, place.taken);
    let how = format!("host: {from}; port: derived from job {job_id}, attempt {attempt}");
    let text = if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    };
    match text.parse() {
        Ok(endpoint) => Ok((Some(EndpointHint { endpoint, how }), None)),
        Err(_) => Err(ConfigError::malformed(from, host, "a host name or address").into()),
    }
}

/// A job id made of a launcher's own words: printable, without spaces, bounded.
pub(super) fn job_name(contract: super::Contract, id: &str) -> String {
    let name: String = format!("{contract}:{id}")
        .chars()
        .map(|c| if c.is_ascii_graphic() { c } else { '_' })
        .collect();
    if name.len() <= JOB_ID_CHARS_MAX {
        return name;
    }
    // What is cut off must still tell two jobs apart.
    let digest = format!("~{:016x}", fnv(id.bytes()));
    format!("{}{digest}", &name[..JOB_ID_CHARS_MAX - digest.len()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::Contract;

    #[test]
    fn fnv_gives_the_published_values() {
        assert_eq!(fnv("".bytes()), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv("a".bytes()), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv("foobar".bytes()), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn ports_stay_in_range_differ_by_attempt_and_avoid_the_one_taken() {
        for job in 0..2000 {
            let job = format!("job-{job}");
            let port = derive_port(&job, 0, None);
            assert!((20_000..30_000).contains(&port));
            let other = derive_port(&job, 0, Some(port));
            assert_ne!(other, port);
            assert!((20_000..30_000).contains(&other));
        }
        assert_ne!(derive_port("job", 0, None), derive_port("job", 1, None));
    }

    #[test]
    fn long_and_odd_job_ids_stay_printable_bounded_and_distinct() {
        let long = "x".repeat(500);
        let one = job_name(Contract::Torchrun, &format!("{long}1"));
        let two = job_name(Contract::Torchrun, &format!("{long}2"));
        assert_ne!(one, two);
        assert_eq!(one.len(), JOB_ID_CHARS_MAX);
        let odd = job_name(Contract::Slurm, "ƒ Ab\n");
        assert!(odd.bytes().all(|byte| byte.is_ascii_graphic()), "{odd}");
    }
}
