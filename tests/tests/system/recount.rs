//! What `muster moe` says of splits, volumes and imbalance, against a recount from the routing that it
//! wrote down. The recount shares no code with it: it reads the JSON lines, and knows Megatron-LM's
//! rule of groups (expert tensor parallel index fastest, then expert parallel).

use std::path::Path;

use muster_tests::{Ended, muster};
use serde_json::Value;

const EXPERTS: usize = 16;
const TOP_K: usize = 4;
const HIDDEN: usize = 128;

/// The layer of a test.
#[derive(Clone, Copy)]
struct Layer {
    ep: usize,
    etp: usize,
    world: usize,
}

impl Layer {
    /// Expert data parallel, expert parallel and expert tensor parallel index of a rank.
    fn place(self, rank: usize) -> (usize, usize, usize) {
        let rest = rank / self.etp;
        (rest / self.ep, rest % self.ep, rank % self.etp)
    }

    fn owner(self, expert: i64) -> usize {
        usize::try_from(expert).expect("an expert") / (EXPERTS / self.ep)
    }
}

/// The tokens of each rank in the first step: the experts of each.
fn read(path: &Path, world: usize) -> Vec<Vec<Vec<i64>>> {
    let mut tokens = vec![Vec::new(); world];
    for line in std::fs::read_to_string(path).expect("a routing").lines() {
        let value: Value = serde_json::from_str(line).expect("a line");
        if value.get("step").and_then(Value::as_u64).unwrap_or(0) > 0 {
            continue;
        }
        let rank = value["rank"].as_u64().expect("a rank");
        let ids = value["topk_ids"].as_array().expect("ids");
        let ids = ids.iter().map(|id| id.as_i64().expect("an id")).collect();
        tokens[usize::try_from(rank).expect("small")].push(ids);
    }
    tokens
}

/// Rows from a rank to an ep index.
fn rows(layer: Layer, dispatcher: &str, tokens: &[Vec<i64>], mean: usize, to: usize) -> usize {
    let here = |ids: &&Vec<i64>| ids.iter().filter(|id| layer.owner(**id) == to).count();
    match dispatcher {
        "all-to-all" => tokens.iter().map(|ids| here(&ids)).sum(),
        "deduplicated" => tokens.iter().filter(|ids| here(ids) > 0).count(),
        // Everyone gets everything.
        "all-gather" => tokens.len(),
        // What an expert has room for; the rest of the room is padding, which is no row.
        _ => (0..EXPERTS)
            .filter(|expert| layer.owner(i64::try_from(*expert).expect("small")) == to)
            .map(|expert| of_expert(tokens, expert).min(capacity(mean)))
            .sum(),
    }
}

/// Rows of an expert from each rank with `capacity:1`: the mean, rounded up.
fn capacity(mean: usize) -> usize {
    (mean * TOP_K).div_ceil(EXPERTS)
}

/// Selections of an expert.
fn of_expert(tokens: &[Vec<i64>], expert: usize) -> usize {
    let ids = tokens.iter().flatten();
    ids.filter(|id| usize::try_from(**id) == Ok(expert)).count()
}

fn max_over_mean(loads: &[usize]) -> f64 {
    let sum: usize = loads.iter().sum();
    let max = loads.iter().max().copied().unwrap_or(0);
    max as f64 * loads.len() as f64 / sum as f64
}

/// Half the mean difference of two loads, over the mean load.
fn gini(loads: &[usize]) -> f64 {
    let all = || {
        loads
            .iter()
            .flat_map(|a| loads.iter().map(move |b| a.abs_diff(*b)))
    };
    let sum: usize = loads.iter().sum();
    all().sum::<usize>() as f64 / (2 * loads.len() * sum) as f64
}

fn run(layer: Layer, mean: usize, routing: &str, dispatchers: &str, more: &[&str]) -> Ended {
    let (ep, etp) = (layer.ep.to_string(), layer.etp.to_string());
    let (world, mean) = (layer.world.to_string(), mean.to_string());
    let (hidden, experts, top_k) = (HIDDEN.to_string(), EXPERTS.to_string(), TOP_K.to_string());
    let words = [
        "moe",
        "--hidden",
        &hidden,
        "--experts",
        &experts,
        "--top-k",
        &top_k,
        "--ep",
        &ep,
        "--etp",
        &etp,
        "-g",
        &world,
        "-t",
        &mean,
        "-n",
        "1",
        "-w",
        "0",
        "--format",
        "json",
        "-r",
        routing,
        "--dispatcher",
        dispatchers,
    ];
    muster(&[&words[..], more].concat())
}

fn records(ended: &Ended) -> Vec<Value> {
    let document = ended.expect_code(0).json();
    document["records"].as_array().expect("records").clone()
}

fn near(value: &Value, want: f64) {
    let got = value.as_f64().expect("a number");
    assert!((got - want).abs() < 1e-9, "{got} instead of {want}");
}

fn check(layer: Layer, mean: usize, tokens: &[Vec<Vec<i64>>], record: &Value) {
    let dispatcher = record["dispatcher"].as_str().expect("a name");
    let row_bytes = 2 * HIDDEN;
    let (mut all, mut own) = (0, 0);
    for rank in 0..layer.world {
        let (edp, ep, etp) = layer.place(rank);
        let gathers = dispatcher == "all-gather";
        let peers = (0..layer.world).filter(|other| {
            let place = layer.place(*other);
            place.0 == edp && (gathers || place.2 == etp)
        });
        let of = |from: usize, to| rows(layer, dispatcher, &tokens[from], mean, to);
        let received: usize = peers.map(|from| of(from, ep)).sum();
        let copies = if gathers { layer.etp } else { 1 };
        let sent: usize = (0..layer.ep).map(|to| of(rank, to) * copies).sum();
        let row = &record["ranks"][rank];
        assert_eq!(row["tokens"], tokens[rank].len(), "rank {rank}: {record}");
        assert_eq!(row["rows_sent"], sent, "rank {rank}: {record}");
        assert_eq!(row["rows_received"], received, "rank {rank}: {record}");
        all += sent;
        own += of(rank, ep);
    }
    assert_eq!(record["volume"]["rows"], all);
    assert_eq!(record["volume"]["logical_bytes"], all * row_bytes);
    assert_eq!(record["volume"]["off_rank_bytes"], (all - own) * row_bytes);
    let padding = match dispatcher {
        "capacity:1" => layer.world * EXPERTS * capacity(mean) - all,
        _ => 0,
    };
    assert_eq!(record["volume"]["padding_bytes"], padding * row_bytes);
    let ids = || tokens.iter().flatten().flatten();
    let of_expert = |expert: usize| tokens.iter().map(|own| of_expert(own, expert)).sum();
    let experts: Vec<usize> = (0..EXPERTS).map(of_expert).collect();
    let of_rank = |ep: usize| ids().filter(|id| layer.owner(**id) == ep).count();
    let ranks: Vec<usize> = (0..layer.ep).map(of_rank).collect();
    let got = &record["imbalance"]["achieved"];
    near(&got["experts"]["max_over_mean"], max_over_mean(&experts));
    near(&got["experts"]["gini"], gini(&experts));
    near(&got["ranks"]["max_over_mean"], max_over_mean(&ranks));
    near(&got["ranks"]["gini"], gini(&ranks));
    let empty = tokens.iter().filter(|tokens| tokens.is_empty()).count();
    assert_eq!(record["imbalance"]["sources"]["empty"], empty);
}

#[test]
fn splits_volumes_and_imbalance_are_those_of_the_routing_that_was_written_down() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("routing.jsonl");
    let write = ["--write-routing", path.to_str().expect("text")];
    let dispatchers = "all-to-all,deduplicated,all-gather,capacity:1";
    for (ep, etp, world, mean, workload) in [
        (2, 2, 4, 37, "lognormal:1"),
        (4, 1, 4, 37, "balanced"),
        (4, 1, 4, 21, "uneven:2"),
        (2, 1, 4, 24, "zipf:1,by-id"),
        (2, 2, 4, 24, "hot-rank:1.5"),
        (2, 1, 2, 24, "rotating:1.4"),
        (2, 1, 2, 24, "hot-experts:3,0.6"),
        (2, 1, 2, 24, "uniform"),
    ] {
        let layer = Layer { ep, etp, world };
        let made = records(&run(layer, mean, workload, dispatchers, &write));
        let tokens = read(&path, layer.world);
        assert_eq!(made.len(), 4);
        for record in &made {
            check(layer, mean, &tokens, record);
        }
        // What was written is what a replay does.
        let replay = format!("file:{}", path.display());
        let again = records(&run(layer, mean, &replay, dispatchers, &[]));
        for (made, again) in made.iter().zip(&again) {
            assert_eq!(made["volume"], again["volume"]);
            assert_eq!(
                made["imbalance"]["achieved"],
                again["imbalance"]["achieved"]
            );
            assert_eq!(again["imbalance"]["asked"], Value::Null);
        }
    }
}

#[test]
fn the_measured_imbalance_is_the_one_that_was_asked_for() {
    let layer = Layer {
        ep: 4,
        etp: 1,
        world: 4,
    };
    for workload in [
        "balanced",
        "uniform",
        "lognormal:0.5",
        "lognormal:1",
        "zipf:0.5",
        "zipf:1",
        "zipf:1,by-id",
        "hot-experts:2,0.4",
        "hot-rank:2",
        "rotating:2",
        "uneven:1",
    ] {
        let record = &records(&run(layer, 600, workload, "all-to-all", &[]))[0];
        // About 600 selections an expert and 2400 a rank: noise of 4 % and 2 % of a load.
        for (of, tolerance) in [("experts", 0.15), ("ranks", 0.06)] {
            let load = |side: &str| {
                let value = &record["imbalance"][side][of]["max_over_mean"];
                value.as_f64().expect("a number")
            };
            let (asked, got) = (load("asked"), load("achieved"));
            let text = format!("{workload}, {of}: asked {asked}, got {got}");
            assert!((got / asked - 1.0).abs() < tolerance, "{text}");
            let gini = |side: &str| {
                let value = &record["imbalance"][side][of]["gini"];
                value.as_f64().expect("a number")
            };
            assert!((gini("asked") - gini("achieved")).abs() < 0.05, "{text}");
        }
    }
}
