//! What one listening socket serves: everything, or one export and no word of the others.

use crate::export::ExportTable;
use crate::quota::Quota;
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
    only: Option<usize>,
}

impl Tenant {
    /// One export, or all; none if there is no export of this name.
    pub(crate) fn new(exports: &Arc<ExportTable>, only: Option<&str>) -> Option<Self> {
        let only = match only {
            Some(name) => Some(exports.find(name)?.0),
            None => None,
        };
        let exports = Arc::clone(exports);
        Some(Self { exports, only })
    }

    /// The export and its number, if its clients are served here.
    pub(crate) fn find(&self, name: &str) -> Option<(usize, &Export)> {
        let found = self.exports.find(name);
        found.filter(|(at, _)| self.only.is_none_or(|only| self.exports.belongs(*at, only)))
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
        match self.only {
            None => self.exports.list(),
            Some(only) => (0..self.exports.count())
                .filter(|at| self.exports.belongs(*at, only))
                .filter_map(|at| self.exports.info(at))
                .collect(),
        }
    }

    fn demotion(&self) -> DemotionOffer {
        self.exports.demotion()
    }

    fn identity(&self, name: &str) -> Option<VolumeIdentity> {
        self.find(name)?;
        self.exports.identity(name)
    }
}
