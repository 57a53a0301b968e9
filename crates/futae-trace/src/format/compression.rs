//! Compressed traces, recognised by their first bytes.

use super::members::Members;
use bzip2::bufread::BzDecoder;
use flate2::bufread::GzDecoder;
use liblzma::bufread::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};
use std::io::{self, BufReader, Cursor, Read};

/// How a trace file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip, any number of members.
    Gzip,
    /// Zstandard, any number of frames.
    Zstd,
    /// xz, any number of streams.
    Xz,
    /// bzip2, any number of streams.
    Bzip2,
}

/// The longest of the marks that files begin with.
const MARK_BYTES: usize = 6;
const BUFFER_BYTES: usize = 256 << 10;
/// What decompressing xz may take; `xz -9` needs 65 MiB.
const XZ_MEMORY_BYTES_MAX: u64 = 512 << 20;

impl Compression {
    /// The compression of a file that begins with these bytes.
    #[must_use]
    pub fn of(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Self::Bzip2,
            _ => Self::None,
        }
    }

    /// What a file's name without the compression's suffix is, and the compression.
    #[must_use]
    pub fn of_name(name: &str) -> (&str, Self) {
        [Self::Gzip, Self::Zstd, Self::Xz, Self::Bzip2]
            .into_iter()
            .find_map(|compression| {
                let (name, suffix) = name.rsplit_once('.')?;
                let is_it = suffix.eq_ignore_ascii_case(compression.suffix());
                is_it.then_some((name, compression))
            })
            .unwrap_or((name, Self::None))
    }

    /// The suffix of file names, without the dot; empty for none.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Gzip => "gz",
            Self::Zstd => "zst",
            Self::Xz => "xz",
            Self::Bzip2 => "bz2",
        }
    }
}

/// Any source of bytes.
pub type Source = Box<dyn Read + Send>;

/// Looks at the first bytes of `raw` and decompresses it if needed.
pub fn decompress(mut raw: Source) -> io::Result<(Compression, Source)> {
    let mut head = Vec::with_capacity(MARK_BYTES);
    raw.by_ref()
        .take(MARK_BYTES as u64)
        .read_to_end(&mut head)?;
    let compression = Compression::of(&head);
    let whole = Cursor::new(head).chain(raw);
    if compression == Compression::None {
        return Ok((compression, Box::new(whole)));
    }
    let whole = BufReader::with_capacity(BUFFER_BYTES, whole);
    let plain: Source = match compression {
        Compression::None => Box::new(whole),
        Compression::Gzip => Box::new(Members::new(whole, GzDecoder::new, GzDecoder::into_inner)),
        Compression::Zstd => Box::new(zstd::Decoder::with_buffer(whole)?),
        Compression::Xz => {
            let decoder = Stream::new_stream_decoder(XZ_MEMORY_BYTES_MAX, CONCATENATED)
                .map_err(io::Error::from)?;
            Box::new(XzDecoder::new_stream(whole, decoder))
        }
        Compression::Bzip2 => Box::new(Members::new(whole, BzDecoder::new, BzDecoder::into_inner)),
    };
    Ok((compression, plain))
}
