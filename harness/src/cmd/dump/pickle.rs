//! Pickles of plain data: lists, dictionaries, texts, numbers, `True`, `False` and `None`.
//!
//! The flight recorders of PyTorch and torch_npu write their dumps so. serde-pickle 1.2 refuses those of torch 2.15 as recursive,
//! for a tuple in them is referred to many times. What makes objects is not read: a pickle can run no code here.
//!
//! PICKLE-1: what a pickle refers to many times is copied each time, up to a bound, and nesting has a bound: a short pickle
//! cannot fill the memory.

use std::collections::HashMap;

use serde_json::{Map, Number, Value};

/// Most values of a pickle, those that are referred to counted each time.
const VALUES_MAX: usize = 1 << 24;
const TOO_LONG: &str = "a number of more than 64 bits";
/// Deepest nesting.
const DEPTH_MAX: usize = 64;

/// Why bytes are no pickle of plain data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PickleError {
    /// It ends before its end.
    #[error("the pickle is cut off at byte {at}")]
    CutOff {
        /// Where.
        at: usize,
    },
    /// Something that is no plain data.
    #[error(
        "byte {at} of the pickle is {code:#04x}, and only plain lists, dictionaries, texts and numbers are read"
    )]
    Code {
        /// Where.
        at: usize,
        /// What stands there.
        code: u8,
    },
    /// Parts that do not fit together.
    #[error("byte {at} of the pickle: {what}")]
    Malformed {
        /// Where.
        at: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// Beyond a bound.
    #[error(
        "the pickle holds more than {VALUES_MAX} values, or is nested more than {DEPTH_MAX} deep"
    )]
    TooMuch,
}

/// A value; parts by their places among all.
#[derive(Clone, Debug)]
enum Node {
    Plain(Value),
    List(Vec<usize>),
    Dictionary(Vec<(usize, usize)>),
    Mark,
}

#[derive(Default)]
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    nodes: Vec<Node>,
    stack: Vec<usize>,
    memo: HashMap<u32, usize>,
}

/// Reads a pickle.
///
/// # Errors
/// [`PickleError`].
pub(super) fn read(bytes: &[u8]) -> Result<Value, PickleError> {
    let mut reader = Reader {
        bytes,
        ..Reader::default()
    };
    while let Some(code) = reader.step()? {
        debug_assert!(code != b'.', "the end is told by none");
    }
    let whole = reader.pop()?;
    let mut left = VALUES_MAX;
    value(&reader.nodes, whole, DEPTH_MAX, &mut left)
}

/// The value of a node.
fn value(nodes: &[Node], at: usize, depth: usize, left: &mut usize) -> Result<Value, PickleError> {
    *left = left.checked_sub(1).ok_or(PickleError::TooMuch)?;
    let depth = depth.checked_sub(1).ok_or(PickleError::TooMuch)?;
    Ok(match &nodes[at] {
        Node::Plain(plain) => plain.clone(),
        Node::List(parts) => {
            let parts = parts.iter().map(|part| value(nodes, *part, depth, left));
            Value::Array(parts.collect::<Result<_, _>>()?)
        }
        Node::Dictionary(pairs) => {
            let mut map = Map::new();
            for (key, one) in pairs {
                let key = value(nodes, *key, depth, left)?;
                let key = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
                map.insert(key, value(nodes, *one, depth, left)?);
            }
            Value::Object(map)
        }
        Node::Mark => Value::Null,
    })
}

impl Reader<'_> {
    /// Reads one code with what belongs to it; none at the end.
    fn step(&mut self) -> Result<Option<u8>, PickleError> {
        let start = self.at;
        let code = self.take::<1>()?[0];
        match code {
            b'.' => return Ok(None),
            // Version, and length of a frame: nothing depends on them.
            0x80 => drop(self.take::<1>()?),
            0x95 => drop(self.take::<8>()?),
            b'(' => self.push(Node::Mark),
            b'}' => self.push(Node::Dictionary(Vec::new())),
            b']' | b')' => self.push(Node::List(Vec::new())),
            b'N' => self.plain(Value::Null),
            0x88 => self.plain(Value::Bool(true)),
            0x89 => self.plain(Value::Bool(false)),
            b'J' | b'K' | b'M' | b'G' | 0x8a => self.number(code)?,
            b'X' | 0x8c | 0x8d => self.text(code)?,
            b'q' | b'r' | 0x94 | b'h' | b'j' => self.memo(code)?,
            b't' | 0x85..=0x87 => {
                let parts = match code {
                    b't' => self.since_mark()?,
                    _ => {
                        let mut parts = Vec::new();
                        for _ in 0x85..=code {
                            parts.insert(0, self.pop()?);
                        }
                        parts
                    }
                };
                self.push(Node::List(parts));
            }
            b'a' | b'e' | b's' | b'u' => self.fill(code)?,
            _ => return Err(PickleError::Code { at: start, code }),
        }
        Ok(Some(code))
    }

    fn number(&mut self, code: u8) -> Result<(), PickleError> {
        let whole: i128 = match code {
            b'J' => i32::from_le_bytes(self.take()?).into(),
            b'K' => self.take::<1>()?[0].into(),
            b'M' => u16::from_le_bytes(self.take()?).into(),
            b'G' => {
                let number = f64::from_be_bytes(self.take()?);
                let number = Number::from_f64(number).map_or(Value::Null, Value::Number);
                self.plain(number);
                return Ok(());
            }
            _ => {
                let length = usize::from(self.take::<1>()?[0]);
                let bytes = self.slice(length)?.to_vec();
                let is_negative = bytes.last().is_some_and(|last| *last >= 0x80);
                let mut whole = [if is_negative { 0xff } else { 0 }; 16];
                match whole.get_mut(..length) {
                    Some(place) => place.copy_from_slice(&bytes),
                    None => return Err(self.malformed(TOO_LONG)),
                }
                i128::from_le_bytes(whole)
            }
        };
        let number = Number::from_i128(whole);
        let number = number.ok_or_else(|| self.malformed(TOO_LONG))?;
        self.plain(Value::Number(number));
        Ok(())
    }

    fn text(&mut self, code: u8) -> Result<(), PickleError> {
        let length = match code {
            b'X' => u64::from(u32::from_le_bytes(self.take()?)),
            0x8c => u64::from(self.take::<1>()?[0]),
            _ => u64::from_le_bytes(self.take()?),
        };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let text = String::from_utf8_lossy(self.slice(length)?).into_owned();
        self.plain(Value::String(text));
        Ok(())
    }

    /// Remembers a value, or recalls one.
    fn memo(&mut self, code: u8) -> Result<(), PickleError> {
        let id = match code {
            b'q' | b'h' => u32::from(self.take::<1>()?[0]),
            b'r' | b'j' => u32::from_le_bytes(self.take()?),
            _ => u32::try_from(self.memo.len()).unwrap_or(u32::MAX),
        };
        if matches!(code, b'h' | b'j') {
            let known = self.memo.get(&id).copied();
            let known = known.ok_or_else(|| self.malformed("it refers to what is not there"))?;
            self.stack.push(known);
            return Ok(());
        }
        let top = self.stack.last().copied();
        let top = top.ok_or_else(|| self.malformed("there is no value"))?;
        self.memo.insert(id, top);
        Ok(())
    }

    /// Puts values into the list or the dictionary below them.
    fn fill(&mut self, code: u8) -> Result<(), PickleError> {
        let parts = match code {
            b'a' => vec![self.pop()?],
            b's' => {
                let one = self.pop()?;
                vec![self.pop()?, one]
            }
            _ => self.since_mark()?,
        };
        let whole = self.stack.last().copied();
        match (code, whole.and_then(|whole| self.nodes.get_mut(whole))) {
            (b'a' | b'e', Some(Node::List(list))) => list.extend(parts),
            (b's' | b'u', Some(Node::Dictionary(pairs))) if parts.len().is_multiple_of(2) => {
                pairs.extend(parts.chunks_exact(2).map(|pair| (pair[0], pair[1])));
            }
            _ => return Err(self.malformed("values that belong nowhere")),
        }
        Ok(())
    }

    /// The values behind the last mark.
    fn since_mark(&mut self) -> Result<Vec<usize>, PickleError> {
        let is_mark = |at: &usize| matches!(self.nodes[*at], Node::Mark);
        let mark = self.stack.iter().rposition(is_mark);
        let mark = mark.ok_or_else(|| self.malformed("there is no mark"))?;
        let parts = self.stack.split_off(mark + 1);
        self.stack.pop();
        Ok(parts)
    }

    fn plain(&mut self, value: Value) {
        self.push(Node::Plain(value));
    }

    fn push(&mut self, node: Node) {
        self.stack.push(self.nodes.len());
        self.nodes.push(node);
    }

    fn pop(&mut self) -> Result<usize, PickleError> {
        let top = self.stack.pop();
        top.ok_or_else(|| self.malformed("there is no value"))
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], PickleError> {
        let slice = self.slice(N)?;
        let mut bytes = [0; N];
        bytes.copy_from_slice(slice);
        Ok(bytes)
    }

    fn slice(&mut self, length: usize) -> Result<&[u8], PickleError> {
        let end = self.at.checked_add(length);
        let slice = end.and_then(|end| self.bytes.get(self.at..end));
        let slice = slice.ok_or(PickleError::CutOff {
            at: self.bytes.len(),
        })?;
        self.at += length;
        Ok(slice)
    }

    const fn malformed(&self, what: &'static str) -> PickleError {
        PickleError::Malformed { at: self.at, what }
    }
}

/// Writes plain data as a pickle of protocol 2.
pub(super) fn write(value: &Value) -> Vec<u8> {
    let mut bytes = vec![0x80, 2];
    put(value, &mut bytes);
    bytes.push(b'.');
    bytes
}

fn put(value: &Value, bytes: &mut Vec<u8>) {
    match value {
        Value::Null => bytes.push(b'N'),
        Value::Bool(is_true) => bytes.push(if *is_true { 0x88 } else { 0x89 }),
        Value::Number(number) => put_number(number, bytes),
        Value::String(text) => put_text(text, bytes),
        Value::Array(parts) => {
            bytes.extend(b"](");
            parts.iter().for_each(|part| put(part, bytes));
            bytes.push(b'e');
        }
        Value::Object(pairs) => {
            bytes.extend(b"}(");
            for (key, one) in pairs {
                put_text(key, bytes);
                put(one, bytes);
            }
            bytes.push(b'u');
        }
    }
}

fn put_text(text: &str, bytes: &mut Vec<u8>) {
    // The longest text of a dump is a path.
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    bytes.push(b'X');
    bytes.extend(length.to_le_bytes());
    bytes.extend(&text.as_bytes()[..text.len().min(length as usize)]);
}

fn put_number(number: &Number, bytes: &mut Vec<u8>) {
    let small = number.as_i64().and_then(|whole| i32::try_from(whole).ok());
    if let Some(small) = small {
        bytes.push(b'J');
        bytes.extend(small.to_le_bytes());
    } else if let Some(whole) = number.as_i128() {
        // Nine bytes hold every u64 with its sign.
        bytes.extend([0x8a, 9]);
        bytes.extend(&whole.to_le_bytes()[..9]);
    } else {
        bytes.push(b'G');
        bytes.extend(number.as_f64().unwrap_or(f64::NAN).to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_python_and_torch_write_is_read() {
        // {'version': '2.10', 'ranks': [0, -1], 'pair': ('0', 'pg'), 'again': <the same pair>} as torch's pickler writes it.
        let torch = b"\x80\x02}(X\x07\x00\x00\x00versionq\x00X\x04\x00\x00\x002.10X\x05\x00\x00\x00ranks](K\x00J\xff\xff\xff\xffeX\x04\x00\x00\x00pair(X\x01\x00\x00\x000q\x01X\x02\x00\x00\x00pgq\x02tq\x03X\x05\x00\x00\x00againh\x03u.";
        let expected =
            json!({"version": "2.10", "ranks": [0, -1], "pair": ["0", "pg"], "again": ["0", "pg"]});
        assert_eq!(read(torch), Ok(expected));
        // pickle.dumps({"a": [1.5, None, True, 1795910185449837628]}, 4)
        let python = b"\x80\x04\x95!\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01a\x94]\x94(G?\xf8\x00\x00\x00\x00\x00\x00N\x88\x8a\x08<T>l\xccZ\xec\x18es.";
        assert_eq!(
            read(python),
            Ok(json!({"a": [1.5, null, true, 1_795_910_185_449_837_628_u64]}))
        );
    }

    #[test]
    fn what_is_no_plain_data_is_refused_with_its_place() {
        let object = b"\x80\x02cposix\nsystem\n.";
        assert_eq!(read(object), Err(PickleError::Code { at: 2, code: b'c' }));
        assert_eq!(read(b"\x80\x02}"), Err(PickleError::CutOff { at: 3 }));
        assert!(matches!(
            read(b"\x80\x02h\x07."),
            Err(PickleError::Malformed { .. })
        ));
        // A list in itself, and one that doubles with each line.
        assert_eq!(read(b"\x80\x02]q\x00h\x00a."), Err(PickleError::TooMuch));
        let mut doubling = b"\x80\x02]q\x00".to_vec();
        for at in 0..40 {
            doubling.extend([b']', b'q', at + 1, b'(', b'h', at, b'h', at, b'e']);
        }
        doubling.push(b'.');
        assert_eq!(read(&doubling), Err(PickleError::TooMuch));
    }

    fn plain() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,8}".prop_map(Value::from),
            (-1e9..1e9).prop_map(|one: f64| json!(one + 0.5)),
        ];
        leaf.prop_recursive(4, 64, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::hash_map("[a-z]{0,6}", inner, 0..6)
                    .prop_map(|pairs| pairs.into_iter().collect::<Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again_and_what_is_changed_never_panics(value in plain(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = write(&value);
            prop_assert_eq!(read(&bytes), Ok(value));
            let at = at.index(bytes.len());
            for cut in 0..bytes.len() {
                prop_assert!(read(&bytes[..cut]).is_err());
            }
            bytes[at] = byte;
            let _ = read(&bytes);
        }
    }
}
