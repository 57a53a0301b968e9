//! Where the bytes of a trace come from.

use super::compression::Source;
use super::decoder::Decoder;
use super::{TraceErrorKind, TraceOptions};
use crate::place;
#[cfg(feature = "object-store")]
use crate::remote::{self, Named};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
#[cfg(feature = "object-store")]
use std::sync::Arc;

/// An open file or object.
pub struct Opened {
    pub data: Source,
    /// How many bytes it has, if that is known before its end.
    pub bytes: Option<u64>,
    /// What any part can be read of.
    pub whole: Option<Whole>,
}

/// What any part can be read of, in any order.
#[cfg_attr(
    not(feature = "parquet"),
    expect(dead_code, reason = "only Parquet reads so")
)]
pub enum Whole {
    File(PathBuf),
    #[cfg(feature = "object-store")]
    Object(Arc<remote::Object>),
}

impl Opened {
    /// Opens what a path or a URL names.
    pub fn of(path: &Path) -> Result<Self, TraceErrorKind> {
        match path.to_str() {
            Some(url) if place::is_url(path) => Self::of_url(url),
            _ => Self::of_file(path),
        }
    }

    /// What can be read only in order, once.
    pub fn of_source(data: Source) -> Self {
        Self {
            data,
            bytes: None,
            whole: None,
        }
    }

    fn of_file(path: &Path) -> Result<Self, TraceErrorKind> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            // Reading a directory would fail too, but not say why.
            return Err(io::Error::from(io::ErrorKind::IsADirectory).into());
        }
        let is_file = metadata.is_file();
        Ok(Self {
            bytes: is_file.then_some(metadata.len()),
            // A pipe opened again would be another reader of it.
            whole: is_file.then(|| Whole::File(path.to_owned())),
            data: Box::new(file),
        })
    }

    #[cfg(feature = "object-store")]
    fn of_url(url: &str) -> Result<Self, TraceErrorKind> {
        match remote::open(url)? {
            Named::File(path) => Self::of_file(&path),
            Named::Object(object) => Ok(Self {
                data: Box::new(remote::Stream::new(Arc::clone(&object))),
                bytes: Some(object.bytes()),
                whole: Some(Whole::Object(object)),
            }),
        }
    }

    #[cfg(not(feature = "object-store"))]
    fn of_url(_: &str) -> Result<Self, TraceErrorKind> {
        Err(TraceErrorKind::NoObjectStore)
    }
}

/// A decoder for data of which any part must be readable, and which is copied to a file if it is not.
#[cfg(feature = "parquet")]
pub fn table(
    whole: Option<Whole>,
    mut data: Source,
    options: &TraceOptions,
) -> Result<Decoder, TraceErrorKind> {
    use super::parquet::{Data, Parquet};
    use super::rows::{Rows, Table, unnamed};
    let data = match whole {
        Some(Whole::File(path)) => Data::File(File::open(path)?),
        #[cfg(feature = "object-store")]
        Some(Whole::Object(object)) => Data::Object(remote::Blocks::new(object)),
        None => {
            let mut file = tempfile::tempfile()?;
            io::copy(&mut data, &mut file)?;
            Data::File(file)
        }
    };
    let rows = Parquet::new(data)?;
    let unnamed = unnamed(rows.columns(), "--columns offset=0,length=1");
    let table = Table::new(rows, options).map_err(|kind| match kind {
        TraceErrorKind::NoColumns => TraceErrorKind::Parquet(unnamed),
        kind => kind,
    })?;
    Ok(Decoder::Table(Box::new(table)))
}

#[cfg(not(feature = "parquet"))]
pub fn table(_: Option<Whole>, _: Source, _: &TraceOptions) -> Result<Decoder, TraceErrorKind> {
    Err(TraceErrorKind::NoParquet)
}
