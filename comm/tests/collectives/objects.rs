//! Objects: any shape and size, and errors that reach everybody.

use std::collections::BTreeMap;

use muster_comm::collective::Communicator;
use muster_comm::error::{CommError, ErrorKind, Field};
use muster_comm::types::Rank;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};

use crate::support::{Setup, ranks};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Shape {
    Nothing,
    Pair(u8, i64),
    Named { text: String, list: Vec<f64> },
    Tree(Vec<Self>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Config {
    name: String,
    layers: BTreeMap<String, Vec<u32>>,
    best: Option<(i32, String)>,
    shape: Shape,
}

fn config(rank: usize) -> Config {
    let leaf = |i: usize| Shape::Named {
        text: "x".repeat(i * 7),
        list: vec![0.5; i],
    };
    let layer = |i: usize| (format!("layer {i}"), vec![7; i * rank]);
    Config {
        name: format!("rank {rank}"),
        layers: (0..rank).map(layer).collect(),
        best: rank.is_multiple_of(2).then(|| (-1, "é".to_owned())),
        shape: Shape::Tree(vec![Shape::Nothing, Shape::Pair(1, -2), leaf(rank)]),
    }
}

/// Every collective of objects, where rank `r` has `make(r)`.
fn exchange<T>(comm: &Communicator, make: impl Fn(usize) -> T) -> Result<(), CommError>
where
    T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let (n, me) = (comm.size(), comm.rank());
    let (mine, all) = (make(me), (0..n).map(&make).collect::<Vec<T>>());
    assert_eq!(comm.all_gather_object(&mine)?, all);
    for root in 0..n {
        let here = me == root;
        let gathered = comm.gather_object(&mine, root)?;
        assert_eq!(gathered.as_ref(), here.then_some(&all));
        let given = if here { Some(&mine) } else { None };
        assert_eq!(comm.broadcast_object(given, root)?, all[root]);
        let list: &[T] = if here { &all } else { &[] };
        assert_eq!(comm.scatter_object(list, root)?, mine);
    }
    Ok(())
}

#[test]
fn objects_of_every_shape_and_size_arrive_whole() {
    for (n, setup) in [
        (1, Setup::shm()),
        (2, Setup::shm()),
        (5, Setup::shm()),
        (3, Setup::tcp()),
    ] {
        let results = ranks(n, &setup, |world| {
            let comm = world.everyone()?;
            exchange(&comm, |_| ())?;
            exchange(&comm, |_| Vec::<u64>::new())?;
            exchange(&comm, config)?;
            exchange(&comm, |rank| "z".repeat(rank * 20_000))?;
            exchange(&comm, |rank| vec![Some(rank); 1000 - rank])
        });
        for result in results {
            result.unwrap();
        }
    }
}

#[test]
fn objects_of_several_segments_beside_empty_ones_arrive_whole() {
    let results = ranks(3, &Setup::shm(), |world| {
        let comm = world.everyone()?;
        let sizes = [5 << 20, 0, 100_000];
        exchange(&comm, |rank| vec![rank as u8; sizes[rank]])
    });
    for result in results {
        result.unwrap();
    }
}

#[test]
fn an_object_over_the_limit_is_one_error_on_all_ranks_and_the_group_goes_on() {
    for setup in [Setup::shm(), Setup::tcp()] {
        let results = ranks(4, &setup, |world| {
            let comm = world.everyone().unwrap();
            comm.set_object_bytes_max(1000);
            // A text of 998 bytes takes 1000: that is allowed, one more is not.
            let text = |len: usize| "a".repeat(len);
            exchange(&comm, |_| text(998)).unwrap();
            let object = text(if comm.rank() == 2 { 999 } else { 3 });
            let big = |rank: usize| rank == 2;
            let list: Vec<String> = (0..4)
                .map(|rank| "b".repeat(if big(rank) { 5000 } else { 1 }))
                .collect();
            let errors = [
                comm.all_gather_object(&object).map(drop).unwrap_err(),
                comm.gather_object(&object, 0).map(drop).unwrap_err(),
                comm.broadcast_object(Some(&object), 2)
                    .map(drop)
                    .unwrap_err(),
                comm.scatter_object(&list, 1).map(drop).unwrap_err(),
            ];
            exchange(&comm, |rank| rank).unwrap();
            errors.map(|error| {
                assert!(error.is_recoverable(), "{error}");
                error.kind().clone()
            })
        });
        for kinds in &results {
            assert_eq!(kinds, &results[0]);
            for (kind, rank) in kinds.iter().zip([2, 2, 2, 1]) {
                let ErrorKind::Resource { what, need, have } = kind else {
                    panic!("{kind}");
                };
                assert!(what.contains(&format!("rank {rank}")), "{kind}");
                assert!(
                    need.contains("bytes") && have.contains("1000 bytes"),
                    "{kind}"
                );
            }
        }
    }
}

/// Has no encoding.
#[derive(Debug, PartialEq, Deserialize)]
struct Stubborn(bool);

impl Serialize for Stubborn {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 {
            return Err(serde::ser::Error::custom("will not"));
        }
        serializer.serialize_newtype_struct("Stubborn", &self.0)
    }
}

#[test]
fn an_object_that_cannot_be_encoded_is_an_error_everywhere_and_the_group_goes_on() {
    let results = ranks(3, &Setup::shm(), |world| {
        let comm = world.everyone().unwrap();
        let mine = Stubborn(comm.rank() == 1);
        let list = [Stubborn(false), Stubborn(true), Stubborn(false)];
        let errors = [
            comm.all_gather_object(&mine).map(drop).unwrap_err(),
            comm.gather_object(&mine, 0).map(drop).unwrap_err(),
            comm.broadcast_object(Some(&mine), 1).map(drop).unwrap_err(),
            comm.scatter_object(&list, 1).map(drop).unwrap_err(),
            comm.broadcast_object::<u8>(None, 1).map(drop).unwrap_err(),
            comm.scatter_object::<u8>(&[1, 2], 1).map(drop).unwrap_err(),
        ];
        exchange(&comm, |rank| rank).unwrap();
        errors.map(|error| error.kind().clone())
    });
    for (rank, kinds) in results.iter().enumerate() {
        for kind in kinds {
            match kind {
                ErrorKind::InvalidArgument { .. } => assert_eq!(rank, 1, "{kind}"),
                ErrorKind::Malformed { peer, .. } => {
                    assert_eq!(*peer, Rank(1), "{kind}");
                    assert_ne!(rank, 1, "{kind}");
                }
                other => panic!("rank {rank}: {other}"),
            }
        }
    }
}

#[test]
fn an_object_of_another_type_is_a_mismatch_that_names_the_odd_rank_alike() {
    for setup in [Setup::shm(), Setup::tcp()] {
        let results = ranks(4, &setup, |world| {
            let comm = world.everyone().unwrap();
            let error = if comm.rank() == 2 {
                comm.all_gather_object(&(1_u8, 2_u8, u64::MAX)).map(drop)
            } else {
                comm.all_gather_object(&"a text".to_owned()).map(drop)
            }
            .unwrap_err();
            assert!(error.is_recoverable(), "{error}");
            comm.barrier().unwrap();
            let line = error.verdict().unwrap().line();
            assert!(line.contains("VERDICT MISMATCH who=rank 2 "), "{line}");
            (error.kind().clone(), line)
        });
        for (kind, line) in &results {
            assert_eq!((kind, line), (&results[0].0, &results[0].1));
            let ErrorKind::Mismatch { field, peer, .. } = kind else {
                panic!("{kind}");
            };
            assert_eq!((*field, *peer), (Field::Dtype, Rank(2)), "{kind}");
        }
    }
}

#[test]
fn who_decodes_an_object_of_another_type_names_the_odd_rank_though_others_decode_nothing() {
    let results = ranks(4, &Setup::shm(), |world| {
        let comm = world.everyone().unwrap();
        let odd = comm.rank() == 3;
        let gathered = if odd {
            comm.gather_object(&(1_u8, 2_u8, u64::MAX), 0).map(drop)
        } else {
            comm.gather_object(&"a text".to_owned(), 0).map(drop)
        };
        let sent = if odd {
            comm.broadcast_object::<(u64, String)>(None, 0).map(drop)
        } else {
            comm.broadcast_object(Some(&7_u8), 0).map(drop)
        };
        comm.barrier().unwrap();
        let kind = |result: Result<(), CommError>| result.err().map(|error| error.kind().clone());
        (kind(gathered), kind(sent))
    });
    for (rank, (gathered, sent)) in results.iter().enumerate() {
        assert_eq!((gathered.is_some(), sent.is_some()), (rank == 0, rank == 3));
        for kind in [gathered, sent].into_iter().flatten() {
            let ErrorKind::Mismatch {
                rank: usual, peer, ..
            } = kind
            else {
                panic!("{kind}");
            };
            assert_eq!((*usual, *peer), (Rank(0), Rank(3)), "{kind}");
        }
    }
}
