//! What a mount can be told over its control socket.
//!
//! | line | answer |
//! | --- | --- |
//! | `{"command":"status"}` | a [`MountStatus`] |
//! | `{"command":"record","sample":1}`, `{"command":"recorded","recording":N}`, `{"command":"end-record","recording":N}` | `{"recording":N}`, a [`futae_control::RecordingPart`], the last one |
//! | `{"command":"resize","cache":"1GiB"}`, also with `"export":NAME` | `{"capacity_blocks":N}` |
//! | `{"command":"policy","policy":"lru"}` | `{"policy":...,"before":...,"changed":BOOL,"resident_blocks":N}` |

use super::residency::Residency;
use futae_control::{
    EngineReport, NoArguments, Orders, PolicyOrder, PolicyTerms, ResizeOrder, change_policy, resize,
};
use futae_engine::Engine;
use futae_guest::TreeHandle;
use futae_observe::Snapshot;
use futae_terminal::failure::Failure;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Why a mount hears of no evictions, and the way out.
pub(super) const NO_CACHE_ABOVE: &str = "no cache is above a mount; run it in `futae serve`";

/// A mount at one moment.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct MountStatus {
    /// The version of futae.
    pub version: String,
    /// Time since the mount was made, in seconds.
    pub uptime_seconds: f64,
    /// What is mounted, as it was written.
    pub source: String,
    /// Where the mounted file is, or the directory of several.
    pub path: PathBuf,
    /// Where the blocks are held: `futae` or `kernel`.
    #[serde(default)]
    pub residency: String,
    /// The cache; one.
    pub engines: Vec<EngineReport>,
    /// The tree, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeStatus>,
}

/// A mounted tree at one moment.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct TreeStatus {
    /// The protected directories.
    pub protected: Vec<String>,
    /// Paths to be protected, from the root of the tree on, at which no directory is now.
    pub protected_absent: Vec<String>,
    /// Files and directories that the kernel knows.
    pub known_files: u64,
    /// Files that have been opened, whose blocks the cache may hold.
    pub cached_files: u64,
    /// The memory that the table of the files takes, by estimate.
    pub file_table_bytes: u64,
}

impl TreeStatus {
    /// That of a tree.
    pub fn of(tree: &TreeHandle) -> Self {
        let table = tree.file_table();
        Self {
            protected: tree.protected(),
            protected_absent: tree.protected_absent(),
            known_files: table.known_files,
            cached_files: table.cached_files,
            file_table_bytes: table.bytes,
        }
    }
}

/// The orders that every mount takes; `path` is where it shows what it calls `shown`. `joins` is whether requests that
/// the kernel split are joined again. `tree` tells of a tree.
pub fn of_mount(
    engine: &Arc<Engine>,
    source: &str,
    path: PathBuf,
    shown: Vec<String>,
    joins: bool,
    tree: impl Fn() -> Option<TreeStatus> + Send + Sync + 'static,
) -> Orders {
    let [asked, resized, recorded, changed] = std::array::from_fn(|_| Arc::clone(engine));
    let (names, resizable) = (shown.clone(), shown.clone());
    let source = source.to_owned();
    let started = Instant::now();
    let status = move |NoArguments {}| {
        asked.hear();
        let report = EngineReport {
            exports: shown.clone(),
            engine: asked.status(),
        };
        let status = MountStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: started.elapsed().as_secs_f64(),
            source: source.clone(),
            path: path.clone(),
            residency: Residency::of(&asked).name().to_owned(),
            engines: vec![report],
            tree: tree(),
        };
        serde_json::to_value(status).map_err(|error| error.to_string())
    };
    Orders::new()
        .with("status", status)
        .with("resize", move |ResizeOrder { cache, export }| {
            known(export, &resizable)?;
            resize(&resized, cache)
        })
        .with_recording(move |_| Ok(Arc::clone(&recorded)))
        .with("policy", move |PolicyOrder { policy, export }| {
            known(export, &names)?;
            let terms = PolicyTerms {
                no_evictions: Some(NO_CACHE_ABOVE),
                no_requests: (!joins).then_some(
                    "this mount does not join those that the kernel split; mount with --join-reads 1MiB",
                ),
                keeps_served: false,
            };
            change_policy(&changed, &policy, &terms)
        })
}

/// An error if an order names an export that is none of these; all share the one cache.
fn known(export: Option<String>, names: &[String]) -> Result<(), String> {
    match export.filter(|name| !names.contains(name)) {
        None => Ok(()),
        Some(name) => {
            let names = names.join(", ");
            Err(format!("nothing is called {name:?} here; there is {names}"))
        }
    }
}

/// What a mount's cache does, for whom it is shown.
pub fn looking(
    engine: &Arc<Engine>,
    shown: Vec<String>,
) -> impl Fn() -> Snapshot + Send + Sync + 'static {
    let engine = Arc::clone(engine);
    let started = Instant::now();
    move || {
        let report = EngineReport {
            exports: shown.clone(),
            engine: engine.status(),
        };
        let uptime_seconds = started.elapsed().as_secs_f64();
        Snapshot::of_mount(env!("CARGO_PKG_VERSION"), uptime_seconds, vec![report])
    }
}

/// The path in `--control unix:PATH`.
pub fn socket_path(address: &str) -> Result<PathBuf, Failure> {
    match address.strip_prefix("unix:") {
        Some(path) if !path.is_empty() => Ok(path.into()),
        _ => Err(Failure::usage(format!(
            "--control {address}: a control socket is a unix socket; write unix:PATH"
        ))),
    }
}
