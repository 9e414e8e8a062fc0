//! What every workload promises of its routing.

use super::super::skew::Skew;
use super::*;

const SHAPES: [(usize, usize, usize); 6] = [
    (8, 2, 4),
    (128, 8, 4),
    (256, 8, 32),
    (160, 8, 8),
    (512, 10, 16),
    (6, 6, 3),
];

fn shapes() -> impl Iterator<Item = Shape> {
    SHAPES.into_iter().map(|(experts, top_k, ranks)| Shape {
        experts,
        top_k,
        ranks,
    })
}

fn workloads() -> Vec<Workload> {
    [
        "balanced",
        "uniform",
        "lognormal:0",
        "lognormal:1",
        "zipf:0.5",
        "zipf:1,by-id",
        "hot-experts:4,0.4",
        "hot-rank:1.5",
        "rotating:1.2",
        "uneven:2",
    ]
    .iter()
    .map(|name| name.parse().expect("a workload"))
    .collect()
}

/// Loads of all experts over all sources.
fn loads(workload: Workload, shape: Shape, sources: usize, tokens: usize) -> Vec<u64> {
    let router = Router::new(workload, shape, 11, 5);
    let mut loads = vec![0; shape.experts];
    for source in 0..sources {
        let counts = router.route(source, sources, tokens).counts(shape.experts);
        for (load, count) in loads.iter_mut().zip(counts) {
            *load += count;
        }
    }
    loads
}

#[test]
fn every_token_gets_top_k_different_experts_that_exist() {
    for shape in shapes() {
        for workload in workloads() {
            if workload.check(shape, 4).is_err() {
                continue;
            }
            let router = Router::new(workload, shape, 3, 2);
            let sum: usize = (0..4)
                .map(|source| router.route(source, 4, 50).tokens())
                .sum();
            assert_eq!(sum, 200, "{workload} {shape:?}");
            let routing = router.route(0, 4, 50);
            for token in 0..routing.tokens() {
                let mut experts = routing.experts_of(token).to_vec();
                experts.sort_unstable();
                experts.dedup();
                assert_eq!(experts.len(), shape.top_k, "{workload} {shape:?}");
                assert!(
                    experts
                        .iter()
                        .all(|expert| (*expert as usize) < shape.experts)
                );
                let units = 1..u8::try_from(WEIGHT_UNITS).expect("small");
                assert!(
                    routing
                        .weights_of(token)
                        .iter()
                        .all(|weight| units.contains(weight))
                );
            }
        }
    }
}

#[test]
fn a_routing_is_a_function_of_seed_step_source_and_token() {
    let shape = Shape {
        experts: 128,
        top_k: 8,
        ranks: 4,
    };
    for workload in workloads() {
        let route =
            |seed, step, source| Router::new(workload, shape, seed, step).route(source, 4, 20);
        assert_eq!(route(1, 2, 0), route(1, 2, 0));
        if workload != Workload::Balanced {
            assert_ne!(route(1, 2, 0).experts, route(1, 3, 0).experts, "{workload}");
            assert_ne!(route(1, 2, 0).experts, route(2, 2, 0).experts, "{workload}");
            assert_ne!(route(1, 2, 0).experts, route(1, 2, 1).experts, "{workload}");
        }
        // A longer run begins with the shorter one.
        if !matches!(workload, Workload::Uneven { .. } | Workload::Balanced) {
            let longer = Router::new(workload, shape, 1, 2).route(0, 4, 40);
            assert_eq!(
                longer.experts_of(19),
                route(1, 2, 0).experts_of(19),
                "{workload}"
            );
        }
    }
}

#[test]
fn dealt_experts_are_balanced_by_expert_and_by_rank_even_for_few_tokens() {
    for shape in shapes() {
        let loads = loads(Workload::Balanced, shape, 4, shape.experts);
        assert!(
            Skew::of_counts(&loads).max_over_mean < 1.0 + 1e-9,
            "{shape:?}"
        );
    }
    // One token on each of 16 ranks: even spacing of experts would leave half the ranks empty.
    let shape = Shape {
        experts: 256,
        top_k: 8,
        ranks: 16,
    };
    let loads = loads(Workload::Balanced, shape, 16, 1);
    let ranks: Vec<u64> = loads.chunks(16).map(|part| part.iter().sum()).collect();
    assert_eq!(ranks, [8; 16]);
}

#[test]
fn the_loads_are_what_was_asked_within_sampling_noise() {
    for shape in shapes() {
        for workload in workloads() {
            if workload.check(shape, 8).is_err() {
                continue;
            }
            let loads = loads(workload, shape, 8, 2000);
            let all = (16_000 * shape.top_k) as f64;
            let parts = workload.expected(shape, 11, 5);
            assert!(
                (parts.iter().sum::<f64>() - 1.0).abs() < 1e-6,
                "{workload} {shape:?}"
            );
            for (expert, (load, part)) in loads.iter().zip(parts).enumerate() {
                let expected = part * all;
                // Six standard deviations of a binomial count, and the error of the formula for
                // drawing without replacement from few experts.
                let tolerance = 6.0 * (expected + 1.0).sqrt() + 0.06 * expected;
                let off = (*load as f64 - expected).abs();
                assert!(
                    off < tolerance,
                    "{workload} {shape:?}: expert {expert} has {load}, asked {expected}"
                );
            }
        }
    }
}

#[test]
fn a_hot_rank_gets_its_ratio_and_rotates() {
    let shape = Shape {
        experts: 64,
        top_k: 4,
        ranks: 4,
    };
    let workload: Workload = "rotating:3".parse().expect("a workload");
    for step in 0..4 {
        let router = Router::new(workload, shape, 1, step);
        let counts = router.route(0, 1, 20_000).counts(64);
        let ranks: Vec<u64> = counts.chunks(16).map(|part| part.iter().sum()).collect();
        let hot = usize::try_from(step).expect("small");
        let others = (ranks.iter().sum::<u64>() - ranks[hot]) as f64 / 3.0;
        let ratio = ranks[hot] as f64 / others;
        assert!((ratio - 3.0).abs() < 0.1, "step {step}: {ratio}");
    }
}

#[test]
fn masked_choices_of_a_token_are_not_counted() {
    let routing = Routing::new(vec![0, 1, 0, 2, 3, 2, MASKED, 3], 2, 1, 0);
    assert_eq!(routing.counts(4), [2, 1, 2, 2]);
}

#[test]
fn words_are_workloads_or_a_sentence_says_what_is_allowed() {
    for workload in workloads() {
        assert_eq!(workload.to_string().parse(), Ok(workload));
    }
    let refused = |word: &str| word.parse::<Workload>().expect_err(word).to_string();
    assert!(refused("log-normal:1").contains("did you mean lognormal?"));
    assert!(refused("lognormal").contains("lognormal:SIGMA"));
    assert!(refused("lognormal:-1").contains("numbers from 0 to 10"));
    assert!(refused("hot-experts:x,0.5").contains("whole numbers"));
    let shape = Shape {
        experts: 8,
        top_k: 4,
        ranks: 4,
    };
    let check = |word: &str| {
        let workload = word.parse::<Workload>().expect("a workload");
        workload.check(shape, 4).expect_err(word).to_string()
    };
    assert!(check("hot-rank:9").contains("ratios up to 3.000"));
    assert!(check("hot-rank:1,4").contains("from 0 to 3"));
    assert!(check("hot-experts:8,0.5").contains("1 to 7"));
    assert!(check("hot-experts:2,0.9").contains("to 0.500"));
    assert!(check("uneven:4").contains("0 to 3"));
}
