//! The URL of a source, given in the configuration or, as a secret, in a file beside it.

use super::server::Scheme;
use crate::keys::secret_file::secret_file;
use crate::keys::shared::ReadContext;
use crate::reader::Reader;
use crate::value_types::{Wrong, word};

/// A URL as given.
#[derive(Debug)]
pub(super) struct Url {
    /// Name of the key that gave it.
    key: &'static str,
    text: String,
}

impl Url {
    /// Returns whether the URL is of that kind of server.
    pub(super) fn names(&self, scheme: &Scheme) -> bool {
        scheme.is_of(&self.text)
    }

    /// Parses the URL, or records a problem. The content of a file is a secret: no problem shows it.
    pub(super) fn read<T>(
        &self,
        t: &Reader<'_>,
        parse: impl Fn(&str) -> Result<T, Wrong>,
    ) -> Option<T> {
        let wrong = |wrong: Wrong| match self.key {
            "url" => t.wrong(self.key, &wrong),
            file => {
                let rule = format!("holds a URL that {}", wrong.rule);
                t.wrong(file, &Wrong::new(rule, wrong.help));
            }
        };
        parse(&self.text).map_err(wrong).ok()
    }
}

/// Returns the URL with its scheme in lower case, since it may be written in capitals.
fn with_a_small_scheme(url: &str) -> String {
    match url.split_once(':') {
        Some((scheme, rest)) => format!("{}:{rest}", scheme.to_ascii_lowercase()),
        None => url.to_owned(),
    }
}

pub(super) fn url(t: &mut Reader<'_>, around: ReadContext<'_>) -> Option<Url> {
    let given = t.maybe(
        "url",
        word(),
        "URL of the source: `sqlite:PATH` for a table queue, relative to the directory of this \
         file, or `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, with `?sslmode=` as in libpq, or \
         `mysql://USER:PASSWORD@HOST:PORT/DATABASE` for MySQL and MariaDB, with `?ssl-mode=` as in \
         their own programs; `amqp://USER:PASSWORD@HOST:PORT/VHOST`, or `amqps://` with TLS, for \
         RabbitMQ, each part percent-encoded. Either this or `url_file` is required.",
    );
    let file = secret_file(
        t,
        around,
        "url",
        "url_file",
        "File with the URL, instead of `url`; relative to the directory of this file.",
    );
    let url = |key| {
        move |text: String| Url {
            key,
            text: with_a_small_scheme(text.trim()),
        }
    };
    given.map(url("url")).or_else(|| file.map(url("url_file")))
}
