//! `--otlp`: slow and sampled requests as spans, sent to a collector of OpenTelemetry.

#[cfg(feature = "otlp")]
mod exporter;
#[cfg(feature = "otlp")]
mod spans;

use futae_terminal::failure::Failure;
use futae_units::parse_duration;
#[cfg(feature = "otlp")]
pub use spans::Tracing;
use std::time::Duration;

/// Where a collector takes spans, below its address.
const PATH: &str = "/v1/traces";

/// The flags.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Traces")]
pub struct OtlpArgs {
    /// Send spans of requests to a collector of OpenTelemetry, by OTLP over HTTP: http://HOST:PORT.
    /// A span is one request, or, from a server, a batch of hits or of demotions. Requests never
    /// wait for the collector: spans that it does not take in time are dropped
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// The share of requests that become spans, from 0 to 1 [default: 0.01]
    #[arg(long, value_name = "SHARE", requires = "otlp")]
    otlp_sample: Option<f64>,
    /// A request that took this long becomes a span whatever --otlp-sample is [default: 100ms]
    #[arg(long, value_name = "DURATION", requires = "otlp")]
    otlp_slow: Option<String>,
}

/// The flags, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct OtlpPlan {
    /// Where spans are sent.
    pub url: String,
    /// The share of requests that become spans.
    pub sample: f64,
    /// From when on every request becomes a span.
    pub slow: Duration,
}

impl OtlpArgs {
    /// What the flags come to; none without `--otlp`.
    ///
    /// # Errors
    ///
    /// A flag cannot be meant, or this futae cannot send spans.
    pub fn plan(&self) -> Result<Option<OtlpPlan>, Failure> {
        let Some(url) = &self.otlp else {
            return Ok(None);
        };
        let wrong = |problem: &str| Err(Failure::usage(format!("--otlp {url}: {problem}")));
        if !cfg!(feature = "otlp") {
            return wrong(
                "this futae was built without the cargo feature otlp; build it with --features otlp",
            );
        }
        match url.split_once("://") {
            Some(("http", rest)) if !rest.is_empty() && !rest.starts_with('/') => {}
            Some(("https", _)) => {
                return wrong(
                    "spans are sent by http only; name a collector on this host, which passes them on by https",
                );
            }
            _ => return wrong("write http://HOST:PORT"),
        }
        let sample = self.otlp_sample.unwrap_or(0.01);
        if !(0.0..=1.0).contains(&sample) {
            return Err(Failure::usage("--otlp-sample is a share from 0 to 1"));
        }
        let slow = self.otlp_slow.as_deref().unwrap_or("100ms");
        let slow = parse_duration(slow);
        let slow = slow.map_err(|error| Failure::usage(format!("--otlp-slow: {error}")))?;
        let base = url.trim_end_matches('/');
        let base = base.strip_suffix(PATH).unwrap_or(base);
        Ok(Some(OtlpPlan {
            url: format!("{base}{PATH}"),
            sample,
            slow,
        }))
    }
}

/// What sends spans: there is none in this build.
#[cfg(not(feature = "otlp"))]
pub enum Tracing {}

#[cfg(not(feature = "otlp"))]
impl Tracing {
    /// The plan of a build that cannot send spans is an error.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn start(_: &OtlpPlan) -> Result<Self, Failure> {
        Err(Failure::usage(
            "--otlp: this futae was built without the cargo feature otlp",
        ))
    }

    /// Who is told of the requests for a volume.
    pub fn watcher(&self, _: &str) -> Box<dyn futae_engine::Watcher> {
        match *self {}
    }

    /// Sends what is left.
    pub fn end(&self) {
        match *self {}
    }
}

#[cfg(all(test, feature = "otlp"))]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_as_written() {
        let plan = |url: &str, sample, slow: Option<&str>| {
            let args = OtlpArgs {
                otlp: Some(url.to_owned()),
                otlp_sample: sample,
                otlp_slow: slow.map(str::to_owned),
            };
            args.plan().map_err(|failure| failure.to_string())
        };
        let expected = OtlpPlan {
            url: "http://[::1]:4318/v1/traces".to_owned(),
            sample: 0.01,
            slow: Duration::from_millis(100),
        };
        for url in [
            "http://[::1]:4318",
            "http://[::1]:4318/",
            "http://[::1]:4318/v1/traces",
        ] {
            assert_eq!(plan(url, None, None), Ok(Some(expected.clone())));
        }
        let told = plan("http://h/a", Some(1.0), Some("2s"))
            .expect("valid")
            .expect("asked for");
        assert_eq!(
            (told.url.as_str(), told.slow),
            ("http://h/a/v1/traces", Duration::from_secs(2))
        );
        for (url, sample, slow, said) in [
            ("127.0.0.1:4318", None, None, "write http://HOST:PORT"),
            ("http://", None, None, "write http://HOST:PORT"),
            ("https://h", None, None, "a collector on this host"),
            ("http://h", Some(1.5), None, "--otlp-sample"),
            ("http://h", Some(f64::NAN), None, "--otlp-sample"),
            ("http://h", None, Some("soon"), "--otlp-slow"),
        ] {
            let problem = plan(url, sample, slow).expect_err(said);
            assert!(problem.contains(said), "{problem}");
        }
    }
}
