//! Requests to language models by the prefixes they share, as Mooncake and others publish them: a JSON object a line,
//! with `timestamp` and `hash_ids`, which name the blocks of tokens of the prompt from its beginning on.
//!
//! Each block is one access, in order: a request is a scan of its chain. Mooncake's times are whole milliseconds; those
//! with a fraction anywhere at the beginning of the trace are seconds.

use super::TraceErrorKind;
use super::context::Context;
use super::decoder::{Keys, LineDecoder};
use super::fields::{self, TimeUnit};
use crate::{Request, RequestKind};
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    timestamp: Option<&'a RawValue>,
    /// Numbers or names; each is known by how it is written.
    #[serde(borrow)]
    hash_ids: Vec<&'a RawValue>,
}

/// Whether this can be such a line.
pub fn is_record(line: &str) -> bool {
    line.trim_start().starts_with('{') && line.contains("\"hash_ids\"")
}

/// Takes the blocks out of the lines.
pub struct Prefixes {
    unit: TimeUnit,
    /// The blocks of the last line that are still to come, the next one last, and its time.
    left: Vec<String>,
    time_us: Option<u64>,
}

impl Prefixes {
    pub fn new(head: &[u8]) -> Self {
        let text = String::from_utf8_lossy(head);
        let time = |line| serde_json::from_str::<Line<'_>>(line).ok()?.timestamp;
        let is_fraction = |time: &RawValue| time.get().contains('.');
        let has_fractions = text.lines().filter_map(time).any(is_fraction);
        Self {
            unit: match has_fractions {
                true => TimeUnit::Seconds,
                false => TimeUnit::Millis,
            },
            left: Vec::new(),
            time_us: None,
        }
    }

    fn next(&mut self, context: &mut Context) -> Result<Option<Request>, TraceErrorKind> {
        let time_us = self.time_us;
        let Some(name) = self.left.pop() else {
            return Ok(None);
        };
        let named = context.named(&name, None, RequestKind::Read, time_us);
        named.map(Some)
    }
}

impl LineDecoder for Prefixes {
    fn keys(&self) -> Option<Keys> {
        Some(Keys { has_sizes: false })
    }

    fn repeats(&self) -> bool {
        true
    }

    fn decode(
        &mut self,
        line: &str,
        context: &mut Context,
    ) -> Result<Option<Request>, TraceErrorKind> {
        let parsed: Line<'_> =
            serde_json::from_str(line).map_err(|e| TraceErrorKind::Json(e.to_string()))?;
        let time = parsed
            .timestamp
            .map(|time| fields::time_us(time.get(), self.unit));
        self.time_us = time.transpose()?;
        let ids = parsed.hash_ids.iter().rev();
        self.left = ids.map(|id| id.get().to_owned()).collect();
        self.next(context)
    }

    fn further(&mut self, context: &mut Context) -> Result<Option<Request>, TraceErrorKind> {
        self.next(context)
    }
}
