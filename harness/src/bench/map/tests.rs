//! Maps of pairs that are made up: who is named, and who is not.

use super::*;
use crate::exit::Exit;
use crate::report::cause::Cause;
use crate::report::measured::Latency;

/// Of ranks on one host.
fn verdict(records: &[Record]) -> Option<Cause> {
    super::verdict(records, &Hosts::default())
}

/// Of ranks on hosts, two on each.
fn verdict_of_hosts(ranks: u32, time: impl Fn(u32, u32, u32) -> f64) -> Option<Cause> {
    let names: Vec<String> = (0..ranks).map(|rank| format!("host{}", rank / 2)).collect();
    super::verdict(&records(ranks, 3, time), &Hosts::new(&names))
}

/// Records of all pairs; `samples` says what one takes in a round.
fn records_of(ranks: u32, rounds: u32, samples: impl Fn(u32, u32, u32) -> Vec<f64>) -> Vec<Record> {
    let all = (0..ranks).flat_map(|a| (a + 1..ranks).map(move |b| (a, b)));
    let record = |(a, b): (u32, u32)| {
        let samples_us: Vec<Vec<f64>> = (0..rounds).map(|round| samples(a, b, round)).collect();
        let mut all = samples_us.concat();
        stats::sort(&mut all);
        Record {
            group: format!("pair {a}-{b}"),
            bytes: 8,
            world_size: ranks,
            latency_us: Latency::of(&all),
            samples_us,
            ..Record::default()
        }
    };
    all.map(record).collect()
}

fn records(ranks: u32, rounds: u32, time: impl Fn(u32, u32, u32) -> f64) -> Vec<Record> {
    records_of(ranks, rounds, |a, b, round| vec![time(a, b, round)])
}

fn has(rank: u32, a: u32, b: u32) -> bool {
    a == rank || b == rank
}

#[test]
fn a_rank_is_named_whose_pairs_all_are_slow() {
    let found = verdict(&records(
        8,
        3,
        |a, b, _| if has(3, a, b) { 20.0 } else { 10.0 },
    ));
    let found = found.expect("a verdict");
    assert_eq!((found.class, &found.blamed[..]), (Exit::Slow, &[3][..]));
    assert_eq!(
        found.text,
        "rank 3 is slow: 2.00 times the usual time at 8 B"
    );
    assert_eq!(found.evidence.len(), 1, "{found:?}");
}

/// One call of ten waits until the rank has a processor again.
#[test]
fn a_rank_is_named_that_does_not_run_all_the_time() {
    let pauses = |rank: u32, only: Option<u32>| {
        records_of(8, 3, move |a, b, round| {
            let base = if (a < 3) == (b < 3) { 10.0 } else { 16.0 };
            let is_long = has(rank, a, b) && only.is_none_or(|only| only == round);
            let mut samples = vec![base; 20];
            samples[3] += if is_long { 200.0 } else { 0.0 };
            samples[13] += if is_long { 180.0 } else { 8.0 };
            samples
        })
    };
    let found = verdict(&pauses(3, None)).expect("a verdict");
    assert_eq!((found.class, &found.blamed[..]), (Exit::Slow, &[3][..]));
    assert_eq!(found.evidence.len(), 1, "{found:?}");
    assert!(
        found.evidence[0].contains("on average") && found.evidence[0].contains("rank 3, 8 B"),
        "{found:?}"
    );
    assert_eq!(verdict(&pauses(3, Some(1))), None, "in one round");
    assert_eq!(verdict(&pauses(8, None)), None, "no rank");
}

#[test]
fn a_link_is_named_that_its_ranks_do_not_explain() {
    let found = verdict(&records(
        6,
        3,
        |a, b, _| if (a, b) == (1, 4) { 30.0 } else { 10.0 },
    ));
    let found = found.expect("a verdict");
    assert_eq!(found.blamed, [] as [u32; 0]);
    assert!(
        found.text.starts_with("the link 1-4 is slow: 3.00 times"),
        "{found:?}"
    );
}

/// Of few hosts one is a little slower than the others by chance, in one round, beside a link of it that is slow.
#[test]
fn a_link_is_named_although_one_of_its_hosts_seems_slow_too() {
    let time = |a: u32, b: u32, round: u32| match (a / 2, b / 2) {
        (0, 1) => 29_600.0,
        (1, 2 | 3) if round == 1 => 770.0,
        _ => 500.0,
    };
    let found = verdict_of_hosts(8, time).expect("a verdict");
    assert_eq!(found.blamed, [] as [u32; 0]);
    let link = "the link host0-host1 is slow: 59.2 times";
    assert!(found.text.starts_with(link), "{found:?}");
    // Two slow ranks add up.
    let both = verdict(&records(8, 3, |a, b, _| {
        let slow = u32::from(has(1, a, b)) + u32::from(has(5, a, b));
        10.0 + 50.0 * f64::from(slow)
    }));
    let both = both.expect("a verdict");
    assert_eq!(both.blamed, [1, 5], "{both:?}");
    assert!(!both.text.contains("link"), "{both:?}");
}

#[test]
fn a_rank_and_a_link_without_it_are_both_named() {
    let time = |a, b, _| match (a, b) {
        _ if has(0, a, b) => 17.0,
        (5, 6) => 40.0,
        _ => 10.0,
    };
    let found = verdict(&records(8, 2, time)).expect("a verdict");
    assert!(
        found
            .text
            .starts_with("rank 0 is slow; the link 5-6 is slow"),
        "{found:?}"
    );
}

#[test]
fn what_was_slow_in_one_round_only_is_not_named() {
    let time = |a, b, round| {
        if has(3, a, b) && round == 1 {
            90.0
        } else {
            10.0
        }
    };
    assert_eq!(verdict(&records(8, 3, time)), None);
}

/// Two sockets: pairs of different ones are slower, and nobody is to blame.
#[test]
fn sockets_are_no_fault_of_a_rank_or_a_link() {
    for near in [2, 3, 4, 6] {
        let time = |a, b, _| if (a < near) == (b < near) { 10.0 } else { 19.0 };
        assert_eq!(verdict(&records(8, 2, time)), None, "{near} of 8");
    }
}

#[test]
fn with_three_ranks_nobody_is_named() {
    assert_eq!(
        verdict(&records(3, 2, |a, b, _| if has(0, a, b) {
            90.0
        } else {
            10.0
        })),
        None
    );
    assert_eq!(verdict(&records(2, 2, |_, _, _| 10.0)), None);
    assert_eq!(verdict(&[]), None);
}

/// Pairs whose times vary by chance: a tenth, now and then by half.
#[test]
fn noise_names_nobody() {
    let mut state = 5_u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut alarms = 0;
    for _ in 0..100 {
        let noise: Vec<f64> = (0..64 * 3)
            .map(|_| 1.0 + 0.2 * random() + if random() > 0.95 { 0.5 } else { 0.0 })
            .collect();
        let time = |a: u32, b: u32, round: u32| 10.0 * noise[((a * 8 + b) * 3 + round) as usize];
        alarms += usize::from(verdict(&records(8, 3, time)).is_some());
        alarms += usize::from(verdict_of_hosts(8, time).is_some());
    }
    assert!(alarms <= 2, "{alarms} of 200");
}

#[test]
fn a_picture_has_figures_where_they_fit_and_signs_elsewhere() {
    let records = records(6, 1, |a, b, _| if (a, b) == (1, 4) { 30.0 } else { 10.0 });
    let maps = maps(&records);
    let wide = picture(&maps[0], &Hosts::default(), Some(80));
    assert!(
        wide.contains("\n1   10.0      -   10.0   10.0   30.0   10.0\n"),
        "{wide}"
    );
    let narrow = picture(&maps[0], &Hosts::default(), Some(20));
    assert!(narrow.contains("\n1 . ..#.\n"), "{narrow}");
}

#[test]
fn the_names_of_pairs_are_read_again() {
    let layout = "tp1@3"
        .parse::<muster_comm::layout::Matrix>()
        .expect("a matrix");
    let names = pairs(&layout.layout().expect("legal"));
    assert_eq!(names, ["pair 0-1", "pair 0-2", "pair 1-2"]);
    assert_eq!(pair(&names[2]), Some([1, 2]));
    assert_eq!(pair("ep"), None);
}

#[test]
fn a_host_is_named_whose_pairs_with_all_others_are_slow() {
    let time = |a: u32, b: u32, _| match (a / 2, b / 2) {
        (one, other) if one == other => 5.0,
        (2, _) | (_, 2) => 60.0,
        _ => 30.0,
    };
    let found = verdict_of_hosts(8, time).expect("a verdict");
    assert_eq!(
        found.text,
        "host host2 (ranks 4, 5) is slow: 2.00 times the usual time at 8 B"
    );
    assert_eq!(found.blamed, [4, 5]);
    assert_eq!(found.evidence.len(), 1, "{found:?}");
    assert_eq!(
        verdict_of_hosts(6, time),
        None,
        "two of three pairs share each host"
    );
}

/// Its link lets some messages through at once, and the ranks of its pairs seem to pause.
#[test]
fn a_host_is_named_whose_link_is_slow_by_fits_and_starts() {
    let made = records_of(8, 3, |a, b, round| match (a / 2, b / 2) {
        (one, other) if one == other => vec![5.0; 9],
        (2, _) | (_, 2) => {
            let pause = if round == 1 && (a == 4 || b == 4) {
                900.0
            } else {
                0.0
            };
            let mut times = vec![60.0; 9];
            times[8] += pause;
            times
        }
        _ => vec![30.0; 9],
    });
    let names: Vec<String> = (0..8).map(|rank| format!("host{}", rank / 2)).collect();
    let found = super::verdict(&made, &Hosts::new(&names)).expect("a verdict");
    assert!(
        found.text.starts_with("host host2 (ranks 4, 5) is slow: "),
        "{found:?}"
    );
}

#[test]
fn the_link_of_two_hosts_is_named_once() {
    let time = |a: u32, b: u32, _| match (a / 2, b / 2) {
        (one, other) if one == other => 5.0,
        (1, 4) => 70.0,
        _ => 30.0,
    };
    let found = verdict_of_hosts(10, time).expect("a verdict");
    assert!(
        found
            .text
            .starts_with("the link host1-host4 is slow: 2.33 times"),
        "{found:?}"
    );
    assert_eq!(found.blamed, [] as [u32; 0]);
    assert_eq!(found.evidence.len(), 1, "{found:?}");
}

#[test]
fn ranks_that_are_slow_are_their_host_where_all_of_it_are() {
    let slow = |those: &'static [u32]| {
        move |a: u32, b: u32, _: u32| {
            let base = if a / 2 == b / 2 { 5.0 } else { 30.0 };
            let times = if those.contains(&a) || those.contains(&b) {
                12.0
            } else {
                1.0
            };
            base * times
        }
    };
    let found = verdict_of_hosts(8, slow(&[2, 3])).expect("a verdict");
    assert!(
        found.text.starts_with("host host1 (ranks 2, 3) is slow: "),
        "{found:?}"
    );
    assert_eq!(found.blamed, [2, 3]);
    let found = verdict_of_hosts(8, slow(&[2])).expect("a verdict");
    assert!(found.text.starts_with("rank 2 is slow: "), "{found:?}");
    assert_eq!(found.blamed, [2]);
}

#[test]
fn hosts_have_a_picture_of_their_own() {
    let time = |a: u32, b: u32, _| if a / 2 == b / 2 { 5.0 } else { 30.0 };
    let records = records(4, 1, time);
    let names = ["a", "a", "b", "b"].map(str::to_owned);
    let picture = picture(&maps(&records)[0], &Hosts::new(&names), Some(80));
    let hosts = picture.find("median us between hosts, 8 B each way: 0 a, 1 b\n");
    let hosts = hosts.map(|at| &picture[at..]);
    assert!(
        hosts.is_some_and(|text| text.ends_with("\n0      -   30.0\n1   30.0      -\n")),
        "{picture}"
    );
}
