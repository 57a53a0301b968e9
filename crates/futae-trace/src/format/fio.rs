//! What `fio --write_iolog` writes: `file action [offset length]`, and in version 3 the
//! microseconds since the start before it.
//!
//! Reads and writes are requests, each file is a volume, and all other actions are passed over;
//! in version 2 a `wait` moves the clock on.

use super::TraceErrorKind;
use super::context::{Context, Raw};
use super::decoder::LineDecoder;
use super::fields::{self, TimeUnit};
use super::line::{Comments, Fields, Separator, plain_lines};
use crate::{Request, RequestKind};

const VERSION_2: &str = "fio version 2 iolog";
const VERSION_3: &str = "fio version 3 iolog";

pub struct Iolog {
    timed: bool,
    waited_us: u64,
}

impl Iolog {
    pub fn new(head: &[u8]) -> Self {
        Self {
            timed: begins_with(head, &[VERSION_3]),
            waited_us: 0,
        }
    }
}

/// Whether the data begins as such a log does.
pub fn looks_like(head: &[u8]) -> bool {
    begins_with(head, &[VERSION_2, VERSION_3])
}

fn begins_with(head: &[u8], marks: &[&str]) -> bool {
    let text = String::from_utf8_lossy(head);
    let first = plain_lines(&text).next().unwrap_or_default();
    marks.iter().any(|mark| first.starts_with(mark))
}

impl LineDecoder for Iolog {
    fn comments(&self) -> Comments {
        match self.timed {
            true => Comments::Anywhere,
            // A record begins with the name of a file.
            false => Comments::AtTop,
        }
    }

    fn decode(
        &mut self,
        line: &str,
        context: &mut Context,
    ) -> Result<Option<Request>, TraceErrorKind> {
        if [VERSION_2, VERSION_3].contains(&line.trim()) {
            return Ok(None);
        }
        let fields = Fields::split(line, Separator::Blank);
        let first = usize::from(self.timed);
        let file = fields.get(first, "file")?;
        let kind = match fields.get(first + 1, "action")? {
            "read" => RequestKind::Read,
            "write" => RequestKind::Write,
            "wait" if !self.timed => {
                let wait = fields::number(fields.get(2, "wait")?)?;
                self.waited_us = self.waited_us.saturating_add(wait);
                return Ok(None);
            }
            "add" | "open" | "close" | "sync" | "datasync" | "sync_file_range" | "syncfs"
            | "trim" => {
                return Ok(None);
            }
            other => {
                let text = other.chars().take(40).collect();
                return Err(TraceErrorKind::Field {
                    text,
                    expected: "an action of an iolog",
                });
            }
        };
        let time_us = match self.timed {
            true => fields::time_us(fields.get(0, "time")?, TimeUnit::Micros)?,
            false => self.waited_us,
        };
        let raw = Raw {
            offset_bytes: fields::number(fields.get(first + 2, "offset")?)?,
            length_bytes: fields::number(fields.get(first + 3, "length")?)?,
            kind,
            time_us: Some(time_us),
            volume: context.volume(file)?,
        };
        context.request(raw).map(Some)
    }
}
