//! A server or a mount at one moment.

use crate::forecast::ForecastShown;
use futae_control::EngineReport;
use futae_engine::VolumeStatus;
use futae_host::{ExportReport, ServerStatus};

/// Which of the two caches a program has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The one near the store: `futae serve`.
    Lower,
    /// The one near the application: `futae mount`.
    Upper,
}

impl Level {
    /// The value of the label `level`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lower => "lower",
            Self::Upper => "upper",
        }
    }
}

/// A server or a mount at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Which cache it is.
    pub level: Level,
    /// The version of futae.
    pub version: String,
    /// Time since the start, in seconds.
    pub uptime_seconds: f64,
    /// The caches.
    pub engines: Vec<EngineReport>,
    /// What only a server has.
    pub server: Option<ServerStatus>,
    /// The caches that a forecast is held against.
    pub forecasts: Vec<ForecastShown>,
}

impl Snapshot {
    /// A server.
    #[must_use]
    pub fn of_server(server: ServerStatus) -> Self {
        Self {
            level: Level::Lower,
            version: server.version.clone(),
            uptime_seconds: server.uptime_seconds,
            engines: server.engines.clone(),
            server: Some(server),
            forecasts: Vec::new(),
        }
    }

    /// A mount: its version, its age in seconds and its caches.
    #[must_use]
    pub fn of_mount(version: &str, uptime_seconds: f64, engines: Vec<EngineReport>) -> Self {
        Self {
            level: Level::Upper,
            version: version.to_owned(),
            uptime_seconds,
            engines,
            server: None,
            forecasts: Vec::new(),
        }
    }

    /// What the cache of several exports is called. No export with a cache of its own may have this name.
    pub const COMMON: &str = "common";

    /// What a cache is called: the export that has it for itself, or [`Self::COMMON`].
    #[must_use]
    pub fn name_of(cache: &EngineReport) -> &str {
        match &cache.exports[..] {
            [only] => only,
            _ => Self::COMMON,
        }
    }

    /// Every volume, with its cache and, of a server, its export.
    pub(crate) fn volumes(&self) -> Vec<OneExport> {
        let exports = self
            .server
            .as_ref()
            .map_or(&[][..], |server| &server.exports);
        let of_cache = |cache: &EngineReport| {
            let one = |volume: &VolumeStatus| OneExport {
                cache: Self::name_of(cache).to_owned(),
                block_bytes: cache.engine.block_bytes,
                volume: volume.clone(),
                export: exports
                    .iter()
                    .find(|export| export.name == volume.name)
                    .cloned(),
            };
            cache.engine.volumes.iter().map(one).collect::<Vec<_>>()
        };
        self.engines.iter().flat_map(of_cache).collect()
    }
}

/// One export, or one file of a mount.
#[derive(Clone, Debug)]
pub(crate) struct OneExport {
    /// What its cache is called.
    pub(crate) cache: String,
    pub(crate) block_bytes: u64,
    pub(crate) volume: VolumeStatus,
    pub(crate) export: Option<ExportReport>,
}
