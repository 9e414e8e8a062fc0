//! What the judge says of rows with times that are written here.

use super::*;

const WISHES: Wishes = Wishes {
    threshold: 0.05,
    margin: 0.1,
    allow_missing: false,
    pairs: false,
};

/// Ten rounds with a spread of a few percent around `time`, different for each `salt`.
fn row(name: usize, time: f64, salt: usize) -> Row {
    Row {
        name: format!("row {name}"),
        rounds_us: (0..10)
            .map(|round| time * (1.0 + ((round * 7 + salt * 3 + name) % 10) as f64 / 250.0))
            .collect(),
        ..Row::default()
    }
}

fn rows(salt: usize) -> Vec<Row> {
    (0..40)
        .map(|name| row(name, 10.0 + name as f64, salt))
        .collect()
}

fn fates(comparison: &Comparison, fate: Fate) -> Vec<&str> {
    let of = comparison.rows.iter().filter(|row| row.fate == fate);
    of.map(|row| row.name.as_str()).collect()
}

#[test]
fn one_row_that_is_a_tenth_slower_is_found_among_many_and_comes_first() {
    let mut new = rows(1);
    new[17].rounds_us.iter_mut().for_each(|time| *time *= 1.1);
    let comparison = judge(&rows(0), &new, &[], &[], &WISHES);
    assert_eq!(fates(&comparison, Fate::Regressed), ["row 17"]);
    assert_eq!(comparison.rows[0].name, "row 17");
    assert_eq!(comparison.class, Exit::Slow);
    assert!(
        comparison.rows[0].sentence.contains("+1"),
        "{:?}",
        comparison.rows[0]
    );
    let back = judge(&new, &rows(0), &[], &[], &WISHES);
    assert_eq!(fates(&back, Fate::Improved), ["row 17"]);
    assert_eq!(back.class, Exit::Ok);
}

#[test]
fn the_same_again_is_the_same() {
    for salt in 0..10 {
        let comparison = judge(&rows(0), &rows(salt), &[], &[], &WISHES);
        assert_eq!(comparison.class, Exit::Ok, "{:?}", comparison.rows[0]);
        assert_eq!(fates(&comparison, Fate::Same).len(), 40);
    }
}

#[test]
fn a_slow_down_of_everything_is_told_from_a_slow_machine() {
    let mut new = rows(1);
    for row in &mut new {
        row.rounds_us.iter_mut().for_each(|time| *time *= 1.3);
    }
    let comparison = judge(&rows(0), &new, &[], &[], &WISHES);
    assert_eq!(comparison.class, Exit::Slow);
    assert!(comparison.remarks[0].contains("everything became slower"));
    let pulse = |exchange_ns: f64| -> Vec<Pulse> {
        let pulse = |round| Pulse {
            exchange_ns: exchange_ns + f64::from(round),
            copy_gbytes_per_s: 10.0,
            processor_share: 1.0,
        };
        (0..10).map(pulse).collect()
    };
    // That is no regression, and no proof that there is none.
    let comparison = judge(&rows(0), &new, &pulse(60.0), &pulse(270.0), &WISHES);
    assert_eq!(comparison.class, Exit::Internal, "{:?}", comparison.remarks);
    assert!(comparison.remarks[0].contains("not the same"));
}

#[test]
fn wrong_data_outranks_times_and_missing_rows_are_no_pass() {
    let (base, mut new) = (rows(0), rows(1));
    new[3].rounds_us.iter_mut().for_each(|time| *time *= 2.0);
    new[5].wrong = 7;
    let comparison = judge(&base, &new, &[], &[], &WISHES);
    assert_eq!(comparison.class, Exit::Data);
    assert_eq!(comparison.rows[0].fate, Fate::WrongData);
    let fewer = rows(1)[1..].to_vec();
    let comparison = judge(&base, &fewer, &[], &[], &WISHES);
    assert_eq!(
        (comparison.class, comparison.rows[0].fate),
        (Exit::Internal, Fate::Missing)
    );
    let allowed = Wishes {
        allow_missing: true,
        ..WISHES
    };
    assert_eq!(judge(&base, &fewer, &[], &[], &allowed).class, Exit::Ok);
    assert_eq!(
        fates(&judge(&fewer, &base, &[], &[], &WISHES), Fate::New),
        ["row 0"]
    );
}

#[test]
fn a_single_round_decides_nothing_and_is_no_pass() {
    let once = |salt| -> Vec<Row> {
        let short = |row: Row| Row {
            rounds_us: row.rounds_us[..1].to_vec(),
            ..row
        };
        rows(salt).into_iter().map(short).collect()
    };
    let comparison = judge(&once(0), &once(1), &[], &[], &WISHES);
    assert_eq!(fates(&comparison, Fate::Undecided).len(), 40);
    assert_eq!(comparison.class, Exit::Internal);
}

/// Twenty rounds in pairs, on a machine that is up to four times as slow from one pair to the next; a twentieth of noise beside that.
fn drifting(salt: u32, factor: f64) -> Vec<Row> {
    let mix = |a: u32, b: u32, c: u32| {
        let mixed = a.wrapping_mul(2_654_435_761)
            ^ b.wrapping_mul(2_246_822_519)
            ^ c.wrapping_mul(3_266_489_917);
        f64::from(mixed.wrapping_mul(668_265_263) >> 8) / f64::from(1_u32 << 24)
    };
    let time = |row: u32, round: u32| {
        let machine = 1.0 + 3.0 * mix(round, 7, 1);
        let noise = 0.975 + 0.05 * mix(round, row, salt);
        let of_row = if row == 3 { factor } else { 1.0 };
        f64::from(10 + row) * machine * noise * of_row
    };
    let row = |row: u32| Row {
        name: format!("row {row}"),
        rounds_us: (0..20).map(|round| time(row, round)).collect(),
        ..Row::default()
    };
    (0..7).map(row).collect()
}

#[test]
fn what_both_rounds_of_a_pair_have_in_common_hides_nothing() {
    let pairs = Wishes {
        pairs: true,
        ..WISHES
    };
    for salt in 0..20 {
        let (base, slow) = (drifting(2 * salt, 1.0), drifting(2 * salt + 1, 1.08));
        let apart = judge(&base, &slow, &[], &[], &WISHES);
        assert_eq!(fates(&apart, Fate::Regressed), [] as [&str; 0]);
        assert_eq!(apart.class, Exit::Internal, "the drift hides it");
        let found = judge(&base, &slow, &[], &[], &pairs);
        assert_eq!(
            fates(&found, Fate::Regressed),
            ["row 3"],
            "{:?}",
            found.rows[0]
        );
        let same = judge(&base, &drifting(2 * salt + 1, 1.0), &[], &[], &pairs);
        assert_eq!(same.class, Exit::Ok, "{:?}", same.rows[0]);
    }
}

/// One program measured twice on a machine that moves its ranks between processors.
#[test]
fn rounds_of_two_states_are_undecided_and_no_regression() {
    let of = |rounds_us: [f64; 10]| {
        vec![Row {
            name: "all_reduce 8 B".to_owned(),
            rounds_us: rounds_us.to_vec(),
            ..Row::default()
        }]
    };
    let base = of([
        0.164, 2.739, 0.15, 0.161, 0.159, 0.161, 0.155, 0.155, 0.152, 0.187,
    ]);
    let new = of([
        2.724, 0.165, 2.759, 2.764, 0.187, 2.724, 2.739, 0.163, 0.157, 0.163,
    ]);
    let comparison = judge(&base, &new, &[], &[], &WISHES);
    assert_eq!(comparison.rows[0].fate, Fate::Undecided, "{comparison:?}");
    assert_eq!(comparison.class, Exit::Internal);
}
