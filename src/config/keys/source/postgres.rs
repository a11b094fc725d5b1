//! The keys of a table queue in PostgreSQL.

use percent_encoding::percent_decode_str;
use url::Url;

use super::login::Login;
use super::tls::TlsFiles;
use crate::config::model::{Host, PostgresDatabase, Secret, SslMode};
use crate::config::reader::Reader;
use crate::config::value_types::{Wrong, boolean, table_prefix, word};

/// The port that IANA has registered.
const PORT: u16 = 5432;

const FORM: &str = "write postgres://USER:PASSWORD@HOST:PORT/DATABASE, or several HOST:PORT with commas, each part percent-encoded (`@` \
                    as %40, `/` as %2F, `%` as %25)";

/// What a URL says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerAddress {
    hosts: Vec<Host>,
    database: String,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    ssl_mode: SslMode,
}

/// What its keys say.
#[derive(Debug, Clone, Default)]
pub(super) struct ServerKeys {
    schema: String,
    table_prefix: String,
    pgbouncer: bool,
}

/// Reads its keys.
pub(super) fn keys(t: &mut Reader<'_>) -> ServerKeys {
    ServerKeys {
        schema: t.or(
            "schema",
            word(),
            "public",
            "The schema that the tables are in.",
        ),
        table_prefix: t.or(
            "table_prefix",
            table_prefix(),
            "",
            "What goes before the names of all tables, where another program has tables of these names \
             in the schema.",
        ),
        pgbouncer: t.or(
            "pgbouncer",
            boolean(),
            "false",
            "Whether the server is reached through PgBouncer in transaction mode, or another pooler that \
             hands each transaction to another session. New messages are then found by `poll_interval` \
             alone, and a daemon that died is known by its `lease` alone.",
        ),
    }
}

impl ServerAddress {
    /// The database there, and what is known of it beside.
    pub(super) fn database(
        self,
        keys: ServerKeys,
        declare: bool,
        files: TlsFiles,
        login: Login,
    ) -> PostgresDatabase {
        PostgresDatabase {
            hosts: self.hosts,
            database: self.database,
            username: login.username.unwrap_or_default(),
            password: login.password.map(Secret::new),
            ssl_mode: self.ssl_mode,
            ca_file: files.ca_file,
            identity: files.identity,
            schema: keys.schema,
            table_prefix: keys.table_prefix,
            pgbouncer: keys.pgbouncer,
            declare,
        }
    }
}

/// A URL for it. Who we are is shown by keys of its own.
pub(super) fn shown(database: &PostgresDatabase) -> String {
    let encoded = |text: &str| {
        let all = percent_encoding::NON_ALPHANUMERIC;
        percent_encoding::utf8_percent_encode(text, all).to_string()
    };
    let host = |Host { name, port }: &Host| match name.contains(':') {
        true => format!("[{name}]:{port}"),
        false => {
            let name = encoded(name).replace("%2E", ".").replace("%2D", "-");
            format!("{name}:{port}")
        }
    };
    let hosts: Vec<String> = database.hosts.iter().map(host).collect();
    let hosts = hosts.join(",");
    let name = encoded(&database.database);
    let mode = database.ssl_mode.as_str();
    format!("\"postgres://{hosts}/{name}?sslmode={mode}\"")
}

/// Reads a URL as libpq does, but that it must name the database.
pub(super) fn parse(text: &str) -> Result<ServerAddress, Wrong> {
    let (text, others) = first_host(text);
    let url = url(&text)?;
    let decode = |part: &str| match percent_decode_str(part).decode_utf8() {
        Ok(text) => Ok(text.into_owned()),
        Err(_) => Err(Wrong::new("must hold UTF-8, percent-encoded", FORM)),
    };
    let host = |url: &Url| {
        let name = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        match decode(name)? {
            name if name.is_empty() => Err(Wrong::new("must name a host", FORM)),
            name => Ok(Host {
                name,
                port: url.port().unwrap_or(PORT),
            }),
        }
    };
    let mut ssl_mode = SslMode::default();
    for (key, value) in url.query_pairs() {
        match key.as_ref() {
            "sslmode" => ssl_mode = mode(&value)?,
            // It is never otherwise.
            "target_session_attrs" if value == "read-write" => {}
            _ => {
                let rule = "must hold nothing after the database but `sslmode` and \
                            `target_session_attrs=read-write`";
                return Err(Wrong::new(rule, "give all else as keys of the source"));
            }
        }
    }
    let mut hosts = vec![host(&url)?];
    for other in others {
        hosts.push(host(&self::url(&format!("postgres://{other}/"))?)?);
    }
    let database = decode(url.path().trim_start_matches('/'))?;
    if database.is_empty() {
        return Err(Wrong::new("must name a database", FORM));
    }
    let username = Some(url.username()).filter(|name| !name.is_empty());
    Ok(ServerAddress {
        hosts,
        database,
        username: username.map(decode).transpose()?,
        password: url.password().map(decode).transpose()?,
        ssl_mode,
    })
}

fn url(text: &str) -> Result<Url, Wrong> {
    Url::parse(text).map_err(|error| Wrong::new(format!("must be a URL ({error})"), FORM))
}

/// A URL with the first of its hosts alone, as URLs usually are, and the others.
fn first_host(text: &str) -> (String, Vec<&str>) {
    let start = text.find("://").map_or(0, |scheme| scheme + 3);
    let end = text[start..].find(['/', '?', '#']);
    let end = end.map_or(text.len(), |end| start + end);
    let start = text[start..end]
        .rfind('@')
        .map_or(start, |at| start + at + 1);
    let mut hosts = text[start..end].split(',');
    let first = hosts.next().unwrap_or_default();
    let whole = format!("{}{first}{}", &text[..start], &text[end..]);
    (whole, hosts.collect())
}

fn mode(name: &str) -> Result<SslMode, Wrong> {
    let known = SslMode::ALL.into_iter().find(|(known, _)| *known == name);
    known.map(|(_, mode)| mode).ok_or_else(|| {
        let names = SslMode::ALL.map(|(name, _)| format!("`{name}`"));
        let rule = format!("must have one of {} as its sslmode", names.join(", "));
        Wrong::new(rule, "")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Result<String, String> {
        let address = parse(text).map_err(|wrong| wrong.rule)?;
        let ServerAddress {
            hosts,
            database,
            username,
            password,
            ssl_mode,
        } = address;
        let mode = ssl_mode.as_str();
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        let host = hosts.join(",");
        let username = username.unwrap_or("nobody".to_owned());
        Ok(format!("{host} {database} {username} {password:?} {mode}"))
    }

    #[test]
    fn a_url_says_where_and_who() {
        for (url, expected) in [
            ("postgres://u@h/d", "h:5432 d u None prefer"),
            ("postgres://h/d", "h:5432 d nobody None prefer"),
            (
                "postgresql://u:p%40@h:7/d?sslmode=verify-full",
                "h:7 d u Some(\"p@\") verify-full",
            ),
            ("postgres://u@[::1]/d", "[::1]:5432 d u None prefer"),
            (
                "postgres://u@%2Frun%2Fpg/d%2Fe",
                "/run/pg:5432 d/e u None prefer",
            ),
            (
                "postgres://u:p@h1,[::1]:7,h3:8/d?target_session_attrs=read-write&sslmode=require",
                "h1:5432,[::1]:7,h3:8 d u Some(\"p\") require",
            ),
        ] {
            assert_eq!(told(url).as_deref(), Ok(expected), "{url}");
        }
    }

    #[test]
    fn a_wrong_url_is_told_from_another() {
        let rest = "must hold nothing after the database but `sslmode` and \
                    `target_session_attrs=read-write`";
        for (url, rule) in [
            ("postgres:///d", "must name a host"),
            ("postgres://u@h", "must name a database"),
            ("postgres://u@h/", "must name a database"),
            ("postgres://u@h/d?options=x", rest),
            ("postgres://u@h/d?host=x", rest),
            ("postgres://u@h/d?target_session_attrs=any", rest),
            ("postgres://u@h,/d", "must name a host"),
            (
                "postgres://u:p/w@h/d",
                "must be a URL (invalid port number)",
            ),
            (
                "postgres://u@h/d?sslmode=no",
                "must have one of `disable`, `prefer`, `require`, `verify-ca`, `verify-full` as its \
                 sslmode",
            ),
        ] {
            assert_eq!(told(url), Err(rule.to_owned()), "{url}");
        }
    }
}
