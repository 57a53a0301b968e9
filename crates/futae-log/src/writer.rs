//! The thread that writes lines. Others hand them over and go on, so that a terminal that is stopped or a pipe that
//! nobody reads keeps no client waiting.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::Builder;
use std::time::Duration;

/// Lines that may wait to be written. More are dropped and counted.
const WAITING_MAX: usize = 4_096;
/// How long the end of a program waits for its last lines.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

enum Message {
    Line(String),
    /// Everything before it has been written.
    Flush(SyncSender<()>),
}

/// Hands lines to the thread that writes them.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    queue: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

impl Writer {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (queue, messages) = sync_channel(WAITING_MAX);
        let dropped = Arc::<AtomicU64>::default();
        let writer = Self {
            queue,
            dropped: Arc::clone(&dropped),
        };
        let thread = Builder::new().name("futae-log".into());
        thread.spawn(move || write_all(&messages, &dropped, &mut io::stderr()))?;
        Ok(writer)
    }

    /// Has a line written; does not wait.
    pub(crate) fn put(&self, line: String) {
        if let Err(TrySendError::Full(_)) = self.queue.try_send(Message::Line(line)) {
            self.dropped.fetch_add(1, Relaxed);
        }
    }

    /// Waits until what was put has been written, but not for long.
    pub(crate) fn flush(&self) {
        let (done, is_done) = sync_channel(1);
        if self.queue.try_send(Message::Flush(done)).is_ok() {
            let _ = is_done.recv_timeout(FLUSH_TIMEOUT);
        }
    }
}

/// Writes until nobody can put a line any more. An error of the output is nothing that could be said anywhere.
fn write_all(messages: &Receiver<Message>, dropped: &AtomicU64, out: &mut impl Write) {
    for message in messages {
        match message {
            Message::Line(line) => {
                let _ = out.write_all(line.as_bytes());
            }
            Message::Flush(done) => {
                let _ = out.flush();
                let _ = done.try_send(());
            }
        }
        match dropped.swap(0, Relaxed) {
            0 => {}
            count => {
                let _ = writeln!(
                    out,
                    "futae: {count} lines of the log were dropped: standard error took no more"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_written_in_order_and_what_was_dropped_is_said() {
        let (queue, messages) = sync_channel(2);
        let writer = Writer {
            queue,
            dropped: Arc::default(),
        };
        for line in ["a\n", "b\n", "c\n", "d\n"] {
            writer.put(line.to_owned());
        }
        let dropped = Arc::clone(&writer.dropped);
        drop(writer);
        let mut out = Vec::new();
        write_all(&messages, &dropped, &mut out);
        let text = String::from_utf8(out).expect("text");
        assert_eq!(
            text,
            "a\nfutae: 2 lines of the log were dropped: standard error took no more\nb\n"
        );
    }
}
