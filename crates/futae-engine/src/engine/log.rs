//! The decision log: one line per access, in the simulator's format.

use crate::SetupError;
use futae_policy::{
    Access, BlockId, Decision, LOADED, Outcome, PolicySpec, dropped_line, policy_line,
    policy_of_line, slots_line,
};
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use tracing::error;

/// Where decisions are written.
pub struct DecisionLog {
    out: BufWriter<File>,
    /// An earlier log is still there. It stays until there is something to log, or the cache ends: a start that fails destroys
    /// nothing, and neither does one beside a running cache with the same log.
    has_earlier: bool,
    failed: bool,
}

impl DecisionLog {
    /// A new log at `path`, in place of an earlier log from the first decision on. Another file is left as it is.
    pub fn create(path: &Path) -> Result<Self, SetupError> {
        let failed = |source| SetupError::Log {
            path: path.to_owned(),
            source,
        };
        if !is_replaceable(path).map_err(failed)? {
            return Err(failed(io::Error::other(
                "it is there and no decision log; name another file",
            )));
        }
        let mut options = File::options();
        let options = options.write(true).create(true).truncate(false);
        let file = options.open(path).map_err(failed)?;
        let has_earlier = file.metadata().map_err(failed)?.len() > 0;
        Ok(Self {
            out: BufWriter::with_capacity(1 << 20, file),
            has_earlier,
            failed: false,
        })
    }

    /// Appends a line. If the log cannot be written, logging stops, an error is logged once, and
    /// requests continue.
    pub fn write(&mut self, access: &Access, outcome: &Outcome) {
        self.line(format_args!("{}", Decision::new(access, outcome)));
    }

    /// Appends the remark that the last piece of a block has been loaded. The accesses above this
    /// line were decided before, and read past the block.
    pub fn note_loaded(&mut self, block: BlockId) {
        let (volume, index) = (block.volume().0, block.index());
        self.line(format_args!("{LOADED} {volume} {index}"));
    }

    /// Appends the line for a change of the level's policy.
    pub fn note_policy(&mut self, policy: &PolicySpec) {
        self.line(format_args!("{}", policy_line(policy)));
    }

    /// Appends the line for a level that from now on has this many slots.
    pub fn note_slots(&mut self, slots: u32) {
        self.line(format_args!("{}", slots_line(slots)));
    }

    /// Appends the line for a block that was dropped.
    pub fn note_dropped(&mut self, block: BlockId) {
        self.line(format_args!("{}", dropped_line(block)));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        if self.failed {
            return;
        }
        let begun = self.begin();
        if let Err(error) = begun.and_then(|()| writeln!(self.out, "{line}")) {
            self.stop(&error);
        }
    }

    /// Removes the lines of an earlier log.
    fn begin(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.has_earlier) {
            self.out.get_ref().set_len(0)?;
        }
        Ok(())
    }

    /// Flushes buffered lines.
    pub fn sync(&mut self) {
        let begun = self.begin();
        if let Err(error) = begun.and_then(|()| self.out.flush()) {
            self.stop(&error);
        }
    }

    fn stop(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.failed, true) {
            error!("the decision log stops here: {error}");
        }
    }
}

/// The longest line of a log has fewer bytes.
const LINE_BYTES_MAX: u64 = 4096;

/// Whether nothing but an earlier log is lost if the file at `path` is replaced. A pipe or a terminal holds nothing.
fn is_replaceable(path: &Path) -> io::Result<bool> {
    match path.metadata() {
        Ok(found) if !found.is_file() => return Ok(true),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    }
    let mut begin = Vec::new();
    File::open(path)?
        .take(LINE_BYTES_MAX)
        .read_to_end(&mut begin)?;
    let first = begin
        .split(|&byte| byte == b'\n')
        .next()
        .unwrap_or_default();
    let first = String::from_utf8_lossy(first);
    let is_line = first.starts_with('#')
        || first.parse::<Decision>().is_ok()
        || policy_of_line(&first).is_some();
    Ok(begin.is_empty() || is_line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn an_earlier_log_stays_until_there_is_another() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log");
        let create = || {
            let log = DecisionLog::create(&path).map_err(|error| error.to_string());
            log.expect("a log")
        };
        let read = || fs::read_to_string(&path).expect("it is there");
        let mut first = create();
        first.note_slots(7);
        first.note_slots(8);
        first.sync();
        drop(first);
        let earlier = read();
        assert_eq!(earlier, "# slots 7\n# slots 8\n");
        // What was to use it could not be started.
        drop(create());
        assert_eq!(read(), earlier);
        let mut second = create();
        second.note_slots(9);
        second.sync();
        assert_eq!(read(), "# slots 9\n");
        create().sync();
        assert_eq!(read(), "", "nothing was decided on");
    }
}
