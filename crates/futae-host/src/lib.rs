//! The host's side: volumes behind a live cache, served over NBD.
//!
//! A [`Server`] listens on unix sockets and TCP ports and offers [`Export`]s, each a volume of a
//! [`futae_engine::Engine`]. Every connection has one thread. It reads as many requests as have
//! arrived, gives them to the cache in one batch, and sends every reply that is ready with one
//! system call; at depth, that is most of the speed of a block server.
//!
//! | room | holds |
//! | --- | --- |
//! | `server`, `registry` | the life of the server: start, accept, count, stop |
//! | `peer` | who is at the other end |
//! | `accept`, `stop` | its beginning for each connection, its end for all |
//! | `changing` | exports that come and go |
//! | `listen` | addresses |
//! | `tenant` | what the clients of one socket see |
//! | `tls`, `wire`, `secure` | TLS, and the bytes of a connection with and without it |
//! | `connection` | one client from greeting to goodbye |
//! | `connection_loop` | the loop of the transmission phase |
//! | `intake`, `outbox`, `mailbox` | its three sides: requests in, replies out, completions |
//! | `answer` | what a completion looks like on the wire |
//! | `refusals` | what the log says of clients that are refused |
//! | `budget`, `quota`, `rate` | what all connections may hold, what those of an export may ask, and how much a second |
//! | `disk` | one frontend of a virtual machine's disk (vhost-user) |
//! | `control` | what can be told over the control socket |
//! | `feed` | what agents in guests tell of evicted pages |
//! | `channel`, `in_place`, `handing` | evicted pages with their data: by a channel disk, out of the guest's memory, into the cache |
//!
//! Nothing here knows policies, frames or stores.

mod accept;
mod answer;
mod budget;
mod changing;
mod channel;
mod connection;
mod connection_loop;
mod control;
mod disk;
mod error;
mod export;
mod fair;
mod feed;
mod handing;
mod in_place;
mod intake;
mod listen;
mod mailbox;
mod options;
mod outbox;
mod peer;
mod pulse;
mod quota;
mod rate;
mod refusals;
mod registry;
mod requests;
mod secure;
mod server;
mod status;
mod stop;
mod tenant;
mod tls;
mod wire;

pub use budget::BUFFER_MEMORY_MIN;
pub use channel::ChannelReport;
pub use error::HostError;
pub use export::{Export, OpenExport};
pub use feed::{FeedOptions, FeedReport, RelayOptions, feed_path};
pub use futae_agent_protocol::receiver::{AgentStatus, RelayStatus};
pub use futae_control::Access;
pub use in_place::InPlaceReport;
pub use listen::Listen;
pub use options::ServerOptions;
pub use pulse::Heartbeat;
pub use rate::{Clock, RateLimits, RateReport};
pub use server::{Server, StopReport};
pub use status::{ExportReport, ServerStatus, Traffic};
pub use tenant::Gate;
pub use tls::{TlsAllow, TlsOptions, common_names};
