//! How a trace's requests become blocks, before its format is known.

use futae_trace::{Doubt, TraceReader, View};
use std::str::FromStr;

/// How requests become blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ViewChoice {
    /// Starts where the trace numbers its blocks, otherwise blocks.
    #[default]
    Usual,
    /// One block a request, whatever its length.
    Start,
    /// All blocks that a request touches.
    Blocks,
}

impl ViewChoice {
    /// What it comes to for this trace, with blocks of this many bytes.
    #[must_use]
    pub fn view(self, trace: &TraceReader, block_bytes: u64) -> View {
        let start = match self {
            Self::Usual => trace.names_blocks(),
            Self::Start => true,
            Self::Blocks => false,
        };
        match start {
            true => View::Start,
            false => View::Blocks(block_bytes),
        }
    }

    /// What of the trace's doubts this leaves.
    #[must_use]
    pub fn doubts(self, trace: &TraceReader) -> Vec<Doubt> {
        let mut doubts = trace.doubts();
        doubts.retain(|doubt| self == Self::Usual || !doubt.is_about_view());
        doubts
    }
}

/// A name that is no view.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown view {0:?}; there are start and blocks")]
pub struct ViewError(String);

impl FromStr for ViewChoice {
    type Err = ViewError;

    fn from_str(text: &str) -> Result<Self, ViewError> {
        match text {
            "start" => Ok(Self::Start),
            "blocks" => Ok(Self::Blocks),
            other => Err(ViewError(other.chars().take(60).collect())),
        }
    }
}
