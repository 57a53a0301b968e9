//! What sends spans to a collector, and says when it cannot.

use super::OtlpPlan;
use anyhow::anyhow;
use async_trait::async_trait;
use futae_terminal::failure::Failure;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tracing::{info, warn};

/// How long a collector may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// More than any answer to spans has.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// An exporter that says once that a collector does not take spans, and once that it takes them again.
#[derive(Debug)]
pub(super) struct Exporter {
    inner: opentelemetry_otlp::SpanExporter,
    url: String,
    is_refused: AtomicBool,
}

impl Exporter {
    /// One that is not connected yet.
    ///
    /// # Errors
    ///
    /// The address is none.
    pub(super) fn new(plan: &OtlpPlan) -> Result<Self, Failure> {
        let inner = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_http_client(Client::new())
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(&plan.url)
            .with_timeout(TIMEOUT)
            .build();
        let inner =
            inner.map_err(|error| Failure::usage(format!("--otlp {}: {error}", plan.url)))?;
        Ok(Self {
            inner,
            url: plan.url.clone(),
            is_refused: AtomicBool::new(false),
        })
    }
}

impl SpanExporter for Exporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let sent = self.inner.export(batch).await;
        let url = &self.url;
        match &sent {
            Err(error) if !self.is_refused.swap(true, Relaxed) => {
                warn!(
                    "--otlp {url}: spans cannot be sent, and are dropped until they can: {error}"
                );
            }
            Ok(()) if self.is_refused.swap(false, Relaxed) => {
                info!("--otlp {url}: spans are sent again");
            }
            _ => {}
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

/// HTTP as the exporter wants it. The only thread that uses it is the exporter's, so it may wait.
#[derive(Debug)]
struct Client(ureq::Agent);

impl Client {
    fn new() -> Self {
        let options = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            // What it means is the exporter's business.
            .http_status_as_error(false);
        Self(options.build().into())
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = request.into_parts();
        let answer = self.0.run(Request::from_parts(head, &*body))?;
        let (head, mut body) = answer.into_parts();
        let body = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let body = body.map_err(|error| anyhow!("its answer: {error}"))?;
        Ok(Response::from_parts(head, body.into()))
    }
}
