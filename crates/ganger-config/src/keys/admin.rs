//! The keys of `[admin]` and `[telemetry]`: the addresses of the admin API and the metrics, and the
//! telemetry sent.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::secret_file::secret_file;
use super::shared::ReadContext;
use crate::model::{AdminConfig, Otlp, Secret, TelemetryConfig};
use crate::print;
use crate::reader::Reader;
use crate::redact::redact;
use crate::value_types::address::{Listen, listen};
use crate::value_types::{Wrong, boolean, collector, word};

/// [`model::LISTEN`](crate::model::LISTEN) as text.
const LISTEN: &str = "127.0.0.1:9464";

/// Reads `[admin]`.
pub(super) fn admin(t: &mut Reader<'_>, around: ReadContext<'_>) -> AdminConfig {
    let address = t.or(
        "listen",
        listen(),
        LISTEN,
        "Address and port of the admin API and of `/metrics`; `off` disables them. Requests need a \
         token, except for `/livez` and `/readyz`. An address other than loopback requires a \
         configured token. If another daemon holds the default address, the daemon runs without \
         it.",
    );
    let socket = socket(t, around);
    let given = t.maybe(
        "token",
        word(),
        "Bearer token that requests over the network must carry; preferably from a variable, as in \
         `\"${GANGER_TOKEN}\"`. The socket needs none. If omitted, the daemon creates a token at \
         the start, in a file beside the socket that only its own user can read (`NAME.token` \
         beside `NAME.sock`), and `/metrics` needs none.",
    );
    let file = secret_file(
        t,
        around,
        "token",
        "token_file",
        "File with the token, instead of `token`; relative to the directory of this file.",
    );
    let token = given.or(file);
    t.print("token", token.as_ref().map(|_| print::hidden("token")));
    if let Listen::On(address) = address
        && !address.ip().is_loopback()
        && token.is_none()
    {
        let help = "add a token or a token_file, or listen on 127.0.0.1 or [::1]";
        let wrong = Wrong::new(
            "must be a loopback address unless a token is configured",
            help,
        );
        t.wrong("listen", &wrong);
    }
    AdminConfig {
        listen: on(address),
        socket,
        token: token.map(Secret::new),
    }
}

fn on(address: Listen) -> Option<SocketAddr> {
    match address {
        Listen::On(address) => Some(address),
        Listen::Off => None,
    }
}

fn socket(t: &mut Reader<'_>, around: ReadContext<'_>) -> Option<PathBuf> {
    let socket = t.maybe(
        "socket",
        word(),
        "Unix socket of the admin API, which only the daemon's user and root can open; relative to \
         the directory of this file. If omitted, it is in systemd's runtime directory \
         (`RuntimeDirectory=`), or is `NAME.sock` beside the configuration, or, if that directory \
         is not writable, is in `$XDG_RUNTIME_DIR` or the directory for temporary files. Commands \
         look in the same places.",
    );
    let socket = socket.map(|socket: String| around.directory.join(socket));
    let shown = socket.as_ref();
    t.print(
        "socket",
        shown.map(|socket| print::text(&socket.to_string_lossy())),
    );
    socket
}

/// Reads `[telemetry]`.
pub(super) fn telemetry(t: &mut Reader<'_>) -> TelemetryConfig {
    TelemetryConfig {
        prometheus: t.or(
            "prometheus",
            boolean(),
            "true",
            "Serve `GET /metrics` on the admin API.",
        ),
        listen: on(t.or(
            "listen",
            listen(),
            "off",
            "Address of a separate listener for `/metrics`, `/livez` and `/readyz`, without a \
             token, such as `0.0.0.0:9465` for Prometheus and Kubernetes.",
        )),
        seed_names: t.or(
            "seed_names",
            boolean(),
            "false",
            "Also export metrics under MessageWorkerPool's names, for dashboards that use those.",
        ),
        otlp: otlp(t),
    }
}

fn otlp(t: &mut Reader<'_>) -> Otlp {
    let otlp = t.or(
        "otlp",
        collector(),
        "auto",
        "OpenTelemetry collector for traces and log records: a URL; `auto` to follow \
         OpenTelemetry's environment variables, which disables the export unless \
         `OTEL_EXPORTER_OTLP_ENDPOINT` or the variable of a single signal is set; or `off`. A URL \
         takes the place of `OTEL_EXPORTER_OTLP_ENDPOINT`; the other variables apply in any case.",
    );
    if redact(&otlp) != otlp {
        t.print("otlp", Some(print::hidden("otlp")));
    }
    match otlp.as_str() {
        "auto" => Otlp::Auto,
        "off" => Otlp::Off,
        _ => Otlp::Url(otlp),
    }
}

#[cfg(test)]
mod tests {
    use crate::model;

    #[test]
    fn the_default_is_written_as_it_is() {
        assert_eq!(super::LISTEN, model::LISTEN.to_string());
    }
}
