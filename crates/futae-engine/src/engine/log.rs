//! The decision log: one line an access, as the simulator writes it.

use crate::SetupError;
use futae_policy::{Access, BlockId, Decision, LOADED, Outcome, PolicySpec, policy_line};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use tracing::error;

/// Where decisions are written.
pub struct DecisionLog {
    out: BufWriter<File>,
    failed: bool,
}

impl DecisionLog {
    /// A new, empty log at `path`.
    pub fn create(path: &Path) -> Result<Self, SetupError> {
        let file = File::create(path).map_err(|source| SetupError::Log {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            out: BufWriter::with_capacity(1 << 20, file),
            failed: false,
        })
    }

    /// Adds a line. A log that cannot be written stops, says so once, and disturbs nobody.
    pub fn write(&mut self, access: &Access, outcome: &Outcome) {
        self.line(format_args!("{}", Decision::new(access, outcome)));
    }

    /// Adds the remark that a block which was loaded in pieces is there: what is logged above this line was
    /// decided before, and read past it.
    pub fn note_loaded(&mut self, block: BlockId) {
        let (volume, index) = (block.volume().0, block.index());
        self.line(format_args!("{LOADED} {volume} {index}"));
    }

    /// Adds the line by which the level goes on with another policy.
    pub fn note_policy(&mut self, policy: &PolicySpec) {
        self.line(format_args!("{}", policy_line(policy)));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        if self.failed {
            return;
        }
        if let Err(error) = writeln!(self.out, "{line}") {
            self.stop(&error);
        }
    }

    /// Writes out what is buffered.
    pub fn sync(&mut self) {
        if let Err(error) = self.out.flush() {
            self.stop(&error);
        }
    }

    fn stop(&mut self, error: &std::io::Error) {
        if !std::mem::replace(&mut self.failed, true) {
            error!("the decision log stops here: {error}");
        }
    }
}
