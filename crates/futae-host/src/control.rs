//! What a server can be told over its control socket.
//!
//! | line | answer |
//! | --- | --- |
//! | `{"command":"status"}` | a [`crate::ServerStatus`] |
//! | `{"command":"resize","cache":"1GiB"}`, with `"export":NAME` where exports have caches of their own | `{"capacity_blocks":N}` |
//! | `{"command":"policy","policy":"lru"}`, with `"export":NAME` likewise | `{"policy":...,"before":...,"changed":BOOL,"resident_blocks":N}` |

use crate::server::Shared;
use futae_control::{NoArguments, Orders, PolicyTerms, change_policy, resize};
use futae_engine::Engine;
use futae_units::Size;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Resize {
    cache: Size,
    export: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Policy {
    policy: String,
    export: Option<String>,
}

/// The orders that a server takes.
pub(crate) fn orders(shared: &Arc<Shared>) -> Orders {
    let (asked, resized, changed) = (Arc::clone(shared), Arc::clone(shared), Arc::clone(shared));
    Orders::new()
        .with("status", move |NoArguments {}| {
            serde_json::to_value(asked.status()).map_err(|error| error.to_string())
        })
        .with("resize", move |Resize { cache, export }| {
            resize(&cache_of(&resized, export.as_deref())?, cache)
        })
        .with("policy", move |Policy { policy, export }| {
            changed.change_policy(export.as_deref(), &policy)
        })
}

impl Shared {
    /// Has the cache of an export, or the only one, go on with another policy.
    pub(crate) fn change_policy(
        &self,
        export: Option<&str>,
        policy: &str,
    ) -> Result<Value, String> {
        let hears = self.options.demotion || !self.options.feeds.is_empty();
        let terms = PolicyTerms {
            no_evictions: (!hears).then_some(
                "this server takes nothing of the kind; start it with --demotion on or with a --feed",
            ),
            no_requests: None,
            keeps_served: !self.options.feeds.is_empty(),
        };
        change_policy(&cache_of(self, export)?, policy, &terms)
    }
}

fn cache_of(shared: &Shared, export: Option<&str>) -> Result<Arc<Engine>, String> {
    if let Some(name) = export {
        let export = shared.exports.get(name);
        return export
            .map(|export| export.engine)
            .ok_or_else(|| format!("no export is named {name:?}"));
    }
    let mut engines = shared.exports.engines();
    match engines.len() {
        1 => Ok(engines.remove(0)),
        count => Err(format!("there are {count} caches; say which by \"export\"")),
    }
}
