//! Standard output, whose reader may have read enough.

use std::io::{self, ErrorKind, StdoutLock, Write};

/// Standard output. What is written after the reader of a pipe has closed it is dropped: the command does what it was asked for,
/// and its exit status says how that ended.
#[derive(Debug)]
pub struct Output<W = StdoutLock<'static>>(W);

/// Standard output, for this thread alone until it is dropped.
#[must_use]
pub fn output() -> Output {
    Output(io::stdout().lock())
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(bytes.len()),
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0.flush() {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            flushed => flushed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An output that fails.
    struct Failing(ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn a_closed_pipe_is_no_failure_and_a_full_disk_is_one() {
        let written = |kind| {
            let mut output = Output(Failing(kind));
            writeln!(output, "{}", 1).and_then(|()| output.flush())
        };
        assert!(written(ErrorKind::BrokenPipe).is_ok());
        let full = written(ErrorKind::StorageFull).map_err(|error| error.kind());
        assert_eq!(full, Err(ErrorKind::StorageFull));
    }
}
