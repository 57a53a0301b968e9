//! The log of a long-running program, on standard error.
//!
//! Libraries say what happened with the macros of `tracing`; a program calls [`start`] once. `RUST_LOG` chooses
//! what is written: a level (`debug`), or levels by target (`futae_host=debug,info`).
//!
//! | level | meaning |
//! | --- | --- |
//! | `error` | something that was asked for did not happen, or data may be lost |
//! | `warn` | something works worse than it was set up to, or will not work for long |
//! | `info` | a change of state: start, stop, orders, refusals, a store that is back |
//! | `debug` | each connection |
//!
//! A message is a sentence that names what it is about. What it names is in `fields`, too, for programs.
//!
//! | room | holds |
//! | --- | --- |
//! | `line` | one event as a line of text or JSON |
//! | `writer` | the thread that writes lines, so that no other waits for standard error |
//! | `time` | times as text |

mod line;
mod time;
mod writer;

pub use time::utc;
pub use tracing::level_filters::LevelFilter;

use line::{Line, Style};
use rustix::fs::fstat;
use std::io;
use tracing::{Event, Subscriber, warn};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::{Layer, Registry};
use writer::Writer;

/// How lines of the log are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people: time, level, target and message; the journal of systemd adds the time itself.
    #[default]
    Text,
    /// One object a line: time, level, target, message, fields.
    Json,
}

/// The options of a long-running command.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
#[command(next_help_heading = "Log")]
pub struct LogArgs {
    /// Format of the log on standard error. The environment variable RUST_LOG selects what is logged: error,
    /// warn, info (the default), debug, or levels by target such as futae_host=debug,info
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: Format,
}

/// A log that has been started. When it is dropped, it waits for the last lines to be written.
#[derive(Debug)]
pub struct Log {
    writer: Writer,
    format: Format,
}

/// Has everything that libraries say written to standard error: what is at least as important as `usual`, unless
/// `RUST_LOG` says otherwise. A program does this once; a second log is not used.
///
/// # Errors
///
/// The thread that writes cannot be started.
pub fn start(format: Format, usual: LevelFilter) -> io::Result<Log> {
    let writer = Writer::start()?;
    let wish = std::env::var("RUST_LOG")
        .ok()
        .filter(|text| !text.is_empty());
    let parsed = wish.as_deref().map(str::parse::<Targets>).transpose();
    let (targets, problem) = match parsed {
        Ok(targets) => (targets, None),
        Err(error) => (None, Some(error)),
    };
    let targets = targets.unwrap_or_else(|| Targets::new().with_default(usual));
    let style = match format {
        Format::Json => Style::Json,
        Format::Text if is_journal() => Style::Journal,
        Format::Text => Style::Terminal,
    };
    let lines = Lines {
        style,
        writer: writer.clone(),
    };
    // Only a second log of the same process is refused.
    let _ = tracing::subscriber::set_global_default(Registry::default().with(targets).with(lines));
    if let Some(error) = problem {
        warn!(
            "RUST_LOG={}: {error}; write a level (error, warn, info, debug) or TARGET=LEVEL, with commas between them",
            wish.unwrap_or_default()
        );
    }
    Ok(Log { writer, format })
}

impl Log {
    /// How its lines are written.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.writer.flush();
    }
}

/// Whether standard error is the journal, which knows the time of every line.
fn is_journal() -> bool {
    let Ok(wanted) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    let about = fstat(io::stderr());
    about.is_ok_and(|about| wanted == format!("{}:{}", about.st_dev, about.st_ino))
}

/// Writes every event as a line.
struct Lines {
    style: Style,
    writer: Writer,
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.writer.put(Line::of(event).render(self.style));
    }
}
