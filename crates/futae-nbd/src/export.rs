//! What a server offers: exports, their abilities, and the directory that finds them by name.

use std::sync::Arc;

use crate::constants::{MAX_PAYLOAD_BYTES, MAX_STRING_BYTES};
use crate::error::WireError;
use crate::extension::DemotionOffer;
use crate::identity::VolumeIdentity;

/// The 16 transmission flags of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct TransmissionFlags(pub u16);

impl TransmissionFlags {
    /// Always set.
    pub const HAS_FLAGS: Self = Self(1);
    /// Writes will fail.
    pub const READ_ONLY: Self = Self(1 << 1);
    /// FLUSH is understood.
    pub const SEND_FLUSH: Self = Self(1 << 2);
    /// The FUA command flag is understood.
    pub const SEND_FUA: Self = Self(1 << 3);
    /// The medium is slow to seek.
    pub const ROTATIONAL: Self = Self(1 << 4);
    /// TRIM is understood.
    pub const SEND_TRIM: Self = Self(1 << 5);
    /// WRITE_ZEROES is understood.
    pub const SEND_WRITE_ZEROES: Self = Self(1 << 6);
    /// The DF command flag is understood; only with structured replies.
    pub const SEND_DF: Self = Self(1 << 7);
    /// One client may use several connections.
    pub const CAN_MULTI_CONN: Self = Self(1 << 8);
    /// CACHE is understood.
    pub const SEND_CACHE: Self = Self(1 << 10);
    /// The FAST_ZERO command flag is understood.
    pub const SEND_FAST_ZERO: Self = Self(1 << 11);

    /// Whether all flags of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These flags, and those of `other` if `wanted`.
    pub const fn with(self, other: Self, wanted: bool) -> Self {
        if wanted { Self(self.0 | other.0) } else { self }
    }
}

/// What an export can do beside READ and WRITE. None of it by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// FLUSH makes answered writes durable.
    pub flush: bool,
    /// A write with the FUA flag is durable when answered.
    pub fua: bool,
    /// TRIM is accepted.
    pub trim: bool,
    /// WRITE_ZEROES is accepted.
    pub write_zeroes: bool,
    /// WRITE_ZEROES with FAST_ZERO fails at once if it would be slow; needs `write_zeroes`.
    pub fast_zero: bool,
    /// A FLUSH on one connection covers writes answered on others.
    pub multi_conn: bool,
    /// CACHE is accepted, as a prefetch hint and eviction notice.
    pub cache: bool,
    /// BLOCK_STATUS answers `base:allocation`.
    pub block_status: bool,
    /// The medium is slow to seek.
    pub rotational: bool,
}

impl Capabilities {
    /// What a futae volume does: everything but FAST_ZERO and the rotational mark.
    pub const fn all() -> Self {
        Self {
            flush: true,
            fua: true,
            trim: true,
            write_zeroes: true,
            fast_zero: false,
            multi_conn: true,
            cache: true,
            block_status: true,
            rotational: false,
        }
    }
}

/// One export as the handshake describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportInfo {
    /// Name by which clients choose it, at most 4096 bytes, without NUL.
    pub name: String,
    /// A line for people; may be empty.
    pub description: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Whether every write is refused.
    pub read_only: bool,
    /// Smallest request that needs no read-modify-write, in bytes: the cache's block. A power of
    /// two, at least 512. Advertised as at most 32 MiB, the longest payload.
    pub preferred_block_bytes: u32,
    /// What else it can do.
    pub capabilities: Capabilities,
}

impl ExportInfo {
    /// Says whether the description may be sent to clients.
    ///
    /// # Errors
    ///
    /// [`WireError::BadExport`] names the field at fault.
    pub fn check(&self) -> Result<(), WireError> {
        let bad = |field, wanted| {
            let name = self.name.clone();
            Err(WireError::BadExport {
                name,
                field,
                wanted,
            })
        };
        let text = |s: &str| s.len() <= MAX_STRING_BYTES && !s.contains('\0');
        if !text(&self.name) {
            return bad("name", "must be at most 4096 bytes without NUL");
        }
        if !text(&self.description) {
            return bad("description", "must be at most 4096 bytes without NUL");
        }
        if !self.preferred_block_bytes.is_power_of_two() || self.preferred_block_bytes < 512 {
            return bad(
                "preferred_block_bytes",
                "must be a power of two, at least 512",
            );
        }
        if self.capabilities.fast_zero && !self.capabilities.write_zeroes {
            return bad("capabilities.fast_zero", "needs capabilities.write_zeroes");
        }
        Ok(())
    }

    /// The flags sent to a client, with or without structured replies.
    pub fn transmission_flags(&self, structured_replies: bool) -> TransmissionFlags {
        use TransmissionFlags as F;
        let able = &self.capabilities;
        let writable = !self.read_only;
        F::HAS_FLAGS
            .with(F::READ_ONLY, self.read_only)
            .with(F::SEND_FLUSH, able.flush)
            .with(F::SEND_FUA, able.fua)
            .with(F::ROTATIONAL, able.rotational)
            .with(F::SEND_TRIM, able.trim && writable)
            .with(F::SEND_WRITE_ZEROES, able.write_zeroes && writable)
            .with(F::SEND_DF, structured_replies)
            .with(F::CAN_MULTI_CONN, able.multi_conn)
            .with(F::SEND_CACHE, able.cache)
            .with(
                F::SEND_FAST_ZERO,
                able.fast_zero && able.write_zeroes && writable,
            )
    }

    /// The preferred block as advertised, in bytes.
    pub(crate) fn advertised_block_bytes(&self) -> u32 {
        self.preferred_block_bytes.min(MAX_PAYLOAD_BYTES)
    }
}

/// Where the handshake finds exports. Implemented for slices and vectors of [`ExportInfo`], and
/// through references and `Arc`.
pub trait ExportDirectory {
    /// Every export that a client may know of, in the order to show.
    fn list(&self) -> Vec<ExportInfo>;

    /// The export of this name. The empty name asks for the default export; unless one is really
    /// named so, that is the only one there is.
    fn lookup(&self, name: &str) -> Option<ExportInfo> {
        let mut exports = self.list();
        match exports.iter().position(|export| export.name == name) {
            Some(at) => Some(exports.swap_remove(at)),
            None if name.is_empty() && exports.len() == 1 => exports.pop(),
            None => None,
        }
    }

    /// Whether clients may demote, and on what terms.
    fn demotion(&self) -> DemotionOffer {
        DemotionOffer::Unknown
    }

    /// Which volume the export of this name is, if anybody can tell. The name is one that
    /// [`lookup`](Self::lookup) has found.
    fn identity(&self, _name: &str) -> Option<VolumeIdentity> {
        None
    }
}

impl ExportDirectory for [ExportInfo] {
    fn list(&self) -> Vec<ExportInfo> {
        self.to_vec()
    }
}

impl ExportDirectory for Vec<ExportInfo> {
    fn list(&self) -> Vec<ExportInfo> {
        self.clone()
    }
}

macro_rules! through_pointer {
    ($($pointer:ty),*) => {$(
        impl<D: ExportDirectory + ?Sized> ExportDirectory for $pointer {
            fn list(&self) -> Vec<ExportInfo> {
                (**self).list()
            }
            fn lookup(&self, name: &str) -> Option<ExportInfo> {
                (**self).lookup(name)
            }
            fn demotion(&self) -> DemotionOffer {
                (**self).demotion()
            }
            fn identity(&self, name: &str) -> Option<VolumeIdentity> {
                (**self).identity(name)
            }
        }
    )*};
}

through_pointer!(&D, Arc<D>, Box<D>);
