//! Communicators from a rank table: a file, or its text, that lists all ranks.
//!
//! Four forms are read: 1.0 and 1.2 (servers), 2.0 (ranks), and the one without version (groups).
//! A table names no secret and no free port. So rank 0 serves its rendezvous under the user's own
//! secret, and tells the port to the ranks of its host through a socket whose name only they can
//! derive; for several hosts it is the first port of the allowed ones.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use hccl_sys::types::HcclResult;
use muster_comm::launch::secret::job_secret;
use muster_comm::rendezvous::Secret;
use muster_comm::sync::{AtomicBool, Clock, Deadline, Ordering};
use serde_json::Value;

use super::comm::Comm;
use super::config::CommConfig;
use super::fail::{Answer, EI0004, EI0007, EI0014, EI0015, EI0017, Fail};
use super::init::{self, Request, job_of};
use super::library::Library;
use super::meeting::{self, Joining, Served, Serving};
use super::settings::Ports;
use crate::runtime::state;

/// Name of the communicator that a rank table describes, if it is given none.
pub(crate) const WORLD_NAME: &str = "hccl_world_group";
/// Longest path of a table.
pub(crate) const PATH_BYTES_MAX: usize = 4096;
/// Largest table that is read.
const TABLE_BYTES_MAX: u64 = 64 << 20;
/// Pause between two looks for the port of rank 0, and for those who ask for it.
const PAUSE: Duration = Duration::from_millis(10);
/// A rank that asks for the port and does not listen loses its connection.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a table says that the emulator has a use for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) world_size: u32,
    /// Address of the server of rank 0; `None` where all ranks are on one server.
    pub(crate) host: Option<String>,
    /// Physical device of every rank.
    pub(crate) devices: Vec<u32>,
}

/// Reads the file of a table.
pub(crate) fn read_file(call: &str, path: &str) -> Answer<String> {
    let unreadable = |why: String| {
        let text = format!("{call}: rank table {path:?}: {why}");
        Fail::new(HcclResult::HCCL_E_PARA, EI0004, text)
    };
    let file = std::fs::File::open(path).map_err(|error| unreadable(error.to_string()))?;
    let mut text = String::new();
    file.take(TABLE_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|error| unreadable(error.to_string()))?;
    Ok(text)
}

/// Understands the text of a table.
pub(crate) fn parse(call: &str, text: &str) -> Answer<Table> {
    let value: Value = serde_json::from_str(text).map_err(|error| {
        let text = format!("{call}: the rank table is no JSON: {error}");
        Fail::new(HcclResult::HCCL_E_PARA, EI0004, text)
    })?;
    let version = value.get("version").and_then(Value::as_str);
    match version {
        Some("2.0") => ranks(call, &value),
        Some("1.0" | "1.2") => servers(call, &value),
        None if value.get("group_list").is_some() => groups(call, &value),
        None => Err(wrong(call, "/version", "is missing or no text")),
        Some(version) => {
            let what = format!("is {version:?}; allowed: 1.0, 1.2, 2.0");
            Err(wrong(call, "/version", &what))
        }
    }
}

fn wrong(call: &str, pointer: &str, what: &str) -> Fail {
    let missing = what.starts_with("is missing");
    let label = if missing { EI0017 } else { EI0014 };
    let text = format!("{call}: rank table, {pointer} {what}");
    Fail::new(HcclResult::HCCL_E_PARA, label, text)
}

fn must_be_completed(call: &str, value: &Value, is_needed: bool) -> Answer {
    match value.get("status").and_then(Value::as_str) {
        Some("completed") => Ok(()),
        None if !is_needed => Ok(()),
        None => Err(wrong(call, "/status", "is missing or no text")),
        Some(status) => {
            let what = format!("is {status:?}; allowed: \"completed\"");
            Err(wrong(call, "/status", &what))
        }
    }
}

/// Versions 1.0 and 1.2. Only what is used is asked for, so that no table is refused for what it
/// says besides.
fn servers(call: &str, value: &Value) -> Answer<Table> {
    must_be_completed(call, value, true)?;
    let servers = list_at(call, value, "", "server_list")?;
    let count = number_at(call, value, "", "server_count")?;
    if count as usize != servers.len() {
        let what = format!("is {count} where {} servers are listed", servers.len());
        return Err(wrong(call, "/server_count", &what));
    }
    let mut found = Vec::new();
    let mut host = None;
    for (index, server) in servers.iter().enumerate() {
        let at = format!("/server_list/{index}");
        let mut here = Vec::new();
        for (position, device) in list_at(call, server, &at, "device")?.iter().enumerate() {
            let at = format!("{at}/device/{position}");
            let rank = number_at(call, device, &at, "rank_id")?;
            let id = number_at(call, device, &at, "device_id")?;
            if here.contains(&id) {
                let what = format!("is {id}, and so is that of another rank of the server");
                return Err(wrong(call, &format!("{at}/device_id"), &what));
            }
            here.push(id);
            if rank == 0 {
                let text = |key| server.get(key).and_then(Value::as_str);
                host = text("host_ip").or_else(|| text("server_id"));
            }
            found.push((rank, id));
        }
    }
    let devices = in_rank_order(call, "/server_list", found)?;
    Ok(Table {
        world_size: u32::try_from(devices.len()).unwrap_or(u32::MAX),
        host: (servers.len() > 1).then(|| host.unwrap_or_default().to_owned()),
        devices,
    })
}

/// Version 2.0: ranks with their addresses on each layer of the network.
fn ranks(call: &str, value: &Value) -> Answer<Table> {
    let list = list_at(call, value, "", "rank_list")?;
    let mut found = Vec::new();
    for (at, rank) in list.iter().enumerate() {
        let at = format!("/rank_list/{at}");
        found.push((
            number_at(call, rank, &at, "rank_id")?,
            number_at(call, rank, &at, "device_id")?,
        ));
    }
    let devices = in_rank_order(call, "/rank_list", found)?;
    let count = value
        .get("rank_count")
        .map(|_| number_at(call, value, "", "rank_count"));
    match count.transpose()? {
        Some(count) if count as usize != devices.len() => {
            let what = format!("is {count} where {} ranks are listed", devices.len());
            Err(wrong(call, "/rank_count", &what))
        }
        _ => Ok(Table {
            world_size: u32::try_from(devices.len()).unwrap_or(u32::MAX),
            // The table names no host; the ranks meet on this one.
            host: None,
            devices,
        }),
    }
}

/// The form without version: one group of pods, ranks in the order in which devices are listed.
fn groups(call: &str, value: &Value) -> Answer<Table> {
    must_be_completed(call, value, false)?;
    let groups = list_at(call, value, "", "group_list")?;
    let group = groups
        .first()
        .ok_or_else(|| wrong(call, "/group_list", "is missing a group"))?;
    let instances = list_at(call, group, "/group_list/0", "instance_list")?;
    let mut devices = Vec::new();
    let mut hosts = Vec::new();
    for (index, instance) in instances.iter().enumerate() {
        let at = format!("/group_list/0/instance_list/{index}");
        hosts.push(instance.get("server_id").and_then(Value::as_str));
        for (device, entry) in list_at(call, instance, &at, "devices")?.iter().enumerate() {
            let at = format!("{at}/devices/{device}");
            devices.push(number_at(call, entry, &at, "device_id")?);
        }
    }
    let several = hosts.iter().any(|host| *host != hosts[0]);
    Ok(Table {
        world_size: u32::try_from(devices.len()).unwrap_or(u32::MAX),
        host: several.then(|| hosts[0].unwrap_or_default().to_owned()),
        devices,
    })
}

fn list_at<'a>(call: &str, value: &'a Value, at: &str, key: &str) -> Answer<&'a Vec<Value>> {
    let list = value.get(key).and_then(Value::as_array);
    list.ok_or_else(|| wrong(call, &format!("{at}/{key}"), "is missing or no list"))
}

/// A number, written as one or as text.
fn number_at(call: &str, value: &Value, at: &str, key: &str) -> Answer<u32> {
    let pointer = format!("{at}/{key}");
    let Some(value) = value.get(key) else {
        return Err(wrong(call, &pointer, "is missing"));
    };
    let number = match value {
        Value::String(text) => text.parse().ok(),
        value => value.as_u64().and_then(|number| u32::try_from(number).ok()),
    };
    number.ok_or_else(|| {
        let what = format!("is {value}; allowed: a whole number");
        wrong(call, &pointer, &what)
    })
}

fn in_rank_order(call: &str, at: &str, mut found: Vec<(u32, u32)>) -> Answer<Vec<u32>> {
    found.sort_unstable();
    let gap = (0_u32..)
        .zip(&found)
        .find(|(wanted, (rank, _))| wanted != rank);
    if let Some((wanted, _)) = gap {
        let what = format!(
            "has {} ranks and no rank {wanted}, or one twice",
            found.len()
        );
        return Err(wrong(call, at, &what));
    }
    if found.is_empty() {
        return Err(wrong(call, at, "has no rank"));
    }
    Ok(found.into_iter().map(|(_, device)| device).collect())
}

/// Makes the communicator that a table describes.
pub(crate) fn from_table(
    call: &str,
    library: &Library,
    text: &str,
    rank: u32,
    config: &CommConfig,
) -> Answer<Arc<Comm>> {
    let table = parse(call, text)?;
    if rank >= table.world_size {
        let text = format!(
            "{call}: rank is {rank}; the table has {} ranks",
            table.world_size
        );
        return Err(Fail::para(text));
    }
    let name = config.name.clone().unwrap_or_else(|| WORLD_NAME.to_owned());
    let connect = Deadline::after(library.settings.connect_timeout);
    let secret = secret_of(call, text, &name, &table, connect)?;
    let request = Request {
        call,
        rank,
        world_size: table.world_size,
        name,
        config,
    };
    init::establish(library, &request, |device| {
        let job_id = job_of(&secret);
        let told = Arc::new(AtomicBool::new(false));
        let address = if rank == 0 {
            let (address, served) = serve(call, library, &table, &secret)?;
            library.note_served(&job_id, served);
            if table.host.is_none() {
                tell(call, &secret, address.port(), &told)?;
            }
            address
        } else {
            find(call, library, &table, &secret, connect)?
        };
        let joining = Joining {
            address,
            secret: &secret,
            job_id: &job_id,
            rank,
            world_size: table.world_size,
        };
        let world = meeting::join(call, &joining, &library.settings, device)
            .inspect_err(|_| library.settle_served(&job_id));
        // SYNC: pairs with the load in `tell`; nothing else is passed.
        told.store(true, Ordering::Release);
        Ok((world?, library.serves(&job_id)))
    })
}

/// The secret of this communicator: the user's own, mixed with table and name.
fn secret_of(
    call: &str,
    text: &str,
    name: &str,
    table: &Table,
    deadline: Deadline,
) -> Answer<Secret> {
    let digest = blake3::hash(text.as_bytes()).to_hex();
    let job = format!("ranktable:{}:{name}", &digest[..16]);
    let one_host = table.host.is_none();
    let found = job_secret(&state().environment, Some(&job), one_host, deadline);
    let (secret, _) = found.map_err(|error| {
        let text = format!(
            "{call}: a secret for the rank exchange: {error}; {}",
            error.help()
        );
        Fail::new(HcclResult::HCCL_E_SYSCALL, EI0007, text)
    })?;
    let mut hasher = blake3::Hasher::new_keyed(secret.expose());
    hasher.update(job.as_bytes());
    Ok(Secret::from_bytes(*hasher.finalize().as_bytes()))
}

fn listed(library: &Library) -> Vec<u16> {
    match &library.settings.ports {
        Ports::Any => vec![0],
        Ports::Listed(ports) => ports.clone(),
    }
}

/// Rank 0 serves: on loopback for one host, where the table says for several.
fn serve(
    call: &str,
    library: &Library,
    table: &Table,
    secret: &Secret,
) -> Answer<(SocketAddr, Arc<Served>)> {
    let mut ports = listed(library);
    if table.host.is_some() {
        ports.truncate(1);
    }
    meeting::serve(
        call,
        &Serving {
            ip: host_ip(call, table)?,
            ports: &Ports::Listed(ports),
            secret,
            job_id: &job_of(secret),
            world_size: table.world_size,
            connect_timeout: library.settings.connect_timeout,
            cann: library.cann,
        },
    )
}

fn host_ip(call: &str, table: &Table) -> Answer<IpAddr> {
    let Some(host) = &table.host else {
        return Ok(IpAddr::V4(Ipv4Addr::LOCALHOST));
    };
    host.parse().map_err(|_| {
        let what = format!("of the server of rank 0 is {host:?}; allowed: an address");
        wrong(call, "host_ip or server_id", &what)
    })
}

/// Name of the socket through which rank 0 tells its port: nobody without the secret derives it.
fn socket_of(secret: &Secret) -> io::Result<UnixAddr> {
    let digest = blake3::derive_key("muster 2026 emulated rank table socket v1", secret.expose());
    let name = format!("muster-emu-{}", &blake3::Hash::from(digest).to_hex()[..32]);
    UnixAddr::from_abstract_name(name)
}

/// Tells the port to whoever asks, until `told`.
fn tell(call: &str, secret: &Secret, port: u16, told: &Arc<AtomicBool>) -> Answer {
    let failed = |error: io::Error| {
        let text =
            format!("{call}: rank 0 cannot tell its port, or serves this table already: {error}");
        Fail::new(HcclResult::HCCL_E_UNAVAIL, EI0007, text)
    };
    let listener = socket_of(secret)
        .and_then(|address| UnixListener::bind_addr(&address))
        .map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let told = Arc::clone(told);
    let body = move || {
        // SYNC: pairs with the store in `from_table`.
        while !told.load(Ordering::Acquire) {
            match listener.accept() {
                Ok((mut stream, _)) => {
                    // A rank that went away asks again, or is missed by the rendezvous.
                    let _ = stream.set_write_timeout(Some(PATIENCE));
                    let _ = stream.write_all(&port.to_le_bytes());
                }
                Err(_) => Clock::pause(PAUSE),
            }
        }
    };
    let builder = std::thread::Builder::new().name("emu-port".to_owned());
    builder.spawn(body).map(drop).map_err(failed)
}

/// Where rank 0 serves, as soon as it does.
fn find(
    call: &str,
    library: &Library,
    table: &Table,
    secret: &Secret,
    deadline: Deadline,
) -> Answer<SocketAddr> {
    let ip = host_ip(call, table)?;
    if table.host.is_some() {
        let port = listed(library).first().copied().unwrap_or_default();
        return Ok(SocketAddr::new(ip, port));
    }
    let ask = || -> io::Result<u16> {
        let mut stream = UnixStream::connect_addr(&socket_of(secret)?)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut port = [0; 2];
        stream.read_exact(&mut port)?;
        Ok(u16::from_le_bytes(port))
    };
    loop {
        if let Ok(port) = ask() {
            return Ok(SocketAddr::new(ip, port));
        }
        if deadline.passed() {
            return Err(Fail::new(
                HcclResult::HCCL_E_TIMEOUT,
                EI0015,
                format!(
                    "{call}: topo exchange agent get socket timeout! rank 0 of the rank table did not come within {:?}",
                    deadline.budget()
                ),
            ));
        }
        Clock::pause(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_four_forms_are_read() {
        let one = r#"{"status":"completed","version":"1.0","server_count":"1","server_list":[
            {"server_id":"10.0.0.1","device":[
                {"device_id":"0","device_ip":"192.168.1.8","rank_id":"0"},
                {"device_id":"1","device_ip":"192.168.1.9","rank_id":"1"}]}]}"#;
        let two = r#"{"version":"2.0","rank_count":2,"rank_list":[
            {"rank_id":1,"local_id":1,"device_id":1,"level_list":[]},
            {"rank_id":0,"local_id":0,"device_id":0,"level_list":[]}]}"#;
        let legacy = r#"{"status":"completed","group_count":"1","group_list":[
            {"group_name":"hccl_world_group","device_count":"2","instance_count":"1","instance_list":[
                {"pod_name":"a","server_id":"10.0.0.1","devices":[
                    {"device_id":"0","device_ip":"192.168.1.8"},
                    {"device_id":"1","device_ip":"192.168.1.9"}]}]}]}"#;
        let expected = Table {
            world_size: 2,
            host: None,
            devices: vec![0, 1],
        };
        for text in [one, &one.replace("\"1.0\"", "\"1.2\""), two, legacy] {
            assert_eq!(parse("test", text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn a_wrong_table_gets_the_code_of_what_is_wrong() {
        for (text, code) in [
            ("{", "EI0004"),
            (r#"{"version":"3.0","status":"completed"}"#, "EI0014"),
            (r#"{"status":"completed"}"#, "EI0017"),
            (r#"{"version":"1.0","status":"initializing"}"#, "EI0014"),
            (
                r#"{"version":"1.0","status":"completed","server_count":"2","server_list":[]}"#,
                "EI0014",
            ),
            (r#"{"version":"2.0"}"#, "EI0017"),
            (r#"{"version":"2.0","rank_list":[{"rank_id":0}]}"#, "EI0017"),
            (
                r#"{"version":"2.0","rank_list":[{"rank_id":0,"device_id":"x"}]}"#,
                "EI0014",
            ),
            (
                r#"{"version":"2.0","rank_list":[{"rank_id":1,"device_id":0}]}"#,
                "EI0014",
            ),
            (r#"{"status":"initializing","group_list":[]}"#, "EI0014"),
        ] {
            let fail = parse("test", text).unwrap_err();
            assert_eq!(fail.result, HcclResult::HCCL_E_PARA);
            assert_eq!(fail.label.code, code, "{text}: {}", fail.text);
        }
    }
}
