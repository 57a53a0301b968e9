//! What the agent in a guest says of the guest's page cache, and how it is written down.
//!
//! An agent sends [`Frame`]s: first a [`Hello`], and again one with every period, since a host may
//! begin to listen at any time; then a [`Sample`] a period, [`Notices`] soon after evictions, and
//! [`References`] for miss-ratio curves. A frame travels as binary ([`Frame::encode`], read back
//! by [`Stream`]) or as a line of JSON ([`Frame::to_json`]).
//!
//! The reader must not believe it: an agent may be broken or hostile. The decoder bounds
//! every size, never panics, and finds its way back into a broken stream; what the numbers are
//! worth is the reader's to judge. All counts of pages are in units of 4 KiB, whatever the size of the
//! guest's pages and folios.
//!
//! | room | holds |
//! | --- | --- |
//! | [`counters`] | what is counted in a period |
//! | [`evicted_pages`] | evicted pages with their data, on a channel disk |
//! | [`in_place`] | the same in the guest's memory, and the host's reader |
//! | [`message`] | the messages |
//! | [`frame`] | a message with its number, as bytes or as JSON |
//! | [`mod@printable`] | names, made fit for a terminal |
//! | [`replay`] | which frames are new |
//! | [`receiver`] | the thread that listens to one agent, checks what it says and hands it on |
//! | [`stream`] | frames out of a stream of bytes |
//!
//! The format on the wire is described in `docs/reference/agent-protocol.md`.

#![forbid(unsafe_code)]

pub mod counters;
pub mod evicted_pages;
pub mod frame;
pub mod in_place;
pub mod message;
pub mod printable;
pub mod receiver;
pub mod replay;
pub mod stream;

mod binary;
mod device;
mod sync;

pub use counters::Counters;
pub use device::DeviceId;
pub use frame::{Frame, JsonError, MAX_PAYLOAD_BYTES};
pub use message::{
    BootId, Device, DeviceSample, FileSample, GroupSample, Hello, Memory, Message, Notices,
    PageCache, Pressure, Range, Reason, References, Replacement, Sample, Source,
};
pub use printable::printable;
pub use replay::Replay;
pub use stream::{Health, Stream};

/// Bytes of a page, the unit of all counts.
pub const PAGE_BYTES: u64 = 4096;

/// Bytes of a sector, the unit of addresses on block devices.
pub const SECTOR_BYTES: u64 = 512;
