//! Trace files: one source file per format.
//!
//! Most text formats are a map of [`Columns`]; binary ones decode their records themselves. A new
//! format is a new file, a line in each list of `formats.rs`, and its decoder below.

mod alibaba;
mod arc;
mod blkparse;
mod blktrace;
mod cachelib;
mod column_decoder;
mod columns;
mod compression;
mod context;
mod data;
mod decoder;
mod disksim;
mod doubt;
mod error;
mod fields;
mod find_doubts;
mod fio;
mod fiu;
mod flashnet;
mod formats;
mod formats_by_name;
mod ids;
mod line;
mod members;
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
pub use formats::Format;
pub use options::TraceOptions;
pub use reader::{RequestReader, TraceReader};
pub use rows::{Cell, Rows, TableColumn};

use column_decoder::ColumnDecoder;
use decoder::Decoder;

impl Format {
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
            Self::Arc if arc::names_blocks(head) => Decoder::Lines(Box::new(arc::Pages)),
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

#[cfg(test)]
mod tests;
