//! The orders that a server accepts on its control socket.
//!
//! | line | answer |
//! | --- | --- |
//! | `{"command":"status"}` | a [`crate::ServerStatus`] |
//! | `{"command":"record","sample":1}`, `{"command":"recorded","recording":N}`, `{"command":"end-record","recording":N}`, with `"export":NAME` as below | `{"recording":N}`, a [`futae_control::RecordingPart`], the last one |
//! | `{"command":"resize","cache":"1GiB"}`, with `"export":NAME` if exports have caches of their own | `{"capacity_blocks":N}` |
//! | `{"command":"policy","policy":"lru"}`, with `"export":NAME` likewise | `{"policy":...,"before":...,"changed":BOOL,"resident_blocks":N}` |
//! | `{"command":"export-add","export":"NAME=SOURCE"}`, followed by options as for `--export` | `{"name":...,"size_bytes":N,"read_only":BOOL}` |
//! | `{"command":"export-limit","export":NAME,"iops":N,"bandwidth":"64MiB","weight":N}`; an absent key removes that limit | `{"changed":BOOL}` |
//! | `{"command":"export-lengthen","export":NAME}` | `{"name":...,"before_bytes":N,"size_bytes":N,"told":N}` |
//! | `{"command":"export-remove","export":NAME}`, with `"force":true` to end its connections | `{"name":...,"disconnected":N}` |

use crate::rate::RateLimits;
use crate::shared::Shared;
use futae_control::{
    NoArguments, Orders, PolicyOrder, PolicyTerms, ResizeOrder, change_policy, resize,
};
use futae_engine::Engine;
use futae_units::Size;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Add {
    export: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Remove {
    export: String,
    #[serde(default)]
    force: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    export: String,
    iops: Option<u64>,
    bandwidth: Option<Size>,
    weight: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Lengthen {
    export: String,
}

/// The orders that a server accepts.
pub(crate) fn orders(shared: &Arc<Shared>) -> Orders {
    let [
        asked,
        resized,
        recorded,
        changed,
        more,
        limited,
        longer,
        less,
    ] = std::array::from_fn(|_| Arc::clone(shared));
    Orders::new()
        .with("status", move |NoArguments {}| {
            serde_json::to_value(asked.status()).map_err(|error| error.to_string())
        })
        .with("resize", move |ResizeOrder { cache, export }| {
            resize(&cache_of(&resized, export.as_deref())?, cache)
        })
        .with_recording(move |export| cache_of(&recorded, export))
        .with("policy", move |PolicyOrder { policy, export }| {
            changed.change_policy(export.as_deref(), &policy)
        })
        .with("export-add", move |Add { export }| {
            let Some(open) = &more.options.open_export else {
                return Err("this server takes no more exports".to_owned());
            };
            let name = export.split_once('=').map_or("", |(name, _)| name);
            let added = more.add_export(name, || open.open(&export))?;
            Ok(json!({
                "name": added.name,
                "size_bytes": added.engine.volume_bytes(added.volume),
                "read_only": added.is_read_only(),
            }))
        })
        .with(
            "export-limit",
            move |Limit {
                      export,
                      iops,
                      bandwidth,
                      weight,
                  }| {
                let rates = RateLimits::new(iops, bandwidth)?.with_weight(weight)?;
                let changed = limited.set_rates(&export, rates)?;
                Ok(json!({ "changed": changed }))
            },
        )
        .with("export-lengthen", move |Lengthen { export }| {
            let (before, after, told) = longer.lengthen_export(&export)?;
            Ok(json!({
                "name": export,
                "before_bytes": before,
                "size_bytes": after,
                "told": told,
            }))
        })
        .with("export-remove", move |Remove { export, force }| {
            let disconnected = less.remove_export(&export, force)?;
            Ok(json!({ "name": export, "disconnected": disconnected }))
        })
}

impl Shared {
    /// Changes the policy of an export's cache, or of the only cache.
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
