//! Sends spans to a collector: OTLP over HTTP, in protobuf, in batches from a thread of its own. A collector that is slow or
//! away costs spans, never a request: what does not fit into the queue is dropped.
//!
//! `config.rs` reads where to and under which name; the rest of the standard's variables (`OTEL_EXPORTER_OTLP_HEADERS`,
//! `OTEL_TRACES_SAMPLER`, `OTEL_BSP_*`, `OTEL_RESOURCE_ATTRIBUTES`, …) the standard's own crates read for themselves.

use std::time::Duration;

use async_trait::async_trait;
use opentelemetry::global;
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::runtime::Handle;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

use super::TARGET;
use crate::config::Otlp;

/// How long one batch may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the end of the process waits for the last batch.
const LAST_PATIENCE: Duration = Duration::from_secs(3);

/// Links of a span: the events of a consumer's batch, and of a relay's step as far as they are told.
const LINKS: u32 = 512;

/// Exports until its end.
#[derive(Debug)]
pub struct Exporting(SdkTracerProvider);

impl Exporting {
    /// Ready to export; nothing is sent yet.
    ///
    /// # Errors
    /// In words, where the settings make no sense.
    pub fn to(otlp: &Otlp) -> anyhow::Result<Self> {
        // Fails only if one is installed already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().timeout(PATIENCE).redirect(reqwest::redirect::Policy::none()).build()?;
        let client = Courier { http, runtime: Handle::current() };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(&otlp.endpoint)
            .build()?;
        let resource = Resource::builder().with_service_name(otlp.service_name.clone()).build();
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource);
        let provider = provider.with_max_links_per_span(LINKS).build();
        global::set_tracer_provider(provider.clone());
        Ok(Self(provider))
    }

    /// Turns spans of [`TARGET`], and nothing else that is logged, into the standard's.
    #[must_use]
    pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> + use<S> {
        tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer("oncebook"))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_level(false)
            .with_target(false)
            .with_context_activation(false)
            .with_filter(filter_fn(|metadata| metadata.is_span() && metadata.target() == TARGET))
    }

    /// Sends what is left, for as long as that is worth.
    pub async fn end(self) {
        let ended = tokio::task::spawn_blocking(move || self.0.shutdown_with_timeout(LAST_PATIENCE)).await;
        if !matches!(ended, Ok(Ok(()))) {
            tracing::warn!("the last spans were not exported");
        }
    }
}

/// Sends by the service's own HTTP client, which needs the runtime that the exporter's thread is no part of.
#[derive(Debug)]
struct Courier {
    http: reqwest::Client,
    runtime: Handle,
}

#[async_trait]
impl HttpClient for Courier {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (http, request) = (self.http.clone(), reqwest::Request::try_from(request)?);
        let sent = self.runtime.spawn(async move {
            let answer = http.execute(request).await?;
            let status = answer.status();
            Ok::<_, reqwest::Error>((status, answer.bytes().await?))
        });
        let (status, body) = sent.await??;
        Ok(Response::builder().status(status).body(body)?)
    }
}
