//! Dispatch over ranks that are threads, checked by recount.

use muster_comm::error::CommError;
use muster_comm::layout::{FrameworkLayout, Layout};
use muster_comm::world::World;

use super::*;
use crate::bench::ground::Ground;
use crate::moe::check;
use crate::moe::layer::{Layer, Payload};
use crate::moe::routing::Router;
use crate::moe::workload::{Shape, Workload};

struct Setup {
    layout: FrameworkLayout,
    shape: Shape,
    hidden: usize,
    tokens: usize,
    workload: Workload,
    payload: Payload,
    dispatcher: Dispatcher,
}

const DISPATCHERS: [Dispatcher; 5] = [
    Dispatcher::AllGather,
    Dispatcher::AllToAll,
    Dispatcher::Capacity(0.7),
    Dispatcher::Capacity(3.0),
    Dispatcher::Deduplicated,
];

fn step(world: &World, setup: &Setup) -> Result<(check::Wrong, (usize, usize)), CommError> {
    let place = |comm| Ok(Ground::Host(comm));
    let layer = Layer::new(world, &setup.layout, setup.shape, setup.hidden, &place)?;
    let router = Router::new(setup.workload, setup.shape, 3, 1);
    let routing_of = |source: usize| router.route(source, world.size(), setup.tokens);
    let routing = routing_of(world.rank().index());
    let (dispatcher, payload, tokens) = (setup.dispatcher, setup.payload, setup.tokens);
    let mut watch = Watch::default();
    let counts = || check::counts_expected(&layer, dispatcher, &routing_of);
    let mut recount = Recount::new(&counts, true);
    let outcome = dispatcher.step(&layer, payload, &routing, tokens, &mut watch, &mut recount)?;
    let received = outcome.received.unwrap_or_default();
    let expected = check::rows_expected(&layer, dispatcher, tokens, &routing_of);
    let mut wrong = recount.wrong();
    wrong.add(check::received(
        &layer,
        &expected,
        &received.tokens,
        &received.probs,
    ));
    let combined = &outcome.combined;
    wrong.add(check::combined(
        &layer, dispatcher, payload, tokens, &routing, combined,
    ));
    assert!(
        watch
            .take()
            .windows(2)
            .all(|pair| pair[0].end_ns <= pair[1].start_ns)
    );
    Ok((wrong, (outcome.rows_sent, outcome.rows_received)))
}

fn payloads_and_dispatchers() -> impl Iterator<Item = (Payload, Dispatcher)> {
    let payloads = [Payload::Bf16, Payload::F32, Payload::Fp8];
    payloads
        .into_iter()
        .flat_map(|payload| DISPATCHERS.map(|dispatcher| (payload, dispatcher)))
}

#[test]
fn tokens_come_to_their_experts_and_back_for_every_workload_layout_and_payload() {
    let layouts = [
        (4, 1, 4, 1),
        (8, 2, 4, 1),
        (8, 2, 4, 2),
        (4, 4, 2, 2),
        (8, 2, 2, 4),
        (4, 1, 1, 1),
    ];
    let workloads = [
        "balanced",
        "lognormal:1",
        "hot-rank:1.5",
        "uneven:2",
        "zipf:1,by-id",
    ];
    for (world, tp, ep, etp) in layouts {
        let ranks = usize::try_from(world).expect("small");
        let layout = Layout::builder()
            .world(world)
            .tp(tp)
            .ep(ep)
            .etp(etp)
            .build()
            .map(FrameworkLayout::from)
            .expect("legal");
        for workload in workloads {
            for (payload, dispatcher) in payloads_and_dispatchers() {
                let setup = Setup {
                    layout: layout.clone(),
                    shape: Shape {
                        experts: 16,
                        top_k: 3,
                        ranks: usize::try_from(ep).expect("small"),
                    },
                    hidden: 144,
                    tokens: 13,
                    workload: workload.parse().expect("a workload"),
                    payload,
                    dispatcher,
                };
                if setup.workload.check(setup.shape, ranks).is_err() {
                    continue;
                }
                let results = World::threads(ranks, |world| step(&world, &setup)).expect("threads");
                let mut rows = (0, 0);
                for result in results {
                    let (wrong, of_rank) = result.expect("no call fails");
                    assert_eq!(
                        wrong,
                        check::Wrong::default(),
                        "{workload} {dispatcher} {payload:?} {world} {tp} {ep} {etp}"
                    );
                    rows = (rows.0 + of_rank.0, rows.1 + of_rank.1);
                }
                assert_eq!(rows.0, rows.1);
                if dispatcher == Dispatcher::AllToAll {
                    assert_eq!(rows.0, 13 * 3 * ranks);
                }
            }
        }
    }
}

#[test]
fn a_row_that_is_not_what_the_routing_says_is_named() {
    let layout = Layout::builder().world(2).ep(2).build();
    let layout = FrameworkLayout::from(layout.expect("legal"));
    let shape = Shape {
        experts: 4,
        top_k: 1,
        ranks: 2,
    };
    let results = World::threads(2, |world| {
        let layer = Layer::new(&world, &layout, shape, 16, &|comm| Ok(comm.into()))?;
        let router = Router::new(Workload::Balanced, shape, 1, 0);
        let routing_of = |source: usize| router.route(source, 2, 8);
        let routing = routing_of(world.rank().index());
        let (how, payload) = (Dispatcher::AllToAll, Payload::Bf16);
        let counts = || check::counts_expected(&layer, how, &routing_of);
        let mut recount = Recount::new(&counts, true);
        let mut watch = Watch::default();
        let mut outcome = how.step(&layer, payload, &routing, 8, &mut watch, &mut recount)?;
        let mut got = outcome.received.take().unwrap_or_default();
        let expected = check::rows_expected(&layer, how, 8, &routing_of);
        let mut texts = Vec::new();
        got.tokens.swap(4, 4 + 16);
        texts.push(check::received(&layer, &expected, &got.tokens, &got.probs));
        got.tokens.swap(4, 4 + 16);
        got.probs[2] += 0.25;
        texts.push(check::received(&layer, &expected, &got.tokens, &got.probs));
        outcome.combined[17] += 1.0;
        texts.push(check::combined(
            &layer,
            how,
            payload,
            8,
            &routing,
            &outcome.combined,
        ));
        outcome.combined.pop();
        texts.push(check::combined(
            &layer,
            how,
            payload,
            8,
            &routing,
            &outcome.combined,
        ));
        Ok::<_, CommError>(texts)
    });
    for texts in results.expect("threads") {
        let texts = texts.expect("no call fails");
        let first = |at: usize| texts[at].first.clone().unwrap_or_default();
        assert!(
            first(0).contains("is not token") && texts[0].elements == 2,
            "{texts:?}"
        );
        assert!(
            first(1).contains("the weight of token") && texts[1].elements == 1,
            "{texts:?}"
        );
        assert!(
            first(2).contains("combined token 1") && texts[2].elements == 1,
            "{texts:?}"
        );
        assert!(first(3).contains("combined elements"), "{texts:?}");
    }
}
