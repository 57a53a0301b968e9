//! The output of a trace: compressed or not, and under its final name only when it is complete.

use super::destination::{Destination, Name};
use crate::format::Compression;
use std::io::{self, BufWriter, Write};

type Out = BufWriter<Box<dyn Write + Send>>;

const BUFFER_BYTES: usize = 256 << 10;
const ZSTD_LEVEL: i32 = 3;
const XZ_LEVEL: u32 = 6;

/// Takes the bytes of a trace.
pub struct Sink {
    out: Compressor,
    /// The name that the file gets when it is complete.
    name: Option<Name>,
}

enum Compressor {
    None(Out),
    Gzip(flate2::write::GzEncoder<Out>),
    Zstd(zstd::Encoder<'static, Out>),
    Xz(liblzma::write::XzEncoder<Out>),
    Bzip2(bzip2::write::BzEncoder<Out>),
}

impl Sink {
    /// Begins to write to a destination.
    pub fn create(destination: &Destination, compression: Compression) -> io::Result<Self> {
        let (file, name) = destination.begin()?;
        let sink = Self::new(Box::new(file), compression)?;
        Ok(Self { name, ..sink })
    }

    pub fn new(out: Box<dyn Write + Send>, compression: Compression) -> io::Result<Self> {
        let out = BufWriter::with_capacity(BUFFER_BYTES, out);
        let out = match compression {
            Compression::None => Compressor::None(out),
            Compression::Gzip => Compressor::Gzip(flate2::write::GzEncoder::new(
                out,
                flate2::Compression::default(),
            )),
            Compression::Zstd => Compressor::Zstd(zstd::Encoder::new(out, ZSTD_LEVEL)?),
            Compression::Xz => Compressor::Xz(liblzma::write::XzEncoder::new(out, XZ_LEVEL)),
            Compression::Bzip2 => Compressor::Bzip2(bzip2::write::BzEncoder::new(
                out,
                bzip2::Compression::best(),
            )),
        };
        Ok(Self { out, name: None })
    }

    /// Writes buffered data and gives the file its name.
    pub fn finish(self) -> io::Result<()> {
        let mut out = match self.out {
            Compressor::None(out) => out,
            Compressor::Gzip(out) => out.finish()?,
            Compressor::Zstd(out) => out.finish()?,
            Compressor::Xz(out) => out.finish()?,
            Compressor::Bzip2(out) => out.finish()?,
        };
        out.flush()?;
        self.name.map_or(Ok(()), Name::give)
    }

    fn inner(&mut self) -> &mut dyn Write {
        match &mut self.out {
            Compressor::None(out) => out,
            Compressor::Gzip(out) => out,
            Compressor::Zstd(out) => out,
            Compressor::Xz(out) => out,
            Compressor::Bzip2(out) => out,
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.out {
            Compressor::None(out) => out.write(bytes),
            _ => self.inner().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner().flush()
    }
}
