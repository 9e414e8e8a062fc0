//! Making device communicators: who drives what, how the ranks find each other, whether all did.
//!
//! Everything that ranks tell each other here goes over the host group: root information too, never
//! a launcher's means. All ranks come to one conclusion: a rank that cannot join fails the others.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::bench::Bench;
use super::{DeviceCommunicator, Inner};
use crate::collective::{Call, Communicator};
use crate::context::Identity;
use crate::device::error::DeviceError;
use crate::device::library::{Device, Engine, Origin};
use crate::device::options::DeviceOptions;
use crate::device::stream::Stream;
use crate::device::vendor_thread::Ticket;
use crate::error::{CommError, ErrorKind};
use crate::sync::Deadline;
use crate::types::Collective;
use crate::watch::judge::{Member, Scene};

/// Tells the calls on a device from those that its ranks make to agree about them, on the board.
const ON_DEVICE: u64 = 0x6e70_755f_6465_7673;

/// One look at the vendor thread while the vendor joins.
const LOOK: Duration = Duration::from_millis(20);

/// What a rank tells the others about its device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Card {
    host: String,
    process: u32,
    logical: u32,
    physical: Option<u32>,
    soc: String,
    emulated: bool,
    /// What of the way the rank is to go it can go: root, table or parent.
    way: Way,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Way {
    Root,
    Sub,
    Table,
}

/// Where a new communicator comes from.
enum Parent<'a> {
    None,
    Of(&'a DeviceCommunicator),
}

impl Communicator {
    /// A communicator of the same ranks for memory on their devices. All members call it, each with
    /// a device of its own and with equal options.
    ///
    /// Root information goes over this group; nothing of a launcher is needed. Takes as long as the
    /// vendor needs to connect the ranks, at most this group's deadline.
    ///
    /// # Errors
    /// `InvalidArgument` where two ranks drive one device, or emulated and real devices would mix;
    /// the vendor's error on the rank that cannot join, `PeerAborted` naming it on the others;
    /// `Unsupported` for options that this CANN does not take.
    pub fn on_device(
        &self,
        device: &Device,
        options: &DeviceOptions,
    ) -> Result<DeviceCommunicator, CommError> {
        create(self, device, options, &Parent::None)
    }
}

impl DeviceCommunicator {
    /// A communicator of some ranks of this one, for `group`, of which all members call it. Uses
    /// the vendor's own splitting where the library has it, which makes no new root, else root
    /// information.
    ///
    /// # Errors
    /// `InvalidArgument` where a member of `group` is none of this communicator; else as
    /// [`Communicator::on_device`].
    pub fn on_subgroup(
        &self,
        group: &Communicator,
        options: &DeviceOptions,
    ) -> Result<Self, CommError> {
        create(group, &self.inner.device, options, &Parent::Of(self))
    }
}

fn create(
    group: &Communicator,
    device: &Device,
    options: &DeviceOptions,
    parent: &Parent<'_>,
) -> Result<DeviceCommunicator, CommError> {
    let call = Call::bare(Collective::Barrier);
    let deadline = Deadline::after(group.deadline());
    let host = host_side(group)?;
    let error = |kind: ErrorKind| host.error(call, kind, 0, None, deadline, true);
    let vendor = |failed: DeviceError| error(failed.into());
    let way = match parent {
        Parent::Of(parent) if parent.can_split() => Way::Sub,
        Parent::Of(_) | Parent::None if options.rank_table.is_some() => Way::Table,
        Parent::Of(_) | Parent::None => Way::Root,
    };
    let cards = exchange_cards(&host, device, way)?;
    check_cards(&host, &cards).map_err(error)?;
    let vendor_thread = match parent {
        Parent::Of(parent) if way == Way::Sub => Some(parent.inner.engine.vendor_thread()),
        Parent::Of(_) | Parent::None => None,
    };
    let engine = Engine::start(device, group.size(), vendor_thread).map_err(vendor)?;
    let config = engine.config(options).map_err(error)?;
    let exec_timeout = exec_timeout(options, config.exec_timeout_s);
    let origin = origin(
        &host,
        &engine,
        way,
        options.rank_table.as_deref(),
        parent,
        deadline,
    )?;
    let rank = u32::try_from(group.rank()).unwrap_or(u32::MAX);
    let joined = await_ticket(&host, &engine.join(rank, origin, config), deadline);
    agree(&host, call, joined, deadline)?;
    let stream = Stream::new(device).map_err(vendor)?;
    let context = Arc::clone(host.context());
    let bench = Bench::new(context, host.identity().key, exec_timeout);
    bench.open();
    let identity = on_device(&host, group.name());
    let place = host
        .context()
        .watch
        .place(identity.key, &identity.name, &identity.members);
    let inner = Inner {
        host: group.clone(),
        scene: scene(&host, &cards),
        group: identity,
        place,
        desk: host,
        device: device.clone(),
        engine,
        stream,
        bench,
        standing: Mutex::default(),
        last: Mutex::default(),
        failed: Mutex::default(),
        turn: Mutex::default(),
        async_question: Mutex::default(),
        checked: options.checked,
        one_host: cards.windows(2).all(|pair| pair[0].host == pair[1].host),
        is_sub: way == Way::Sub,
        exec_timeout,
    };
    Ok(DeviceCommunicator {
        inner: Arc::new(inner),
    })
}

/// How long a device waits for its peers: as is set for this communicator, or else in the environment.
fn exec_timeout(options: &DeviceOptions, set_s: Option<i32>) -> Option<Duration> {
    let seconds = set_s.and_then(|seconds| u64::try_from(seconds).ok());
    let own = seconds.map(Duration::from_secs);
    own.or(options.exec_timeout_of_environment)
}

/// What calls on the device are to watching, beside the group over which its ranks speak.
fn on_device(desk: &Communicator, name: &str) -> Identity {
    let at = desk.identity();
    Identity {
        name: format!("{name} on npu").into(),
        members: at.members.clone(),
        me: at.me,
        key: at.key ^ ON_DEVICE,
        note: at.note,
        table: None,
    }
}

/// Hosts and processes of the ranks.
fn scene(desk: &Communicator, cards: &[Card]) -> Scene {
    let mut members = vec![Member::default(); desk.context().size];
    for (rank, card) in desk.members().iter().zip(cards) {
        let member = &mut members[rank.index()];
        (member.host, member.pid) = (card.host.clone(), card.process);
    }
    Scene { members }
}

/// The group over which a device communicator's ranks speak: the same ranks, apart from the user's
/// own calls on `group`.
fn host_side(group: &Communicator) -> Result<Communicator, CommError> {
    let context = group.context();
    let name = format!("{}/npu", group.name());
    let generation = || context.generation(&name, group.members());
    let host = Communicator::new(
        Arc::clone(context),
        &name,
        group.members(),
        generation,
        None,
    )?;
    host.set_deadline(group.deadline());
    Ok(host)
}

fn exchange_cards(host: &Communicator, device: &Device, way: Way) -> Result<Vec<Card>, CommError> {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    host.all_gather_object(&Card {
        host: name,
        process: std::process::id(),
        logical: device.logical_id(),
        physical: device.physical_id(),
        soc: device.soc().name.clone(),
        emulated: device.runtime().emulated().is_some(),
        way,
    })
}

/// What would end in a hang or in false results later.
fn check_cards(host: &Communicator, cards: &[Card]) -> Result<(), ErrorKind> {
    let members = host.members();
    let refuse = |got: String, want: &str| {
        Err(ErrorKind::InvalidArgument {
            what: "the devices of the group".to_owned(),
            got,
            want: want.to_owned(),
        })
    };
    let mut drivers: HashMap<(&str, u32, Option<u32>), usize> = HashMap::new();
    for (index, card) in cards.iter().enumerate() {
        // Where the runtime cannot tell physical ids, logical ones compare within a process only.
        let key = match card.physical {
            Some(physical) => (card.host.as_str(), physical, None),
            None => (card.host.as_str(), card.logical, Some(card.process)),
        };
        if let Some(other) = drivers.insert(key, index) {
            let got = format!(
                "device {} of {} driven by rank {} and rank {}",
                card.physical.unwrap_or(card.logical),
                card.host,
                members[other],
                members[index]
            );
            return refuse(got, "a device of its own for each rank");
        }
    }
    let differs = |card: &&Card| card.emulated != cards[0].emulated;
    if cards.iter().any(|card| differs(&card)) {
        return refuse(
            "emulated on some ranks and real on others".to_owned(),
            "one kind for all ranks",
        );
    }
    if cards.iter().any(|card| card.way != cards[0].way) {
        return refuse(
            "to be joined in different ways".to_owned(),
            "the same options and CANN on all ranks",
        );
    }
    Ok(())
}

/// What this rank joins by.
fn origin(
    host: &Communicator,
    engine: &Engine,
    way: Way,
    table: Option<&Path>,
    parent: &Parent<'_>,
    deadline: Deadline,
) -> Result<Origin, CommError> {
    let call = Call::bare(Collective::Barrier);
    let error = |kind: ErrorKind| host.error(call, kind, 0, None, deadline, true);
    match (way, table, parent) {
        (Way::Table, Some(table), _) => Ok(Origin::Table(table.to_owned())),
        (Way::Sub, _, Parent::Of(parent)) => {
            let ranks = parent.indices(host).map_err(error)?;
            Ok(Origin::Sub {
                parent: parent.inner.engine.handles(),
                ranks,
                // Any number that all members have and no other group has; not the vendor's mark
                // for a rank that takes no part.
                id: host.identity().key & 0x7fff_ffff,
            })
        }
        _ => {
            let info: Option<Result<Vec<u8>, ErrorKind>> =
                (host.rank() == 0).then(|| await_ticket(host, &engine.root_info(), deadline));
            let info = host.broadcast_object(info.as_ref(), 0)?;
            info.map(Origin::Root).map_err(|kind| {
                let origin = host.members()[0];
                if host.rank() == 0 {
                    return error(kind);
                }
                error(ErrorKind::PeerAborted {
                    origin,
                    reason: kind.to_string(),
                    cause: Box::new(kind),
                })
            })
        }
    }
}

/// The vendor thread's answer, or an error when the deadline or a peer's fate ends the wait.
fn await_ticket<R>(
    host: &Communicator,
    ticket: &Ticket<Result<R, DeviceError>>,
    deadline: Deadline,
) -> Result<R, ErrorKind> {
    let context = host.context();
    loop {
        if let Some(answer) = ticket.wait(LOOK.min(deadline.left())) {
            return answer.map_err(ErrorKind::from);
        }
        let gone = host.members().iter().find_map(|rank| {
            let gone = context.status.gone(*rank).filter(|gone| !gone.orderly)?;
            Some(ErrorKind::PeerClosed {
                peer: *rank,
                how: gone.how,
                orderly: false,
            })
        });
        if let Some(kind) = gone {
            return Err(kind);
        }
        if deadline.passed() {
            return Err(ErrorKind::DeviceStalled {
                blamed: Vec::new(),
                what: format!(
                    "HCCL did not connect the ranks of group {:?} within {:.1?}",
                    host.name(),
                    deadline.elapsed()
                ),
            });
        }
    }
}

/// Whether every rank has joined; else the error of the first that has not, on all of them.
fn agree(
    host: &Communicator,
    call: Call,
    joined: Result<(), ErrorKind>,
    deadline: Deadline,
) -> Result<(), CommError> {
    /// For ranks whose time has run out to hear why.
    const FAREWELL: Duration = Duration::from_secs(2);
    host.set_deadline(deadline.left().max(FAREWELL));
    let outcomes = host.all_gather_object(&joined.clone().err());
    host.set_deadline(deadline.budget());
    let error = |kind: ErrorKind| host.error(call, kind, 0, None, deadline, true);
    if let Err(kind) = joined {
        return Err(error(kind));
    }
    let first = outcomes?
        .into_iter()
        .enumerate()
        .find_map(|(index, failed)| Some((index, failed?)));
    match first {
        None => Ok(()),
        Some((index, kind)) => Err(error(ErrorKind::PeerAborted {
            origin: host.members()[index],
            reason: kind.to_string(),
            cause: Box::new(kind),
        })),
    }
}

impl DeviceCommunicator {
    fn can_split(&self) -> bool {
        // The vendor makes no sub-communicator of a sub-communicator.
        !self.inner.is_sub && self.inner.engine.can_split()
    }

    /// Indices in this communicator of the members of a group.
    fn indices(&self, group: &Communicator) -> Result<Vec<u32>, ErrorKind> {
        let all = self.inner.desk.members();
        group
            .members()
            .iter()
            .map(|rank| {
                let index = all.iter().position(|member| member == rank);
                let index = index.and_then(|index| u32::try_from(index).ok());
                index.ok_or_else(|| ErrorKind::InvalidArgument {
                    what: "a member of the subgroup".to_owned(),
                    got: rank.to_string(),
                    want: format!("one of {all:?}"),
                })
            })
            .collect()
    }
}
