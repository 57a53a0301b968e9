//! The whole blocks, or pages, that a request excludes others from.

use super::flights::Span;
use super::loads::PAGE_BYTES;
use super::state::State;
use crate::{Operation, Request};

impl State {
    /// `span` widened to the range that a write locks, within the volume: whole blocks, or pages if
    /// blocks are loaded in pieces.
    pub fn widened(&self, span: &Span) -> Span {
        let size = self.volumes[usize::from(span.volume.0)].size_bytes;
        let whole = self.claimed(span);
        Span {
            length: whole.end().min(size) - whole.offset,
            ..whole
        }
    }

    /// The same, also beyond the end of the volume: what a request that waits claims, whatever becomes of that end.
    pub fn claimed(&self, span: &Span) -> Span {
        let unit = if self.in_pieces() {
            PAGE_BYTES
        } else {
            self.block_bytes
        };
        let offset = span.offset / unit * unit;
        let end = span.offset.saturating_add(span.length);
        let end = end.checked_next_multiple_of(unit).unwrap_or(u64::MAX);
        Span {
            volume: span.volume,
            offset,
            length: end - offset,
        }
    }

    /// What a read that waits claims: all that it asks for, since a volume may become longer until it has its turn.
    pub fn claim_of_read(&self, request: &Request, span: &Span) -> Span {
        let length = match request.operation {
            Operation::Read { length, .. } | Operation::ReadOn { length, .. } => length,
            _ => span.length,
        };
        self.claimed(&Span { length, ..*span })
    }
}
