//! Lines of the board: a reader never takes half a change for a whole one.

use std::sync::Arc;

use loom::thread;

use crate::board::publish;
use crate::sync::{AtomicU64, Ordering};

/// A version and words that change together.
const WORDS: usize = 3;

/// A rank changes a line some times; another one reads it meanwhile, and tells whether it was whole.
///
/// # Panics
/// Where the reader takes a torn line for a whole one.
pub fn a_line_is_read_whole_or_not_at_all(changes: u64) {
    let line: Arc<[AtomicU64; WORDS]> = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
    let writer = {
        let line = Arc::clone(&line);
        thread::spawn(move || {
            for value in 1..=changes {
                publish::change(&line, |words| {
                    for word in &words[1..] {
                        word.store(value, Ordering::Relaxed);
                    }
                });
            }
        })
    };
    read(&*line);
    writer.join().expect("the writer ends well");
    let [last, ..] = read(&*line).expect("nobody writes it any more");
    assert_eq!(last, changes);
}

/// A record of history that a later call takes over: what is read belongs to one call, the one that the
/// version names.
///
/// # Panics
/// Where it does not.
pub fn a_record_belongs_to_the_call_that_its_version_names(calls: u64) {
    let record: Arc<[AtomicU64; WORDS]> = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
    let writer = {
        let record = Arc::clone(&record);
        thread::spawn(move || {
            for call in 1..=calls {
                publish::change_to(&record, call * 2, |words| {
                    for word in &words[1..] {
                        word.store(call, Ordering::Relaxed);
                    }
                });
            }
        })
    };
    let (mut first, mut second) = ([0; WORDS], [0; WORDS]);
    publish::copy(&*record, &mut first);
    publish::copy(&*record, &mut second);
    if publish::is_whole(&first, &second) {
        let call = first[publish::VERSION] / 2;
        assert_eq!(first[1..], [call, call], "in the record of call {call}");
    }
    writer.join().expect("the writer ends well");
}

fn read(line: &[AtomicU64]) -> Option<[u64; WORDS - 1]> {
    let (mut first, mut second) = ([0; WORDS], [0; WORDS]);
    publish::copy(line, &mut first);
    publish::copy(line, &mut second);
    publish::is_whole(&first, &second).then(|| {
        let [_, words @ ..] = first;
        assert_eq!(words[0], words[1], "a torn line");
        words
    })
}

/// Another process reads a line that changes: its words are copied by the system, in no order (PUBLISH-3).
///
/// # Panics
/// Where it takes a torn line for a whole one. So it does where the versions are those of the copy whose words it takes.
pub fn a_line_that_the_system_copies_is_whole_or_not(changes: u64, has_earlier_versions: bool) {
    let line: Arc<[AtomicU64; WORDS]> = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
    let writer = {
        let line = Arc::clone(&line);
        thread::spawn(move || {
            for value in 1..=changes {
                publish::change(&line, |words| {
                    for word in &words[1..] {
                        word.store(value, Ordering::Relaxed);
                    }
                });
            }
        })
    };
    let copy = || {
        // The version last: the worst of orders.
        let mut copy = [0; WORDS];
        for at in (0..WORDS).rev() {
            copy[at] = line[at].load(Ordering::Relaxed);
        }
        publish::settle();
        copy
    };
    let earlier = has_earlier_versions.then(copy);
    let (mut first, second) = (copy(), copy());
    if let Some(earlier) = earlier {
        publish::take_versions(&mut first, &earlier, (0, WORDS));
    }
    if publish::is_whole(&first, &second) {
        let value = first[publish::VERSION] / 2;
        assert_eq!(first[1..], [value, value], "a torn line");
    }
    writer.join().expect("the writer ends well");
}
