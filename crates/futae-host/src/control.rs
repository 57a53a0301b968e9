//! What a server can be told over its control socket.
//!
//! | line | answer |
//! | --- | --- |
//! | `{"command":"status"}` | a [`crate::ServerStatus`] |
//! | `{"command":"record","sample":1}`, `{"command":"recorded"}`, `{"command":"end-record"}`, with `"export":NAME` as below | `{"recording":true}`, a [`futae_control::RecordingPart`], `{"recording":false}` |
//! | `{"command":"resize","cache":"1GiB"}`, with `"export":NAME` where exports have caches of their own | `{"capacity_blocks":N}` |

use crate::server::Shared;
use futae_control::{NoArguments, Orders, resize};
use futae_engine::Engine;
use futae_units::Size;
use serde::Deserialize;
use std::sync::Arc;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Resize {
    cache: Size,
    export: Option<String>,
}

/// The orders that a server takes.
pub(crate) fn orders(shared: &Arc<Shared>) -> Orders {
    let [asked, resized, recorded] = std::array::from_fn(|_| Arc::clone(shared));
    Orders::new()
        .with("status", move |NoArguments {}| {
            serde_json::to_value(asked.status()).map_err(|error| error.to_string())
        })
        .with("resize", move |Resize { cache, export }| {
            resize(&cache_of(&resized, export.as_deref())?, cache)
        })
        .with_recording(move |export| cache_of(&recorded, export))
}

fn cache_of(shared: &Shared, export: Option<&str>) -> Result<Arc<Engine>, String> {
    if let Some(name) = export {
        let export = shared.exports.get(name);
        return export
            .map(|export| Arc::clone(&export.engine))
            .ok_or_else(|| format!("no export is named {name:?}"));
    }
    let mut engines = shared.exports.engines();
    match engines.len() {
        1 => Ok(engines.remove(0)),
        count => Err(format!("there are {count} caches; say which by \"export\"")),
    }
}
