//! The run of a plan.

use super::drive::{Drive, Known, check};
use super::found::{Found, set_bytes};
use super::plan::{Plan, footprint};
use super::{Run, SimulationError};
use crate::batch::next_uses;
use crate::machine;
use futae_trace::{BlockRequest, BlockStream, Digest};
use std::time::Instant;

/// Further parameters of a run.
pub struct Extras<'a> {
    pub known: Known<'a>,
    /// Whether the digest of the requests is needed.
    pub digest: bool,
}

impl Default for Extras<'_> {
    fn default() -> Self {
        Self {
            known: Known::default(),
            digest: true,
        }
    }
}

/// Requests that are generated in advance before the listener is asked again.
const DRAWN_AT_ONCE: usize = 1 << 20;

/// Requests that were generated before.
struct Drawn<'a>(&'a [BlockRequest]);

impl BlockStream for Drawn<'_> {
    fn fill(&mut self, out: &mut [BlockRequest]) -> usize {
        let (now, later) = self.0.split_at(out.len().min(self.0.len()));
        out[..now.len()].copy_from_slice(now);
        self.0 = later;
        now.len()
    }
}

impl Plan<'_> {
    /// Runs it. Returns the results and the digest of the requests.
    pub fn run(
        &self,
        stream: &mut (dyn BlockStream + Send),
        progress: &mut dyn FnMut(f64),
    ) -> Result<(Run, String), SimulationError> {
        if !self.needs_future()? {
            return self.run_with(&Extras::default(), stream, progress);
        }
        // Requests must be generated in advance to know the future.
        let total = self.warmup_requests.saturating_add(self.requests);
        if total >= u64::from(u32::MAX) {
            return Err(SimulationError::TooLong);
        }
        let mut all = vec![BlockRequest::default(); total as usize];
        let mut got = 0;
        for part in all.chunks_mut(DRAWN_AT_ONCE) {
            // The listener may end the run by unwinding.
            progress(0.0);
            got += stream.fill(part);
        }
        all.truncate(got);
        let blocks = footprint(self.guests, self.blocks)?;
        check(&all, 0, blocks)?;
        let extras = Extras {
            known: Known {
                next_uses: &next_uses(&all, blocks, |request| request.block()),
                bytes: &[],
            },
            ..Extras::default()
        };
        self.run_with(&extras, &mut Drawn(&all), progress)
    }

    /// Runs it with further parameters. The digest is empty unless it is requested.
    pub(super) fn run_with(
        &self,
        extras: &Extras<'_>,
        stream: &mut (dyn BlockStream + Send),
        progress: &mut dyn FnMut(f64),
    ) -> Result<(Run, String), SimulationError> {
        let begin = Instant::now();
        let shape = self.shape()?;
        let mut machine = machine::build(&shape)?;
        let total = self.warmup_requests.saturating_add(self.requests);
        let mut drive = Drive {
            stream,
            known: extras.known,
            machine: machine.as_mut(),
            is_spread: self.is_spread,
            blocks: footprint(self.guests, self.blocks)?,
            digest: extras.digest.then(Digest::default),
            sent: 0,
            total,
            progress,
        };
        let mut found = Found::by(
            &mut drive,
            (shape.levels.len(), self.guests),
            self.warmup_requests,
            self.requests,
        )?;
        let digest = drive.digest.map(|digest| digest.hex());
        if let Some(each) = extras.known.equal_bytes(self.block_bytes) {
            set_bytes(found.served.iter_mut().chain(&mut found.by_guest), each);
        }
        let run = self.results(&shape, found, true, begin.elapsed());
        Ok((run, digest.unwrap_or_default()))
    }
}
