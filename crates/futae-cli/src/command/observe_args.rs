//! `--metrics`, the same for `futae serve` and `futae mount`.

use crate::failure::Failure;
use futae_control::Access;
use futae_host::{HostError, Listen};
use futae_observe::{CONTENT_TYPE, Http, Reply, Snapshot, metrics};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::info;

/// How long what was seen of the caches is shown again: a client that asks without end asks the caches ten times a second.
const FRESH: Duration = Duration::from_millis(100);

/// Where it is shown what the caches do.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Watching")]
pub(super) struct ObserveArgs {
    /// Address of an HTTP server that answers GET /metrics with counters as OpenMetrics text, for Prometheus:
    /// tcp:HOST:PORT, on loopback (a server takes others with --insecure-tcp), or unix:PATH[,mode=OCTAL][,owner=NAME][,group=NAME]
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<String>,
}

/// The addresses, checked.
#[derive(Clone, Debug, Default)]
pub(super) struct Observe {
    metrics: Option<(Listen, Access)>,
}

/// What is shown, and where. Dropped, it is shown no more.
#[derive(Default)]
pub(super) struct Observing {
    metrics: Option<Http>,
}

impl ObserveArgs {
    /// Checks the addresses.
    pub fn plan(&self) -> Result<Observe, Failure> {
        Ok(Observe {
            metrics: self
                .metrics
                .as_deref()
                .map(|text| address("--metrics", text))
                .transpose()?,
        })
    }
}

/// One address.
fn address(option: &str, text: &str) -> Result<(Listen, Access), Failure> {
    let wrong = |problem: String| Failure::usage(format!("{option} {text}: {problem}"));
    let (rest, access) = Access::take_from(text).map_err(wrong)?;
    let listen: Listen = rest
        .parse()
        .map_err(|error: HostError| wrong(error.to_string()))?;
    match listen {
        Listen::VhostUser(_) => Err(wrong("write tcp:HOST:PORT or unix:PATH".to_owned())),
        Listen::Tcp { .. } if access != Access::default() => Err(wrong(
            "mode, owner and group are those of a unix socket".to_owned(),
        )),
        listen => Ok((listen, access)),
    }
}

impl Observe {
    /// The unix sockets, each with its option.
    pub fn sockets(&self) -> impl Iterator<Item = (&'static str, &std::path::Path)> {
        let metrics = self
            .metrics
            .iter()
            .map(|(address, _)| ("--metrics", address));
        metrics.filter_map(|(option, address)| match address {
            Listen::Unix(path) => Some((option, path.as_path())),
            _ => None,
        })
    }

    /// Shows what `look` sees, at most ten times a second.
    pub fn start(
        &self,
        insecure_tcp: bool,
        look: impl Fn() -> Snapshot + Send + Sync + 'static,
    ) -> Result<Observing, Failure> {
        let seen: Mutex<Option<(Instant, Snapshot)>> = Mutex::new(None);
        let look = move || {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            match &*seen {
                Some((at, snapshot)) if at.elapsed() < FRESH => snapshot.clone(),
                _ => seen.insert((Instant::now(), look())).1.clone(),
            }
        };
        let look = Arc::new(look);
        let start = |wish: &Option<(Listen, Access)>, routes| {
            let Some((address, access)) = wish else {
                return Ok(None);
            };
            let http = Http::start(address, access, insecure_tcp, routes);
            http.map(Some).map_err(anyhow::Error::from)
        };
        let metrics = start(
            &self.metrics,
            Arc::new(move |path| {
                (path == "/metrics").then(|| Reply {
                    content_type: CONTENT_TYPE,
                    body: metrics(look()),
                    nonce: None,
                })
            }),
        )?;
        if let Some(http) = &metrics {
            info!("metrics at {}, path /metrics", http.address());
        }
        Ok(Observing { metrics })
    }
}

impl Observing {
    /// Where metrics are.
    pub fn metrics(&self) -> Option<String> {
        self.metrics.as_ref().map(|http| http.address().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_written() {
        let read = |text| address("--metrics", text).map_err(|failure| failure.to_string());
        let (listen, access) = read("unix:/m,mode=0660").expect("valid");
        assert_eq!(
            (listen.to_string(), access.mode),
            ("unix:/m".to_owned(), 0o660)
        );
        assert!(read("tcp:127.0.0.1:9").is_ok());
        for text in ["", "/m", "vhost-user:/m", "tcp:x", "tcp:h:1,mode=0660"] {
            let problem = read(text).expect_err(text);
            assert!(problem.starts_with("--metrics"), "{problem}");
        }
    }
}
