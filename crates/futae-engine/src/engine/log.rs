//! The decision log: one line an access, as the simulator writes it.

use crate::SetupError;
use futae_policy::{Access, Decision, Outcome};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

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
        if self.failed {
            return;
        }
        if let Err(error) = writeln!(self.out, "{}", Decision::new(access, outcome)) {
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
            eprintln!("futae: the decision log stops here: {error}");
        }
    }
}
