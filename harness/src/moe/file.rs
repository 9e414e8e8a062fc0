//! Routing files: recorded choices of a model, to be replayed. `docs/moe.md` has the formats.
//!
//! - **JSON lines**: an object a token, `{"rank": 0, "topk_ids": [5, 17]}`, with `"step"` where more
//!   than one step was recorded. Tokens of a rank keep their order. `-1` masks a selection.
//! - **npy** (versions 1 to 3, C order, little-endian int32 or int64): `[ranks, tokens, top_k]`, or
//!   `[steps, ranks, tokens, top_k]`.
//!
//! The reader of npy is ours: its header is one line, and the libraries bring a parser of Python.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::routing::{MASKED, Routing};
use super::workload::Shape;

/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// First bytes of an npy file.
const NPY_MAGIC: &[u8] = b"\x93NUMPY";

/// What is wrong with a routing file, with the line or the place in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("routing file {file}{place}: {what}")]
pub struct FileError {
    file: String,
    place: String,
    what: String,
}

/// What a file holds: the choices of each step and source, before they are held against a shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    file: String,
    /// Experts of each token, for each step and source; with the line they stand in, if it has lines.
    steps: Vec<Vec<Vec<Token>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Token {
    experts: Vec<i64>,
    line: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    rank: usize,
    #[serde(default)]
    step: usize,
    topk_ids: Vec<i64>,
}

/// Most steps and ranks of a file: far above what is recorded, far below what would fill memory.
const INDEX_MAX: usize = 65_536;

impl Recorded {
    /// Reads a file; its first bytes say which format it has.
    ///
    /// # Errors
    /// The file cannot be read or is malformed: the line, or the place in the header.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let file = path.display().to_string();
        let failed = |what: String| FileError {
            file: file.clone(),
            place: String::new(),
            what,
        };
        let size = fs::metadata(path)
            .map_err(|error| failed(error.to_string()))?
            .len();
        if size > FILE_BYTES_MAX {
            let most = FILE_BYTES_MAX >> 20;
            return Err(failed(format!(
                "{} MiB, allowed are {most} MiB",
                size >> 20
            )));
        }
        let bytes = fs::read(path).map_err(|error| failed(error.to_string()))?;
        Self::parse(&file, &bytes)
    }

    /// Reads the content of a file that is called `file` in messages.
    ///
    /// # Errors
    /// As [`Recorded::read`].
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Self, FileError> {
        let steps = if bytes.starts_with(NPY_MAGIC) {
            npy(file, bytes)?
        } else {
            lines(file, bytes)?
        };
        Ok(Self {
            file: file.to_owned(),
            steps,
        })
    }

    /// Path of the file.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Number of steps.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    /// The same for a world of so many ranks at least: those that the file does not name have no tokens.
    #[must_use]
    pub fn in_world(mut self, ranks: usize) -> Self {
        for step in &mut self.steps {
            step.resize_with(step.len().max(ranks), Vec::new);
        }
        self
    }

    /// Tokens of a rank, on average over ranks and steps, rounded up.
    #[must_use]
    pub fn tokens(&self) -> usize {
        let ranks = || self.steps.iter().flatten();
        let tokens: usize = ranks().map(Vec::len).sum();
        tokens.div_ceil(ranks().count().max(1))
    }

    /// The routing of each of `sources` sources in a step; steps are repeated from the first on.
    ///
    /// # Errors
    /// Another number of sources or experts a token, an expert that the shape has not, or one that a
    /// token has twice: with the line.
    pub fn routings(
        &self,
        shape: Shape,
        sources: usize,
        step: usize,
        seed: u64,
    ) -> Result<Vec<Routing>, FileError> {
        let recorded = &self.steps[step % self.steps.len()];
        let failed = |line: Option<usize>, what: String| FileError {
            file: self.file.clone(),
            place: place(line),
            what,
        };
        if recorded.len() > sources {
            let ranks = recorded.len();
            return Err(failed(
                None,
                format!(
                    "has tokens of rank {}, the run has ranks 0 to {}",
                    ranks - 1,
                    sources - 1
                ),
            ));
        }
        let mut routings = Vec::with_capacity(sources);
        for source in 0..sources {
            let tokens = recorded.get(source).map_or(&[][..], Vec::as_slice);
            let mut experts = Vec::with_capacity(tokens.len() * shape.top_k);
            for (number, token) in tokens.iter().enumerate() {
                let ids = checked(token, shape).map_err(|what| FileError {
                    file: self.file.clone(),
                    place: match token.line {
                        Some(line) => place(Some(line)),
                        None => format!(" step {step} rank {source} token {number}"),
                    },
                    what,
                })?;
                experts.extend(ids);
            }
            routings.push(Routing::new(experts, shape.top_k, seed, source));
        }
        Ok(routings)
    }
}

/// A routing file in JSON lines: of each step the routing of every source.
#[must_use]
pub fn to_lines(steps: &[Vec<Routing>]) -> String {
    let mut text = String::new();
    for (step, sources) in steps.iter().enumerate() {
        for (rank, routing) in sources.iter().enumerate() {
            for token in 0..routing.tokens() {
                let name = |expert: &u32| match *expert {
                    MASKED => "-1".to_owned(),
                    expert => expert.to_string(),
                };
                let ids: Vec<String> = routing.experts_of(token).iter().map(name).collect();
                let of_step = match steps.len() {
                    1 => String::new(),
                    _ => format!("\"step\": {step}, "),
                };
                let _ = writeln!(
                    text,
                    "{{\"rank\": {rank}, {of_step}\"topk_ids\": [{}]}}",
                    ids.join(", ")
                );
            }
        }
    }
    text
}

fn checked(token: &Token, shape: Shape) -> Result<Vec<u32>, String> {
    let Token { experts, .. } = token;
    if experts.len() != shape.top_k {
        return Err(format!(
            "{} experts, the model chooses {}",
            experts.len(),
            shape.top_k
        ));
    }
    let mut ids = Vec::with_capacity(experts.len());
    for expert in experts {
        let id = match u32::try_from(*expert) {
            Ok(id) if (id as usize) < shape.experts => id,
            _ if *expert == -1 => MASKED,
            _ => {
                let last = shape.experts - 1;
                return Err(format!(
                    "expert {expert}, allowed are 0 to {last}, and -1 for none"
                ));
            }
        };
        if id != MASKED && ids.contains(&id) {
            return Err(format!("expert {expert} twice in one token"));
        }
        ids.push(id);
    }
    Ok(ids)
}

fn place(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!(" line {line}"))
}

fn lines(file: &str, bytes: &[u8]) -> Result<Vec<Vec<Vec<Token>>>, FileError> {
    let mut steps: Vec<Vec<Vec<Token>>> = Vec::new();
    for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let number = at + 1;
        let failed = |what: String| FileError {
            file: file.to_owned(),
            place: place(Some(number)),
            what,
        };
        let parsed: Line = serde_json::from_slice(line).map_err(|error| {
            // The library counts lines within what it is given: always the first.
            let text = error.to_string();
            let text = text.split(" at line ").next().unwrap_or(&text);
            failed(format!(
                "{text} at column {}; a line is {{\"rank\": 0, \"topk_ids\": [5, 17]}}",
                error.column()
            ))
        })?;
        for (what, index) in [("rank", parsed.rank), ("step", parsed.step)] {
            if index >= INDEX_MAX {
                return Err(failed(format!(
                    "{what} {index}, allowed are 0 to {}",
                    INDEX_MAX - 1
                )));
            }
        }
        if steps.len() <= parsed.step {
            steps.resize_with(parsed.step + 1, Vec::new);
        }
        let step = &mut steps[parsed.step];
        if step.len() <= parsed.rank {
            step.resize_with(parsed.rank + 1, Vec::new);
        }
        step[parsed.rank].push(Token {
            experts: parsed.topk_ids,
            line: Some(number),
        });
    }
    if steps.is_empty() {
        return Err(FileError {
            file: file.to_owned(),
            place: String::new(),
            what: "holds no token".to_owned(),
        });
    }
    Ok(steps)
}

/// What the header of an npy file says of its data.
struct NpyHeader {
    /// Bytes of a number.
    width: usize,
    /// Steps, ranks, tokens, experts of a token.
    shape: [usize; 4],
    /// Where the data begins.
    data: usize,
}

fn npy_header(bytes: &[u8]) -> Result<NpyHeader, String> {
    let cut = || "ends in the header".to_owned();
    let number = |at: std::ops::Range<usize>| {
        let digits = bytes.get(at)?;
        let value = digits
            .iter()
            .rev()
            .fold(0, |value, byte| (value << 8) | usize::from(*byte));
        Some(value)
    };
    let (length, begin) = match *bytes.get(6).ok_or_else(cut)? {
        1 => (number(8..10), 10),
        2 | 3 => (number(8..12), 12),
        version => return Err(format!("version {version}, allowed are 1 to 3")),
    };
    let data = length.ok_or_else(cut)? + begin;
    let header = bytes.get(begin..data).ok_or_else(cut)?;
    let header = std::str::from_utf8(header).map_err(|_| "has no text as its header".to_owned())?;
    let value = |key: &str| {
        let (_, rest) = header.split_once(&format!("'{key}':"))?;
        Some(rest.trim_start())
    };
    if !value("fortran_order").is_some_and(|rest| rest.starts_with("False")) {
        return Err("is not in C order; save it with numpy.ascontiguousarray".to_owned());
    }
    let width = match value("descr") {
        Some(rest) if rest.starts_with("'<i4'") => 4,
        Some(rest) if rest.starts_with("'<i8'") => 8,
        _ => return Err("holds another type than little-endian int32 or int64".to_owned()),
    };
    let sizes: Option<Vec<usize>> = value("shape")
        .and_then(|rest| rest.strip_prefix('('))
        .and_then(|rest| rest.split_once(')'))
        .and_then(|(inside, _)| {
            let parts = inside
                .split(',')
                .map(str::trim)
                .filter(|part| !part.is_empty());
            parts.map(|part| part.parse().ok()).collect()
        });
    let shape = match sizes.as_deref() {
        Some([ranks, tokens, top_k]) => [1, *ranks, *tokens, *top_k],
        Some([steps, ranks, tokens, top_k]) => [*steps, *ranks, *tokens, *top_k],
        _ => {
            let shapes = "[ranks, tokens, top_k] or [steps, ranks, tokens, top_k]";
            return Err(format!("has not the shape {shapes}"));
        }
    };
    Ok(NpyHeader { width, shape, data })
}

fn npy(file: &str, bytes: &[u8]) -> Result<Vec<Vec<Vec<Token>>>, FileError> {
    let failed = |what: String| FileError {
        file: file.to_owned(),
        place: " (npy)".to_owned(),
        what,
    };
    let NpyHeader { width, shape, data } = npy_header(bytes).map_err(failed)?;
    let data = &bytes[data..];
    let wanted = shape
        .iter()
        .try_fold(width, |bytes, size| bytes.checked_mul(*size));
    if wanted != Some(data.len()) {
        let wanted = wanted.map_or_else(|| "more than fits".to_owned(), |bytes| bytes.to_string());
        return Err(failed(format!(
            "holds {} bytes, its shape says {wanted}",
            data.len()
        )));
    }
    if data.is_empty() {
        return Err(failed("holds no token".to_owned()));
    }
    let mut numbers = data.chunks_exact(width).map(|chunk| match chunk {
        [a, b, c, d] => i64::from(i32::from_le_bytes([*a, *b, *c, *d])),
        _ => chunk
            .iter()
            .rev()
            .fold(0_i64, |value, byte| (value << 8) | i64::from(*byte)),
    });
    let [steps, ranks, tokens, top_k] = shape;
    let mut token = || Token {
        experts: numbers.by_ref().take(top_k).collect(),
        line: None,
    };
    let mut of_rank = || (0..tokens).map(|_| token()).collect::<Vec<_>>();
    let mut of_step = || (0..ranks).map(|_| of_rank()).collect::<Vec<_>>();
    Ok((0..steps).map(|_| of_step()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        experts: 8,
        top_k: 2,
        ranks: 2,
    };

    fn parsed(text: &str) -> Result<Vec<Routing>, FileError> {
        Recorded::parse("r.jsonl", text.as_bytes())?.routings(SHAPE, 2, 0, 1)
    }

    fn refused(text: &str) -> String {
        parsed(text).expect_err(text).to_string()
    }

    fn array(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let header =
            format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let mut bytes = NPY_MAGIC.to_vec();
        bytes.extend([1, 0]);
        bytes.extend(u16::try_from(header.len()).expect("short").to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }

    #[test]
    fn lines_become_the_tokens_of_their_ranks() {
        let text = "{\"rank\": 1, \"topk_ids\": [5, 7]}\n\n{\"rank\": 0, \"topk_ids\": [0, -1]}\n";
        let routings = parsed(text).expect("well formed");
        assert_eq!(routings[0].experts_of(0), [0, MASKED]);
        assert_eq!(routings[1].experts_of(0), [5, 7]);
        let recorded = Recorded::parse("r.jsonl", text.as_bytes()).expect("well formed");
        assert_eq!(recorded.tokens(), 1);
        let tokens = "{\"rank\": 0, \"topk_ids\": [0, 1]}\n".repeat(5);
        let recorded = Recorded::parse("r.jsonl", tokens.as_bytes()).expect("well formed");
        assert_eq!(recorded.clone().tokens(), 5);
        assert_eq!(recorded.in_world(4).tokens(), 2);
    }

    #[test]
    fn a_wrong_line_is_named_by_its_number() {
        let good = "{\"rank\": 0, \"topk_ids\": [5, 7]}\n";
        let with = |line: &str| refused(&format!("{good}{line}\n"));
        assert!(with("{\"rank\": 0, \"topk_ids\": [5, 7}").contains("line 2"));
        assert!(
            with("{\"rank\": 0, \"topk_ids\": [5]}")
                .contains("line 2: 1 experts, the model chooses 2")
        );
        assert!(
            with("{\"rank\": 0, \"topk_ids\": [5, 8]}")
                .contains("line 2: expert 8, allowed are 0 to 7")
        );
        assert!(with("{\"rank\": 0, \"topk_ids\": [5, 5]}").contains("twice"));
        assert!(with("{\"rank\": 2, \"topk_ids\": [5, 1]}").contains("ranks 0 to 1"));
        assert!(with("{\"rank\": 0, \"ids\": [5, 1]}").contains("unknown field"));
        assert!(refused("\n").contains("holds no token"));
    }

    #[test]
    fn npy_arrays_of_both_widths_are_read_and_wrong_ones_refused() {
        let wide: Vec<u8> = [1_i64, 2, -1, 3, 4, 5, 6, 7]
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect();
        let narrow: Vec<u8> = [1_i32, 2, -1, 3, 4, 5, 6, 7]
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect();
        let read = |bytes: &[u8]| Recorded::parse("r.npy", bytes);
        let same = read(&array("<i8", "(2, 2, 2)", &wide)).expect("well formed");
        assert_eq!(
            read(&array("<i4", "(2, 2, 2)", &narrow)).expect("well formed"),
            same
        );
        let routings = same.routings(SHAPE, 2, 0, 1).expect("fits");
        assert_eq!(routings[0].experts_of(1), [MASKED, 3]);
        assert_eq!(routings[1].experts_of(0), [4, 5]);
        let steps = read(&array("<i4", "(2, 1, 2, 2)", &narrow)).expect("well formed");
        assert_eq!(steps.steps(), 2);
        let text = to_lines(&[routings.clone(), routings.clone()]);
        let again = Recorded::parse("r.jsonl", text.as_bytes()).expect("well formed");
        assert_eq!(again.steps(), 2);
        assert_eq!(again.routings(SHAPE, 2, 1, 1).expect("fits"), routings);
        let narrow_shape = Shape {
            experts: 7,
            ..SHAPE
        };
        let error = same.routings(narrow_shape, 2, 0, 1).expect_err("expert 7");
        assert!(
            error
                .to_string()
                .contains("step 0 rank 1 token 1: expert 7"),
            "{error}"
        );
        let error = |bytes: &[u8]| read(bytes).expect_err("malformed").to_string();
        assert!(error(&array("<f4", "(2, 2, 2)", &narrow)).contains("int32"));
        assert!(error(&array("<i4", "(2, 4)", &narrow)).contains("shape"));
        assert!(error(&array("<i4", "(3, 2, 2)", &narrow)).contains("its shape says 48"));
        assert!(error(&array("<i4", "(2, 2, 2)", &narrow)[..20]).contains("header"));
        assert!(error(&array("<i4", "(0, 2, 2)", &[])).contains("no token"));
    }
}
