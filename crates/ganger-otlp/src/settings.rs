//! Settings of the export: signals, destinations and transport, from OpenTelemetry's environment
//! variables and the configuration, as a pure function. By OpenTelemetry's rules an invalid variable is
//! reported and counts as not set.

use std::str::FromStr;
use std::time::Duration;

use ganger_config::Environment;
use ganger_config::model::{Otlp, is_loopback};
use ganger_telemetry::sampler::Sampler;

/// Settings of the export.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// Destination of spans; none if they are not recorded.
    pub(crate) traces: Option<Endpoint>,
    /// Destination of log records; none if they are not exported.
    pub(crate) logs: Option<Endpoint>,
    /// Destination of metrics; none if they are only scraped.
    pub(crate) metrics: Option<Endpoint>,
    /// Sampler of attempts.
    pub(crate) sampler: Sampler,
    /// Batching of spans.
    pub(crate) spans: Batching,
    /// Batching of log records.
    pub(crate) records: Batching,
    /// Interval at which metrics are sent.
    pub(crate) metrics_interval: Duration,
    /// Timeout for sending metrics.
    pub(crate) metrics_timeout: Duration,
}

/// Destination of a signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// The whole URL; for gRPC without a path.
    pub(crate) url: String,
    /// Protocol.
    pub(crate) protocol: Protocol,
    /// Timeout of a request.
    pub(crate) timeout: Duration,
    /// Requests are compressed.
    pub(crate) gzip: bool,
    /// Headers of each request, as `NAME=VALUE,…`.
    pub(crate) headers: String,
    /// File with the trusted authorities; none for those of the system.
    pub(crate) ca_file: Option<String>,
    /// Files with our certificate and its key.
    pub(crate) identity: Option<(String, String)>,
}

/// Protocol of a collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Grpc,
    Http,
}

/// Batching of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Batching {
    /// Longest time that an item waits for others.
    pub(crate) delay: Duration,
    /// Maximum number of waiting items; more are lost.
    pub(crate) waiting_max: usize,
    /// Maximum number of items sent at once.
    pub(crate) batch: usize,
    /// Timeout of sending a batch, including all retries.
    pub(crate) timeout: Duration,
}

/// A signal, as the variables and the paths name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Signal {
    variable: &'static str,
    path: &'static str,
    /// It is sent whenever there is a collector. Log records are not, since they are written elsewhere
    /// already.
    by_itself: bool,
}

const TRACES: Signal = Signal {
    variable: "TRACES",
    path: "v1/traces",
    by_itself: true,
};
const METRICS: Signal = Signal {
    variable: "METRICS",
    path: "v1/metrics",
    by_itself: true,
};
const LOGS: Signal = Signal {
    variable: "LOGS",
    path: "v1/logs",
    by_itself: false,
};

/// Returns the settings, and the problems of the variables. None if nothing is to be sent.
pub(crate) fn read(otlp: &Otlp, environment: &Environment) -> (Option<Settings>, Vec<String>) {
    let mut variables = Variables {
        environment,
        problems: Vec::new(),
    };
    let settings = variables.settings(otlp);
    (settings, variables.problems)
}

impl Settings {
    /// Returns the host of an endpoint to which headers or a login go unencrypted over a network.
    pub(crate) fn exposed_host(&self) -> Option<String> {
        let all = [&self.traces, &self.logs, &self.metrics];
        all.into_iter().flatten().find_map(|endpoint| {
            let url = url::Url::parse(&endpoint.url).ok()?;
            let host = url.host_str().filter(|host| !is_loopback(host))?;
            let has_secrets = !endpoint.headers.is_empty() || url.password().is_some();
            (url.scheme() == "http" && has_secrets).then(|| host.to_owned())
        })
    }
}

struct Variables<'a> {
    environment: &'a Environment,
    problems: Vec<String>,
}

impl Variables<'_> {
    fn settings(&mut self, otlp: &Otlp) -> Option<Settings> {
        let disabled = self.get("OTEL_SDK_DISABLED");
        let is_disabled = disabled.is_some_and(|word| word.eq_ignore_ascii_case("true"));
        if is_disabled || *otlp == Otlp::Off {
            return None;
        }
        let name = self.get("OTEL_TRACES_SAMPLER");
        let argument = self.get("OTEL_TRACES_SAMPLER_ARG");
        let sampler = Sampler::read(name.as_deref(), argument.as_deref());
        let settings = Settings {
            traces: self.endpoint(TRACES, otlp),
            logs: self.endpoint(LOGS, otlp),
            metrics: self.endpoint(METRICS, otlp),
            sampler: sampler.unwrap_or_else(|problem| {
                self.problems.push(problem);
                Sampler::DEFAULT
            }),
            spans: self.batching("OTEL_BSP", 5_000),
            records: self.batching("OTEL_BLRP", 1_000),
            metrics_interval: self.millis("OTEL_METRIC_EXPORT_INTERVAL", 60_000),
            metrics_timeout: self.millis("OTEL_METRIC_EXPORT_TIMEOUT", 30_000),
        };
        let all = [&settings.traces, &settings.logs, &settings.metrics];
        all.iter().any(|one| one.is_some()).then_some(settings)
    }

    /// Returns the destination of a signal, if it is sent.
    fn endpoint(&mut self, signal: Signal, otlp: &Otlp) -> Option<Endpoint> {
        if !self.is_wanted(signal) {
            return None;
        }
        let protocol = self.protocol(signal);
        let url = self.url(signal, otlp, protocol)?;
        let certificate = self.of(signal, "CLIENT_CERTIFICATE");
        let timeout = self.name_of(signal, "TIMEOUT");
        let compression = self.of(signal, "COMPRESSION").unwrap_or_default();
        if !matches!(compression.as_str(), "" | "none" | "gzip") {
            let rule = "OTEL_EXPORTER_OTLP_COMPRESSION must be `gzip` or `none`";
            self.problems.push(format!("{rule}: `{compression}`"));
        }
        Some(Endpoint {
            url,
            protocol,
            timeout: self.millis(&timeout, 10_000),
            gzip: compression == "gzip",
            headers: self.of(signal, "HEADERS").unwrap_or_default(),
            ca_file: self.of(signal, "CERTIFICATE"),
            identity: certificate.zip(self.of(signal, "CLIENT_KEY")),
        })
    }

    fn is_wanted(&mut self, signal: Signal) -> bool {
        let name = format!("OTEL_{}_EXPORTER", signal.variable);
        match self.get(&name).as_deref() {
            Some("none") => false,
            Some("otlp") => true,
            None => signal.by_itself || self.get(&specific(signal, "ENDPOINT")).is_some(),
            Some(other) => {
                let problem = format!("{name} must be `otlp` or `none`: `{other}`");
                self.problems.push(problem);
                false
            }
        }
    }

    fn protocol(&mut self, signal: Signal) -> Protocol {
        match self.of(signal, "PROTOCOL").as_deref() {
            Some("grpc") => Protocol::Grpc,
            None | Some("http/protobuf") => Protocol::Http,
            Some(other) => {
                let rule = "OTEL_EXPORTER_OTLP_PROTOCOL must be `grpc` or `http/protobuf`";
                self.problems.push(format!("{rule}: `{other}`"));
                Protocol::Http
            }
        }
    }

    /// Returns the URL: a variable for one signal is used as it is, one for all signals gets the signal's
    /// path appended.
    fn url(&mut self, signal: Signal, otlp: &Otlp, protocol: Protocol) -> Option<String> {
        let general = match otlp {
            Otlp::Url(url) => Some(url.clone()),
            Otlp::Auto | Otlp::Off => self.get("OTEL_EXPORTER_OTLP_ENDPOINT"),
        };
        let own = self.get(&specific(signal, "ENDPOINT"));
        let is_general = own.is_none();
        let mut text = own.or(general)?;
        if protocol == Protocol::Grpc && !text.contains("://") {
            let insecure = self.of(signal, "INSECURE");
            let insecure = insecure.is_some_and(|word| word.eq_ignore_ascii_case("true"));
            text = format!("{}://{text}", if insecure { "http" } else { "https" });
        }
        let url = url::Url::parse(&text).ok();
        let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let Some(url) = url else {
            // It may hold a secret.
            let what = "the OTLP endpoint must be a URL with http:// or https://";
            let signal = signal.variable.to_ascii_lowercase();
            self.problems.push(format!("{what}: {signal} are not sent"));
            return None;
        };
        let url = url.to_string();
        Some(match protocol {
            Protocol::Http if is_general => {
                format!("{}/{}", url.trim_end_matches('/'), signal.path)
            }
            Protocol::Http | Protocol::Grpc => url,
        })
    }

    fn batching(&mut self, prefix: &str, delay: u64) -> Batching {
        let waiting_max = self.number(&format!("{prefix}_MAX_QUEUE_SIZE"), 2048);
        let batch = self.number(&format!("{prefix}_MAX_EXPORT_BATCH_SIZE"), 512);
        Batching {
            delay: self.millis(&format!("{prefix}_SCHEDULE_DELAY"), delay),
            waiting_max,
            batch: batch.min(waiting_max),
            timeout: self.millis(&format!("{prefix}_EXPORT_TIMEOUT"), 30_000),
        }
    }

    /// Returns the variable for one signal, otherwise the one for all.
    fn of(&self, signal: Signal, what: &str) -> Option<String> {
        self.get(&self.name_of(signal, what))
    }

    fn name_of(&self, signal: Signal, what: &str) -> String {
        let own = specific(signal, what);
        match self.get(&own) {
            Some(_) => own,
            None => format!("OTEL_EXPORTER_OTLP_{what}"),
        }
    }

    fn millis(&mut self, name: &str, default: u64) -> Duration {
        Duration::from_millis(self.number(name, default))
    }

    /// Returns a number of at least 1.
    fn number<T: FromStr + PartialOrd + From<u8>>(&mut self, name: &str, default: T) -> T {
        let Some(text) = self.get(name) else {
            return default;
        };
        let number = text.parse().ok().filter(|number| *number >= T::from(1));
        number.unwrap_or_else(|| {
            let problem = format!("{name} must be a whole number from 1 on: `{text}`");
            self.problems.push(problem);
            default
        })
    }

    /// Returns a variable; an empty one counts as not set.
    fn get(&self, name: &str) -> Option<String> {
        let value = self.environment.get(name)?.trim();
        (!value.is_empty()).then(|| value.to_owned())
    }
}

fn specific(signal: Signal, what: &str) -> String {
    format!("OTEL_EXPORTER_OTLP_{}_{what}", signal.variable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(otlp: Otlp, variables: &[(&str, &str)]) -> (Option<Settings>, Vec<String>) {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        super::read(&otlp, &variables.iter().map(pair).collect())
    }

    /// Returns the destinations of traces, metrics and logs.
    fn urls(otlp: Otlp, variables: &[(&str, &str)]) -> [Option<String>; 3] {
        let (settings, problems) = read(otlp, variables);
        assert_eq!(problems, [""; 0], "{variables:?}");
        let url = |endpoint: Option<Endpoint>| endpoint.map(|endpoint| endpoint.url);
        match settings {
            None => [None, None, None],
            Some(all) => [url(all.traces), url(all.metrics), url(all.logs)],
        }
    }

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4318");

    #[test]
    fn what_is_sent_is_what_has_an_endpoint() {
        let of = |url: &str| Some(url.to_owned());
        let both = [
            of("http://a:4318/v1/traces"),
            of("http://a:4318/v1/metrics"),
            None,
        ];
        type Row<'a> = (&'a [(&'a str, &'a str)], [Option<String>; 3]);
        let table: &[Row<'_>] = &[
            (&[], [None, None, None]),
            (&[ENDPOINT], both.clone()),
            (
                &[ENDPOINT, ("OTEL_SDK_DISABLED", "True")],
                [None, None, None],
            ),
            (&[ENDPOINT, ("OTEL_SDK_DISABLED", "false")], both.clone()),
            (
                &[ENDPOINT, ("OTEL_LOGS_EXPORTER", "otlp")],
                [
                    both[0].clone(),
                    both[1].clone(),
                    of("http://a:4318/v1/logs"),
                ],
            ),
            (
                &[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")],
                [None, both[1].clone(), None],
            ),
            (
                &[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://b/as/it/is")],
                [of("http://b/as/it/is"), None, None],
            ),
            (
                &[("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://b/l")],
                [None, None, of("http://b/l")],
            ),
            (
                &[ENDPOINT, ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc")],
                [of("http://a:4318/"), both[1].clone(), None],
            ),
        ];
        for (variables, expected) in table {
            assert_eq!(urls(Otlp::Auto, variables), *expected, "{variables:?}");
            assert_eq!(urls(Otlp::Off, variables), [None, None, None]);
        }
        let url = || Otlp::Url("http://c:1/base/".into());
        let expected = [
            of("http://c:1/base/v1/traces"),
            of("http://c:1/base/v1/metrics"),
            None,
        ];
        assert_eq!(urls(url(), &[ENDPOINT]), expected);
    }

    #[test]
    fn each_signal_may_have_its_own_way() {
        let (settings, problems) = read(
            Otlp::Auto,
            &[
                ENDPOINT,
                ("OTEL_EXPORTER_OTLP_HEADERS", "a=b"),
                ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "c=d"),
                ("OTEL_EXPORTER_OTLP_TIMEOUT", "77"),
                ("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "gzip"),
                ("OTEL_EXPORTER_OTLP_CERTIFICATE", "ca.pem"),
                ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "c.pem"),
                ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "k.pem"),
                ("OTEL_BSP_SCHEDULE_DELAY", "10"),
                ("OTEL_BSP_MAX_QUEUE_SIZE", "100"),
                ("OTEL_TRACES_SAMPLER", "traceidratio"),
                ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ],
        );
        assert_eq!(problems, [""; 0]);
        let settings = settings.unwrap();
        let (traces, metrics) = (settings.traces.unwrap(), settings.metrics.unwrap());
        assert_eq!((&*traces.headers, &*metrics.headers), ("c=d", "a=b"));
        assert_eq!((traces.gzip, metrics.gzip), (false, true));
        assert_eq!(traces.timeout, Duration::from_millis(77));
        assert_eq!(traces.ca_file.as_deref(), Some("ca.pem"));
        assert_eq!(traces.identity, Some(("c.pem".into(), "k.pem".into())));
        assert_eq!(settings.sampler.share, 1 << 61);
        let expected = Batching {
            delay: Duration::from_millis(10),
            waiting_max: 100,
            batch: 100,
            timeout: Duration::from_secs(30),
        };
        assert_eq!(settings.spans, expected);
    }

    #[test]
    fn secrets_that_are_sent_unencrypted_are_known() {
        let headers = ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=b");
        for (url, headers, expected) in [
            ("http://a:4318", Some(headers), Some("a")),
            ("http://u:p@a:4318", None, Some("a")),
            ("http://a:4318", None, None),
            ("https://a:4318", Some(headers), None),
            ("http://localhost:4318", Some(headers), None),
            ("http://[::1]:4318", Some(headers), None),
        ] {
            let headers: Vec<(&str, &str)> = headers.into_iter().collect();
            let (settings, _) = read(Otlp::Url(url.into()), &headers);
            let host = settings.unwrap().exposed_host();
            assert_eq!(host.as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn grpc_needs_no_scheme() {
        let grpc = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317");
        let url = |more: &[(&str, &str)]| {
            let [traces, _, _] = urls(Otlp::Auto, &[&[grpc, endpoint], more].concat());
            traces.unwrap()
        };
        assert_eq!(url(&[]), "https://collector:4317/");
        let insecure = [("OTEL_EXPORTER_OTLP_INSECURE", "true")];
        assert_eq!(url(&insecure), "http://collector:4317/");
    }

    #[test]
    fn what_makes_no_sense_is_told_and_left_out() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
            ("OTEL_TRACES_SAMPLER", "xray"),
            ("OTEL_METRICS_EXPORTER", "prometheus"),
        ] {
            let (settings, problems) = read(Otlp::Auto, &[ENDPOINT, (name, value)]);
            assert!(settings.unwrap().traces.is_some(), "{name}");
            let told = problems
                .iter()
                .all(|problem| problem.contains(&format!("`{value}`")));
            assert!(told && !problems.is_empty(), "{name}: {problems:?}");
        }
        let secret = [("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://user:secret@a")];
        let (settings, problems) = read(Otlp::Auto, &secret);
        assert!(settings.is_none() && problems.len() == 2, "{problems:?}");
        assert!(!problems.concat().contains("secret"));
    }
}
