//! Requests that end, as spans.

use super::OtlpPlan;
use super::exporter::Exporter;
use futae_engine::{Ended, Watcher};
use futae_terminal::failure::Failure;
use opentelemetry::trace::{Span, SpanKind, Status, Tracer, TracerProvider};
use opentelemetry::{Context, KeyValue, StringValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider};
use std::time::{Duration, SystemTime};

/// How long the end of a program waits for a collector.
const LAST_TIMEOUT: Duration = Duration::from_secs(2);

/// Sends spans, from a thread of its own and a queue with an end.
pub struct Tracing {
    provider: SdkTracerProvider,
    plan: OtlpPlan,
}

impl Tracing {
    /// Starts the thread. Nothing is sent before a request ends.
    ///
    /// # Errors
    ///
    /// The address is none.
    pub fn start(plan: &OtlpPlan) -> Result<Self, Failure> {
        let exporter = Exporter::new(plan)?;
        let resource = Resource::builder()
            .with_service_name("futae")
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
        let provider = SdkTracerProvider::builder()
            .with_span_processor(BatchSpanProcessor::builder(exporter).build())
            // What becomes a span is decided before.
            .with_sampler(Sampler::AlwaysOn)
            .with_resource(resource.build())
            .build();
        Ok(Self {
            provider,
            plan: plan.clone(),
        })
    }

    /// Who is told of the requests for a volume.
    pub fn watcher(&self, volume: &str) -> Box<dyn Watcher> {
        Box::new(OfVolume {
            tracer: self.provider.tracer("futae"),
            volume: volume.to_owned().into(),
            sample: self.plan.sample,
            slow: self.plan.slow,
        })
    }

    /// Sends what is left. A collector that does not answer is not waited for.
    pub fn end(&self) {
        // The exporter has said what there is to say.
        let _ = self.provider.shutdown_with_timeout(LAST_TIMEOUT);
    }
}

#[derive(Debug)]
struct OfVolume {
    tracer: SdkTracer,
    volume: StringValue,
    sample: f64,
    slow: Duration,
}

impl Watcher for OfVolume {
    fn ended(&self, ended: &Ended) {
        let is_slow = ended.took >= self.slow;
        if !is_slow && fastrand::f64() >= self.sample {
            return;
        }
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let mut attributes = vec![
            KeyValue::new("futae.export", self.volume.clone()),
            KeyValue::new("futae.kind", ended.kind),
            KeyValue::new("futae.requests", number(ended.requests)),
            KeyValue::new("futae.bytes", number(ended.bytes)),
            KeyValue::new("futae.slow", is_slow),
        ];
        attributes.extend(ended.hit.map(|hit| KeyValue::new("futae.hit", hit)));
        let now = SystemTime::now();
        let begun = now.checked_sub(ended.took).unwrap_or(now);
        let span = self.tracer.span_builder(ended.kind).with_start_time(begun);
        let span = span.with_kind(SpanKind::Server).with_attributes(attributes);
        let mut span = span.start_with_context(&self.tracer, &Context::new());
        if ended.failed {
            span.set_status(Status::error("the request failed"));
        }
        span.end_with_timestamp(now);
    }
}
