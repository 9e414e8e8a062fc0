//! Faults on purpose: the grammar of `MUSTER_EMU_FAULT`, pure, so that the tool can use it too.
//!
//! ```text
//! faults = fault *( ";" fault )
//! fault  = kind ":" key "=" value *( "," key "=" value )
//! ```
//!
//! | kind | keys besides `rank` and `comm` | what happens on that rank |
//! |---|---|---|
//! | `hang` | `op`, `k` | the operator never completes |
//! | `async_error` | `op`, `k` | it fails on the device, and the communicator reports an error |
//! | `device_lost` | `op`, `k` | the device is gone from that operator on |
//! | `link_down` | `peer`, `after` | after so many operators none gets through to the peer, on both sides |
//! | `slow` | `ms`, `op` | every operator begins that much later |
//! | `oom` | `bytes` | the device of the rank has no more than that many bytes |
//! | `init_timeout` | | it never reaches the others when the communicator is made |
//! | `bitflip` | `op`, `k`, `element`, `bit` | a bit of the operator's result is the other way round |
//! | `stale` | `op`, `k`, `element` | the result is what its buffer held before the operator |
//! | `zero` | `op`, `k`, `element` | the result is zero |
//!
//! `rank` is a rank of the communicator. `comm` is the name of one, or `*` for all of them; without
//! it the fault concerns the first communicator of more than one rank that a device joins. `k`
//! counts the operators of kind `op` (all kinds where it is `any`) on that communicator, from 1.

mod error;

use std::fmt;

use muster_comm::types::closest;

pub use self::error::FaultError;

/// Most faults of one run; more would be a mistake.
pub const FAULTS_MAX: usize = 64;

/// The kinds of operators that a fault can name.
pub const OPERATORS: [&str; 15] = [
    "all_gather",
    "all_gather_v",
    "all_reduce",
    "all_to_all",
    "all_to_all_v",
    "all_to_all_vc",
    "barrier",
    "batch_send_recv",
    "broadcast",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_v",
    "scatter",
    "send",
];
/// The word for operators of every kind.
const ANY: &str = "any";

const KINDS: [&str; 10] = [
    "async_error",
    "bitflip",
    "device_lost",
    "hang",
    "init_timeout",
    "link_down",
    "oom",
    "slow",
    "stale",
    "zero",
];
/// Bits of the largest element type, the 16 bytes of `HCCL_DATA_TYPE_INT128`.
const BITS_MAX: u64 = 128;

/// Which communicators a fault concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// All of them.
    All,
    /// The first one of more than one rank that a device joins.
    First,
    /// The one of this name.
    Named(String),
}

impl Where {
    /// Whether the communicator of this name is concerned; `is_first` says whether it is the first
    /// one of more than one rank that its device joins.
    #[must_use]
    pub fn concerns(&self, name: &str, is_first: bool) -> bool {
        match self {
            Self::All => true,
            Self::First => is_first,
            Self::Named(named) => named == name,
        }
    }
}

/// The operator at which something happens: the `k`-th of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// One of [`OPERATORS`]; `None` for operators of every kind.
    pub operator: Option<&'static str>,
    /// From 1.
    pub k: u64,
}

/// What becomes of an element of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// One bit is the other way round. It is counted from the lowest, modulo the bits that an element
    /// has; `None` is the second highest: in a float it belongs to the exponent, so that no
    /// tolerance hides it.
    Bitflip(Option<u32>),
    /// What the buffer held before the operator.
    Stale,
    /// Zero.
    Zero,
}

impl Wrong {
    /// The kind of fault by which it is asked for.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bitflip(_) => "bitflip",
            Self::Stale => "stale",
            Self::Zero => "zero",
        }
    }
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The operator fails on the device.
    AsyncError(At),
    /// The device is gone from that operator on.
    DeviceLost(At),
    /// The operator never completes.
    Hang(At),
    /// The rank never reaches the others when the communicator is made.
    InitTimeout,
    /// No operator gets through between the rank and a peer.
    LinkDown {
        /// The peer, as a rank of the communicator.
        peer: u32,
        /// Operators that still get through.
        after: u64,
    },
    /// The device of the rank has no more than this many bytes.
    Oom {
        /// The bytes.
        bytes: u64,
    },
    /// Operators begin later.
    Slow {
        /// One of [`OPERATORS`]; `None` for operators of every kind.
        operator: Option<&'static str>,
        /// By how much, in milliseconds.
        ms: u64,
    },
    /// The operator ends well, with a wrong result.
    Spoil {
        /// Which operator.
        at: At,
        /// What is wrong with the result.
        wrong: Wrong,
        /// Which element of it, from 0 in the order of the rank's blocks or receives; `None` is all.
        element: Option<u64>,
    },
}

impl Kind {
    /// The one operator at which it happens, if it is of that sort.
    #[must_use]
    pub const fn at(&self) -> Option<At> {
        match self {
            Self::AsyncError(at)
            | Self::DeviceLost(at)
            | Self::Hang(at)
            | Self::Spoil { at, .. } => Some(*at),
            Self::InitTimeout | Self::LinkDown { .. } | Self::Oom { .. } | Self::Slow { .. } => {
                None
            }
        }
    }
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What happens.
    pub kind: Kind,
    /// To which rank of the communicator.
    pub rank: u32,
    /// On which communicators.
    pub place: Where,
}

/// Reads the text of `MUSTER_EMU_FAULT`. Spaces around parts do not matter, and neither do empty
/// parts between semicolons.
///
/// # Errors
/// The first part that is wrong, with what is allowed there.
pub fn parse(text: &str) -> Result<Vec<Fault>, FaultError> {
    let parts: Vec<&str> = text
        .split(';')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect();
    if parts.len() > FAULTS_MAX {
        return Err(FaultError::TooMany { got: parts.len() });
    }
    parts.into_iter().map(one).collect()
}

fn one(text: &str) -> Result<Fault, FaultError> {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    let name = name.trim();
    let Some(kind) = KINDS.into_iter().find(|kind| *kind == name) else {
        return Err(FaultError::Kind {
            got: name.to_owned(),
            suggestion: closest(name, KINDS),
        });
    };
    let keys = Keys::read(kind, rest)?;
    let rank = keys.number("rank", None)?;
    let place = match keys.find("comm") {
        None => Where::First,
        Some("*") => Where::All,
        Some(name) => Where::Named(name.to_owned()),
    };
    let at = || -> Result<At, FaultError> {
        Ok(At {
            operator: keys.operator()?,
            k: keys.at_least("k", 1, Some(1))?,
        })
    };
    let kind = match kind {
        "async_error" => Kind::AsyncError(at()?),
        "device_lost" => Kind::DeviceLost(at()?),
        "hang" => Kind::Hang(at()?),
        "init_timeout" => Kind::InitTimeout,
        "link_down" => Kind::LinkDown {
            peer: keys.rank("peer")?,
            after: keys.number("after", Some(0))?,
        },
        "oom" => Kind::Oom {
            bytes: keys.number("bytes", None)?,
        },
        "slow" => Kind::Slow {
            operator: keys.operator()?,
            ms: keys.number("ms", None)?,
        },
        wrong => Kind::Spoil {
            at: at()?,
            element: keys.optional("element")?,
            wrong: match wrong {
                "bitflip" => Wrong::Bitflip(keys.bit()?),
                "stale" => Wrong::Stale,
                _ => Wrong::Zero,
            },
        },
    };
    let fault = Fault {
        kind,
        rank: u32::try_from(rank).map_err(|_| keys.value("rank", "a rank"))?,
        place,
    };
    if matches!(fault.kind, Kind::LinkDown { peer, .. } if peer == fault.rank) {
        return Err(keys.value("peer", "another rank than rank"));
    }
    Ok(fault)
}

/// The keys of one fault.
struct Keys<'a> {
    kind: &'static str,
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Keys<'a> {
    fn read(kind: &'static str, text: &'a str) -> Result<Self, FaultError> {
        let allowed: &'static [&'static str] = match kind {
            "bitflip" => &["rank", "comm", "op", "k", "element", "bit"],
            "init_timeout" => &["rank", "comm"],
            "link_down" => &["rank", "comm", "peer", "after"],
            "oom" => &["rank", "comm", "bytes"],
            "slow" => &["rank", "comm", "op", "ms"],
            "stale" | "zero" => &["rank", "comm", "op", "k", "element"],
            _ => &["rank", "comm", "op", "k"],
        };
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let Some((key, value)) = part.split_once('=') else {
                return Err(FaultError::Form {
                    got: part.to_owned(),
                });
            };
            let (key, value) = (key.trim(), value.trim());
            if !allowed.contains(&key) {
                let got = key.to_owned();
                return Err(FaultError::Key { kind, got, allowed });
            }
            if pairs.iter().any(|(known, _)| *known == key) {
                let key = key.to_owned();
                return Err(FaultError::Twice { kind, key });
            }
            pairs.push((key, value));
        }
        Ok(Self { kind, pairs })
    }

    fn find(&self, key: &str) -> Option<&'a str> {
        let pair = self.pairs.iter().find(|(known, _)| *known == key);
        pair.map(|(_, value)| *value)
    }

    fn value(&self, key: &'static str, allowed: &str) -> FaultError {
        FaultError::Value {
            kind: self.kind,
            key,
            got: self.find(key).unwrap_or_default().to_owned(),
            allowed: allowed.to_owned(),
        }
    }

    fn number(&self, key: &'static str, default: Option<u64>) -> Result<u64, FaultError> {
        self.at_least(key, 0, default)
    }

    fn at_least(
        &self,
        key: &'static str,
        least: u64,
        default: Option<u64>,
    ) -> Result<u64, FaultError> {
        let Some(text) = self.find(key) else {
            return default.ok_or(FaultError::Missing {
                kind: self.kind,
                key,
            });
        };
        let number = text.parse().ok().filter(|number| *number >= least);
        number.ok_or_else(|| self.value(key, &format!("a whole number from {least}")))
    }

    fn optional(&self, key: &'static str) -> Result<Option<u64>, FaultError> {
        self.find(key).map(|_| self.number(key, None)).transpose()
    }

    fn bit(&self) -> Result<Option<u32>, FaultError> {
        let bit = self.optional("bit")?;
        if bit.is_some_and(|bit| bit >= BITS_MAX) {
            return Err(self.value("bit", &format!("0 to {}", BITS_MAX - 1)));
        }
        Ok(bit.and_then(|bit| u32::try_from(bit).ok()))
    }

    fn rank(&self, key: &'static str) -> Result<u32, FaultError> {
        let number = self.number(key, None)?;
        u32::try_from(number).map_err(|_| self.value(key, "a rank"))
    }

    fn operator(&self) -> Result<Option<&'static str>, FaultError> {
        match self.find("op") {
            None | Some(ANY) => Ok(None),
            Some(name) => match OPERATORS.into_iter().find(|known| *known == name) {
                Some(known) => Ok(Some(known)),
                None => Err(self.value("op", &format!("{ANY}, {}", OPERATORS.join(", ")))),
            },
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = |f: &mut fmt::Formatter<'_>, kind: &str| write!(f, "{kind}:rank={}", self.rank);
        let at = |f: &mut fmt::Formatter<'_>, kind: &str, at: At| {
            head(f, kind)?;
            write!(f, ",op={},k={}", at.operator.unwrap_or(ANY), at.k)
        };
        match self.kind {
            Kind::AsyncError(place) => at(f, "async_error", place)?,
            Kind::DeviceLost(place) => at(f, "device_lost", place)?,
            Kind::Hang(place) => at(f, "hang", place)?,
            Kind::InitTimeout => head(f, "init_timeout")?,
            Kind::LinkDown { peer, after } => {
                head(f, "link_down")?;
                write!(f, ",peer={peer},after={after}")?;
            }
            Kind::Oom { bytes } => {
                head(f, "oom")?;
                write!(f, ",bytes={bytes}")?;
            }
            Kind::Slow { operator, ms } => {
                head(f, "slow")?;
                write!(f, ",op={},ms={ms}", operator.unwrap_or(ANY))?;
            }
            Kind::Spoil {
                at: place,
                wrong,
                element,
            } => {
                at(f, wrong.name(), place)?;
                if let Some(element) = element {
                    write!(f, ",element={element}")?;
                }
                if let Wrong::Bitflip(Some(bit)) = wrong {
                    write!(f, ",bit={bit}")?;
                }
            }
        }
        match &self.place {
            Where::All => f.write_str(",comm=*"),
            Where::First => Ok(()),
            Where::Named(name) => write!(f, ",comm={name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_and_written_the_same() {
        let text = "hang:rank=2,op=all_gather,k=3;async_error:rank=0,op=any,k=1,comm=*;\
                    device_lost:rank=1,op=send,k=2;link_down:rank=1,peer=2,after=7,comm=tp-0;\
                    slow:rank=3,op=any,ms=50;oom:rank=1,bytes=1048576;init_timeout:rank=2;\
                    bitflip:rank=1,op=all_reduce,k=2,element=5,bit=127;bitflip:rank=0,op=any,k=1;\
                    stale:rank=0,op=broadcast,k=1,element=0;zero:rank=3,op=any,k=9,comm=*";
        let faults = parse(text).unwrap();
        assert_eq!(faults.len(), 11);
        let hang = Kind::Hang(At {
            operator: Some("all_gather"),
            k: 3,
        });
        assert_eq!(
            faults[0],
            Fault {
                kind: hang,
                rank: 2,
                place: Where::First
            }
        );
        let written: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(written.join(";"), text);
    }

    #[test]
    fn spaces_empty_parts_and_defaults_are_taken_as_meant() {
        assert_eq!(parse(""), Ok(Vec::new()));
        assert_eq!(parse(" ; "), Ok(Vec::new()));
        let faults = parse(" hang : rank = 1 ; ").unwrap();
        assert_eq!(faults[0].to_string(), "hang:rank=1,op=any,k=1");
    }

    #[test]
    fn what_is_wrong_is_named_with_what_is_allowed() {
        for (text, what) in [
            ("hung:rank=1", "did you mean hang?"),
            ("hang", "hang needs rank"),
            ("hang:op=all_gather", "hang needs rank"),
            ("hang:rank=1,rank=2", "hang has rank twice"),
            ("hang:rank=-1", "a whole number from 0"),
            ("hang:rank=4294967296", "a rank"),
            ("hang:rank=1,k=0", "a whole number from 1"),
            ("hang:rank=1,op=allgather", "all_gather"),
            ("hang:rank=1,peer=2", "allowed: rank, comm, op, k"),
            ("hang:rank", "the form is"),
            ("slow:rank=1", "slow needs ms"),
            ("oom:rank=1,bytes=lots", "a whole number from 0"),
            ("link_down:rank=1", "link_down needs peer"),
            ("link_down:rank=1,peer=1", "another rank"),
            ("bitflip:rank=1,bit=128", "0 to 127"),
            ("zero:rank=1,element=x", "a whole number from 0"),
            ("stale:rank=1,bit=1", "allowed: rank, comm, op, k, element"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
        let many = "init_timeout:rank=0;".repeat(FAULTS_MAX + 1);
        assert!(matches!(parse(&many), Err(FaultError::TooMany { .. })));
    }
}
