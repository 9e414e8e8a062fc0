//! C: how ranks find each other. A foreign launcher starts them, and rank 0 serves the rendezvous.

use std::time::Duration;

use super::{AFTER_DEADLINE, Drill, blames, part, plan, verdict};
use crate::drill::plan::{Blamed, Expect, Injection, Launch, Plan, Setting};
use crate::drill::script::{Part, Step};
use crate::exit::Exit;
use crate::random::Draws;

pub(super) const DRILLS: &[Drill] = &[
    Drill::new(
        "C1",
        "rank-missing",
        "a rank is never started",
        rank_missing,
    )
    .first(),
    Drill::new("C2", "rank-twice", "a rank is started twice", rank_twice)
        .first()
        .from(3),
    Drill::new(
        "C2",
        "local-rank-twice",
        "two ranks of one host have one local rank",
        local_rank_twice,
    ),
    Drill::new(
        "C3",
        "rank-out-of-range",
        "a rank has a number that the world does not have",
        rank_out_of_range,
    ),
    Drill::new(
        "C4",
        "larger-world",
        "a rank says that the world is larger",
        larger_world,
    )
    .first(),
    Drill::new(
        "C4",
        "smaller-world",
        "a rank says that the world is smaller",
        smaller_world,
    )
    .from(3),
    Drill::new(
        "C6",
        "port-taken",
        "somebody else holds the port of the rendezvous",
        port_taken,
    )
    .first(),
    Drill::new(
        "C7",
        "foreign-job",
        "a rank of another job comes to the rendezvous",
        foreign_job,
    )
    .first(),
    Drill::new(
        "C8",
        "second-job",
        "another job starts at the same port",
        second_job,
    )
    .control(),
    Drill::new(
        "C9",
        "server-stopped",
        "SIGSTOP to the rank that serves the rendezvous",
        server_stopped,
    ),
    Drill::new(
        "C10",
        "server-killed",
        "SIGKILL to the rank that serves the rendezvous",
        server_killed,
    ),
    Drill::new(
        "C11",
        "no-such-name",
        "the name of the meeting point does not resolve",
        no_such_name,
    ),
    Drill::new(
        "C13",
        "old-attempt",
        "a rank of an earlier attempt comes to the rendezvous",
        old_attempt,
    ),
    Drill::new(
        "C15",
        "wrong-secret",
        "a rank has another secret",
        wrong_secret,
    ),
];

/// Time that ranks get to find each other.
const BRING_UP: Duration = Duration::from_secs(2);
/// From the moment when the last rank is about to join. Its handshake takes part of it.
const CONTRADICTION: Duration = Duration::from_millis(100);
/// Until a joiner gives up on one that accepts connections and says nothing.
const SILENCE: Duration = Duration::from_millis(3500);
/// Seen from other hosts.
const SERVER: Duration = Duration::from_secs(3);
/// Time by which the odd process comes after the others, in milliseconds.
const LATER_MS: u64 = 400;

/// Honest ranks that are started apart.
fn apart(setting: &Setting, injected: String) -> Plan {
    let honest = plan(setting, injected, |_| vec![Step::work(50)]);
    let bring_up_ms = u64::try_from(BRING_UP.as_millis()).unwrap_or(u64::MAX);
    Plan {
        launch: Launch::Apart,
        parts: honest
            .parts
            .into_iter()
            .map(|part| Part {
                bring_up_ms,
                ..part
            })
            .collect(),
        ..honest
    }
}

fn claim(name: &str, value: impl ToString) -> (String, String) {
    (name.to_owned(), value.to_string())
}

/// One rank, not the one that serves, with these variables of its own.
fn claiming(
    setting: &Setting,
    injected: String,
    odd: u32,
    claims: Vec<(String, String)>,
    expect: Expect,
) -> Plan {
    let mut plan = apart(setting, injected);
    let part = &mut plan.parts[odd as usize];
    part.claims = claims;
    part.late_ms = LATER_MS;
    Plan { expect, ..plan }
}

/// The other ranks find that this one is missing when their time is up.
fn missed(setting: &Setting, odd: u32) -> Expect {
    blames(setting, Exit::RdvMissing, odd, BRING_UP + AFTER_DEADLINE)
}

/// As [`missed`], and the rank itself is turned away.
fn turned_away(setting: &Setting, odd: u32, exit: Exit) -> Expect {
    Expect {
        turned_away: vec![(odd, exit)],
        ..missed(setting, odd)
    }
}

fn rank_missing(setting: &Setting, draws: &mut Draws) -> Plan {
    let odd = setting.rank_from(1, draws);
    let mut plan = apart(setting, format!("rank {odd} is never started"));
    plan.parts.remove(odd as usize);
    Plan {
        expect: missed(setting, odd),
        ..plan
    }
}

fn rank_twice(setting: &Setting, draws: &mut Draws) -> Plan {
    let last = setting.world_size - 1;
    let odd = 1 + u32::try_from(draws.below(last as usize - 1)).unwrap_or(0);
    let mut plan = apart(setting, format!("rank {odd} is started twice"));
    // The world is not complete before the second one comes.
    plan.parts[last as usize].late_ms = 4 * LATER_MS;
    let mut twin = plan.parts[odd as usize].clone();
    twin.late_ms = LATER_MS;
    plan.parts.push(twin);
    let survivors = setting.others(last);
    let blamed = Blamed::Exactly(vec![odd]);
    Plan {
        expect: verdict(Exit::RdvConflict, blamed, CONTRADICTION, survivors)
            .with_words(&["is claimed by"]),
        ..plan
    }
}

fn local_rank_twice(setting: &Setting, draws: &mut Draws) -> Plan {
    let odd = setting.rank_from(1, draws);
    let other = odd - 1;
    let blamed = Blamed::Exactly(vec![other, odd]);
    claiming(
        setting,
        format!("rank {odd} says that its local rank is {other}"),
        odd,
        vec![claim("MUSTER_LOCAL_RANK", other)],
        verdict(Exit::RdvConflict, blamed, CONTRADICTION, setting.all()),
    )
}

fn rank_out_of_range(setting: &Setting, draws: &mut Draws) -> Plan {
    let odd = setting.rank_from(1, draws);
    let wrong = setting.world_size + 3;
    claiming(
        setting,
        format!("rank {odd} says that it is rank {wrong}"),
        odd,
        vec![claim("MUSTER_RANK", wrong)],
        turned_away(setting, odd, Exit::Usage),
    )
}

fn world(setting: &Setting, odd: u32, size: u32) -> Plan {
    let blamed = Blamed::Exactly(vec![odd]);
    claiming(
        setting,
        format!("rank {odd} says that there are {size} ranks"),
        odd,
        vec![
            claim("MUSTER_WORLD_SIZE", size),
            claim("MUSTER_LOCAL_WORLD_SIZE", size),
        ],
        verdict(Exit::RdvConflict, blamed, CONTRADICTION, setting.all())
            .with_words(&["world size"]),
    )
}

fn larger_world(setting: &Setting, draws: &mut Draws) -> Plan {
    let odd = setting.rank_from(1, draws);
    world(setting, odd, setting.world_size + 1)
}

fn smaller_world(setting: &Setting, draws: &mut Draws) -> Plan {
    let last = setting.world_size - 1;
    let odd = 1 + u32::try_from(draws.below(last as usize - 1)).unwrap_or(0);
    world(setting, odd, last)
}

fn port_taken(setting: &Setting, _: &mut Draws) -> Plan {
    let injected = "a process that says nothing holds the port of the rendezvous".to_owned();
    let nobody = Blamed::Exactly(Vec::new());
    Plan {
        squatter: true,
        expect: verdict(Exit::RdvUnreachable, nobody, SILENCE, setting.all()).apart(),
        ..apart(setting, injected)
    }
}

fn foreign_job(setting: &Setting, draws: &mut Draws) -> Plan {
    let odd = setting.rank_from(1, draws);
    claiming(
        setting,
        format!("rank {odd} belongs to another job"),
        odd,
        vec![claim("MUSTER_JOB_ID", "somebody-else")],
        turned_away(setting, odd, Exit::RdvConflict),
    )
}

fn second_job(setting: &Setting, _: &mut Draws) -> Plan {
    let mut plan = apart(setting, "another job starts at the same port".to_owned());
    for part in &mut plan.parts {
        part.steps = vec![
            Step::work(50),
            Step::Pause { ms: 3 * LATER_MS },
            Step::work(10),
        ];
    }
    // Its first rank: the one that would serve. Here it has a name that no rank of the first job has.
    let name = setting.world_size;
    plan.parts.push(Part {
        claims: vec![
            claim("MUSTER_RANK", 0),
            claim("MUSTER_LOCAL_RANK", 0),
            claim("MUSTER_JOB_ID", "second"),
        ],
        late_ms: LATER_MS,
        ..part(name, vec![Step::work(1)])
    });
    plan.expect.turned_away = vec![(name, Exit::RdvUnreachable)];
    plan
}

fn server(setting: &Setting, injected: &str, signal: i32, class: Exit, bound: Duration) -> Plan {
    let mut plan = apart(setting, injected.to_owned());
    for part in &mut plan.parts {
        part.steps = vec![Step::work(u32::MAX)];
    }
    Plan {
        deed: Injection::Signal { rank: 0, signal },
        expect: blames(setting, class, 0, bound),
        ..plan
    }
}

fn server_stopped(setting: &Setting, _: &mut Draws) -> Plan {
    let injected = "SIGSTOP to rank 0, which serves the rendezvous";
    server(setting, injected, 19, Exit::PeerFrozen, SERVER)
}

fn server_killed(setting: &Setting, _: &mut Draws) -> Plan {
    let injected = "SIGKILL to rank 0, which serves the rendezvous";
    let bound = Duration::from_secs(1);
    server(setting, injected, 9, Exit::PeerDead, bound)
}

fn no_such_name(setting: &Setting, _: &mut Draws) -> Plan {
    let mut plan = apart(
        setting,
        "the meeting point is at no-such-host.invalid".to_owned(),
    );
    for part in &mut plan.parts {
        part.claims = vec![claim(
            "MUSTER_RENDEZVOUS",
            "tcp://no-such-host.invalid:29500",
        )];
    }
    let nobody = Blamed::Exactly(Vec::new());
    let bound = BRING_UP + AFTER_DEADLINE;
    Plan {
        expect: verdict(Exit::RdvUnreachable, nobody, bound, setting.all())
            .apart()
            .with_words(&["does not resolve"]),
        ..plan
    }
}

fn old_attempt(setting: &Setting, draws: &mut Draws) -> Plan {
    let odd = setting.rank_from(1, draws);
    claiming(
        setting,
        format!("rank {odd} belongs to attempt 7, the others to attempt 0"),
        odd,
        vec![claim("MUSTER_ATTEMPT", 7)],
        turned_away(setting, odd, Exit::RdvConflict),
    )
}

fn wrong_secret(setting: &Setting, draws: &mut Draws) -> Plan {
    let odd = setting.rank_from(1, draws);
    claiming(
        setting,
        format!("rank {odd} has another secret"),
        odd,
        vec![claim(
            "MUSTER_SECRET_FILE",
            crate::drill::process_group::OTHER_SECRET,
        )],
        turned_away(setting, odd, Exit::RdvConflict),
    )
}
