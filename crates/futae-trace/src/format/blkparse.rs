//! What `blkparse` prints: `major,minor cpu sequence seconds pid action RWBS sector + sectors ...`.
//!
//! As with [`blktrace`](super::blktrace), a request is counted when it is queued (Q). Other
//! actions, messages and the summary at the end are passed over.

use super::TraceErrorKind;
use super::context::{Context, Raw};
use super::decoder::LineDecoder;
use super::fields::{self, TimeUnit};
use super::line::{Fields, Separator};
use crate::{Request, RequestKind};

pub struct Blkparse;

/// Whether a line begins as an event does.
pub fn is_event(fields: &[&str]) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_device = |text: &&str| {
        text.split_once(',')
            .is_some_and(|(major, minor)| is_number(major) && is_number(minor))
    };
    fields.len() >= 6 && fields.first().is_some_and(is_device) && is_number(fields[1])
}

impl LineDecoder for Blkparse {
    fn decode(
        &mut self,
        line: &str,
        context: &mut Context,
    ) -> Result<Option<Request>, TraceErrorKind> {
        let fields = Fields::split(line, Separator::Blank);
        let all = fields.all();
        if !is_event(all) || all[5] != "Q" {
            return Ok(None);
        }
        let flags = fields.get(6, "flags")?;
        // A flush has neither sector nor length, and "D" is a discard.
        if flags.contains('D') || all.get(8) != Some(&"+") {
            return Ok(None);
        }
        let kind = match (flags.contains('R'), flags.contains('W')) {
            (_, true) => RequestKind::Write,
            (true, false) => RequestKind::Read,
            (false, false) => return Ok(None),
        };
        let raw = Raw {
            volume: context.volume(all[0])?,
            offset_bytes: fields::bytes(all[7], 512)?,
            length_bytes: fields::bytes(fields.get(9, "length")?, 512)?,
            kind,
            time_us: Some(fields::time_us(all[3], TimeUnit::Seconds)?),
        };
        context.request(raw).map(Some)
    }
}
