//! Sends telemetry that opentelemetry-otlp has no interface for, since it accepts only data of
//! OpenTelemetry's own instruments: our metrics and log records, in OpenTelemetry's messages, over the
//! same kind of connection.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method};
use opentelemetry_http::{Bytes, HttpClient, Request};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use percent_encoding::percent_decode_str;
use prost::Message;
use tonic::client::Grpc;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic_prost::ProstCodec;

use super::error::OtlpError;
use super::settings::{Endpoint, Protocol};
use super::transport;
use super::transport::Http;
use ganger_https::chain;

/// A request that can be sent.
pub(super) trait Export: Message + Default + 'static {
    /// Its response.
    type Answer: Message + Default + 'static;
    /// Its gRPC method.
    const METHOD: &'static str;
}

impl Export for ExportMetricsServiceRequest {
    type Answer = ExportMetricsServiceResponse;
    const METHOD: &'static str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
}

impl Export for ExportLogsServiceRequest {
    type Answer = ExportLogsServiceResponse;
    const METHOD: &'static str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";
}

/// A collector, as one signal reaches it.
#[derive(Debug)]
pub(super) struct Sender {
    url: String,
    gzip: bool,
    headers: Vec<(HeaderName, HeaderValue)>,
    way: Transport,
}

#[derive(Debug)]
enum Transport {
    Grpc(Channel),
    Http(Box<Http>),
}

impl Sender {
    /// Makes a sender, which connects on first use.
    pub(super) fn new(endpoint: &Endpoint) -> Result<Self, OtlpError> {
        Ok(Self {
            url: endpoint.url.clone(),
            gzip: endpoint.gzip,
            headers: headers(&endpoint.headers),
            way: match endpoint.protocol {
                Protocol::Grpc => Transport::Grpc(transport::channel(endpoint)?),
                Protocol::Http => Transport::Http(Box::new(Http::new(endpoint)?)),
            },
        })
    }

    /// Sends a request, or returns the reason that it was not accepted.
    pub(super) async fn send<T: Export>(&self, message: T) -> Result<(), String> {
        match &self.way {
            Transport::Grpc(channel) => self.by_grpc(channel.clone(), message).await,
            Transport::Http(client) => self.by_http(client, &message).await,
        }
    }

    async fn by_grpc<T: Export>(&self, channel: Channel, message: T) -> Result<(), String> {
        let mut grpc = Grpc::new(channel);
        if self.gzip {
            grpc = grpc.send_compressed(CompressionEncoding::Gzip);
        }
        grpc.ready().await.map_err(|error| chain(&error))?;
        let mut request = tonic::Request::new(message);
        let headers = self.headers.iter().cloned().collect();
        *request.metadata_mut() = MetadataMap::from_headers(headers);
        let method = PathAndQuery::from_static(T::METHOD);
        let answer = grpc.unary(request, method, ProstCodec::<T, T::Answer>::default());
        answer.await.map(drop).map_err(|status| chain(&status))
    }

    async fn by_http<T: Export>(&self, client: &Http, message: &T) -> Result<(), String> {
        let body = message.encode_to_vec();
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(&self.url)
            .header("content-type", "application/x-protobuf");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let body = match self.gzip {
            true => {
                request = request.header("content-encoding", "gzip");
                compressed(&body).map_err(|error| error.to_string())?
            }
            false => body,
        };
        let request = request
            .body(Bytes::from(body))
            .map_err(|error| error.to_string())?;
        let answer = client
            .send_bytes(request)
            .await
            .map_err(|error| chain(&*error))?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("it answered {status}")),
        }
    }
}

fn compressed(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// Parses headers from the variable's syntax; invalid ones are left out.
fn headers(text: &str) -> Vec<(HeaderName, HeaderValue)> {
    let header = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
        let name = HeaderName::try_from(name.trim()).ok()?;
        Some((name, HeaderValue::try_from(&*value).ok()?))
    };
    text.split(',').filter_map(header).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_pairs_and_percent_encoded() {
        let read = headers("api-key=s%20cret, other = x ,wrong,=y,b\u{e4}d=z");
        let read: Vec<(&str, &str)> = read
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        assert_eq!(read, [("api-key", "s cret"), ("other", "x")]);
    }
}
