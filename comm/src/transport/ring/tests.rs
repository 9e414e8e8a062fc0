//! Rings on the heap, both sides in one process.

use super::*;

/// A block of lines on the heap, shared by both sides of a test.
struct Block(Box<[std::cell::UnsafeCell<Line>]>);

#[derive(Clone)]
#[repr(C, align(64))]
struct Line([u8; 64]);

// SAFETY: the rings decide who touches which byte; that is what is tested.
unsafe impl Sync for Block {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Block {}

impl Block {
    fn new(capacity: usize) -> Arc<Self> {
        let lines = RingStream::block_bytes(capacity).div_ceil(64);
        Arc::new(Self(
            (0..lines)
                .map(|_| std::cell::UnsafeCell::new(Line([0; 64])))
                .collect(),
        ))
    }

    fn start(&self) -> *mut u8 {
        self.0.as_ptr().cast_mut().cast()
    }
}

fn pair(capacity: usize) -> (RingStream, RingStream, Arc<Block>) {
    let block = Block::new(capacity);
    let len = RingStream::block_bytes(capacity);
    let keep: Keep = Arc::<Block>::clone(&block);
    // SAFETY: the block has `len` bytes and lives as long as `keep`.
    let first = unsafe { RingStream::create(block.start(), len, keep) }.unwrap();
    let keep: Keep = Arc::<Block>::clone(&block);
    // SAFETY: as above, and the stream was created there.
    let second = unsafe { RingStream::attach(block.start(), len, keep) }.unwrap();
    (first, second, block)
}

/// The byte that travels at this place of a test's stream.
fn byte_at(place: usize) -> u8 {
    place.wrapping_mul(31).to_le_bytes()[0] ^ place.to_le_bytes()[1]
}

/// The shared header of a ring, to play a broken peer.
fn header(block: &Block, ring: usize) -> &Header {
    #[expect(clippy::cast_ptr_alignment, reason = "a block begins with a line")]
    let headers = block.start().cast::<Header>();
    // SAFETY: `pair` made two headers at the start of the block.
    let header = unsafe { headers.add(ring) };
    // SAFETY: it was initialised by `create` and consists of atomics and padding.
    unsafe { &*header }
}

#[test]
fn bytes_keep_their_order_through_every_tiny_capacity() {
    for capacity in 1..=9 {
        let (mut left, mut right, _block) = pair(capacity);
        let (mut next, mut expected) = (0usize, 0usize);
        for turn in 0..200usize {
            let piece: Vec<u8> = (0..turn % 5).map(|i| byte_at(next + i)).collect();
            next += left.try_write(&piece).unwrap();
            let mut got = [0; 4];
            let len = right.try_read(&mut got[..turn % 4 + 1]).unwrap();
            for byte in &got[..len] {
                assert_eq!(*byte, byte_at(expected), "capacity {capacity}");
                expected += 1;
            }
        }
        assert!(expected > 100, "capacity {capacity}: {expected} bytes");
    }
}

#[test]
fn a_full_ring_takes_nothing_and_an_empty_one_gives_nothing() {
    let (mut left, mut right, _block) = pair(3);
    assert_eq!(left.capacity(), 3);
    let mut got = [0; 8];
    assert_eq!(right.try_read(&mut got), Ok(0));
    assert_eq!(left.try_write(&[1, 2, 3, 4]), Ok(3));
    assert_eq!(left.try_write(&[4]), Ok(0));
    assert_eq!(right.try_read(&mut got), Ok(3));
    assert_eq!(got[..3], [1, 2, 3]);
    assert_eq!(right.try_read(&mut got), Ok(0));
}

#[test]
fn two_threads_pass_everything_through_a_ring_of_seven_bytes() {
    const BYTES: usize = if cfg!(miri) { 300 } else { 200_000 };
    let (mut left, mut right, _block) = pair(7);
    let writer = std::thread::spawn(move || {
        let all: Vec<u8> = (0..BYTES).map(byte_at).collect();
        let mut done = 0;
        while done < BYTES {
            match left.try_write(&all[done..]).unwrap() {
                0 => std::thread::yield_now(),
                len => done += len,
            }
        }
    });
    let mut all = Vec::new();
    let mut piece = [0; 16];
    loop {
        match right.try_read(&mut piece) {
            Ok(0) => std::thread::yield_now(),
            Ok(len) => all.extend_from_slice(&piece[..len]),
            Err(error) => {
                assert_eq!(error, LinkError::Closed);
                break;
            }
        }
    }
    writer.join().unwrap();
    assert_eq!(all.len(), BYTES);
    assert!(all.iter().enumerate().all(|(i, b)| *b == byte_at(i)));
}

#[test]
fn an_index_that_a_working_peer_cannot_have_written_is_an_error_and_no_address() {
    for garbage in [17, u64::MAX, u64::MAX / 2, 9] {
        let (_left, mut right, block) = pair(8);
        let head = &header(&block, 0).writer.index;
        head.store(garbage, Ordering::Relaxed);
        let error = right.try_read(&mut [0; 64]).unwrap_err();
        let expected = LinkError::Corrupt {
            what: "head",
            got: garbage,
            low: 0,
            high: 8,
        };
        assert_eq!(error, expected);
        head.store(4, Ordering::Relaxed);
        assert_eq!(right.try_read(&mut [0; 64]), Err(expected), "final");
    }
}

#[test]
fn an_index_that_goes_backwards_is_an_error() {
    let (mut left, mut right, block) = pair(4);
    left.try_write(&[1, 2, 3, 4]).unwrap();
    right.try_read(&mut [0; 4]).unwrap();
    left.try_write(&[5, 6, 7, 8]).unwrap();
    header(&block, 0).reader.index.store(3, Ordering::Relaxed);
    let error = left.try_write(&[9; 4]).unwrap_err();
    assert!(
        matches!(
            error,
            LinkError::Corrupt {
                what: "tail",
                got: 3,
                low: 4,
                high: 8
            }
        ),
        "{error}"
    );
}

#[test]
fn a_state_that_no_peer_has_is_an_error() {
    let (mut left, _right, block) = pair(4);
    header(&block, 0).reader.state.store(77, Ordering::Relaxed);
    assert!(matches!(
        left.try_write(&[1]),
        Err(LinkError::Corrupt { what: "state", .. })
    ));
}

#[test]
fn a_closed_peer_is_seen_after_its_bytes_and_a_reset_one_at_once() {
    let (mut left, mut right, _block) = pair(4);
    left.try_write(&[1, 2]).unwrap();
    drop(left);
    assert_eq!(right.try_write(&[3]), Err(LinkError::Closed));
    let mut got = [0; 4];
    assert_eq!(right.try_read(&mut got), Ok(2));
    assert_eq!(right.try_read(&mut got), Err(LinkError::Closed));

    let (mut left, mut right, _block) = pair(4);
    left.try_write(&[1, 2]).unwrap();
    left.reset();
    assert_eq!(left.try_write(&[3]), Err(LinkError::Reset));
    drop(left);
    assert_eq!(right.try_read(&mut got), Err(LinkError::Reset));
    assert_eq!(right.try_write(&[3]), Err(LinkError::Reset));
}

#[test]
fn a_block_is_over_when_both_sides_left_however_they_did() {
    let len = RingStream::block_bytes(4);
    // SAFETY: `pair` makes its stream in this block, which has `len` bytes.
    let is_over = |block: &Block| unsafe { RingStream::is_over(block.start(), len) };
    for reset in [[false, false], [true, false], [false, true], [true, true]] {
        let (mut left, mut right, block) = pair(4);
        if reset[0] {
            left.reset();
            assert_eq!(right.try_write(&[1]), Err(LinkError::Reset));
        }
        if reset[1] {
            right.reset();
        }
        drop(left);
        assert_eq!(is_over(&block), reset[1], "{reset:?}");
        drop(right);
        assert!(is_over(&block), "{reset:?}");
    }
}

#[test]
fn a_block_that_cannot_hold_a_ring_is_refused() {
    let block = Block::new(64);
    let keep: Keep = Arc::<Block>::clone(&block);
    let create = |start: *mut u8, len: usize| {
        // SAFETY: no length given below exceeds the block.
        unsafe { RingStream::create(start, len, Arc::clone(&keep)) }.map(|_| ())
    };
    let attach = |start: *mut u8, len: usize| {
        // SAFETY: as above; the block is zeroed or holds a stream.
        unsafe { RingStream::attach(start, len, Arc::clone(&keep)) }
    };
    let len = RingStream::block_bytes(64);
    assert_eq!(
        create(block.start(), HEADERS + 1),
        Err(RingError::Length { got: HEADERS + 1 })
    );
    assert!(matches!(
        create(block.start().wrapping_add(8), len - 8),
        Err(RingError::Misaligned { .. })
    ));
    assert!(matches!(
        create(std::ptr::null_mut(), len),
        Err(RingError::Misaligned { address: 0 })
    ));
    assert_eq!(
        attach(block.start(), len).unwrap_err(),
        RingError::NotCreated
    );
    create(block.start(), len).unwrap();
    let _second = attach(block.start(), len).unwrap();
    assert_eq!(attach(block.start(), len).unwrap_err(), RingError::InUse);
}
