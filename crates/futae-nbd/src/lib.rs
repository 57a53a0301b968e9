//! The Network Block Device protocol as pure functions over byte slices, both sides of it, and
//! futae's own extension to it: demotion.
//!
//! Nothing here opens a socket, starts a thread or keeps a buffer. A server
//! owns its sockets and buffers, sends [`greeting`], feeds what arrived to [`Handshake::feed`]
//! until an export is agreed, then to [`parse_request`], asks [`RequestRules::check`] what to make
//! of each request, and answers with
//! the headers from [`reply`]; block data never passes through this crate. A client calls
//! [`client::negotiate`] once on its connected stream (the only function here that blocks), then
//! writes [`RequestHeader::encode`] and reads [`parse_reply`].
//!
//! | room | holds |
//! | --- | --- |
//! | [`constants`] | every number of the protocol, under its name in the specification |
//! | [`export`] | what a server offers: [`ExportInfo`], [`ExportDirectory`] |
//! | [`option`] | the server's side of the handshake |
//! | [`request`] | requests |
//! | [`rules`] | which requests deserve which error |
//! | [`reply`] | replies, simple and structured |
//! | [`client`] | the client's side of the handshake |
//! | [`extension`] | demotion: its option and its command |
//! | [`uri`] | `nbd://` and `nbd+unix://` addresses |
//!
//! The wire format of the extension and the rules by which a server believes demoted data are in
//! `docs/reference/wire.md`.

pub mod client;
pub mod constants;
pub mod error;
pub mod export;
pub mod extension;
pub mod identity;
pub mod option;
pub mod reply;
pub mod request;
pub mod rules;
pub mod uri;

mod answer;
mod bytes;
mod meta;

pub use client::{ClientExport, ClientWish};
pub use error::{ErrorNumber, WireError};
pub use export::{Capabilities, ExportDirectory, ExportInfo, TransmissionFlags};
pub use extension::{DemotionOffer, DemotionTerms, DemotionWish};
pub use identity::VolumeIdentity;
pub use option::{Handshake, Negotiated, Outcome, Progress, greeting};
pub use reply::{Extent, Reply, parse_reply};
pub use request::{Command, CommandFlags, RequestHeader, parse_request};
pub use rules::{Refusal, RequestRules};
pub use uri::{ClientTls, NbdUri, Transport};
