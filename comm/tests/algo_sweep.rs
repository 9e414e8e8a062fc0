//! Every registered algorithm is proved over the whole sweep of rank counts and shapes.

use muster_comm::algo::{Links, algorithms_for, planned, sweep};

#[test]
fn every_algorithm_is_right_for_every_number_of_ranks_and_every_shape() {
    let mut proofs = 0;
    for n in sweep::rank_counts() {
        for collective in planned() {
            let problems = sweep::problems(collective, n).expect("legal");
            assert!(!problems.is_empty(), "{collective} over {n} ranks is tried");
            for algorithm in algorithms_for(collective) {
                for problem in &problems {
                    let proof = sweep::prove(algorithm, problem).unwrap_or_else(|error| {
                        panic!("{collective} {} n={n} {problem:?}: {error}", algorithm.name)
                    });
                    assert_eq!(proof.n, n);
                    let is_quiet = n == 1 || algorithm.links == Links::Direct;
                    assert!(!is_quiet || proof.messages == 0);
                    proofs += 1;
                }
            }
        }
    }
    assert!(proofs > 3000, "{proofs} proofs");
}
