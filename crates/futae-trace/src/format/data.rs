//! What the data of a trace is: its compression and format, and the decoder of that.

use super::compression::{Compression, Source, decompress};
use super::decoder::{Decoder, TableDecoder};
use super::meter::{Limited, Meter, Metered};
use super::opened::{Opened, table};
use super::rows::{Rows, Table, unnamed};
use super::{Doubt, Format, TraceErrorKind, TraceOptions, arc, find_doubts, octf, sniff, srt};
use std::io::{self, Cursor, Read};
use std::path::Path;

/// Bytes of the data that are examined to detect the format.
const HEAD_BYTES: usize = 16 << 10;

/// Data of which no request has been read yet.
pub struct Data {
    pub format: Format,
    pub compression: Compression,
    pub decoder: Decoder,
    /// What the decoder is given.
    pub rest: Source,
    /// Bytes before `rest`.
    pub skipped_bytes: u64,
    pub meter: Meter,
    /// Bytes before decompression, if they are known.
    pub file_bytes: Option<u64>,
    pub names_blocks: bool,
    pub doubts: Vec<Doubt>,
}

impl Data {
    /// Looks at the first bytes; `path` helps to detect the format.
    pub fn of(path: &Path, opened: Opened, options: &TraceOptions) -> Result<Self, TraceErrorKind> {
        let meter = Meter::default();
        let raw = Box::new(Metered::new(opened.data, meter.clone()));
        let (compression, bytes) = decompress(raw)?;
        let mut bytes = Limited::new(bytes, options.data_bytes_max);
        let mut head = Vec::new();
        bytes
            .by_ref()
            .take(HEAD_BYTES as u64)
            .read_to_end(&mut head)?;
        let is_cut = head.len() == HEAD_BYTES;
        let mark = sniff::byte_order_mark(&head, options.format);
        head.drain(..mark);
        let columns = options.columns.clone();
        let format = match (options.format, &columns) {
            (Some(format), Some(_)) if !format.is_table() => {
                let format = format.name();
                return Err(TraceErrorKind::ColumnsOfFormat { format });
            }
            (Some(Format::Parquet), _) => Format::Parquet,
            (_, Some(_)) if sniff::is_parquet(&head) => Format::Parquet,
            (_, Some(_)) => Format::Csv,
            (Some(format), None) => format,
            (None, None) => sniff::format(path, &head)?,
        };
        let names_blocks =
            format.has_block_numbers() || format == Format::Arc && arc::names_blocks(&head);
        let map = match format {
            Format::Csv => columns.clone().or_else(|| sniff::header(&head)),
            _ => None,
        };
        // A name that is not seen would be a column that is left out without a word.
        if format == Format::Csv && columns.is_none() && is_cut && !sniff::has_first_line(&head) {
            let error = "the line that names the columns is longer than 16 KiB; give a map of them, such as --columns offset=0,length=1";
            return Err(TraceErrorKind::Table(error.to_owned()));
        }
        let mut doubts = find_doubts::doubts(format, map.as_ref(), &head, options.unit_bytes);
        if format == Format::Csv && columns.is_none() {
            doubts.extend(sniff::rivals(&head).into_iter().map(rival));
        }
        if let (Some(doubt @ Doubt::NotOracle), None) = (doubts.first(), options.format) {
            let (format, doubt) = (format.name(), doubt.clone());
            return Err(TraceErrorKind::Implausible { format, doubt });
        }
        let whole = opened.whole.filter(|_| compression == Compression::None);
        let (decoder, rest): (Decoder, Source) = match format {
            Format::Parquet => {
                let data = Box::new(Cursor::new(head).chain(bytes));
                (table(whole, data, options)?, Box::new(io::empty()))
            }
            Format::Octf => {
                let octf = octf::Octf::new(Cursor::new(head).chain(bytes))?;
                (of_table(octf), Box::new(io::empty()))
            }
            Format::Srt => {
                let has_header = srt::looks_like(&head);
                let data = Box::new(Cursor::new(head).chain(bytes));
                (
                    of_table(srt::Srt::new(data, has_header)?),
                    Box::new(io::empty()),
                )
            }
            _ => {
                let decoder = format.decoder(columns, &head, options.sizes)?;
                (decoder, Box::new(Cursor::new(head).chain(bytes)))
            }
        };
        doubts.extend(rivals(&decoder, options));
        Ok(Self {
            format,
            compression,
            decoder,
            rest,
            skipped_bytes: mark as u64,
            meter,
            file_bytes: opened.bytes,
            names_blocks,
            doubts,
        })
    }

    /// A table that is in memory.
    pub fn of_rows(
        rows: impl Rows + 'static,
        options: &TraceOptions,
    ) -> Result<Self, TraceErrorKind> {
        if let Some(format) = options.format.filter(|format| !format.is_table()) {
            let error =
                format!("a table in memory is not of the format {format}; leave out the format");
            return Err(TraceErrorKind::Table(error));
        }
        let unnamed = unnamed(rows.columns(), "columns=\"offset=0,length=1\"");
        let table = Table::new(rows, options).map_err(|kind| match kind {
            TraceErrorKind::NoColumns => TraceErrorKind::Table(unnamed),
            kind => kind,
        })?;
        let decoder = of_table(table);
        Ok(Self {
            format: Format::Csv,
            compression: Compression::None,
            doubts: rivals(&decoder, options).collect(),
            decoder,
            rest: Box::new(io::empty()),
            skipped_bytes: 0,
            meter: Meter::default(),
            file_bytes: None,
            names_blocks: false,
        })
    }
}

/// Columns of a table that mean the same, where no map says which is which.
fn rivals(decoder: &Decoder, options: &TraceOptions) -> impl Iterator<Item = Doubt> {
    let pairs = match decoder {
        Decoder::Table(table) if options.columns.is_none() => table.rivals(),
        _ => Vec::new(),
    };
    pairs.into_iter().map(rival)
}

fn rival(names: [String; 2]) -> Doubt {
    Doubt::Rivals(Box::new(names))
}

fn of_table(decoder: impl TableDecoder + 'static) -> Decoder {
    Decoder::Table(Box::new(decoder))
}
