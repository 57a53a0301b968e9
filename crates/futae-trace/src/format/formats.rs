//! The formats of trace files, and their names.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A format of trace files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum Format {
    /// libCacheSim's oracleGeneral: binary, 24 bytes a request.
    OracleGeneral,
    /// VMware vscsiStats, version 1: binary, 32 bytes a request.
    Vscsi1,
    /// VMware vscsiStats, version 2: binary, 40 bytes a request.
    Vscsi2,
    /// Microsoft Research Cambridge, CSV.
    Msr,
    /// The ARC paper's `.lis` files.
    Arc,
    /// One number a line; the LIRS paper's files, too.
    Ids,
    /// One little-endian 32-bit number a request.
    Le32,
    /// One little-endian 64-bit number a request.
    Le64,
    /// One big-endian 32-bit number a request.
    Be32,
    /// One big-endian 64-bit number a request.
    Be64,
    /// Tencent cloud block storage, CSV.
    Tencent,
    /// SYSTOR '17 virtual desktops, CSV.
    Systor,
    /// DiskSim's ASCII format.
    DiskSim,
    /// Storage Performance Council (Financial, WebSearch).
    Spc,
    /// Alibaba cloud block storage, CSV.
    Alibaba,
    /// FlashNet's replay logs, CSV.
    FlashNet,
    /// Any CSV whose columns are named, in its first line or by the user.
    Csv,
    /// What `blktrace` writes, one CPU's file.
    Blktrace,
    /// What `blkparse` prints.
    Blkparse,
    /// What `fio --write_iolog` writes, versions 2 and 3.
    FioIolog,
    /// Parquet, with columns named as in a CSV.
    Parquet,
    /// One name a line, whatever is in it.
    Keys,
    /// Twitter's cache clusters, CSV.
    Twitter,
    /// Meta's key-value cache, CSV.
    CacheLib,
    /// Wikipedia's CDN, 2019.
    Wikipedia,
    /// TRAGEN's synthetic CDN traces, CSV.
    Tragen,
    /// Tencent's photo cache.
    TencentPhoto,
    /// FIU's block traces with hashes of the data.
    Fiu,
    /// Open CAS's traces: one queue's file, or a tar of them.
    Octf,
    /// Prefixes of requests to language models (Mooncake), a JSON object a line.
    Prefix,
    /// HP Labs' SRT, in binary.
    Srt,
}

impl Format {
    /// The formats that can be written.
    pub const WRITABLE: [Self; 8] = [
        Self::OracleGeneral,
        Self::Csv,
        Self::Parquet,
        Self::Ids,
        Self::Le32,
        Self::Le64,
        Self::Be32,
        Self::Be64,
    ];

    /// Every format.
    pub const ALL: [Self; 31] = [
        Self::OracleGeneral,
        Self::Vscsi1,
        Self::Vscsi2,
        Self::Msr,
        Self::Arc,
        Self::Ids,
        Self::Le32,
        Self::Le64,
        Self::Be32,
        Self::Be64,
        Self::Tencent,
        Self::Systor,
        Self::DiskSim,
        Self::Spc,
        Self::Alibaba,
        Self::FlashNet,
        Self::Csv,
        Self::Blktrace,
        Self::Blkparse,
        Self::FioIolog,
        Self::Parquet,
        Self::Keys,
        Self::Twitter,
        Self::CacheLib,
        Self::Wikipedia,
        Self::Tragen,
        Self::TencentPhoto,
        Self::Fiu,
        Self::Octf,
        Self::Prefix,
        Self::Srt,
    ];

    /// The name on command lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OracleGeneral => "oracle-general",
            Self::Vscsi1 => "vscsi1",
            Self::Vscsi2 => "vscsi2",
            Self::Msr => "msr",
            Self::Arc => "arc",
            Self::Ids => "ids",
            Self::Le32 => "le32",
            Self::Le64 => "le64",
            Self::Be32 => "be32",
            Self::Be64 => "be64",
            Self::Tencent => "tencent",
            Self::Systor => "systor",
            Self::DiskSim => "disksim",
            Self::Spc => "spc",
            Self::Alibaba => "alibaba",
            Self::FlashNet => "flashnet",
            Self::Csv => "csv",
            Self::Blktrace => "blktrace",
            Self::Blkparse => "blkparse",
            Self::FioIolog => "fio-iolog",
            Self::Parquet => "parquet",
            Self::Keys => "keys",
            Self::Twitter => "twitter",
            Self::CacheLib => "cachelib",
            Self::Wikipedia => "wikipedia",
            Self::Tragen => "tragen",
            Self::TencentPhoto => "tencent-photo",
            Self::Fiu => "fiu",
            Self::Octf => "octf",
            Self::Prefix => "prefix",
            Self::Srt => "srt",
        }
    }

    /// All names, for messages.
    pub(crate) fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// The names of the writable formats.
    pub(crate) fn writable_names() -> String {
        Self::WRITABLE.map(Self::name).join(", ")
    }

    /// File name suffixes, without the dot, that select this format for writing.
    #[must_use]
    pub fn suffixes(self) -> &'static [&'static str] {
        match self {
            Self::OracleGeneral => &["oracleGeneral", "oracleGeneral.bin"],
            Self::Csv => &["csv"],
            Self::Parquet => &["parquet"],
            Self::Ids => &["ids", "txt"],
            Self::Le32 => &["le32"],
            Self::Le64 => &["le64"],
            Self::Be32 => &["be32"],
            Self::Be64 => &["be64"],
            _ => &[],
        }
    }

    /// Whether a record is the number of one block, whose size the format does not give.
    #[must_use]
    pub fn has_block_numbers(self) -> bool {
        matches!(
            self,
            Self::OracleGeneral | Self::Ids | Self::Le32 | Self::Le64 | Self::Be32 | Self::Be64
        )
    }

    /// Whether its columns mean what their names or a map say.
    pub(super) fn is_table(self) -> bool {
        matches!(self, Self::Csv | Self::Parquet)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<Format> for &'static str {
    fn from(format: Format) -> Self {
        format.name()
    }
}
