//! Errors when a server starts.

use futae_control::SocketError;
use futae_engine::SetupError;
use futae_nbd::WireError;
use std::borrow::Cow;
use std::io;

/// Why a server cannot start, in a sentence that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// An address is malformed.
    #[error(
        "{text:?}: {problem}; write unix:PATH or tcp:HOST:PORT, or for --listen also vhost-user:PATH"
    )]
    Address {
        /// The given text.
        text: String,
        /// What is wrong with it.
        problem: Cow<'static, str>,
    },
    /// The address is already in use.
    #[error("{address}: socket in use; stop the server that answers there or listen elsewhere")]
    InUse {
        /// The address.
        address: String,
    },
    /// A unix socket cannot be listened on.
    #[error(transparent)]
    Socket(SocketError),
    /// The operating system refuses to listen.
    #[error("{address}: cannot listen")]
    Listen {
        /// The address.
        address: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// A TCP address that other machines can reach.
    #[error(
        "{address}: other machines could reach this, and without TLS and certificates or keys of clients anyone there could \
         open the exports; give --tls-cert, --tls-key and --tls-client-ca, or --tls-psk, listen on 127.0.0.1, or say --insecure-tcp"
    )]
    InsecureTcp {
        /// The address.
        address: String,
    },
    /// A certificate, a key or a file of keys is unusable.
    #[error("TLS: {file}: {problem}")]
    Certificate {
        /// The file.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A rule is malformed.
    #[error(
        "{text:?}: write EXPORT=NAME, a name in the client's certificate or of its pre-shared key; * stands for all"
    )]
    AllowRule {
        /// The given text.
        text: String,
    },
    /// There are rules for clients, but clients need not say who they are.
    #[error(
        "--tls-allow is about the certificates or keys of clients; add --tls-client-ca FILE, or use --tls-psk FILE"
    )]
    AllowNobody,
    /// The requirement that clients prove who they are cannot be dropped, because addresses were opened on
    /// its condition.
    #[error(
        "--tls-client-ca cannot be taken away while the server runs, nor --tls-psk without putting it in its place; start it again"
    )]
    AuthoritiesStay,
    /// A build without TLS.
    #[error(
        "this futae was built without TLS; build it with the feature tls, which is among the default ones"
    )]
    NoTls,
    /// A build without pre-shared keys.
    #[error(
        "this futae was built without pre-shared keys; build it with the feature psk, which is among the default ones"
    )]
    NoPsk,
    /// A disk could belong to any of several exports.
    #[error("{address}: a vhost-user socket serves one export; write EXPORT={address}")]
    WhichExport {
        /// The address.
        address: String,
    },
    /// A socket for an export that does not exist.
    #[error("--listen {name}={address}: no export has this name")]
    NoSuchTenant {
        /// The name.
        name: String,
        /// The address.
        address: String,
    },
    /// Two exports have the same name.
    #[error("two exports are named {name:?}; a name is given once")]
    DuplicateExport {
        /// The name.
        name: String,
    },
    /// A weight without the limit that weights divide.
    #[error(
        "export {name}: a weight is a part of --requests-max, which this server does not have; start it with --requests-max N, or \
         leave the weight out"
    )]
    WeightAlone {
        /// The name of the export.
        name: String,
    },
    /// The server is stopping; no export can be added.
    #[error("the server stops")]
    Stopping,
    /// Samples are to be relayed from an export without a feed.
    #[error("--samples-to {name}: no agent reports on this export; add --feed {name}=unix:PATH")]
    NoFeed {
        /// The name of the export.
        name: String,
    },
    /// A feed for an export that does not exist.
    #[error("--feed {name}: no export has this name; write NAME=unix:PATH")]
    NoSuchExport {
        /// The name.
        name: String,
    },
    /// A feed for no export.
    #[error("--feed =unix:{path}: the feed has no export; write NAME=unix:PATH")]
    EmptyFeed {
        /// The path of its socket.
        path: String,
    },
    /// There is no export.
    #[error("a server needs at least one export")]
    NoExport,
    /// There is no memory or thread for a channel's cache.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// There is no address to listen on.
    #[error("a server needs at least one address to listen on")]
    NoAddress,
    /// An export cannot be described to clients.
    #[error(transparent)]
    Export(#[from] WireError),
    /// No thread or descriptor is available.
    #[error("cannot start serving")]
    Start(#[from] io::Error),
}

impl From<SocketError> for HostError {
    fn from(error: SocketError) -> Self {
        match error {
            SocketError::InUse { path } => Self::InUse {
                address: format!("unix:{}", path.display()),
            },
            other => Self::Socket(other),
        }
    }
}
