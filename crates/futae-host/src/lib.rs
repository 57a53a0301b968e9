//! The host side: volumes behind a live cache, served over NBD.
//!
//! A [`Server`] listens on unix sockets and TCP ports and offers [`Export`]s, each a volume of a
//! [`futae_engine::Engine`]. Every connection has one thread. It reads as many requests as have
//! arrived, passes them to the cache in one batch, and sends every ready reply with one system
//! call; at depth, this accounts for most of the speed of a block server.
//!
//! | module | content |
//! | --- | --- |
//! | `server`, `registry` | the life of the server: start, accept, count, stop |
//! | `shared`, `status`, `traffic` | what its threads share, and what it reports of itself |
//! | `peer` | the identity of a connection's peer |
//! | `accept`, `stop` | the start of each connection; the flush at the end of the server |
//! | `changing` | adding and removing exports |
//! | `listen`, `gate`, `listener` | addresses, sockets as they are asked for, and sockets that listen |
//! | `tenant` | the exports that the clients of one socket see |
//! | `tls`, `wire`, `secure` | TLS, and the bytes of a connection with and without it |
//! | `connection` | one client, from its greeting to its end |
//! | `connection_loop` | the loop of the transmission phase |
//! | `intake`, `outbox`, `mailbox` | its three sides: requests in, replies out, completions |
//! | `answer` | replies on the wire |
//! | `refusals` | log lines about refused clients |
//! | `budget`, `quota`, `rate` | limits: memory of all connections, requests of an export, and both per second |
//! | `disk` | one frontend of a virtual machine's disk (vhost-user) |
//! | `control` | orders on the control socket |
//! | `kept_clients` | connections with which the next server goes on |
//! | `feed`, `feed_options` | evictions reported by agents in guests |
//! | `channel`, `in_place`, `demoter` | evicted pages with their data: by a channel disk, from the guest's memory, into the cache |
//!
//! This crate knows no policies, frames or stores.

mod accept;
mod answer;
mod budget;
mod changing;
mod channel;
mod connection;
mod connection_loop;
mod control;
mod demoter;
mod disk;
mod error;
mod export;
mod fair;
mod feed;
mod feed_options;
mod gate;
mod in_place;
mod intake;
mod kept_clients;
mod listen;
mod listener;
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
mod shared;
mod status;
mod stop;
mod tenant;
mod tls;
mod traffic;
mod wire;

pub use budget::BUFFER_MEMORY_MIN;
pub use channel::ChannelReport;
pub use error::HostError;
pub use export::{Export, OpenExport, PendingExport};
pub use feed::{FeedReport, feed_path};
pub use feed_options::{FeedOptions, RelayOptions};
pub use futae_agent_protocol::receiver::{AgentStatus, AgentVolume, RelayStatus};
pub use futae_control::Access;
pub use gate::Gate;
pub use in_place::InPlaceReport;
pub use kept_clients::{KeptClient, RecordError};
pub use listen::Listen;
pub use options::ServerOptions;
pub use pulse::Heartbeat;
pub use rate::{Clock, RateLimits, RateReport};
pub use server::{Server, StopReport};
pub use status::{ExportReport, ServerStatus};
pub use tls::{TlsAllow, TlsOptions, TlsProof, common_names};
pub use traffic::Traffic;
