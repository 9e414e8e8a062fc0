//! Links to ranks that share no memory with this one.

use std::cell::{Cell, RefCell};

use super::Plane;
use crate::backend::wait_context::WaitContext;
use crate::context::{Context, Identity, Net};
use crate::error::ErrorKind;
use crate::sync::Clock;
use crate::transport::Stream;
use crate::transport::shm::wait::Rest;
use crate::transport::tcp::{Bundle, Connector, LinkName, ParkedKey, Refusal, TcpError, TcpLink};

/// Makes the stream to a member with a higher index.
pub(super) fn open(
    wait_context: &WaitContext<'_>,
    plane: Plane,
    peer: usize,
) -> Result<Box<dyn Stream>, ErrorKind> {
    let group = wait_context.group;
    let net = net(wait_context.context, group, peer)?;
    let (mine, theirs) = (group.members[group.me], group.members[peer]);
    let Some(address) = net.addresses[theirs.index()] else {
        let what = "it does not listen for links".to_owned();
        return Err(ErrorKind::Transport { peer: theirs, what });
    };
    let lane = |lane: u8| {
        let name = LinkName {
            group: group.key,
            plane: lane_of(plane, lane),
            lanes: net.lanes,
            from: mine.0,
            to: theirs.0,
        };
        let connector = Connector::new(address, name, &net.secret);
        link(wait_context, peer, connector)
    };
    // The other side may be stopped: who looks at the board is to see for whom this call waits.
    wait_context.enter();
    wait_context.place.waits(Clock::now(), &[peer], true);
    let links: Result<Vec<TcpLink>, ErrorKind> = (0..net.lanes).map(lane).collect();
    if links.is_ok() {
        wait_context.place.goes_on();
    }
    links.map(stream_of)
}

/// Makes one connection to a peer, and waits for it as for anything else that the peer is to do.
fn link(
    wait_context: &WaitContext<'_>,
    peer: usize,
    connector: Connector,
) -> Result<TcpLink, ErrorKind> {
    let theirs = wait_context.group.members[peer];
    let (connector, made) = (RefCell::new(connector), Cell::new(None));
    let ready = || match connector.borrow_mut().poll() {
        Ok(None) => false,
        Ok(Some(link)) => {
            made.set(Some(Ok(link)));
            true
        }
        Err(error) => {
            made.set(Some(Err(error)));
            true
        }
    };
    let sleep = |look: &mut dyn FnMut() -> bool, time| {
        connector.borrow().rest(time);
        look();
    };
    wait_context.wait(&Rest::Descriptors(&sleep), ready, || vec![peer])?;
    match made.take() {
        Some(Ok(link)) => Ok(link),
        // It comes to no call of the group any more, so this one waits for it in vain.
        Some(Err(TcpError::Refused {
            reason: Refusal::Ended,
            ..
        })) => {
            let ended = wait_context.wait(&Rest::Pause, || false, || vec![peer]);
            Err(ended.err().unwrap_or_else(|| wait_context.stalled(&[peer])))
        }
        // A peer that is gone does not listen: say that rather than how the connection failed.
        Some(Err(error)) => {
            let transport = || ErrorKind::Transport {
                peer: theirs,
                what: error.to_string(),
            };
            let ended = wait_context.look(&[peer]).err();
            Err(ended.unwrap_or_else(transport))
        }
        None => Err(wait_context.stalled(&[peer])),
    }
}

/// The stream that a member with a lower index has made, if it has.
pub(super) fn take(
    context: &Context,
    group: &Identity,
    plane: Plane,
    peer: usize,
) -> Result<Option<Box<dyn Stream>>, ErrorKind> {
    let net = net(context, group, peer)?;
    let key = |lane: u8| ParkedKey {
        group: group.key,
        plane: lane_of(plane, lane),
        peer: group.members[peer].0,
    };
    // The connector says how many there are to be, and makes them in this order: with the last one all
    // are here.
    let Some(lanes) = net.listener.lanes_of(key(0)) else {
        return Ok(None);
    };
    if lanes > 1 && !net.listener.has(key(lanes - 1)) {
        return Ok(None);
    }
    let links: Option<Vec<TcpLink>> = (0..lanes)
        .map(|lane| net.listener.try_take(key(lane)))
        .collect();
    Ok(links.map(stream_of))
}

fn net<'a>(context: &'a Context, group: &Identity, peer: usize) -> Result<&'a Net, ErrorKind> {
    context.net.as_ref().ok_or_else(|| ErrorKind::Unsupported {
        what: format!("a link to rank {}", group.members[peer]),
        why: "this world has shared memory only".to_owned(),
    })
}

/// The number of a connection among those of two ranks in a group.
fn lane_of(plane: Plane, lane: u8) -> u8 {
    plane as u8 | lane << 1
}

fn stream_of(mut links: Vec<TcpLink>) -> Box<dyn Stream> {
    match links.pop() {
        Some(link) if links.is_empty() => Box::new(link),
        last => {
            links.extend(last);
            Box::new(Bundle::new(links))
        }
    }
}
