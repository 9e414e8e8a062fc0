//! Names of matrices, and what is refused.

use super::*;

fn name(input: &str) -> String {
    let matrix: Matrix = input
        .parse()
        .unwrap_or_else(|error| panic!("{input}: {error}"));
    matrix.to_string()
}

fn message(input: &str) -> String {
    input.parse::<Matrix>().expect_err(input).to_string()
}

#[test]
fn the_world_is_the_smallest_legal_one_unless_it_is_given() {
    for (input, want) in [
        ("tp2", "tp2@2"),
        ("tp8", "tp8@8"),
        ("tp2ep4", "tp2ep4@8"),
        ("tp3ep4", "tp3ep4@12"),
        ("tp2cp2ep2", "tp2cp2ep2@4"),
        ("tp2cp2ep2@8", "tp2cp2ep2@8"),
        ("tp2pp2dp2", "tp2pp2dp2@8"),
        ("ep16", "ep16@16"),
        ("tp2ep4etp1", "tp2ep4etp1@4"),
        ("tp4ep2@16", "tp4ep2@16"),
        ("cp2ep3", "cp2ep3@6"),
        ("single", "tp1@1"),
        ("tp1", "tp1@1"),
        ("tp1@4", "tp1@4"),
    ] {
        assert_eq!(name(input), want, "{input}");
    }
}

#[test]
fn spelling_and_sequence_do_not_matter() {
    for input in [
        "tp2ep4",
        "TP2EP4",
        "Tp2xEp4",
        "tp=2,ep=4",
        "tp = 2, ep = 4",
        "ep4tp2",
        "TP2-EP4",
        "tp2_ep4",
        "tp2*ep4",
        "tp2×ep4",
        " tp2 ep4 ",
        "tp2ep4@8",
        "tp2cp1ep4pp1@8",
    ] {
        assert_eq!(name(input), "tp2ep4@8", "{input}");
    }
}

#[test]
fn a_canonical_name_reads_back_as_the_same_matrix() {
    for input in DEFAULT_MATRICES {
        assert_eq!(name(input), input);
    }
    assert_eq!(default_matrices().unwrap().len(), DEFAULT_MATRICES.len());
}

#[test]
fn tables_show_the_words_that_users_know() {
    let titles: Vec<_> = default_matrices()
        .unwrap()
        .iter()
        .map(Matrix::title)
        .collect();
    assert_eq!(titles[0], "single rank");
    assert_eq!(titles[3], "TP2xEP4@8");
    assert_eq!(titles[5], "TP2xPP2xDP2@8");
}

#[test]
fn what_is_wrong_is_said_with_the_place_and_what_is_allowed() {
    for (input, want) in [
        (
            "",
            "matrix \"\": nothing there; a matrix is like tp2ep4 or tp2ep4@8",
        ),
        (
            "tp2pe4",
            "matrix \"tp2pe4\", character 4: unknown axis \"pe\"; axes: tp, cp, pp, dp, ep, \
             etp; did you mean \"tp2ep4\"?",
        ),
        (
            "sp8",
            "matrix \"sp8\", character 1: unknown axis \"sp\"; axes: tp, cp, pp, dp, ep, etp; \
             did you mean \"cp8\"?",
        ),
        (
            "tp",
            "matrix \"tp\", character 3: tp needs a size, as in tp2",
        ),
        (
            "tp2ep",
            "matrix \"tp2ep\", character 6: ep needs a size, as in ep2",
        ),
        (
            "2tp",
            "matrix \"2tp\", character 1: the size 2 has no axis before it; write the axis \
             first, as in tp2ep4",
        ),
        (
            "tp2tp4",
            "matrix \"tp2tp4\", character 4: tp stands twice; each of tp, cp, pp, dp, ep, etp \
             at most once",
        ),
        (
            "tp2@",
            "matrix \"tp2@\", character 5: \"@\" comes last, followed by the number of ranks, \
             as in tp2ep4@8",
        ),
        (
            "tp3@8",
            "matrix \"tp3@8\": tp=3 does not divide 8: world_size 8 divided by cp=1 * pp=1 is \
             8; legal tp: 1, 2, 4, 8",
        ),
        ("tp0", "matrix \"tp0\": tp=0: every size must be at least 1"),
        (
            "tp-2",
            "matrix \"tp-2\": tp=-2: every size must be at least 1",
        ),
        (
            "relax-4",
            "matrix \"relax-4\": that is a preset, not a matrix; write --preset relax-4",
        ),
        (
            "tp2dp2@8",
            "matrix \"tp2dp2@8\": dp=2 contradicts the other sizes: world_size 8 divided by \
             tp*cp*pp = 2 leaves dp=4",
        ),
    ] {
        assert_eq!(message(input), want);
    }
    assert!(message(&"tp2".repeat(99)).contains("at most 192 are read"));
    assert!(message("tp99999999999999999999").contains("too large"));
    assert!(message("tp9999999999ep9999999999").contains("above the limit"));
}
