//! Threads as ranks, for the tests of the rendezvous. Every wait is bounded.

use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use muster_comm::rendezvous::{
    Act, Arbiter, Card, Coordinator, CoordinatorEvent, CoordinatorOptions, DownReason, Endpoint,
    Eyes, Hello, Liveness, ProcessId, RendezvousError, Secret, Seen, Session, SessionEvent,
    build_id,
};
use muster_comm::sync::{AtomicBool, Clock, Deadline, Ordering};
use muster_comm::types::Rank;

/// Bound of every wait that is not itself under test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// What "at once" means here. The bounds themselves are 100 to 500 ms; this leaves room for a machine
/// that does much else, and is far from [`PATIENCE`], at which anything that waits would end.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(8);

pub(crate) const JOB: &str = "job-a";

pub(crate) fn secret() -> Secret {
    Secret::from_bytes([42; 32])
}

pub(crate) fn options(world_size: u32) -> CoordinatorOptions {
    CoordinatorOptions {
        deadline: PATIENCE,
        ..CoordinatorOptions::new(secret(), JOB, world_size)
    }
}

pub(crate) fn start(options: CoordinatorOptions) -> Coordinator {
    descriptors();
    Coordinator::start(options).expect("the coordinator starts")
}

/// Descriptors that this process may have: as many as it may allow itself, for these tests hold both
/// ends of every connection.
pub(crate) fn descriptors() -> u32 {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Where it may not be raised, it stays as it is.
    let _ = setrlimit(Resource::Nofile, limit);
    let limit = getrlimit(Resource::Nofile).current;
    u32::try_from(limit.unwrap_or(u64::MAX)).unwrap_or(u32::MAX)
}

/// As many as asked for, or what the descriptors of this process allow beside everything else that
/// these tests have open at the time.
pub(crate) fn affordable(count: u32) -> u32 {
    /// Descriptors that the other tests may use meanwhile.
    const OTHERS: u32 = 2500;
    count.min(descriptors().saturating_sub(OTHERS) / 2).max(17)
}

pub(crate) fn endpoint(coordinator: &Coordinator) -> Endpoint {
    coordinator.address().into()
}

pub(crate) fn hello(rank: i64, world_size: i64) -> Hello {
    Hello {
        job_id: JOB.to_owned(),
        attempt: 0,
        rank,
        world_size,
        source: "test contract".to_owned(),
        build: build_id(),
        card: Card {
            process: ProcessId {
                pid: u32::try_from(1000 + rank.rem_euclid(100_000)).unwrap(),
                ..ProcessId::default()
            },
            host: "n1".to_owned(),
            host_identity: "boot-1".to_owned(),
            payload: format!("payload of {rank}").into_bytes(),
            ..Card::default()
        },
    }
}

/// A session, and the events that its callback saw.
pub(crate) struct Member {
    pub(crate) session: Session,
    pub(crate) events: Receiver<SessionEvent>,
}

impl Member {
    pub(crate) fn event(&self) -> SessionEvent {
        self.events.recv_timeout(PATIENCE).expect("an event comes")
    }

    /// Whether nothing more has happened within a little while.
    pub(crate) fn is_quiet(&self) -> bool {
        self.events.recv_timeout(Duration::from_millis(60)).is_err()
    }
}

pub(crate) type Joining = JoinHandle<Result<Member, RendezvousError>>;

pub(crate) fn join_within(
    endpoint: &Endpoint,
    secret: Secret,
    hello: Hello,
    budget: Duration,
) -> Joining {
    let endpoint = endpoint.clone();
    std::thread::spawn(move || {
        let (sender, events) = channel();
        let handler = Box::new(move |event| {
            let _ = sender.send(event);
        });
        Session::join(&endpoint, &secret, hello, Deadline::after(budget), handler)
            .map(|session| Member { session, events })
    })
}

pub(crate) fn join(endpoint: &Endpoint, hello: Hello) -> Joining {
    join_within(endpoint, secret(), hello, PATIENCE)
}

pub(crate) fn failure(joining: Joining) -> RendezvousError {
    match joining.join().expect("the thread ends well") {
        Ok(member) => panic!("{:?} joined", member.session),
        Err(error) => error,
    }
}

pub(crate) fn member(joining: Joining) -> Member {
    match joining.join().expect("the thread ends well") {
        Ok(member) => member,
        Err(error) => panic!("did not join: {error}"),
    }
}

/// A complete world of threads.
pub(crate) fn world(coordinator: &Coordinator, world_size: u32) -> Vec<Member> {
    let endpoint = endpoint(coordinator);
    let joining: Vec<Joining> = (0..i64::from(world_size))
        .map(|rank| join(&endpoint, hello(rank, i64::from(world_size))))
        .collect();
    let members: Vec<Member> = joining.into_iter().map(member).collect();
    assert_eq!(
        event_until(coordinator, |event| *event == CoordinatorEvent::Ready),
        CoordinatorEvent::Ready
    );
    members
}

/// The first event of the coordinator that is wanted.
pub(crate) fn event_until(
    coordinator: &Coordinator,
    is_wanted: impl Fn(&CoordinatorEvent) -> bool,
) -> CoordinatorEvent {
    let deadline = Deadline::after(PATIENCE);
    loop {
        let event = coordinator
            .events()
            .next(deadline)
            .expect("the wanted event comes");
        if is_wanted(&event) {
            return event;
        }
    }
}

/// Calls something on every rank at the same time; the results in rank order.
pub(crate) fn on_all<T: Send>(members: &[Member], call: impl Fn(&Session) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let call = &call;
        let calls: Vec<_> = members
            .iter()
            .map(|member| &member.session)
            .map(|session| scope.spawn(move || call(session)))
            .collect();
        calls
            .into_iter()
            .map(|call| call.join().expect("the call ends well"))
            .collect()
    })
}

/// Waits until so many ranks have joined, so that arrival has an order.
pub(crate) fn await_joined(coordinator: &Coordinator, count: usize) {
    for _ in 0..count {
        event_until(coordinator, |event| {
            matches!(event, CoordinatorEvent::Joined { .. })
        });
    }
}

pub(crate) fn failed(coordinator: &Coordinator) -> RendezvousError {
    let is_failed = |event: &CoordinatorEvent| matches!(event, CoordinatorEvent::Failed(_));
    let CoordinatorEvent::Failed(error) = event_until(coordinator, is_failed) else {
        unreachable!("this is what was waited for");
    };
    error
}

/// Rank 1 has said goodbye.
pub(crate) static HAS_SAID_GOODBYE: AtomicBool = AtomicBool::new(false);
/// What asks the arbiter of the tests to find the process of rank 1 ended once that has said goodbye.
pub(crate) const FIND_RANK_1_ENDED: &[u8] = b"find rank 1 ended";

/// An arbiter that sees rank 2 stopped, and says nothing unless it is asked to.
#[derive(Debug)]
pub(crate) struct Onlooker;

impl Arbiter for Onlooker {
    fn ready(&mut self, _roster: &[Card]) {}

    fn heard(&mut self, _rank: Rank, bytes: &[u8], _now_ms: u64) -> Vec<Act> {
        if bytes != FIND_RANK_1_ENDED {
            return Vec::new();
        }
        // The coordinator reads nothing meanwhile.
        let patience = Deadline::after(PATIENCE);
        while !HAS_SAID_GOODBYE.load(Ordering::SeqCst) && !patience.passed() {
            Clock::pause(Duration::from_millis(1));
        }
        vec![Act::Ended(Rank(1))]
    }

    fn eyes(&self) -> Option<Eyes> {
        Some(Eyes {
            look: |_, _| Seen {
                liveness: Liveness::Hidden,
                bytes: Vec::new(),
            },
            post: |_, _, _| {},
            stopped: |process| (process.pid == 1002).then(|| "state T".to_owned()),
        })
    }

    fn down(&mut self, _rank: Rank, _reason: &DownReason, _at_ms: u64) {}

    fn left(&mut self, _rank: Rank) {}

    fn tick(&mut self, _now_ms: u64) -> Vec<Act> {
        Vec::new()
    }

    fn is_busy(&self) -> bool {
        false
    }
}
