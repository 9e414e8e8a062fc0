//! What the messages of a group of torch go over: communicators of two ranks, one for each direction and tag. Messages
//! overtake none of their own and wait for none of another.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use muster_comm::collective::Communicator;
use muster_comm::error::CommError;
use muster_comm::types::Rank;
use muster_comm::world::World;

/// In the place of the sender, for messages from any.
const ANY: u64 = u64::MAX;

/// The channels of a group, made when they are first used. Members are known by their index in the group.
pub(crate) struct Channels {
    comm: Communicator,
    world: World,
    /// By sender, receiver and tag.
    open: Mutex<HashMap<(u64, u64, i64), Communicator>>,
}

impl Channels {
    pub(crate) fn new(comm: Communicator, world: World) -> Self {
        Self {
            comm,
            world,
            open: Mutex::default(),
        }
    }

    /// The channel for the messages from one member to another that have this tag.
    pub(crate) fn channel(
        &self,
        source: u64,
        target: u64,
        tag: i64,
    ) -> Result<Communicator, CommError> {
        let members = self.comm.members();
        // An index outside of the group becomes a rank outside of the world, which is refused by name.
        let outside = Rank(u32::MAX);
        let member = |index: u64| members.get(muster_comm::types::index(index)).copied();
        let two = [source, target].map(|index| member(index).unwrap_or(outside));
        self.named((source, target, tag), &two)
    }

    /// The channels from all other members to this one, with their senders.
    pub(crate) fn to_me(&self, tag: i64) -> Result<Vec<(u64, Communicator)>, CommError> {
        let me = self.comm.rank() as u64;
        let others = (0..self.comm.size() as u64).filter(|other| *other != me);
        let channel = |source| Ok((source, self.channel(source, me, tag)?));
        others.map(channel).collect()
    }

    /// What a message from any member is known by. Nothing is sent over it.
    pub(crate) fn any(&self, tag: i64) -> Result<Communicator, CommError> {
        let me = self.comm.rank() as u64;
        self.named((ANY, me, tag), self.comm.members())
    }

    /// Ends all calls.
    pub(crate) fn cancel(&self, why: &str) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        for channel in open.values() {
            channel.cancel(why);
        }
    }

    fn named(&self, key: (u64, u64, i64), members: &[Rank]) -> Result<Communicator, CommError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = open.get(&key) {
            return Ok(channel.clone());
        }
        let (source, target, tag) = key;
        let from = match source {
            ANY => "any".to_owned(),
            source => source.to_string(),
        };
        let name = match tag {
            0 => format!("{} {from}->{target}", self.comm.name()),
            tag => format!("{} {from}->{target} tag {tag}", self.comm.name()),
        };
        let channel = self.world.group(&short(&name), members)?;
        open.insert(key, channel.clone());
        Ok(channel)
    }
}

/// A name that a group may have: a long one is cut in the middle.
pub(crate) fn short(name: &str) -> String {
    let most = muster_comm::world::GROUP_NAME_MAX;
    if name.len() <= most {
        return name.to_owned();
    }
    let all: Vec<char> = name.chars().filter(char::is_ascii).collect();
    let (head, tail) = (most / 2 - 2, most / 2 - 2);
    let first: String = all.iter().take(head).collect();
    let last: String = all.iter().skip(all.len().saturating_sub(tail)).collect();
    format!("{first}...{last}")
}
