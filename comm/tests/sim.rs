//! Message plans over the simulated network: every fault at every time ends in the right data or
//! in an error, and every run can be had again from its seed.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod transport_support;

use std::time::Duration;

use muster_comm::algo::{ALGORITHMS, Algorithm, Links, Plan, Problem, Round, Space, Span, Step};
use muster_comm::algo::{algorithms_for, find};
use muster_comm::backend::message::{MessageError, Progress};
use muster_comm::transport::LinkError;
use muster_comm::transport::sim::{
    Ending, Fate, LinkFault, Machine, SimConfig, SimLimits, SimNet, SimReport, Turn,
};
use muster_comm::types::{Collective, Counting, DType, ReduceOp};
use transport_support::job::{How, Rank, by_hand, job};
use transport_support::links::Row;
use transport_support::{scramble, seed};

const HOW: How = How {
    dtype: DType::F32,
    op: ReduceOp::Sum,
    in_place: false,
    checksum: false,
};

/// A rank that, as a communicator does, tells its peers when it gives up, and closes its links.
struct Simulated<'a> {
    index: usize,
    rank: &'a mut Rank,
    streams: &'a mut Row,
}

impl Machine for Simulated<'_> {
    fn poll(&mut self) -> Turn {
        match self.rank.poll(self.streams) {
            Progress::Blocked => return Turn::Blocked,
            Progress::Moved => return Turn::Moved,
            Progress::Done => {}
        }
        if self.rank.result == Some(Ok(())) {
            return Turn::Done;
        }
        let run = self.rank.run.as_mut().unwrap();
        run.abort(self.streams, u32::try_from(self.index).unwrap(), 1);
        self.streams.clear();
        Turn::Failed
    }

    fn position(&self) -> String {
        format!("{:?}", self.rank.run.as_ref().map(|run| run.position()))
    }
}

/// Runs the ranks over `net` to their end.
fn run(net: &SimNet, ranks: &mut [Rank], streams: &mut [Row]) -> SimReport {
    let machines = ranks.iter_mut().zip(streams).enumerate();
    let mut machines: Vec<Box<dyn Machine>> = machines
        .map(|(index, (rank, streams))| {
            Box::new(Simulated {
                index,
                rank,
                streams,
            }) as Box<dyn Machine>
        })
        .collect();
    net.run(&mut machines, SimLimits::default())
}

/// One job on a fresh network with these faults.
fn simulate(
    seed: u64,
    problem: &Problem,
    algorithm: &Algorithm,
    how: How,
    faults: &[(Duration, LinkFault)],
) -> (SimReport, Vec<Rank>) {
    let net = SimNet::new(problem.n(), SimConfig::new(seed));
    for (at, fault) in faults {
        net.inject(*at, *fault);
    }
    let mut ranks = job(problem, algorithm, how, 1);
    let report = run(&net, &mut ranks, &mut net.mesh());
    (report, ranks)
}

fn problem_of(collective: Collective, n: usize, count: usize) -> Problem {
    let uneven: Vec<usize> = (0..n).map(|i| (i * 7 + 3) % (count + 1)).collect();
    match collective.counting() {
        Counting::Blocks => Problem::uneven(collective, n, &uneven, n / 2),
        Counting::Splits => Problem::all_to_all(n, count),
        Counting::Buffers | Counting::Messages | Counting::Objects | Counting::Uniform => {
            Problem::uniform(collective, n, count, n / 2)
        }
    }
    .unwrap()
}

fn message_algorithms() -> impl Iterator<Item = &'static Algorithm> {
    ALGORITHMS
        .iter()
        .filter(|algorithm| algorithm.links == Links::Message)
}

#[test]
fn every_message_algorithm_is_right_over_uneven_networks() {
    let mut runs = 0;
    for n in [1, 2, 3, 4, 5, 7, 8, 13] {
        for algorithm in message_algorithms() {
            let collective = algorithm.collectives[0];
            for count in [1, 50] {
                runs += 1;
                let seed = scramble(seed() + runs);
                let what = (algorithm.name, collective, n, count, seed);
                let problem = problem_of(collective, n, count);
                let (report, mut ranks) = simulate(seed, &problem, algorithm, HOW, &[]);
                assert_eq!(report.ending, Ending::Complete, "{what:?}: {report:?}");
                for (rank, done) in ranks.iter_mut().enumerate() {
                    done.check(rank, &what);
                }
            }
        }
    }
    assert!(runs > 100, "{runs} runs");
}

#[test]
fn a_seed_gives_the_same_run_again_and_another_seed_another_one() {
    let problem = Problem::all_reduce(5, 300).unwrap();
    let algorithm = find(Collective::AllReduce, "ring").unwrap();
    let killed = (Duration::from_micros(900), LinkFault::Kill { rank: 3 });
    for faults in [&[][..], &[killed]] {
        let of = |seed| simulate(seed, &problem, algorithm, HOW, faults).0;
        assert_eq!(of(seed()), of(seed()));
        assert_ne!(of(seed()).trace, of(seed() + 1).trace);
    }
}

#[test]
fn ranks_that_wait_for_each_other_are_a_deadlock_with_the_position_of_each() {
    // Both receive first; a rank that sent first would be served.
    let span = |space| Span::new(space, 0, 2);
    let plan = |peer: usize| Plan {
        rounds: vec![
            Round {
                steps: vec![Step::Recv {
                    from: peer,
                    dst: span(Space::Out),
                }],
            },
            Round {
                steps: vec![Step::Send {
                    to: peer,
                    src: span(Space::In),
                }],
            },
        ],
        scratch: 0,
        in_place: true,
        links: Links::Message,
        staged: false,
    };
    let net = SimNet::new(2, SimConfig::new(seed()));
    let mut ranks: Vec<Rank> = (0..2)
        .map(|rank| by_hand(plan(1 - rank), rank, 2, [2, 2], |_| {}).unwrap())
        .collect();
    let report = run(&net, &mut ranks, &mut net.mesh());
    assert_eq!(report.ending, Ending::Deadlock);
    for (rank, fate) in report.fates.iter().enumerate() {
        let Fate::Stuck(position) = fate else {
            panic!("rank {rank}: {fate:?}");
        };
        let waits = format!("round: 0, rounds: 2, waits: [Wait {{ peer: {}", 1 - rank);
        assert!(position.contains(&waits), "rank {rank}: {position}");
    }
}

#[test]
fn a_killed_rank_leaves_nobody_waiting_whenever_it_dies() {
    for algorithm in algorithms_for(Collective::AllReduce) {
        if algorithm.links != Links::Message {
            continue;
        }
        let problem = Problem::all_reduce(5, 200).unwrap();
        let whole = simulate(seed(), &problem, algorithm, HOW, &[]).0.at;
        let mut deaths = 0;
        for part in 0..20 {
            let at = whole * part / 18;
            let faults = [(at, LinkFault::Kill { rank: 2 })];
            let (report, mut ranks) = simulate(seed(), &problem, algorithm, HOW, &faults);
            let what = (algorithm.name, at, &report);
            assert_eq!(report.ending, Ending::Complete, "{what:?}");
            deaths += usize::from(report.fates[2] == Fate::Killed);
            for (rank, fate) in report.fates.iter().enumerate() {
                match fate {
                    // Whoever says that it is done has the right data.
                    Fate::Done => ranks[rank].check(rank, &what),
                    Fate::Failed | Fate::Killed => {}
                    Fate::Stuck(position) => panic!("{what:?}: rank {rank} {position}"),
                }
            }
        }
        assert!(deaths >= 10, "{}: {deaths} of 20 died", algorithm.name);
    }
}

#[test]
fn those_who_wait_for_a_killed_rank_are_told_that_its_link_closed() {
    let problem = Problem::gather(4, 10, 0).unwrap();
    let algorithm = algorithms_for(Collective::Gather)
        .find(|algorithm| algorithm.links == Links::Message)
        .unwrap();
    let faults = [(Duration::ZERO, LinkFault::Kill { rank: 1 })];
    let (report, ranks) = simulate(seed(), &problem, algorithm, HOW, &faults);
    assert_eq!(report.fates[1], Fate::Killed);
    assert_eq!(
        ranks[0].result,
        Some(Err(MessageError::Link {
            peer: 1,
            error: LinkError::Closed
        }))
    );
}

#[test]
fn a_cut_link_ends_the_call_on_every_rank_that_needs_it() {
    let problem = Problem::all_reduce(4, 100).unwrap();
    let algorithm = find(Collective::AllReduce, "ring").unwrap();
    let faults = [(
        Duration::from_micros(1),
        LinkFault::Cut { one: 1, other: 2 },
    )];
    let (report, ranks) = simulate(seed(), &problem, algorithm, HOW, &faults);
    assert_eq!(report.ending, Ending::Complete);
    assert_eq!(report.fates, vec![Fate::Failed; 4]);
    let reset = |peer| MessageError::Link {
        peer,
        error: LinkError::Reset,
    };
    let results: Vec<_> = ranks.iter().map(|rank| rank.result).collect();
    assert!(
        results[1] == Some(Err(reset(2))) || results[2] == Some(Err(reset(1))),
        "{results:?}"
    );
}

#[test]
fn a_stalled_link_delays_the_call_and_nothing_else() {
    let problem = Problem::all_reduce(4, 100).unwrap();
    let algorithm = find(Collective::AllReduce, "ring").unwrap();
    let until = Duration::from_secs(20);
    let stall = LinkFault::Stall {
        from: 1,
        to: 2,
        until,
    };
    let (report, mut ranks) =
        simulate(seed(), &problem, algorithm, HOW, &[(Duration::ZERO, stall)]);
    assert_eq!(report.ending, Ending::Complete, "{report:?}");
    assert!(report.at >= until, "{report:?}");
    assert!(report.at < until + Duration::from_secs(1), "{report:?}");
    for (rank, done) in ranks.iter_mut().enumerate() {
        done.check(rank, &"stalled");
    }
}

#[test]
fn with_checksums_a_corrupt_byte_is_an_error_and_never_a_wrong_result() {
    let problem = Problem::all_reduce(3, 40).unwrap();
    let algorithm = find(Collective::AllReduce, "ring").unwrap();
    let how = How {
        checksum: true,
        ..HOW
    };
    let mut noticed = 0;
    // The ring sends four frames of at most 14 elements on this lane.
    for byte in 0..4 * (64 + 14 * 4) {
        let corrupt = LinkFault::Corrupt {
            from: 0,
            to: 1,
            byte,
            mask: 1 << (byte % 8),
        };
        let faults = [(Duration::ZERO, corrupt)];
        let (report, mut ranks) = simulate(seed() + byte, &problem, algorithm, how, &faults);
        assert_eq!(report.ending, Ending::Complete, "byte {byte}: {report:?}");
        noticed += u64::from(report.fates.contains(&Fate::Failed));
        for (rank, fate) in report.fates.iter().enumerate() {
            if *fate == Fate::Done {
                ranks[rank].check(rank, &byte);
            }
        }
        if let Some(Err(error)) = ranks[1].result {
            assert!(
                matches!(
                    error,
                    MessageError::Checksum { peer: 0, .. } | MessageError::Frame { peer: 0, .. }
                ),
                "byte {byte}: {error}"
            );
        }
    }
    let bytes = 4 * (64 + 13 * 4);
    assert!(
        noticed >= bytes,
        "{noticed} of at least {bytes} corrupt bytes were noticed"
    );
}

#[test]
fn a_machine_that_claims_to_move_for_ever_is_stopped_by_the_limits() {
    struct Busy;
    impl Machine for Busy {
        fn poll(&mut self) -> Turn {
            Turn::Moved
        }
        fn position(&self) -> String {
            "busy".to_owned()
        }
    }
    let net = SimNet::new(1, SimConfig::new(1));
    let limits = SimLimits {
        turns: 1000,
        ..SimLimits::default()
    };
    let mut machines: Vec<Box<dyn Machine>> = vec![Box::new(Busy)];
    let report = net.run(&mut machines, limits);
    assert_eq!(report.ending, Ending::TurnLimit);
    assert_eq!(report.fates, [Fate::Stuck("busy".to_owned())]);
}
