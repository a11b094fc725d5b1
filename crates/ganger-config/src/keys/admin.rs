//! The keys of `[admin]` and `[telemetry]`: the addresses of the admin API and the metrics, and the
//! telemetry sent.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;

use url::Url;

use super::secret_file::secret_file;
use super::shared::ReadContext;
use crate::model::{
    AdminConfig, AdminPeer, NamedToken, Otlp, ProxyAuth, PublicUrl, Role, Secret, TelemetryConfig,
};
use crate::print;
use crate::reader::Reader;
use crate::redact::redact;
use crate::value_types::address::{Listen, listen, network};
use crate::value_types::choice::choice;
use crate::value_types::compound::{list_of, one_or_more};
use crate::value_types::{
    Wrong, boolean, bytes_of, check_name, collector, header_name, instant, message_part, name,
    sha256, web_url, word,
};

/// [`model::LISTEN`](crate::model::LISTEN) as text.
const LISTEN: &str = "127.0.0.1:9464";

/// First parts of the paths of the daemon.
const OWN_PATHS: [&str; 6] = ["livez", "metrics", "openapi.json", "readyz", "ui", "v1"];

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
        "Bearer token for requests over the network, with the role admin; preferably from a variable, \
         as in `\"${GANGER_TOKEN}\"`. The socket needs none. Without this and `tokens`, the daemon \
         creates a token at the start, in a file beside the socket that only its own user can read \
         (`NAME.token` beside `NAME.sock`), and `/metrics` needs none.",
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
    let tokens = tokens(t);
    let meaning = "Proxy that authenticates the users of its requests and names them in a header.";
    let proxy_auth = t.table_if_given("proxy_auth", meaning, proxy_auth);
    let ui = t.or(
        "ui",
        boolean(),
        "true",
        "Serve the dashboard under `/ui`. `false` leaves the API alone.",
    );
    let redact = t.or(
        "redact",
        list_of(message_part()),
        "[]",
        "Parts of messages that are hidden from viewers: paths into JSON (RFC 9535), such as `\"$.customer.card\"` or \
         `\"$..card\"`, and names of headers. A path applies to bodies, results, and lines of output that are JSON. A \
         body or result that is not JSON, or is shown in part, is then hidden whole.",
    );
    let public_url = public_url(t, proxy_auth.is_some());
    let peers = peers(t, around);
    if let Listen::On(address) = address
        && !address.ip().is_loopback()
        && token.is_none()
        && tokens.is_empty()
    {
        let help = "add a token, a token_file or [[admin.tokens]], or listen on 127.0.0.1 or [::1]";
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
        tokens,
        proxy_auth,
        ui,
        redact,
        public_url,
        peers,
    }
}

/// Reads `admin.public_url`.
fn public_url(t: &mut Reader<'_>, is_required: bool) -> Option<PublicUrl> {
    let url = t.maybe(
        "public_url",
        web_url(),
        "URL at which browsers reach the daemon, such as `https://ganger.example`: `ganger open` and the links in \
         alerts begin with it. With a path, as in `https://tools.example/ganger`, the pages are below that, whether \
         the proxy takes it off or not. Required by `proxy_auth`, and to log in from other machines without encryption, \
         with a URL that begins with `http://`.",
    );
    let Some(url) = url else {
        if is_required {
            let help = "write the URL at which browsers reach the proxy, such as \"https://ganger.example\"";
            t.wrong(
                "public_url",
                &Wrong::new("is missing: proxy_auth requires it", help),
            );
        }
        return None;
    };
    let url = Url::parse(&url).ok()?;
    let path = url.path().trim_end_matches('/').to_owned();
    let origin = url.origin().ascii_serialization();
    let has_user = !url.username().is_empty() || url.password().is_some();
    if has_user || url.query().is_some() || url.fragment().is_some() {
        let help = format!("write \"{origin}{path}\"");
        let what = "must have no query, no fragment and no user";
        t.wrong("public_url", &Wrong::new(what, &help));
    } else if !is_plain(&path) {
        let what = "has a path that can't be put before others: its parts are of letters, digits, `-`, `.`, `_` and \
                    `~`, and the first is none that the daemon has itself";
        let help = format!("write \"{origin}/ganger\"");
        t.wrong("public_url", &Wrong::new(what, &help));
    }
    Some(PublicUrl { origin, path })
}

/// Returns whether a path can be told from those of the daemon, and needs no escape in a page.
fn is_plain(path: &str) -> bool {
    let is_plain = |part: &str| {
        !part.is_empty()
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-._~".contains(c))
    };
    let mut parts = path.split('/').skip(1);
    let first = parts.clone().next();
    first.is_none_or(|first| !OWN_PATHS.contains(&first)) && parts.all(is_plain)
}

/// Reads `[admin.peers.NAME]`.
fn peers(t: &mut Reader<'_>, around: ReadContext<'_>) -> BTreeMap<String, AdminPeer> {
    let meaning = "Other daemons that the dashboard shows beside this one, each in its own `[admin.peers.NAME]`. They \
         are asked for their status only.";
    let peers = t.tables("peers", meaning, check_name, |t| {
        let url = t.must("url", web_url(), "URL of its admin API, such as `http://10.0.0.8:9464`.");
        let given = t.maybe(
            "token",
            word(),
            "Token that it requires; preferably from a variable. One with the role viewer suffices.",
        );
        let meaning = "File with the token, instead of `token`; relative to the directory of this file.";
        let token = given.or(secret_file(t, around, "token", "token_file", meaning));
        t.print("token", token.as_ref().map(|_| print::hidden("token")));
        let url = Url::parse(&url).ok()?;
        if url.scheme() != "http" {
            let help = "the API has no TLS: write http://HOST:PORT";
            t.wrong("url", &Wrong::new("must begin with http://", help));
        }
        if !url.username().is_empty() || url.password().is_some() {
            let help = "give the token with `token` or `token_file`";
            t.wrong("url", &Wrong::new("must have no user and no password", help));
        }
        Some(AdminPeer {
            url,
            token: token.map(Secret::new),
        })
    });
    let peers = peers.into_iter();
    peers
        .filter_map(|(name, peer)| Some((name, peer?)))
        .collect()
}

/// Reads `[[admin.tokens]]`.
fn tokens(t: &mut Reader<'_>) -> Vec<NamedToken> {
    let (mut names, mut hashes) = (BTreeSet::new(), BTreeSet::new());
    let meaning = "Further tokens for requests over the network, each in its own `[[admin.tokens]]`, which \
         `ganger token new` prints. They take effect at a reload; removing one revokes it and its sessions.";
    let is_given = t.has("tokens");
    let tokens = t.list("tokens", meaning, |t| {
        let name = t.must(
            "name",
            name(),
            "Name of the token, which the log and the record of changes show.",
        );
        let role = t.must(
            "role",
            choice(Role::ALL),
            "Permission of its holder: to read; to change messages too, and to steer pools and schedules; or \
             everything.",
        );
        // It may be the token itself, by mistake.
        t.hide("sha256");
        let hash = t.must(
            "sha256",
            sha256(),
            "SHA-256 of the token in hexadecimal. The token itself is nowhere in the configuration.",
        );
        let expires = t.maybe(
            "expires",
            instant(),
            "Time from which on the token is refused, such as `\"2027-06-30T00:00:00Z\"`.",
        );
        if !name.is_empty() && !names.insert(name.clone()) {
            let help = "give each token a name of its own";
            t.wrong("name", &Wrong::new("is taken", help));
        }
        let hash = bytes_of(&hash).unwrap_or_default();
        if t.has("sha256") && hash != [0; 32] && !hashes.insert(hash) {
            let help = "make a token of its own: `ganger token new`";
            t.wrong("sha256", &Wrong::new("is that of another token", help));
        }
        NamedToken {
            name,
            role,
            sha256: hash,
            expires: expires.and_then(|text| text.parse().ok()),
        }
    });
    if !is_given {
        t.print("tokens", None);
    }
    tokens
}

/// Reads `admin.proxy_auth`.
fn proxy_auth(t: &mut Reader<'_>) -> ProxyAuth {
    let header = t.must(
        "header",
        header_name(),
        "Header in which the proxy names the user, such as `X-Forwarded-User`. The proxy must replace what a \
         client sends.",
    );
    let from = t.must(
        "from",
        one_or_more(network()),
        "Addresses and networks of the proxy, such as `[\"10.0.0.0/8\", \"192.0.2.7\"]`. From other addresses the \
         headers are ignored.",
    );
    let role = t.or(
        "role",
        choice(Role::ALL),
        "viewer",
        "Role of the users, unless `role_header` gives one.",
    );
    let role_header = t.maybe(
        "role_header",
        header_name(),
        "Header in which the proxy gives the user's role.",
    );
    let lower = |name: String| name.to_ascii_lowercase();
    ProxyAuth {
        header: lower(header),
        from,
        role,
        role_header: role_header.map(lower),
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
