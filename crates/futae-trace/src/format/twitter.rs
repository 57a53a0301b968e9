//! Twitter's cache clusters: `seconds,key,key bytes,value bytes,client,operation,TTL`.
//!
//! An object's size is that of its key and its value. A deletion is no request of a simulated cache.

use super::columns::Columns;
use super::fields::{KindCode, TimeUnit};
use super::line::Fields;

pub fn columns() -> Columns {
    Columns {
        time: Some((0, TimeUnit::Seconds)),
        key: vec![1],
        length: vec![(2, 1), (3, 1)],
        kind: Some((5, KindCode::Words)),
        ttl: Some(6),
        ..Columns::default()
    }
}

/// Whether a line has seven fields with an operation where it belongs.
pub fn is_record(fields: &Fields<'_>) -> bool {
    let all = fields.all();
    let is_whole = |at: usize| all[at].parse::<u64>().is_ok();
    all.len() == 7
        && [0, 2, 3, 4, 6].into_iter().all(is_whole)
        && super::fields::operation(all[5], KindCode::Words).is_ok()
}
