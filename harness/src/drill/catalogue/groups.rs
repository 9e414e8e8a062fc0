//! B: groups, and calls in the wrong order.

use super::{AFTER_DEADLINE, CIRCLE, Drill, blames, plan, verdict};
use crate::drill::plan::{Blamed, DEADLINE_SHORT, Plan, Setting};
use crate::drill::script::{CallKind, CallSpec, Kind, Step};
use crate::exit::Exit;
use crate::random::Draws;

pub(super) const DRILLS: &[Drill] = &[
    Drill::new(
        "B12",
        "order-inversion",
        "one rank uses two groups in the other order",
        order_inversion,
    )
    .first(),
    Drill::new(
        "B13",
        "receives-in-a-ring",
        "every rank receives from its neighbour before it sends",
        receives_in_a_ring,
    ),
    Drill::new(
        "B13",
        "receives-face-to-face",
        "two ranks receive from each other before they send",
        receives_face_to_face,
    ),
    Drill::new(
        "B14",
        "group-not-made",
        "one rank does not make the group that the others use",
        group_not_made,
    ),
    Drill::new(
        "-",
        "group-destroyed",
        "one rank destroys a group before the others' last call on it",
        group_destroyed,
    ),
    Drill::new(
        "B15",
        "other-members",
        "one rank makes a group from a list in another order",
        other_members,
    )
    .first(),
];

/// Calls before the one that is wrong.
const BEFORE: u32 = 5;
/// Longer than any drill takes, in milliseconds.
const FOR_EVER_MS: u64 = 600_000;

fn order_inversion(setting: &Setting, draws: &mut Draws) -> Plan {
    let odd = setting.any_rank(draws);
    let how = format!("rank {odd} uses g2 before g1, the others g1 before g2");
    let call = |group: &str| Step::call_on(group, CallSpec::all_reduce(Kind::I32, 9));
    let make = |name: &str| Step::Make {
        name: name.to_owned(),
        members: setting.all(),
    };
    let base = plan(setting, how, |rank| {
        let (first, second) = if rank == odd {
            ("g2", "g1")
        } else {
            ("g1", "g2")
        };
        vec![
            Step::work(BEFORE),
            make("g1"),
            make("g2"),
            Step::Mark,
            call(first),
            call(second),
        ]
    });
    Plan {
        expect: verdict(
            Exit::Deadlock,
            Blamed::CircleThrough(odd),
            CIRCLE,
            setting.all(),
        )
        .with_words(&["on g1", "on g2"]),
        ..base
    }
}

fn other_members(setting: &Setting, draws: &mut Draws) -> Plan {
    let odd = setting.any_rank(draws);
    let how = format!("rank {odd} makes ep1 from a list in another order");
    let base = plan(setting, how, |rank| {
        let mut members = setting.all();
        if rank == odd {
            members.swap(0, 1);
        }
        vec![
            Step::work(BEFORE),
            Step::Make {
                name: "ep1".to_owned(),
                members,
            },
            Step::Mark,
            Step::call_on("ep1", CallSpec::all_reduce(Kind::I32, 9)),
        ]
    });
    Plan {
        expect: verdict(Exit::Mismatch, Blamed::Odd(odd), CIRCLE, setting.all())
            .with_words(&["group layout: ep1"]),
        ..base
    }
}

fn receive(from: u32, to: u32) -> Vec<Step> {
    let call = |kind: CallKind, peer: u32| {
        let call = CallSpec::all_reduce(Kind::I32, 4);
        Step::call(call.of_kind(kind).with_peer(peer as usize))
    };
    vec![
        Step::work(BEFORE),
        Step::Mark,
        call(CallKind::Recv, from),
        call(CallKind::Send, to),
    ]
}

fn receives_in_a_ring(setting: &Setting, _: &mut Draws) -> Plan {
    let n = setting.world_size;
    let how = "every rank receives from the one before it, and nobody has sent".to_owned();
    let base = plan(setting, how, |rank| {
        receive((rank + n - 1) % n, (rank + 1) % n)
    });
    let circle = Blamed::Exactly(setting.all());
    Plan {
        expect: verdict(Exit::Deadlock, circle, CIRCLE, setting.all()).with_words(&["recv #"]),
        ..base
    }
}

fn receives_face_to_face(setting: &Setting, draws: &mut Draws) -> Plan {
    let one = setting.any_rank(draws);
    let other = (one + 1) % setting.world_size;
    let how = format!("ranks {one} and {other} receive from each other, and neither has sent");
    let base = plan(setting, how, |rank| {
        if rank == one {
            receive(other, other)
        } else if rank == other {
            receive(one, one)
        } else {
            vec![Step::work(BEFORE)]
        }
    });
    let mut both = vec![one, other];
    both.sort_unstable();
    Plan {
        expect: verdict(Exit::Deadlock, Blamed::Exactly(both.clone()), CIRCLE, both)
            .with_words(&["recv #"]),
        ..base
    }
}

fn group_not_made(setting: &Setting, draws: &mut Draws) -> Plan {
    let odd = setting.any_rank(draws);
    let how = format!("rank {odd} does not make ep1");
    let base = plan(setting, how, |rank| {
        let last = if rank == odd {
            vec![Step::Pause { ms: FOR_EVER_MS }]
        } else {
            vec![
                Step::Make {
                    name: "ep1".to_owned(),
                    members: setting.all(),
                },
                Step::Mark,
                Step::call_on("ep1", CallSpec::all_reduce(Kind::I32, 9)),
            ]
        };
        [Step::work(BEFORE)].into_iter().chain(last).collect()
    });
    let bound = DEADLINE_SHORT + AFTER_DEADLINE;
    Plan {
        deadline: DEADLINE_SHORT,
        expect: blames(setting, Exit::NotJoined, odd, bound)
            .with_words(&["has not made group ep1"]),
        ..base
    }
}

fn group_destroyed(setting: &Setting, draws: &mut Draws) -> Plan {
    let odd = setting.any_rank(draws);
    let how = format!("rank {odd} destroys ep1 after one call, the others make another one");
    let call = Step::call_on("ep1", CallSpec::all_reduce(Kind::I32, 9));
    let base = plan(setting, how, |rank| {
        let last = if rank == odd {
            Step::Destroy {
                group: "ep1".to_owned(),
            }
        } else {
            call.clone()
        };
        vec![
            Step::work(BEFORE),
            Step::Make {
                name: "ep1".to_owned(),
                members: setting.all(),
            },
            call.clone(),
            Step::Mark,
            last,
            // The ranks wait for each other in a circle, and the group is why.
            Step::work(BEFORE),
        ]
    });
    Plan {
        expect: blames(setting, Exit::NotJoined, odd, CIRCLE)
            .with_words(&["destroyed group ep1 after its call #1"]),
        ..base
    }
}
