//! Counts what is read, and stops where it is too much.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many bytes were read.
#[derive(Clone, Default)]
pub struct Meter(Arc<AtomicU64>);

impl Meter {
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts.
pub struct Metered<R> {
    inner: R,
    meter: Meter,
}

impl<R: Read> Metered<R> {
    pub fn new(inner: R, meter: Meter) -> Self {
        Self { inner, meter }
    }
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.inner.read(buffer)?;
        self.meter.0.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

/// An error where more is read than there may be.
pub struct Limited<R> {
    inner: R,
    left: Option<u64>,
}

impl<R: Read> Limited<R> {
    pub fn new(inner: R, limit: Option<u64>) -> Self {
        Self { inner, left: limit }
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.inner.read(buffer)?;
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(bytes as u64).ok_or_else(|| {
                io::Error::other("more data than the limit that was set for this trace")
            })?;
        }
        Ok(bytes)
    }
}
