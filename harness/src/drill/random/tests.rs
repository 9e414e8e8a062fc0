//! Programs that nothing is wrong with, faults whose effect is known, and truths that are planted.

use std::time::Duration;

use super::cases::{CASES, case};
use super::fault::{Fault, plant};
use super::grade::{Graded, Line, Seen, grade};
use super::machine::{End, Mode, play};
use super::program::generate;
use super::scenario::{Launcher, Options, Scenario, Way};
use super::truth::{Claim, Truth, Watched, truth};
use crate::drill::actor::trace::At;
use crate::drill::grade::End as Process;
use crate::drill::plan::Blamed;
use crate::drill::told::{Failed, Told, What};
use crate::exit::Exit;
use crate::random::Draws;
use crate::world::Ended;

#[test]
fn a_program_with_nothing_wrong_gets_through_whatever_waits_for_what() {
    for seed in 0..300 {
        let world_size = 2 + u32::try_from(seed % 15).unwrap();
        let program = generate(world_size, Draws::of(&[seed]));
        let halts = vec![None; program.len()];
        for mode in [Mode::Lax, Mode::Strict] {
            let outcome = play(&program, &halts, mode);
            let done = outcome.ends.iter().all(|end| *end == End::Done);
            assert!(done, "seed {seed} {mode:?}: {:?}", outcome.ends);
            assert_eq!(outcome.contradictions, []);
            assert_eq!(outcome.lost, []);
        }
    }
}

/// A scenario of this fault, and where its ranks were when nothing ended them but the fault.
fn of(seed: u64, fault: Fault) -> (Scenario, Watched) {
    let options = Options {
        launchers: vec![Launcher::Run],
        ways: vec![Way::Shm],
        worlds: vec![5],
        faults: vec![fault],
        ..Options::default()
    };
    let scenario = Scenario::of(seed, &options);
    let at = |program: &Vec<_>| {
        Some(At {
            step: program.len() / 2,
            since_ns: 0,
        })
    };
    let watched = Watched {
        at: scenario.program.iter().map(at).collect(),
        joined: (0..5).collect(),
        first_return_ns: None,
        was_stopped: false,
    };
    (scenario, watched)
}

#[test]
fn who_must_speak_may_speak_and_every_fault_finds_its_place() {
    use clap::ValueEnum;
    for fault in Fault::value_variants() {
        let mut met = 0;
        for seed in 0..40 {
            let (scenario, watched) = of(seed, *fault);
            assert_eq!(scenario.fault, *fault, "seed {seed}");
            let truth = truth(&scenario, &watched);
            if !truth.must_speak.is_empty() || truth.must_be_told || truth.launcher_must {
                met += 1;
                assert!(!truth.claims.is_empty(), "{fault:?} {seed}: {truth}");
            }
            let victims = &truth.victims;
            assert!(!truth.must_speak.iter().any(|rank| victims.contains(rank)));
        }
        assert_eq!(
            met == 0,
            fault.is_harmless(),
            "{fault:?} is met {met} times"
        );
    }
}

#[test]
fn a_run_is_the_same_however_its_options_are_narrowed() {
    let wide = Scenario::of(77, &Options::default());
    let narrow = Options {
        launchers: vec![wide.launcher],
        ways: vec![wide.way],
        worlds: vec![wide.world_size()],
        faults: vec![wide.fault],
        ..Options::default()
    };
    let again = Scenario::of(77, &narrow);
    assert_eq!(again.program, wide.program);
    assert_eq!(again.strikes, wide.strikes);
    assert_eq!(again.planted, wide.planted);
}

#[test]
fn what_is_true_of_the_cases_is_what_their_names_say() {
    let truth_of = |name: &str, steps: &[usize]| {
        let scenario = case(name).unwrap().scenario();
        let at = |step: &usize| {
            Some(At {
                step: *step,
                since_ns: 0,
            })
        };
        let watched = Watched {
            at: steps.iter().map(at).collect(),
            joined: (0..scenario.world_size()).collect(),
            first_return_ns: None,
            was_stopped: false,
        };
        truth(&scenario, &watched)
    };
    let server = truth_of("server-ends-by-verdict", &[3, 3, 3, 2]);
    assert_eq!(server.must_speak, [0, 1, 2]);
    let leaves = truth_of("server-leaves-early", &[2, 1, 1, 1]);
    assert_eq!(leaves.must_speak, [1, 2, 3]);
    let left = Claim {
        classes: vec![Exit::NotJoined, Exit::Mismatch],
        blamed: Blamed::Exactly(vec![0]),
        or_nobody: false,
    };
    // Or a message that it has not received, of one of the others.
    let unread = |other| Claim {
        classes: vec![Exit::Mismatch],
        blamed: Blamed::Exactly(vec![0, other]),
        or_nobody: false,
    };
    assert_eq!(leaves.claims, [left, unread(1), unread(2), unread(3)]);
    let after = truth_of("stopped-after-last-call", &[1, 1, 1, 1]);
    assert_eq!(after.must_speak, [0; 0]);
    assert!(after.launcher_must);
    let lost = truth_of("recv-left-out", &[4, 4, 4]);
    assert!(lost.must_be_told);
    for case in CASES {
        assert_eq!(case.scenario().case, Some(case.name));
    }
}

#[test]
fn a_fault_that_nobody_meets_allows_no_verdict() {
    // Rank 4 is killed behind its last step, without a launcher of ours.
    let (mut scenario, mut watched) = of(3, Fault::Killed);
    scenario.launcher = Launcher::Env;
    let victim = scenario.planted[0].victim;
    watched.at[victim as usize] = Some(At {
        step: scenario.program[victim as usize].len(),
        since_ns: 0,
    });
    let truth = truth(&scenario, &watched);
    assert_eq!(truth.claims, []);
    assert!(!truth.must_be_told);
}

#[test]
fn of_two_faults_the_second_alone_is_wrong_where_somebody_waited_for_the_first() {
    let scenario = case("two-killed").unwrap().scenario();
    let at = |since_ns| Some(At { step: 1, since_ns });
    let watched = |since_ns| Watched {
        at: vec![at(since_ns), at(since_ns), at(0), at(0)],
        joined: (0..4).collect(),
        first_return_ns: Some(1_000_000_000),
        was_stopped: false,
    };
    let only = |truth: &Truth, rank| {
        let only = Blamed::Exactly(vec![rank]);
        truth.claims.iter().any(|claim| claim.blamed == only)
    };
    let waited = truth(&scenario, &watched(0));
    assert!(only(&waited, 2));
    assert!(!only(&waited, 3));
    let came_later = truth(&scenario, &watched(990_000_000));
    assert!(only(&came_later, 2));
    assert!(only(&came_later, 3));
}

const LINE: &str = "VERDICT PEER_DEAD who=rank 2 (h, pid 1; world) what=all_reduce #4 on world \
                    where=was killed since=01:35:15.942Z (+0.000 s) confidence=certain \
                    evidence=its process ended others=1 waiting next=look";

fn killed() -> (Scenario, Truth, Seen) {
    let mut scenario = case("two-killed").unwrap().scenario();
    scenario.planted.truncate(1);
    scenario.fault = Fault::Killed;
    let truth = Truth {
        claims: vec![Claim {
            classes: vec![Exit::PeerDead],
            blamed: Blamed::Exactly(vec![2]),
            or_nobody: false,
        }],
        must_speak: vec![0, 1, 3],
        must_be_told: true,
        launcher_must: true,
        shared: true,
        victims: vec![2],
    };
    let failed = |rank: u32| Told {
        rank,
        pid: rank,
        at_ns: 1_020_000_000,
        what: What::Failed(Box::new(Failed {
            error: "rank 2 was killed".to_owned(),
            is_usable: false,
            verdict: None,
        })),
    };
    let printed = [Some(0), Some(1), Some(3), None];
    let seen = Seen {
        told: [0, 1, 3].map(failed).to_vec(),
        verdicts: printed.map(|by| (by, LINE.to_owned())).to_vec(),
        ends: vec![Process {
            rank: None,
            how: Some((Ended::Exited(20), 0)),
        }],
        fault_ns: Some(1_000_000_000),
        ..Seen::default()
    };
    (scenario, truth, seen)
}

/// Which of the grades do not hold.
fn broken(spoil: impl FnOnce(&mut Scenario, &mut Truth, &mut Seen)) -> Vec<&'static str> {
    let (mut scenario, mut truth, mut seen) = killed();
    spoil(&mut scenario, &mut truth, &mut seen);
    let graded: Graded = grade(&scenario, &truth, &seen);
    let grades = [
        ("detected", graded.detected),
        ("class", graded.class),
        ("culprit", graded.culprit),
        ("same", graded.same),
        ("in time", graded.in_time),
        ("clean", graded.clean),
    ];
    let broken: Vec<&str> = grades
        .iter()
        .filter(|(_, holds)| !holds)
        .map(|(name, _)| *name)
        .collect();
    assert_eq!(broken.is_empty(), graded.reasons.is_empty(), "{graded:?}");
    broken
}

#[test]
fn a_run_as_it_should_be_is_exact_and_each_grade_can_fail_alone() {
    assert_eq!(broken(|_, _, _| {}), [""; 0]);
    assert_eq!(broken(|_, _, seen| drop(seen.told.remove(1))), ["detected"]);
    let rename = |seen: &mut Seen, from: &str, to: &str| {
        for (_, line) in &mut seen.verdicts {
            *line = line.replace(from, to);
        }
    };
    let other_class = broken(|_, _, seen| {
        rename(seen, "PEER_DEAD", "LINK");
        seen.ends[0].how = Some((Ended::Exited(23), 0));
    });
    assert_eq!(other_class, ["class"]);
    assert_eq!(
        broken(|_, _, seen| rename(seen, "who=rank 2", "who=rank 1")),
        ["culprit"]
    );
    assert_eq!(broken(|_, _, seen| seen.verdicts[1].1.push('x')), ["same"]);
    assert_eq!(
        broken(|_, _, seen| seen.verdicts.push((Some(0), LINE.to_owned()))),
        ["same"]
    );
    assert_eq!(broken(|_, _, seen| drop(seen.verdicts.pop())), ["same"]);
    let late = |_: &mut Scenario, _: &mut Truth, seen: &mut Seen| {
        seen.told[0].at_ns = 60_000_000_000;
    };
    assert_eq!(broken(late), ["in time"]);
    assert_eq!(
        broken(|_, _, seen| seen.left.push("process 7".to_owned())),
        ["clean"]
    );
    let code = |_: &mut Scenario, _: &mut Truth, seen: &mut Seen| {
        seen.ends[0].how = Some((Ended::Exited(0), 0));
    };
    assert_eq!(broken(code), ["same"]);
}

#[test]
fn under_mpirun_ranks_that_ended_with_the_culprit_may_be_named_where_the_line_is_not_certain() {
    let together = |launcher: Launcher, who: &str, confidence: &str| {
        broken(|scenario, truth, seen| {
            scenario.launcher = launcher;
            truth.launcher_must = false;
            seen.verdicts.retain(|(by, _)| by.is_some());
            seen.ends.clear();
            for (_, line) in &mut seen.verdicts {
                *line = line
                    .replace("who=rank 2", who)
                    .replace("confidence=certain", confidence);
            }
        })
    };
    let likely = "confidence=likely";
    assert_eq!(together(Launcher::Mpirun, "who=ranks 0,2", likely), [""; 0]);
    // The culprit is not among them; the line is sure of it; nobody else ends ranks.
    let is_wrong = |broken: Vec<&str>| assert_eq!(broken, ["culprit"]);
    is_wrong(together(Launcher::Mpirun, "who=ranks 0,1", likely));
    is_wrong(together(
        Launcher::Mpirun,
        "who=ranks 0,2",
        "confidence=certain",
    ));
    is_wrong(together(Launcher::Env, "who=ranks 0,2", likely));
}

#[test]
fn under_mpirun_a_rank_that_blames_nobody_for_the_rendezvous_need_not_say_what_others_say() {
    let beside = |launcher: Launcher| {
        broken(|scenario, truth, seen| {
            scenario.launcher = launcher;
            truth.launcher_must = false;
            truth.claims[0].or_nobody = true;
            seen.verdicts.retain(|(by, _)| by.is_some());
            seen.ends.clear();
            let (_, line) = &mut seen.verdicts[0];
            *line = line.replace("who=rank 2", "who=no rank in particular");
        })
    };
    assert_eq!(beside(Launcher::Mpirun), [""; 0]);
    assert_eq!(beside(Launcher::Env), ["same"]);
}

#[test]
fn ranks_that_a_failed_mpirun_cuts_off_need_not_come_to_their_end() {
    // Rank 2 died after its last call: nobody has to say anything of it.
    let cut = |launcher: Launcher, code: i32| {
        broken(|scenario, truth, seen| {
            scenario.launcher = launcher;
            *truth = Truth {
                victims: vec![2],
                shared: true,
                ..Truth::default()
            };
            seen.verdicts.clear();
            seen.told.clear();
            seen.ends[0].how = Some((Ended::Exited(code), 0));
        })
    };
    assert_eq!(cut(Launcher::Mpirun, 137), [""; 0]);
    assert_eq!(cut(Launcher::Mpirun, 0), ["detected"]);
    // Nobody else ends ranks.
    assert_eq!(cut(Launcher::Env, 0), ["detected"]);
    assert!(cut(Launcher::Env, 137).contains(&"detected"));
}

#[test]
fn a_call_that_others_never_come_to_is_left_behind_by_those_who_destroyed_the_group() {
    let left_behind = |fault: Fault| {
        let options = Options {
            worlds: vec![15],
            faults: vec![fault],
            ..Options::default()
        };
        // An extra call of rank 0 on a group that rank 1 then destroys.
        let program = Scenario::of(8_606_051, &options).program;
        let outcome = play(&program, &vec![None; program.len()], Mode::Lax);
        outcome.left_behind
    };
    assert!(left_behind(Fault::Extra).contains(&(0, 1)));
    assert_eq!(left_behind(Fault::Healthy), []);
}

#[test]
fn in_a_world_with_nothing_wrong_any_verdict_and_any_wrong_result_is_a_miss() {
    let healthy = |scenario: &mut Scenario, truth: &mut Truth, seen: &mut Seen| {
        scenario.fault = Fault::Healthy;
        scenario.planted.clear();
        *truth = Truth {
            shared: true,
            ..Truth::default()
        };
        seen.verdicts.clear();
        seen.ends[0].how = Some((Ended::Exited(0), 0));
        seen.told = (0..4)
            .map(|rank| Told {
                rank,
                pid: rank,
                at_ns: 0,
                what: What::Done,
            })
            .collect();
    };
    assert_eq!(broken(healthy), [""; 0]);
    let alarm = broken(|scenario, truth, seen| {
        healthy(scenario, truth, seen);
        seen.verdicts.push((None, LINE.to_owned()));
        seen.ends[0].how = Some((Ended::Exited(20), 0));
    });
    assert_eq!(alarm, ["detected"]);
    let starved = LINE.replace("PEER_DEAD", "RESOURCE");
    let with_load = |load: u32| {
        let starved = starved.clone();
        broken(move |scenario, truth, seen| {
            healthy(scenario, truth, seen);
            scenario.load = load;
            seen.verdicts.push((None, starved));
            seen.ends[0].how = Some((Ended::Exited(60), 0));
        })
    };
    assert_eq!(with_load(0), ["detected"]);
    assert_eq!(with_load(30), [""; 0]);
    let wrong = broken(|scenario, truth, seen| {
        healthy(scenario, truth, seen);
        let call = "all_reduce".to_owned();
        seen.told[1].what = What::Wrong { call };
        seen.told.push(Told {
            rank: 1,
            pid: 1,
            at_ns: 0,
            what: What::Done,
        });
    });
    assert_eq!(wrong, ["detected"]);
    let missing = broken(|scenario, truth, seen| {
        healthy(scenario, truth, seen);
        seen.told.remove(0);
    });
    assert_eq!(missing, ["detected"]);
}

#[test]
fn class_and_culprits_are_read_from_the_line() {
    let line = |who: &str| {
        Line::read(&format!(
            "VERDICT LINK who={who} what=x where=rank 9 since=y"
        ))
        .to_string()
    };
    assert_eq!(line("rank 2 (h, pid 1; world)"), "LINK rank 2");
    assert_eq!(
        line("rank 2 (h, pid 1), rank 3 (h, pid 2)"),
        "LINK ranks 2,3"
    );
    assert_eq!(line("ranks 0,2-4"), "LINK ranks 0,2,3,4");
    assert_eq!(line("no rank in particular"), "LINK nobody");
}

#[test]
fn a_fault_without_a_place_is_not_planted() {
    let (mut scenario, _) = of(1, Fault::Healthy);
    scenario.program = vec![Vec::new(); 5];
    assert!(!plant(
        &mut scenario,
        Fault::OtherRoot,
        &mut Draws::of(&[1])
    ));
    assert!(scenario.planted.is_empty());
    assert!(scenario.deadline > Duration::ZERO);
}
