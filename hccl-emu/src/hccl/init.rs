//! Communicators of a whole world: from a root info, from a rank table, for all devices of a
//! process.

use std::sync::{Arc, PoisonError};

use hccl_sys::types::HcclResult;
use muster_comm::rendezvous::Secret;
use muster_comm::sync::Clock;
use muster_comm::types::Rank;
use muster_comm::world::World;

use super::comm::{Comm, Parts, Peer, Seat};
use super::config::CommConfig;
use super::fail::{Answer, EI0007, EI0015, EJ0001, Fail};
use super::library::{Library, current_device};
use super::meeting::{self, Joining, Serving};
use super::network::{HostAddress, host_address};
use super::root_info::RootInfo;
use crate::fault::{Fault, Kind};
use crate::options::Product;
use crate::runtime::device::{self, Device};
use crate::runtime::state;

/// Largest world that is served.
const RANKS_MAX: u32 = 32 << 10;

/// Which rank of which world is made.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) call: &'a str,
    pub(crate) rank: u32,
    pub(crate) world_size: u32,
    pub(crate) name: String,
    pub(crate) config: &'a CommConfig,
}

/// `HcclGetRootInfo`: serves a rendezvous and says where.
pub(crate) fn root_info(call: &str, library: &Library) -> Answer<RootInfo> {
    let device = current_device(call)?;
    let HostAddress { interface, ip } = host_address(&library.settings)?;
    let secret = Secret::random().map_err(|error| {
        Fail::new(
            HcclResult::HCCL_E_SYSCALL,
            EI0007,
            format!("{call}: no random numbers: {error}"),
        )
    })?;
    let job_id = job_of(&secret);
    let (address, served) = meeting::serve(
        call,
        &Serving {
            ip,
            ports: &library.settings.ports,
            secret: &secret,
            job_id: &job_id,
            world_size: 0,
            connect_timeout: library.settings.connect_timeout,
            cann: library.cann,
        },
    )?;
    library.note_served(&job_id, served);
    let identifier = format!(
        "{ip}%{interface}_{}_{}_{}",
        address.port(),
        device.physical,
        micros()
    );
    Ok(RootInfo {
        address,
        identifier,
        secret,
    })
}

/// `HcclCommInitRootInfo`: joins the ranks that have the same root info.
pub(crate) fn from_root_info(
    call: &str,
    library: &Library,
    info: &RootInfo,
    (rank, world_size): (u32, u32),
    config: &CommConfig,
) -> Answer<Arc<Comm>> {
    check_rank(call, rank, world_size)?;
    let request = Request {
        call,
        rank,
        world_size,
        name: config
            .name
            .clone()
            .unwrap_or_else(|| info.identifier.clone()),
        config,
    };
    let job_id = job_of(&info.secret);
    establish(library, &request, |device| {
        let joining = Joining {
            address: info.address,
            secret: &info.secret,
            job_id: &job_id,
            rank,
            world_size,
        };
        let world = meeting::join(call, &joining, &library.settings, device)
            .inspect_err(|_| library.settle_served(&job_id))?;
        Ok((world, library.serves(&job_id)))
    })
}

pub(crate) fn check_rank(call: &str, rank: u32, world_size: u32) -> Answer {
    if world_size == 0 || world_size > RANKS_MAX {
        let text = format!("{call}: nRanks is {world_size}; allowed: 1 to {RANKS_MAX}");
        return Err(Fail::para(text));
    }
    if rank >= world_size {
        let text = format!("{call}: rank is {rank}; allowed: 0 to {}", world_size - 1);
        return Err(Fail::para(text));
    }
    Ok(())
}

/// What all initialisations have in common: the device, the name, the world, the exchange.
pub(crate) fn establish(
    library: &Library,
    request: &Request<'_>,
    join: impl FnOnce(&Device) -> Answer<(World, bool)>,
) -> Answer<Arc<Comm>> {
    let device = current_device(request.call)?;
    let Some(is_first) =
        library.take_name(device.logical, &request.name, request.world_size as usize)
    else {
        return Err(name_taken(request, &device));
    };
    let made = meet(library, request, &device, is_first, join);
    if made.is_err() {
        library.free_name(device.logical, &request.name);
    }
    made
}

fn name_taken(request: &Request<'_>, device: &Device) -> Fail {
    let text = format!(
        "{}: device {} already has a communicator called {:?}",
        request.call, device.logical, request.name
    );
    // Of the vendor's two codes, that of the world of a rank table is another one.
    if request.name == super::rank_table::WORLD_NAME {
        Fail::new(HcclResult::HCCL_E_UNAVAIL, EI0007, text)
    } else {
        Fail::para(text)
    }
}

fn meet(
    library: &Library,
    request: &Request<'_>,
    device: &Arc<Device>,
    is_first: bool,
    join: impl FnOnce(&Device) -> Answer<(World, bool)>,
) -> Answer<Arc<Comm>> {
    let never_comes = |fault: &Fault| {
        fault.kind == Kind::InitTimeout
            && fault.rank == request.rank
            && fault.place.concerns(&request.name, is_first)
    };
    if library.faults.iter().any(never_comes) {
        Clock::pause(library.settings.connect_timeout);
        return Err(Fail::new(
            HcclResult::HCCL_E_TIMEOUT,
            EI0015,
            format!(
                "{}: topo exchange agent get socket timeout! rank {} reached nobody in {:?} (a fault on purpose)",
                request.call, request.rank, library.settings.connect_timeout
            ),
        ));
    }
    let (world, serves) = join(device)?;
    let peers = exchange(library, request, device, &world, serves)?;
    let seat = Seat::new(world, peers);
    one_device_each(library, request, &seat)?;
    let members = (0..request.world_size).map(Rank).collect();
    let config = request.config;
    Comm::create(
        library,
        Parts {
            name: request.name.clone(),
            device: Arc::clone(device),
            seat,
            members,
            rank: request.rank,
            is_sub: false,
            exec_timeout: config.exec_timeout.unwrap_or(library.settings.exec_timeout),
            buffer_mb: config.buffer_mb.unwrap_or(library.settings.buffer_mb),
            deterministic: config
                .deterministic
                .and_then(|value| i32::try_from(value).ok()),
            is_first,
        },
    )
}

/// Every rank tells the others where it is.
fn exchange(
    library: &Library,
    request: &Request<'_>,
    device: &Device,
    world: &World,
    serves: bool,
) -> Answer<Vec<Peer>> {
    let failed = |error: &dyn std::fmt::Display| {
        Fail::new(
            HcclResult::HCCL_E_TIMEOUT,
            EI0015,
            format!("{}: exchange of rank info: {error}", request.call),
        )
    };
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let link = |path: &str| {
        std::fs::read_link(path).map_or_else(|_| String::new(), |to| to.display().to_string())
    };
    let boot = read("/proc/sys/kernel/random/boot_id");
    let mine = Peer {
        host,
        place: format!("{} {}", boot.trim(), link("/proc/self/ns/net")),
        pid: std::process::id(),
        device: device.physical,
        serves,
    };
    let group = world.everyone().map_err(|error| failed(&error))?;
    group.set_deadline(library.settings.connect_timeout);
    group
        .all_gather_object(&mine)
        .map_err(|error| failed(&error))
}

/// Two ranks on one device are an error, except where the product and both port ranges allow it.
fn one_device_each(library: &Library, request: &Request<'_>, seat: &Seat) -> Answer {
    let given = |name: &str| matches!(state().environment.text(name), Ok(Some(_)));
    let is_shared_allowed = matches!(library.product, Product::A2 | Product::A3)
        && given("HCCL_HOST_SOCKET_PORT_RANGE")
        && given("HCCL_NPU_SOCKET_PORT_RANGE");
    let peers = &seat.peers;
    for (rank, peer) in peers.iter().enumerate() {
        let same = |other: &Peer| other.place == peer.place && other.device == peer.device;
        let Some(other) = peers[..rank].iter().position(same) else {
            continue;
        };
        let is_one_process = peers[other].pid == peer.pid;
        if is_one_process || !is_shared_allowed {
            return Err(Fail::new(
                HcclResult::HCCL_E_UNAVAIL,
                EJ0001,
                format!(
                    "{}: ranks {other} and {rank} both are on device {} of {}; each rank needs a device of its own",
                    request.call, peer.device, peer.host
                ),
            ));
        }
    }
    Ok(())
}

/// `HcclCommInitAll`: one rank for each device of the list, all in this process.
pub(crate) fn all(call: &str, library: &'static Library, devices: &[i32]) -> Answer<Vec<u64>> {
    current_device(call)?;
    for (at, device) in devices.iter().enumerate() {
        if devices[..at].contains(device) {
            let text = format!("{call}: device {device} is listed twice");
            return Err(Fail::para(text));
        }
        state().device(*device).map_err(|error| {
            let text = format!("{call}: {}", error.text);
            Fail::para(text)
        })?;
    }
    let info = root_info(call, library)?;
    let world_size = u32::try_from(devices.len()).unwrap_or(u32::MAX);
    let config = CommConfig::default();
    let made = std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..world_size)
            .zip(devices)
            .map(|(rank, device)| {
                let (info, config) = (&info, &config);
                scope.spawn(move || {
                    holding(call, *device, || {
                        from_root_info(call, library, info, (rank, world_size), config)
                    })
                })
            })
            .collect();
        let join = |rank: std::thread::ScopedJoinHandle<'_, Answer<Arc<Comm>>>| {
            rank.join().unwrap_or_else(|_| {
                let text = format!("{call}: a helper thread panicked");
                Err(Fail::new(HcclResult::HCCL_E_INTERNAL, EI0007, text))
            })
        };
        ranks.into_iter().map(join).collect::<Vec<_>>()
    });
    let cause = made.iter().find_map(|made| made.as_ref().err()).cloned();
    let Some(cause) = cause else {
        let handle = |made: Answer<Arc<Comm>>| made.map(|comm| comm.handle);
        return made.into_iter().map(handle).collect();
    };
    for comm in made.into_iter().flatten() {
        super::life::remove(library, &comm);
        let _ = comm.device.reset(false);
    }
    Err(Fail {
        result: HcclResult::HCCL_E_INTERNAL,
        ..cause
    })
}

/// Makes a communicator in this thread that counts as a user of its device until it is destroyed.
fn holding(
    call: &str,
    logical: i32,
    body: impl FnOnce() -> Answer<Arc<Comm>>,
) -> Answer<Arc<Comm>> {
    let runtime = |error| Fail::runtime(&error).under(call);
    let device = state().device(logical).map_err(runtime)?;
    device.set().map_err(runtime)?;
    let made = body();
    match &made {
        Ok(comm) => comm.hold_device(),
        Err(_) => {
            let _ = device.reset(false);
        }
    }
    made
}

/// Runs `body` in this thread as if the device had been set there.
pub(crate) fn on_device<T>(
    call: &str,
    logical: i32,
    body: impl FnOnce() -> Answer<T>,
) -> Answer<T> {
    let runtime = |error| Fail::runtime(&error).under(call);
    let device = state().device(logical).map_err(runtime)?;
    match device.primary_context() {
        Some(context) => device::set_current(Some(context)),
        None => device.set().map_err(runtime)?,
    }
    body()
}

/// Name of the job in the rendezvous: says nothing about the secret.
pub(crate) fn job_of(secret: &Secret) -> String {
    let digest = blake3::derive_key("muster 2026 emulated job id v1", secret.expose());
    format!(
        "hccl-emulated-{}",
        &blake3::Hash::from(digest).to_hex()[..16]
    )
}

/// Microseconds since 1970: part of names that must differ from run to run.
fn micros() -> u128 {
    static LAST: std::sync::Mutex<u128> = std::sync::Mutex::new(0);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_micros());
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    *last = now.max(*last + 1);
    *last
}
