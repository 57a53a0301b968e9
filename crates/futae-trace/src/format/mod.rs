//! Trace files: one source file per format.
//!
//! Most text formats are a map of [`Columns`]; binary ones decode their records themselves. A new
//! format is a new file, and its line in each of the three lists below.

mod alibaba;
mod arc;
mod blkparse;
mod blktrace;
mod cachelib;
mod columns;
mod compression;
mod context;
mod data;
mod decoder;
mod disksim;
mod doubt;
mod error;
mod fields;
mod fio;
mod fiu;
mod flashnet;
mod ids;
mod line;
mod meter;
mod msr;
mod names;
mod octf;
mod opened;
mod options;
mod oracle;
#[cfg(feature = "parquet")]
mod parquet;
mod prefix;
mod reader;
mod rows;
mod sniff;
mod spc;
mod srt;
mod srt_header;
mod systor;
mod tencent;
mod tencent_photo;
mod tragen;
mod twitter;
mod vscsi;
mod wikipedia;

pub use columns::Columns;
pub use compression::Compression;
pub(crate) use context::{Context, KEYED_BYTES, REQUEST_BYTES_MAX};
pub use doubt::Doubt;
pub use error::{TraceError, TraceErrorKind};
pub use options::TraceOptions;
pub use reader::{RequestReader, TraceReader};
pub use rows::{Cell, Rows, TableColumn};

use columns::ColumnDecoder;
use decoder::Decoder;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

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
    fn is_table(self) -> bool {
        matches!(self, Self::Csv | Self::Parquet)
    }

    /// The decoder of this format; with objects' sizes as lengths, if that is a different one.
    fn decoder(
        self,
        columns: Option<Columns>,
        head: &[u8],
        sizes: bool,
    ) -> Result<Decoder, TraceErrorKind> {
        let by_columns = |columns| Decoder::Lines(Box::new(ColumnDecoder::new(columns)));
        Ok(match self {
            Self::OracleGeneral if sizes => Decoder::Records(Box::new(oracle::Sized)),
            Self::OracleGeneral => Decoder::Records(Box::new(oracle::Oracle::default())),
            Self::Vscsi1 => Decoder::Records(Box::new(vscsi::Version1)),
            Self::Vscsi2 => Decoder::Records(Box::new(vscsi::Version2)),
            Self::Msr => by_columns(msr::columns()),
            Self::Arc if doubt::names_blocks(self, head) => Decoder::Lines(Box::new(arc::Pages)),
            Self::Arc => by_columns(arc::columns()),
            Self::Ids => Decoder::Lines(Box::new(ids::Text)),
            Self::Le32 => Decoder::Records(Box::new(ids::Le32)),
            Self::Le64 => Decoder::Records(Box::new(ids::Le64)),
            Self::Be32 => Decoder::Records(Box::new(ids::Be32)),
            Self::Be64 => Decoder::Records(Box::new(ids::Be64)),
            Self::Tencent => by_columns(tencent::columns()),
            Self::Systor => by_columns(systor::columns()),
            Self::DiskSim => by_columns(disksim::columns(head)),
            Self::Spc => by_columns(spc::columns()),
            Self::Alibaba => by_columns(alibaba::columns()),
            Self::FlashNet => by_columns(flashnet::columns()),
            Self::Csv => match columns {
                Some(columns) => by_columns(columns),
                None => {
                    let columns = sniff::header(head).ok_or(TraceErrorKind::NoColumns)?;
                    Decoder::Lines(Box::new(ColumnDecoder::after_names(columns)))
                }
            },
            Self::Blktrace => Decoder::Records(Box::new(blktrace::Blktrace::new(head))),
            Self::Blkparse => Decoder::Lines(Box::new(blkparse::Blkparse)),
            Self::FioIolog => Decoder::Lines(Box::new(fio::Iolog::new(head))),
            Self::Keys => Decoder::Lines(Box::new(ids::Names)),
            Self::Twitter => by_columns(twitter::columns()),
            Self::CacheLib => {
                let decoder = cachelib::CacheLib::new(head).ok_or(TraceErrorKind::NoColumns)?;
                Decoder::Lines(Box::new(decoder))
            }
            Self::Wikipedia => by_columns(wikipedia::columns(head)),
            Self::Tragen => by_columns(tragen::columns()),
            Self::TencentPhoto => by_columns(tencent_photo::columns()),
            Self::Fiu => by_columns(fiu::columns()),
            Self::Prefix => Decoder::Lines(Box::new(prefix::Prefixes::new(head))),
            // These are created where the whole data is available.
            Self::Octf => return Err(TraceErrorKind::NotARecord { format: "octf" }),
            Self::Srt => return Err(TraceErrorKind::NotARecord { format: "srt" }),
            Self::Parquet => return Err(TraceErrorKind::NoParquet),
        })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = TraceErrorKind;

    fn from_str(name: &str) -> Result<Self, TraceErrorKind> {
        let name = name.trim().to_ascii_lowercase();
        let alias = match name.as_str() {
            "oraclegeneral" => Some(Self::OracleGeneral),
            "vscsi" => Some(Self::Vscsi1),
            "lirs" | "txt" => Some(Self::Ids),
            "lis" => Some(Self::Arc),
            "fio" | "iolog" => Some(Self::FioIolog),
            "mooncake" => Some(Self::Prefix),
            "hpl" | "hpl2" => Some(Self::Srt),
            _ => Self::ALL.into_iter().find(|format| format.name() == name),
        };
        alias.ok_or_else(|| {
            let distance = |format: &Self| strsim::damerau_levenshtein(format.name(), &name);
            let near = Self::ALL.into_iter().min_by_key(distance);
            let near = near.filter(|format| distance(format) <= format.name().len() / 3);
            TraceErrorKind::NoSuchFormat {
                name,
                near: near.map(|f| f.name().to_owned()),
            }
        })
    }
}

impl TryFrom<String> for Format {
    type Error = TraceErrorKind;

    fn try_from(name: String) -> Result<Self, TraceErrorKind> {
        name.parse()
    }
}

impl From<Format> for &'static str {
    fn from(format: Format) -> Self {
        format.name()
    }
}

#[cfg(test)]
mod tests;
