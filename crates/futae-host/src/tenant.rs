//! The exports that one listening socket serves: all of them, or one without revealing the others.

use crate::export::{Entry, ExportTable};
use crate::tls::TlsAllow;
use futae_nbd::{DemotionOffer, ExportDirectory, ExportInfo, VolumeIdentity};
use std::cell::OnceCell;
use std::sync::Arc;

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

    /// Whether this very export is still served to the client: not removed, nor replaced by another under its name.
    pub(crate) fn still_has(&self, entry: &Entry) -> bool {
        let now = self.find(&entry.export.name);
        now.is_some_and(|now| now.is_same(entry))
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

/// The exports of one handshake, as they are when the client first asks for any: what it learns of an export, and the export that it
/// then opens, are the same, also if another is added under that name meanwhile.
pub(crate) struct Offered<'a> {
    tenant: &'a Tenant,
    entries: OnceCell<Arc<Vec<Entry>>>,
}

impl<'a> Offered<'a> {
    pub(crate) fn new(tenant: &'a Tenant) -> Self {
        Self {
            tenant,
            entries: OnceCell::new(),
        }
    }

    /// The exports that the client may see.
    pub(crate) fn tenant(&self) -> &'a Tenant {
        self.tenant
    }

    /// The export that the client was told of under this name.
    pub(crate) fn find(&self, name: &str) -> Option<&Entry> {
        let mut served = self.served();
        served.find(|entry| entry.export.name == name)
    }

    fn served(&self) -> impl Iterator<Item = &Entry> {
        let entries = self.entries.get_or_init(|| self.tenant.exports.entries());
        entries.iter().filter(|entry| self.tenant.serves(entry))
    }
}

impl ExportDirectory for Offered<'_> {
    fn list(&self) -> Vec<ExportInfo> {
        self.served().map(Entry::info).collect()
    }

    fn demotion(&self) -> DemotionOffer {
        self.tenant.exports.demotion()
    }

    fn identity(&self, name: &str) -> Option<VolumeIdentity> {
        self.tenant.exports.identity_of(self.find(name)?)
    }
}
