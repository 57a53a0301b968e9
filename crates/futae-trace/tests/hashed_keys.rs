//! Keys that are hashes are numbered as a map numbers them, alone and among keys that are block numbers.

use futae_trace::{DenseTrace, Format, TraceOptions, TraceReader, View};
use std::collections::HashMap;
use std::io::Cursor;
use std::path::Path;

fn numbers(keys: &[u64], unit_bytes: u64, view: View) -> Vec<u32> {
    let bytes: Vec<u8> = keys.iter().flat_map(|key| key.to_be_bytes()).collect();
    let options = TraceOptions {
        format: Some(Format::Be64),
        unit_bytes,
        ..TraceOptions::default()
    };
    let reader = TraceReader::new(Path::new("keys"), Cursor::new(bytes), &options);
    let trace = DenseTrace::read(&mut reader.expect("keys"), view).expect("numbers");
    trace.ids().to_vec()
}

#[test]
fn hashed_keys_are_numbered_as_they_come() {
    // 40,000 requests for some 9,000 keys; every so often one that is a block number.
    for every in [1, 2, 7, 1000, u64::MAX] {
        let key = |at: u64| {
            let object = (at * at + at / 3) % 9_001;
            match at % every {
                0 if at > 0 => object,
                _ => object.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1 << 63,
            }
        };
        let keys: Vec<u64> = (0..40_000).map(key).collect();
        let mut known = HashMap::new();
        let wanted: Vec<u32> = keys
            .iter()
            .map(|key| {
                let next = known.len() as u32;
                *known.entry(key).or_insert(next)
            })
            .collect();
        for (unit, view) in [
            (4096, View::Start),
            (4096, View::Blocks(4096)),
            (512, View::Start),
            (65_536, View::Start),
        ] {
            assert_eq!(
                numbers(&keys, unit, view),
                wanted,
                "every {every}, {unit}, {view:?}"
            );
        }
    }
}
