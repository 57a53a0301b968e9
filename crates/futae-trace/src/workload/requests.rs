//! A synthetic workload in place of a trace file.

use super::generator::Generator;
use super::{WorkloadError, WorkloadSpec};
use crate::format::RequestReader;
use crate::{Request, RequestKind, TraceError};
use futae_policy::VolumeId;
use std::path::{Path, PathBuf};

/// This many requests of a [`WorkloadSpec`], each for one block of one volume, without times: what a
/// [`TraceReader`](crate::TraceReader) takes out of a file.
pub struct WorkloadReader {
    name: PathBuf,
    generator: Generator,
    block_bytes: u64,
    left: u64,
}

impl WorkloadReader {
    /// The first `requests` requests that are drawn with this block size and seed.
    pub fn new(
        spec: &WorkloadSpec,
        block_bytes: u64,
        seed: u64,
        requests: u64,
    ) -> Result<Self, WorkloadError> {
        Ok(Self {
            name: spec.to_string().into(),
            generator: spec.generator(block_bytes, seed)?,
            block_bytes,
            left: requests,
        })
    }

    /// How many requests are left.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left
    }
}

impl Iterator for WorkloadReader {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let request = self.generator.next_request();
        Some(Ok(Request {
            guest: 0,
            volume: VolumeId(0),
            // The generator's blocks are those of a volume whose bytes can be counted.
            offset_bytes: request.block().saturating_mul(self.block_bytes),
            length_bytes: self.block_bytes,
            kind: match request.is_write() {
                true => RequestKind::Write,
                false => RequestKind::Read,
            },
            time_us: None,
        }))
    }
}

impl RequestReader for WorkloadReader {
    fn path(&self) -> &Path {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    use super::{Request, RequestKind, WorkloadReader, WorkloadSpec};

    #[test]
    fn requests_are_those_of_the_generator() -> Result<(), Box<dyn std::error::Error>> {
        let spec: WorkloadSpec = "zipf(1.0, writes=0.5):1MiB".parse()?;
        let reader = WorkloadReader::new(&spec, 512, 7, 1000)?;
        let requests: Vec<Request> = reader.collect::<Result<_, _>>()?;
        assert_eq!(requests.len(), 1000);
        for (found, expected) in requests.iter().zip(spec.generator(512, 7)?) {
            assert_eq!(found.offset_bytes, expected.block() * 512);
            assert_eq!(found.kind == RequestKind::Write, expected.is_write());
        }
        Ok(())
    }
}
