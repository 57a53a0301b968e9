//! `--metrics` and `--web`, the same for `futae serve` and `futae mount`.

mod against;

use super::forecast::Forecast;
use against::Against;
use futae_control::Access;
use futae_engine::Engine;
use futae_host::{HostError, Listen};
use futae_observe::{Eye, Http, Routes, Snapshot, Watch};
use futae_terminal::failure::Failure;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing::info;

/// Where it is shown what the caches do.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Watching")]
pub(super) struct ObserveArgs {
    /// Address of an HTTP server that answers GET /metrics with counters as OpenMetrics text, for Prometheus:
    /// tcp:HOST:PORT, on loopback (a server takes others with --insecure-tcp), or `unix:PATH[,mode=OCTAL][,owner=NAME][,group=NAME]`
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<String>,
    /// Address of an HTTP server with one page: hit ratios, contents of caches, stores, agents. The
    /// page needs no network and no JavaScript. It answers GET /metrics as well. An address as for
    /// --metrics
    #[arg(long, value_name = "ADDRESS")]
    web: Option<String>,
    /// A forecast that futae advise --save wrote: the page of --web shows its hit ratio beside the
    /// measured one
    #[arg(long, value_name = "FILE", requires = "web")]
    forecast: Option<PathBuf>,
}

/// The addresses, checked.
#[derive(Clone, Debug, Default)]
pub(super) struct Observe {
    metrics: Option<(Listen, Access)>,
    web: Option<(Listen, Access)>,
    forecast: Option<Forecast>,
}

/// What is shown, and where. Dropped, it is shown no more.
#[derive(Default)]
pub(super) struct Observing {
    metrics: Option<Http>,
    web: Option<(Http, Watch)>,
}

impl ObserveArgs {
    /// Checks the addresses. With `insecure_tcp` other machines may reach them.
    pub fn plan(&self, insecure_tcp: bool) -> Result<Observe, Failure> {
        let read = |option, text: &Option<String>| {
            let Some(text) = text else { return Ok(None) };
            let (listen, access) = address(option, text)?;
            Http::check(&listen, insecure_tcp)
                .map_err(|error| Failure::usage(format!("{option} {error}")))?;
            Ok::<_, Failure>(Some((listen, access)))
        };
        let (metrics, web) = (read("--metrics", &self.metrics)?, read("--web", &self.web)?);
        let forecast = self.forecast.as_deref().map(watched_forecast).transpose()?;
        Ok(Observe {
            metrics,
            web,
            forecast,
        })
    }
}

/// A forecast that a server or a mount can be held against.
fn watched_forecast(path: &Path) -> Result<Forecast, Failure> {
    let forecast = Forecast::read(path)?;
    if forecast.advised().host_hit_ratio.is_none() {
        let message = format!(
            "--forecast {}: it advises to have no cache on the host, so there is nothing to show beside it",
            path.display()
        );
        return Err(Failure::usage(message));
    }
    Ok(forecast)
}

/// One address.
pub(super) fn address(option: &str, text: &str) -> Result<(Listen, Access), Failure> {
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
    /// The addresses, each with its option.
    pub fn addresses(&self) -> impl Iterator<Item = (&'static str, &Listen)> {
        let both = [("--metrics", &self.metrics), ("--web", &self.web)];
        both.into_iter()
            .filter_map(|(option, wish)| wish.as_ref().map(|(address, _)| (option, address)))
    }

    /// The unix sockets among them.
    pub fn sockets(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        self.addresses().filter_map(|it| match it {
            (option, Listen::Unix(path)) => Some((option, path.as_path())),
            _ => None,
        })
    }

    /// Shows what `look` sees, and on the page what `caches` are asked for.
    pub fn start(
        &self,
        insecure_tcp: bool,
        look: impl Fn() -> Snapshot + Send + Sync + 'static,
        caches: impl Fn() -> Vec<Arc<Engine>> + Send + Sync + 'static,
    ) -> Result<Observing, Failure> {
        let against = self.forecast.clone().map(Against::new);
        let look = move || {
            let mut snapshot = look();
            if let Some(against) = &against {
                snapshot.forecasts = against.shown(&snapshot);
            }
            snapshot
        };
        let eye = Arc::new(Eye::new(look));
        let start = |(address, access): &(Listen, Access), routes: Routes| {
            Http::start(address, access, insecure_tcp, routes).map_err(anyhow::Error::from)
        };
        let mut observing = Observing::default();
        if let Some(wish) = &self.metrics {
            let eye = Arc::clone(&eye);
            let routes = move |path: &str| (path == "/metrics").then(|| eye.metrics());
            let http = start(wish, Arc::new(routes))?;
            info!("metrics at {}, path /metrics", http.address());
            observing.metrics = Some(http);
        }
        if let Some(wish) = &self.web {
            let watch = Watch::start(Arc::clone(&eye), caches).map_err(anyhow::Error::from)?;
            let page = watch.painter();
            let routes = move |path: &str| match path {
                "/" => Some(page()),
                "/metrics" => Some(eye.metrics()),
                _ => None,
            };
            let http = start(wish, Arc::new(routes))?;
            info!("a page for a browser at {}", http.address());
            observing.web = Some((http, watch));
        }
        Ok(observing)
    }
}

impl Observing {
    /// Where metrics are.
    pub fn metrics(&self) -> Option<String> {
        self.metrics.as_ref().map(|http| http.address().to_string())
    }

    /// Where the page is.
    pub fn web(&self) -> Option<String> {
        let (http, _) = self.web.as_ref()?;
        Some(http.address().to_string())
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
