//! Links of every kind, and the streams of all ranks over them.

use std::cell::UnsafeCell;
use std::sync::Arc;

use muster_comm::transport::ring::{Keep, RingStream};
use muster_comm::transport::sim::{SimConfig, SimNet};
use muster_comm::transport::tcp::{Bundle, TcpLink};
use muster_comm::transport::{LinkKind, Stream};

use super::seed;

/// The streams of one rank.
pub(crate) type Row = Vec<Option<Box<dyn Stream>>>;

/// A block of cache lines on the heap, shared by both ends of a ring.
struct Block(Box<[UnsafeCell<Line>]>);

#[derive(Clone)]
#[repr(C, align(64))]
struct Line([u8; 64]);

// SAFETY: the rings decide who touches which byte.
unsafe impl Sync for Block {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Block {}

/// Two ends of a ring.
pub(crate) fn ring_pair(capacity: usize) -> (Box<dyn Stream>, Box<dyn Stream>) {
    let len = RingStream::block_bytes(capacity);
    let lines = (0..len.div_ceil(64)).map(|_| UnsafeCell::new(Line([0; 64])));
    let block = Arc::new(Block(lines.collect()));
    let start: *mut u8 = block.0.as_ptr().cast_mut().cast();
    let (near, far): (Keep, Keep) = (Arc::<Block>::clone(&block), block);
    // SAFETY: the block has `len` bytes and lives as long as `near`.
    let near = unsafe { RingStream::create(start, len, near) }.unwrap();
    // SAFETY: as above, and the stream was created there.
    let far = unsafe { RingStream::attach(start, len, far) }.unwrap();
    (Box::new(near), Box::new(far))
}

/// Connections of the stream over TCP where little room is asked for.
const LANES: usize = 3;

/// Two connected ends of a link of this kind. `small` asks for little room, where one can; over TCP, where one
/// cannot, for several connections.
pub(crate) fn pair(kind: LinkKind, small: bool) -> (Box<dyn Stream>, Box<dyn Stream>) {
    match kind {
        LinkKind::Shm => ring_pair(if small { 5 } else { 64 * 1024 }),
        LinkKind::Tcp if small => {
            let lanes = (0..LANES).map(|_| TcpLink::pair().unwrap());
            let (near, far): (Vec<_>, Vec<_>) = lanes.unzip();
            (Box::new(Bundle::new(near)), Box::new(Bundle::new(far)))
        }
        LinkKind::Tcp => {
            let (near, far) = TcpLink::pair().unwrap();
            (Box::new(near), Box::new(far))
        }
        LinkKind::Sim => {
            let net = SimNet::new(2, SimConfig::new(seed()));
            let (near, far) = net.pair(0, 1);
            (
                Box::new(Ticking::new(near, &net)),
                Box::new(Ticking::new(far, &net)),
            )
        }
    }
}

/// A simulated end that lets time pass whenever it is blocked, for tests without the driver.
#[derive(Debug)]
pub(crate) struct Ticking<S> {
    inner: S,
    net: SimNet,
}

impl<S> Ticking<S> {
    fn new(inner: S, net: &SimNet) -> Self {
        Self {
            inner,
            net: net.clone(),
        }
    }
}

impl<S: Stream> Stream for Ticking<S> {
    fn write_from(
        &mut self,
        source: muster_comm::transport::Source<'_>,
    ) -> Result<usize, muster_comm::transport::LinkError> {
        let len = self.inner.write_from(source)?;
        if len == 0 {
            self.net.tick();
        }
        Ok(len)
    }

    fn read_into(
        &mut self,
        target: muster_comm::transport::Target<'_>,
    ) -> Result<usize, muster_comm::transport::LinkError> {
        let len = self.inner.read_into(target)?;
        if len == 0 {
            self.net.tick();
        }
        Ok(len)
    }

    fn kind(&self) -> LinkKind {
        self.inner.kind()
    }

    fn reset(&mut self) {
        self.inner.reset();
    }
}

/// The streams of all ranks, over links made by `pair`.
pub(crate) fn mesh(
    n: usize,
    mut pair: impl FnMut() -> (Box<dyn Stream>, Box<dyn Stream>),
) -> Vec<Row> {
    let mut mesh: Vec<Row> = (0..n).map(|_| (0..n).map(|_| None).collect()).collect();
    let pairs = (0..n).flat_map(|one| (one + 1..n).map(move |other| (one, other)));
    for (one, other) in pairs {
        let (near, far) = pair();
        mesh[one][other] = Some(near);
        mesh[other][one] = Some(far);
    }
    mesh
}
