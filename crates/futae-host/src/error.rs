//! Why a server cannot start.

use futae_control::SocketError;
use futae_engine::SetupError;
use futae_nbd::WireError;
use std::io;

/// What stands in the way of serving, each in a sentence that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// An address that cannot be understood.
    #[error("{text:?}: {problem}; write unix:PATH, tcp:HOST:PORT or vhost-user:PATH")]
    Address {
        /// What was written.
        text: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Somebody listens there already.
    #[error("{address}: socket in use; stop the server that answers there or listen elsewhere")]
    InUse {
        /// The address.
        address: String,
    },
    /// A unix socket cannot be listened on.
    #[error(transparent)]
    Socket(SocketError),
    /// The operating system does not let us listen.
    #[error("{address}: cannot listen")]
    Listen {
        /// The address.
        address: String,
        /// What it said.
        source: io::Error,
    },
    /// TCP that other machines can reach.
    #[error(
        "{address}: other machines could reach this, and without TLS and certificates of clients anyone there could open \
         the exports; give --tls-cert, --tls-key and --tls-client-ca, listen on 127.0.0.1, or say --insecure-tcp"
    )]
    InsecureTcp {
        /// The address.
        address: String,
    },
    /// A certificate or a key that cannot be used.
    #[error("TLS: {file}: {problem}")]
    Certificate {
        /// The file.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A rule that cannot be understood.
    #[error("{text:?}: write EXPORT=NAME, a name in the client's certificate; * stands for all")]
    AllowRule {
        /// What was written.
        text: String,
    },
    /// Rules for certificates that nobody is asked for.
    #[error("--tls-allow is about the certificates of clients; add --tls-client-ca FILE")]
    AllowNobody,
    /// Certificates of clients are to be needed no more, on addresses that were opened because they are.
    #[error("--tls-client-ca cannot be taken away while the server runs; start it again")]
    AuthoritiesStay,
    /// A build without TLS.
    #[error(
        "this futae was built without TLS; build it with the feature tls, which is among the default ones"
    )]
    NoTls,
    /// A disk that could be any of several exports.
    #[error("{address}: a vhost-user socket serves one export; write EXPORT={address}")]
    WhichExport {
        /// The address.
        address: String,
    },
    /// A socket for an export that is not there.
    #[error("--listen {name}={address}: no export has this name")]
    NoSuchTenant {
        /// The name.
        name: String,
        /// The address.
        address: String,
    },
    /// Two exports of one name.
    #[error("two exports are named {name:?}; a name is given once")]
    DuplicateExport {
        /// The name.
        name: String,
    },
    /// It is too late for another export.
    #[error("the server stops")]
    Stopping,
    /// Samples of an export that has no feed.
    #[error("--samples-to {name}: no agent reports on this export; add --feed {name}=unix:PATH")]
    NoFeed {
        /// The name of the export.
        name: String,
    },
    /// A feed for an export that is not there.
    #[error("--feed {name}: no export has this name; write NAME=unix:PATH")]
    NoSuchExport {
        /// The name.
        name: String,
    },
    /// Nothing to offer.
    #[error("a server needs at least one export")]
    NoExport,
    /// There is no memory or thread for a channel's cache.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// Nowhere to offer it.
    #[error("a server needs at least one address to listen on")]
    NoAddress,
    /// An export cannot be described to clients.
    #[error(transparent)]
    Export(#[from] WireError),
    /// No thread or descriptor to run on.
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
