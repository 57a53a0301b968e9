//! Plain numbers, one a request: block numbers or keys, as text or binary; reads, no times.
//!
//! In text a line may also be a mark `*`, as the LIRS paper's files have them.

use super::TraceErrorKind;
use super::context::Context;
use super::decoder::{Keys, LineDecoder, RecordDecoder};
use super::fields::number;
use super::line::Comments;
use crate::{Request, RequestKind};

/// One decimal number a line.
pub struct Text;

impl LineDecoder for Text {
    #[inline]
    fn decode(
        &mut self,
        line: &str,
        context: &mut Context,
    ) -> Result<Option<Request>, TraceErrorKind> {
        match line.trim() {
            "*" => Ok(None),
            key => context.key(number(key)?, None).map(Some),
        }
    }
}

/// One name a line, whatever is in it, without the blanks around it.
pub struct Names;

impl LineDecoder for Names {
    fn keys(&self) -> Option<Keys> {
        Some(Keys { has_sizes: false })
    }

    fn comments(&self) -> Comments {
        Comments::Nowhere
    }

    fn decode(
        &mut self,
        line: &str,
        context: &mut Context,
    ) -> Result<Option<Request>, TraceErrorKind> {
        let named = context.named(line.trim(), None, RequestKind::Read, None);
        named.map(Some)
    }
}

macro_rules! binary {
    ($name:ident, $integer:ty, $read:path, $what:literal) => {
        #[doc = $what]
        pub struct $name;

        impl $name {
            /// The number in a record, which has its length.
            #[inline]
            fn number(record: &[u8]) -> u64 {
                let mut bytes = [0; size_of::<$integer>()];
                bytes.copy_from_slice(record);
                u64::from($read(bytes))
            }
        }

        impl RecordDecoder for $name {
            fn record_bytes(&self) -> usize {
                size_of::<$integer>()
            }

            #[inline]
            fn decode(
                &mut self,
                record: &[u8],
                context: &mut Context,
            ) -> Result<Option<Request>, TraceErrorKind> {
                let bytes = record.try_into();
                let bytes = bytes.map_err(|_| TraceErrorKind::NotARecord { format: $what })?;
                context.key(u64::from($read(bytes)), None).map(Some)
            }

            fn decode_run(
                &mut self,
                records: &[u8],
                context: &mut Context,
                requests: &mut Vec<Request>,
            ) -> usize {
                let records = records.chunks_exact(size_of::<$integer>());
                context.keys(records, |record| (Self::number(record), None), requests)
            }

            fn decode_starts(
                &mut self,
                records: &[u8],
                context: &mut Context,
                starts: &mut Vec<u64>,
            ) -> Option<u64> {
                let records = records.chunks_exact(size_of::<$integer>());
                context.key_starts(records.map(Self::number), starts)
            }
        }
    };
}

binary!(Le32, u32, u32::from_le_bytes, "little-endian 32-bit");
binary!(Le64, u64, u64::from_le_bytes, "little-endian 64-bit");
binary!(Be32, u32, u32::from_be_bytes, "big-endian 32-bit");
binary!(Be64, u64, u64::from_be_bytes, "big-endian 64-bit");
