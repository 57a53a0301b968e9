//! What one listening socket serves: everything, or one export and no word of the others.

use crate::export::ExportTable;
use crate::quota::Quota;
use crate::tls::TlsAllow;
use crate::{Export, Listen};
use futae_control::Access;
use futae_nbd::{DemotionOffer, ExportDirectory, ExportInfo, VolumeIdentity};
use std::sync::Arc;

/// A socket on which clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Where.
    pub address: Listen,
    /// The one export that is served there; all of them if none is named.
    pub export: Option<String>,
    /// Who may connect to a unix socket.
    pub access: Access,
    /// Clients need no TLS here, even if the server has it.
    pub in_the_clear: bool,
}

impl From<Listen> for Gate {
    /// All exports, for the user that runs the program.
    fn from(address: Listen) -> Self {
        Self {
            address,
            export: None,
            access: Access::default(),
            in_the_clear: false,
        }
    }
}

/// The exports that the clients of one socket may know of.
#[derive(Clone)]
pub(crate) struct Tenant {
    exports: Arc<ExportTable>,
    only: Option<usize>,
    /// By which rules the client is given exports; all without rules.
    client: Option<Arc<Client>>,
}

/// A client that showed a certificate.
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
    /// One export, or all; none if there is no export of this name.
    pub(crate) fn new(exports: &Arc<ExportTable>, only: Option<&str>) -> Option<Self> {
        let only = match only {
            Some(name) => Some(exports.find(name)?.0),
            None => None,
        };
        let exports = Arc::clone(exports);
        Some(Self {
            exports,
            only,
            client: None,
        })
    }

    /// The export and its number, if its clients are served here.
    pub(crate) fn find(&self, name: &str) -> Option<(usize, &Export)> {
        let found = self.exports.find(name);
        found.filter(|(at, _)| self.serves(*at))
    }

    /// What is left of it for a client with these names in its certificate.
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

    /// Whether number `at`, an export or a channel, is for the clients of this socket, and for this client.
    fn serves(&self, at: usize) -> bool {
        let belongs = |of: &usize| self.exports.belongs(at, *of);
        let is_given = |client: &Arc<Client>| {
            let all = self.exports.all().iter().enumerate();
            let mut given = all.filter(|(_, export)| client.may_open(&export.name));
            given.any(|(of, _)| belongs(&of))
        };
        self.only.iter().all(belongs) && self.client.as_ref().is_none_or(is_given)
    }

    /// The one export that is served here, and its number: the only one there is, or the one that the socket is for.
    pub(crate) fn only(&self) -> Option<(usize, &Export)> {
        match (self.only, self.exports.all()) {
            (Some(at), all) => all.get(at).map(|export| (at, export)),
            (None, [only]) => Some((0, only)),
            (None, _) => None,
        }
    }

    /// The quota of an export, if it has one.
    pub(crate) fn quota(&self, at: usize) -> Option<Arc<Quota>> {
        self.exports.quota(at)
    }
}

impl ExportDirectory for Tenant {
    fn list(&self) -> Vec<ExportInfo> {
        (0..self.exports.count())
            .filter(|at| self.serves(*at))
            .filter_map(|at| self.exports.info(at))
            .collect()
    }

    fn demotion(&self) -> DemotionOffer {
        self.exports.demotion()
    }

    fn identity(&self, name: &str) -> Option<VolumeIdentity> {
        self.find(name)?;
        self.exports.identity(name)
    }
}
