//! The exports that one listening socket serves: all of them, or one without revealing the others.

use crate::Listen;
use crate::export::{Entry, ExportTable};
use crate::tls::TlsAllow;
use futae_control::Access;
use futae_nbd::{DemotionOffer, ExportDirectory, ExportInfo, VolumeIdentity};
use std::sync::Arc;

/// A socket on which clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Its address.
    pub address: Listen,
    /// The only export that is served there; `None`: all exports.
    pub export: Option<String>,
    /// Access to a unix socket.
    pub access: Access,
    /// Clients need no TLS here, even if the server has TLS.
    pub in_the_clear: bool,
}

impl From<Listen> for Gate {
    /// All exports, for the user who runs the program.
    fn from(address: Listen) -> Self {
        Self {
            address,
            export: None,
            access: Access::default(),
            in_the_clear: false,
        }
    }
}

/// The exports that the clients of one socket may see.
#[derive(Clone)]
pub(crate) struct Tenant {
    exports: Arc<ExportTable>,
    only: Option<String>,
    /// The client, if rules apply to it; otherwise it may see all exports of the socket.
    client: Option<Arc<Client>>,
}

/// A client that has proved who it is.
struct Client {
    rules: Vec<TlsAllow>,
    names: Vec<String>,
}

impl Client {
    fn may_open(&self, export: &str) -> bool {
        let mut rules = self.rules.iter();
        rules.any(|rule| rule.gives(export, &self.names))
    }
}

impl Tenant {
    /// One export, or all; `None` if no export has this name.
    pub(crate) fn new(exports: &Arc<ExportTable>, only: Option<&str>) -> Option<Self> {
        if let Some(name) = only {
            exports.find(name)?;
        }
        Some(Self {
            exports: Arc::clone(exports),
            only: only.map(str::to_owned),
            client: None,
        })
    }

    /// The export, if it is served to the client.
    pub(crate) fn find(&self, name: &str) -> Option<Entry> {
        let found = self.exports.find(name);
        found.filter(|entry| self.serves(entry))
    }

    /// The part for a client with these names.
    pub(crate) fn for_client(&self, rules: &[TlsAllow], names: &[String]) -> Self {
        let client = (!rules.is_empty()).then(|| {
            Arc::new(Client {
                rules: rules.to_vec(),
                names: names.to_vec(),
            })
        });
        Self {
            client,
            ..self.clone()
        }
    }

    /// Whether an export, or a channel, is served on this socket and to this client.
    fn serves(&self, entry: &Entry) -> bool {
        let is_given = |client: &Arc<Client>| client.may_open(entry.owner());
        self.only.as_deref().is_none_or(|only| entry.belongs(only))
            && self.client.as_ref().is_none_or(is_given)
    }

    /// The name of the only export of the socket, if there is one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.only.as_deref()
    }

    /// The only export that is served here: the only one of the server, or of the socket.
    pub(crate) fn only(&self) -> Option<Entry> {
        match (&self.only, &self.exports.all()[..]) {
            (Some(name), _) => self.exports.find(name),
            (None, [only]) => self.exports.find(&only.name),
            (None, _) => None,
        }
    }
}

impl ExportDirectory for Tenant {
    fn list(&self) -> Vec<ExportInfo> {
        let entries = self.exports.entries();
        let served = entries.iter().filter(|entry| self.serves(entry));
        served.map(Entry::info).collect()
    }

    fn demotion(&self) -> DemotionOffer {
        self.exports.demotion()
    }

    fn identity(&self, name: &str) -> Option<VolumeIdentity> {
        self.find(name)?;
        self.exports.identity(name)
    }
}
