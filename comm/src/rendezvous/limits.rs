//! The limits of the control plane, each with its reason. Everything that a peer can make grow has
//! one.

use std::time::Duration;

/// Longest frame before the secret is proved, in bytes. The longest honest one is an opening with
/// a job id of [`JOB_ID_BYTES_MAX`]; whoever announces more is no rank.
pub const HANDSHAKE_FRAME_BYTES_MAX: usize = 512;

/// Time a connection has from its acceptance to its complete introduction. An honest joiner needs
/// two round trips; one that is descheduled for longer is dropped and simply tries again.
pub const HANDSHAKE_WAIT: Duration = Duration::from_secs(2);

/// Connections that have proved nothing yet, besides one for every rank that is still to come.
/// More push out the oldest, so strangers never fill the table and a whole world always fits.
pub const STRANGERS_MAX: usize = 64;

/// Fewest strangers' places with which a coordinator starts on a machine with few descriptors.
pub const STRANGERS_MIN: usize = 8;

/// Longest job id in bytes: what fits a handshake frame with room to spare.
pub const JOB_ID_BYTES_MAX: usize = 128;

/// Longest name (host, identity, address, source of a rank's numbers, round) in bytes.
pub const NAME_BYTES_MAX: usize = 512;

/// Longest opaque payload of a [`Card`](super::Card) in bytes: every rank receives all of them.
pub const CARD_PAYLOAD_BYTES_MAX: usize = 8 * 1024;

/// Most ranks one coordinator serves: one descriptor each, and a roster that fits a frame.
pub const CONTROL_WORLD_SIZE_MAX: u32 = 16_384;

/// Longest opaque message (report, abort, broadcast) and longest contribution to a round.
pub const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// Most bytes that one round collects from all ranks together; every rank receives them all.
pub const ROUND_BYTES_MAX: usize = 48 * 1024 * 1024;

/// Rounds that may be open, and failed rounds that are remembered, at one time.
pub const ROUNDS_MAX: usize = 64;

/// Longest frame that a joiner sends once it has proved itself.
pub const JOINER_FRAME_BYTES_MAX: usize = MESSAGE_BYTES_MAX + 4 * 1024;

/// Longest frame that a coordinator sends: a full round or a full roster.
pub const COORDINATOR_FRAME_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bytes that may wait for one rank that does not read. Two of the longest frames: a rank that
/// is slow gets the time it needs, one that never reads is given up.
pub const QUEUE_BYTES_MAX: usize = 2 * COORDINATOR_FRAME_BYTES_MAX;

/// Bytes of reports that may wait for the coordinator's owner; reports beyond are dropped and
/// counted, because the coordinator may neither block nor grow.
pub const REPORTS_BYTES_MAX: usize = 256 * 1024 * 1024;

/// How often the coordinator tells waiting joiners that it lives and who is missing.
pub const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// Missing ranks that one progress frame names; the frame goes to everybody, twice a second.
pub const PROGRESS_RANKS_MAX: usize = 32;

/// Silence after which a joiner looks whether the coordinator is stopped. Six missed progress frames.
pub const SILENCE_MAX: Duration = Duration::from_secs(3);

/// Time beyond its deadline that a rank gives the coordinator to say who is missing.
pub const ANSWER_GRACE: Duration = Duration::from_secs(5);

/// How long the coordinator waits for its owner to say why a rank went down.
pub const OWNER_WAIT: Duration = Duration::from_millis(50);

/// How long it waits at most where the process is seen to have ended: its parent may be kept from running.
pub const OWNER_WAIT_MAX: Duration = Duration::from_secs(1);

/// How long it waits at most for the end of a process that has closed its connection and still runs.
pub const ENDING_WAIT_MAX: Duration = Duration::from_secs(1);

/// How long a closing connection may take to drain what it was told.
pub const DRAIN_MAX: Duration = Duration::from_millis(250);

/// Probes of an idle connection start after this time and repeat at this interval; with
/// [`PROBES`] a dead host or a cut cable is noticed within three seconds, and within [`ACKNOWLEDGED_WITHIN`] while something is
/// sent.
pub const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Unanswered probes after which a connection is given up.
pub const PROBES: u32 = 2;

/// How long data that was sent may stay without an acknowledgement before the connection is given up: the kernel of a host
/// acknowledges it whatever its processes do, so the host or the path to it is gone.
pub const ACKNOWLEDGED_WITHIN: Duration = Duration::from_millis(2300);

/// One event for refused strangers of one address in this time; the rest is counted.
pub const REFUSAL_EVENT_EVERY: Duration = Duration::from_secs(10);

/// Addresses whose refusals are tracked at one time.
pub const REFUSAL_ADDRESSES_MAX: usize = 1024;
