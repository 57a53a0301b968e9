//! How a trace's requests become blocks, chosen before its format is known.

use futae_trace::{Doubt, TraceReader, View};
use std::str::FromStr;

/// How requests become blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ViewChoice {
    /// Starts if the trace numbers its blocks, otherwise blocks.
    #[default]
    Usual,
    /// One block per request, whatever its length.
    Start,
    /// All blocks that a request touches.
    Blocks,
}

impl ViewChoice {
    /// The resulting view of this trace, with blocks of this many bytes.
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

    /// The trace's doubts that remain under this view.
    #[must_use]
    pub fn doubts(self, trace: &TraceReader) -> Vec<Doubt> {
        let mut doubts = trace.doubts();
        doubts.retain(|doubt| self == Self::Usual || !doubt.is_about_view());
        doubts
    }
}

/// An unknown name of a view.
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
