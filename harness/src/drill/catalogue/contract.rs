//! B: calls that do not fit each other.

use super::{AFTER_DEADLINE, CIRCLE, Drill, WAITS, blames, mismatch, plan, verdict};
use crate::drill::plan::{Blamed, DEADLINE_SHORT, Outcome, Plan, Setting, Transport};
use crate::drill::script::{CallKind, CallSpec, Kind, ObjectSpec, Place, Step};
use crate::exit::Exit;
use crate::random::Draws;

pub(super) const DRILLS: &[Drill] = &[
    Drill::new(
        "B1",
        "late",
        "a rank enters a call 1.5 s after the others",
        late,
    )
    .first()
    .control(),
    Drill::new(
        "B2",
        "never-enters",
        "a rank sleeps and never enters the call",
        never_enters,
    )
    .first(),
    Drill::new(
        "B2",
        "never-enters-busy",
        "a rank computes for ever and never enters the call",
        never_enters_busy,
    ),
    Drill::new(
        "B3",
        "other-collective",
        "broadcast on one rank, all_reduce on the others",
        other_collective,
    )
    .first(),
    Drill::new(
        "B3",
        "barrier-for-reduce",
        "barrier on one rank, all_reduce on the others",
        barrier_for_reduce,
    ),
    Drill::new(
        "B3",
        "scatter-for-reduce",
        "reduce_scatter on one rank, all_reduce on the others",
        scatter_for_reduce,
    ),
    Drill::new(
        "B4",
        "other-count",
        "2000 elements on one rank, 1000 on the others",
        other_count,
    )
    .first(),
    Drill::new(
        "B4",
        "other-count-large",
        "one element more on one rank, of a million",
        other_count_large,
    ),
    Drill::new(
        "B4",
        "other-count-gather",
        "8 elements on one rank, 7 on the others, in all_gather",
        other_count_gather,
    ),
    Drill::new(
        "B5",
        "other-count-small",
        "8 elements on one rank, 7 on the others",
        other_count_small,
    )
    .first(),
    Drill::new(
        "B6",
        "other-dtype",
        "i32 on one rank, f32 on the others",
        other_dtype,
    )
    .first(),
    Drill::new(
        "B7",
        "other-reduction",
        "max on one rank, sum on the others",
        other_reduction,
    )
    .first(),
    Drill::new("B8", "other-root", "another root on one rank", other_root).first(),
    Drill::new(
        "B9",
        "other-splits",
        "one rank sends another one more than that expects",
        other_splits,
    )
    .first(),
    Drill::new(
        "B10",
        "skipped-call",
        "one rank leaves a call out; the next one looks the same",
        skipped_call,
    )
    .first(),
    Drill::new(
        "B11",
        "extra-call",
        "one rank makes a call more than the others, which have left",
        extra_call,
    ),
    Drill::new(
        "B16",
        "message-length",
        "12 elements are expected, 10 are sent",
        message_length,
    ),
    Drill::new(
        "B16",
        "message-dtype",
        "f32 is expected, i32 is sent",
        message_dtype,
    ),
    Drill::new(
        "B17",
        "huge-object",
        "an object above the limit",
        huge_object,
    ),
];

/// Calls before the one that is wrong.
const BEFORE: u32 = 5;
/// Steps of a program before it leaves a call out.
const HABIT: u32 = 8;
/// Calls of ranks that end well.
const CALLS: u32 = 50;
/// Longer than any drill takes, in milliseconds.
const FOR_EVER_MS: u64 = 600_000;

fn late(setting: &Setting, draws: &mut Draws) -> Plan {
    let odd = setting.any_rank(draws);
    let injected = format!("rank {odd} enters a call 1.5 s after the others");
    plan(setting, injected, |rank| {
        let pause = (rank == odd).then_some(Step::Pause { ms: 1500 });
        [Step::work(BEFORE)]
            .into_iter()
            .chain(pause)
            .chain([Step::work(CALLS)])
            .collect()
    })
}

fn never_enters(setting: &Setting, draws: &mut Draws) -> Plan {
    absent(setting, draws, "sleeps", &Step::Pause { ms: FOR_EVER_MS })
}

fn absent(setting: &Setting, draws: &mut Draws, how: &str, instead: &Step) -> Plan {
    let odd = setting.any_rank(draws);
    let injected = format!("rank {odd} {how} and never enters the call of the others");
    let base = plan(setting, injected, |rank| {
        let instead = (rank == odd).then(|| instead.clone());
        [Step::work(BEFORE), Step::Mark]
            .into_iter()
            .chain(instead)
            .chain([Step::work(CALLS)])
            .collect()
    });
    let bound = DEADLINE_SHORT + AFTER_DEADLINE;
    Plan {
        deadline: DEADLINE_SHORT,
        expect: blames(setting, Exit::NotJoined, odd, bound).with_words(&["running user code"]),
        ..base
    }
}

/// One rank makes another call than the others. Where all ranks share memory, the group is used once more
/// afterwards.
fn differing(
    setting: &Setting,
    odd: u32,
    how: String,
    usual: &CallSpec,
    other: &CallSpec,
    words: &[&str],
) -> Plan {
    let afterwards = Step::Call {
        group: "world".to_owned(),
        call: CallSpec::all_reduce(Kind::I32, 11),
        place: Place::Third,
    };
    let base = plan(setting, how, |rank| {
        let call = if rank == odd { other } else { usual };
        let mut steps = vec![
            Step::work(BEFORE),
            Step::Tolerate,
            Step::Mark,
            Step::call(call.clone()),
            afterwards.clone(),
        ];
        if setting.transport == Transport::Tcp {
            // A rank that exchanges nothing with the odd one can be through these calls before anybody
            // knows: it hears of it in the next ones.
            steps.push(Step::work(BEFORE));
        }
        steps
    });
    let mut expect = verdict(
        Exit::Mismatch,
        Blamed::Odd(odd),
        mismatch(setting),
        setting.all(),
    )
    .with_words(words);
    expect.usable = setting.transport == Transport::Shm;
    Plan { expect, ..base }
}

fn other_collective(setting: &Setting, draws: &mut Draws) -> Plan {
    let odd = setting.any_rank(draws);
    let usual = CallSpec::all_reduce(Kind::F32, 1000);
    let other = usual.clone().of_kind(CallKind::Broadcast);
    let how = format!("rank {odd} calls broadcast, the others all_reduce");
    differing(setting, odd, how, &usual, &other, &["collective differs"])
}

fn other_count(setting: &Setting, draws: &mut Draws) -> Plan {
    counts(setting, draws, 1000, 2000)
}

fn other_count_small(setting: &Setting, draws: &mut Draws) -> Plan {
    counts(setting, draws, 7, 8)
}

fn counts(setting: &Setting, draws: &mut Draws, usual: usize, other: usize) -> Plan {
    let odd = setting.any_rank(draws);
    let how = format!("rank {odd} reduces {other} elements, the others {usual}");
    let (usual, other) = (
        CallSpec::all_reduce(Kind::F32, usual),
        CallSpec::all_reduce(Kind::F32, other),
    );
    differing(setting, odd, how, &usual, &other, &["count differs"])
}

fn other_dtype(setting: &Setting, draws: &mut Draws) -> Plan {
    let odd = setting.any_rank(draws);
    let how = format!("rank {odd} reduces i32, the others f32");
    let (usual, other) = (
        CallSpec::all_reduce(Kind::F32, 100),
        CallSpec::all_reduce(Kind::I32, 100),
    );
    differing(setting, odd, how, &usual, &other, &["dtype differs"])
}

fn other_reduction(setting: &Setting, draws: &mut Draws) -> Plan {
    let odd = setting.any_rank(draws);
    let how = format!("rank {odd} takes the maximum, the others the sum");
    let usual = CallSpec::all_reduce(Kind::F32, 100);
    let other = usual.clone().with_max();
    differing(setting, odd, how, &usual, &other, &["op differs"])
}

fn other_root(setting: &Setting, draws: &mut Draws) -> Plan {
    let odd = setting.any_rank(draws);
    let how = format!("rank {odd} names root 1, the others root 0");
    let usual = CallSpec::all_reduce(Kind::F32, 100).of_kind(CallKind::Broadcast);
    let other = usual.clone().with_peer(1);
    let mut plan = differing(setting, odd, how, &usual, &other, &["root differs"]);
    if setting.transport == Transport::Tcp {
        // Two roots send, and nobody exchanges anything: it is seen by who waits for whom, as a circle.
        plan.expect.bound = CIRCLE;
    }
    plan
}

fn other_splits(setting: &Setting, draws: &mut Draws) -> Plan {
    let odd = setting.any_rank(draws);
    let target = (odd + 1) % setting.world_size;
    let n = setting.world_size as usize;
    let usual = CallSpec::all_to_all_v(vec![4; n], vec![4; n]);
    let mut send = vec![4; n];
    send[target as usize] = 6;
    let other = CallSpec::all_to_all_v(send, vec![4; n]);
    let how = format!("rank {odd} sends rank {target} 6 elements, which expects 4");
    let mut plan = differing(setting, odd, how, &usual, &other, &["splits differs"]);
    plan.expect.outcome = Outcome::Verdict {
        class: Exit::Mismatch,
        blamed: Blamed::Exactly(vec![odd]),
    };
    plan
}

fn skipped_call(setting: &Setting, draws: &mut Draws) -> Plan {
    let odd = setting.any_rank(draws);
    let how = format!("rank {odd} leaves a call out, and makes the next one, which looks the same");
    let call = |place| Step::Call {
        group: "world".to_owned(),
        call: CallSpec::all_reduce(Kind::F32, 100),
        place,
    };
    // A step of a program: it makes the same calls, from the same places, again and again.
    let usual = [Place::First, Place::Second, Place::Third];
    let base = plan(setting, how, |rank| {
        let habit = (0..HABIT).flat_map(|_| usual).map(call);
        let second = (rank != odd).then(|| call(Place::Second));
        habit
            .chain([call(Place::First), Step::Mark])
            .chain(second)
            .chain([call(Place::Third), Step::work(BEFORE)])
            .collect()
    });
    Plan {
        deadline: DEADLINE_SHORT,
        expect: verdict(
            Exit::Mismatch,
            Blamed::Odd(odd),
            mismatch(setting),
            setting.all(),
        )
        .with_words(&["sequence differs", "skipped"]),
        ..base
    }
}

fn never_enters_busy(setting: &Setting, draws: &mut Draws) -> Plan {
    absent(setting, draws, "computes", &Step::Spin { ms: FOR_EVER_MS })
}

fn barrier_for_reduce(setting: &Setting, draws: &mut Draws) -> Plan {
    let usual = CallSpec::all_reduce(Kind::F32, 1000);
    for_reduce(setting, draws, "barrier", usual.of_kind(CallKind::Barrier))
}

fn scatter_for_reduce(setting: &Setting, draws: &mut Draws) -> Plan {
    let usual = CallSpec::all_reduce(Kind::F32, 1000);
    for_reduce(
        setting,
        draws,
        "reduce_scatter",
        usual.of_kind(CallKind::ReduceScatter),
    )
}

fn for_reduce(setting: &Setting, draws: &mut Draws, name: &str, other: CallSpec) -> Plan {
    let odd = setting.any_rank(draws);
    let usual = CallSpec::all_reduce(Kind::F32, 1000);
    let how = format!("rank {odd} calls {name}, the others all_reduce");
    differing(setting, odd, how, &usual, &other, &["collective differs"])
}

fn other_count_large(setting: &Setting, draws: &mut Draws) -> Plan {
    counts(setting, draws, 1_000_000, 1_000_001)
}

fn other_count_gather(setting: &Setting, draws: &mut Draws) -> Plan {
    let odd = setting.any_rank(draws);
    let how = format!("rank {odd} gathers 8 elements of each, the others 7");
    let (usual, other) = (
        CallSpec::all_reduce(Kind::I32, 7).of_kind(CallKind::AllGather),
        CallSpec::all_reduce(Kind::I32, 8).of_kind(CallKind::AllGather),
    );
    differing(setting, odd, how, &usual, &other, &["count differs"])
}

fn extra_call(setting: &Setting, draws: &mut Draws) -> Plan {
    let odd = setting.any_rank(draws);
    let how = format!("rank {odd} makes a call more than the others, which have left");
    let base = plan(setting, how, |rank| {
        if rank == odd {
            let pause = Step::Pause { ms: 500 };
            vec![Step::work(BEFORE), pause, Step::Mark, Step::work(1)]
        } else {
            vec![Step::work(BEFORE)]
        }
    });
    let left = Blamed::Among(setting.others(odd));
    Plan {
        expect: verdict(Exit::NotJoined, left, super::DEATH, vec![odd]).with_words(&["left"]),
        ..base
    }
}

fn message_length(setting: &Setting, draws: &mut Draws) -> Plan {
    let sent = CallSpec::all_reduce(Kind::I32, 10);
    let expected = CallSpec::all_reduce(Kind::I32, 12);
    message(
        setting,
        draws,
        "10 elements, which expects 12",
        sent,
        expected,
    )
}

fn message_dtype(setting: &Setting, draws: &mut Draws) -> Plan {
    let sent = CallSpec::all_reduce(Kind::I32, 10);
    let expected = CallSpec::all_reduce(Kind::F32, 10);
    message(setting, draws, "i32, which expects f32", sent, expected)
}

/// A message between two ranks that does not fit; the others wait for them in a barrier.
fn message(
    setting: &Setting,
    draws: &mut Draws,
    what: &str,
    sent: CallSpec,
    expected: CallSpec,
) -> Plan {
    let from = setting.any_rank(draws);
    let to = (from + 1) % setting.world_size;
    let how = format!("rank {from} sends rank {to} {what}");
    let send = sent.of_kind(CallKind::Send).with_peer(to as usize);
    let recv = expected.of_kind(CallKind::Recv).with_peer(from as usize);
    let barrier = CallSpec::all_reduce(Kind::I32, 0).of_kind(CallKind::Barrier);
    let base = plan(setting, how, |rank| {
        let own = if rank == from {
            Some(&send)
        } else {
            (rank == to).then_some(&recv)
        };
        let own = own.map(|call| Step::call(call.clone()));
        [Step::work(BEFORE), Step::Mark]
            .into_iter()
            .chain(own)
            .chain([Step::call(barrier.clone())])
            .collect()
    });
    let sides = Blamed::Among(vec![from, to]);
    Plan {
        expect: verdict(Exit::Mismatch, sides, WAITS, vec![to]),
        ..base
    }
}

fn huge_object(setting: &Setting, draws: &mut Draws) -> Plan {
    let odd = setting.any_rank(draws);
    let how = format!("rank {odd} gives an object above the limit");
    let base = plan(setting, how, |rank| {
        let what = if rank == odd {
            ObjectSpec::Huge
        } else {
            ObjectSpec::Usual
        };
        let call = CallSpec::all_reduce(Kind::I32, 100).of_kind(CallKind::AllGatherObject);
        vec![
            Step::work(BEFORE),
            Step::Mark,
            Step::call(call.with_object(what)),
        ]
    });
    let blamed = Blamed::Exactly(vec![odd]);
    Plan {
        expect: verdict(Exit::Resource, blamed, mismatch(setting), setting.all()),
        ..base
    }
}
