//! What one listening socket serves: everything, or one export and no word of the others.

use crate::Listen;
use crate::export::{Entry, ExportTable};
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
}

impl From<Listen> for Gate {
    /// All exports, for the user that runs the program.
    fn from(address: Listen) -> Self {
        Self {
            address,
            export: None,
            access: Access::default(),
        }
    }
}

/// The exports that the clients of one socket may know of.
#[derive(Clone)]
pub(crate) struct Tenant {
    exports: Arc<ExportTable>,
    only: Option<String>,
}

impl Tenant {
    /// One export, or all; none if there is no export of this name.
    pub(crate) fn new(exports: &Arc<ExportTable>, only: Option<&str>) -> Option<Self> {
        if let Some(name) = only {
            exports.find(name)?;
        }
        Some(Self {
            exports: Arc::clone(exports),
            only: only.map(str::to_owned),
        })
    }

    /// The export, if its clients are served here.
    pub(crate) fn find(&self, name: &str) -> Option<Entry> {
        let found = self.exports.find(name);
        found.filter(|entry| self.serves(entry))
    }

    fn serves(&self, entry: &Entry) -> bool {
        self.only.as_deref().is_none_or(|only| entry.belongs(only))
    }

    /// The name of the one export that the socket is for.
    pub(crate) fn name(&self) -> Option<&str> {
        self.only.as_deref()
    }

    /// The one export that is served here: the only one there is, or the one that the socket is for.
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
