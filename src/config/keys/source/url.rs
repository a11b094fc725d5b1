//! Where a source is, as a URL that stands in the configuration or in a file beside it, as a secret
//! does.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::config::keys::shared::Surroundings;
use crate::config::reader::Reader;
use crate::config::value_types::{Wrong, word};

/// The longest secret that a file may hold, in bytes.
const SECRET_BYTES_MAX: u64 = 4096;

/// A URL as it was given.
#[derive(Debug)]
pub(super) struct Url {
    /// The key that it was given by.
    key: &'static str,
    text: String,
}

impl Url {
    /// What it means, or a problem. What a file holds is a secret: no problem shows it.
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

pub(super) fn url(t: &mut Reader<'_>, around: Surroundings<'_>) -> Option<Url> {
    let given = t.maybe(
        "url",
        word(),
        "Where it is: `sqlite:PATH` for a table queue, relative to the directory of this file; \
         `amqp://USER:PASSWORD@HOST:PORT/VHOST`, or `amqps://` with TLS, for RabbitMQ, each part \
         percent-encoded. This or `url_file` must be given.",
    );
    let file = secret_file(
        t,
        around,
        "url",
        "url_file",
        "A file that holds the URL, instead of `url`; relative to the directory of this file.",
    );
    let url = |key| move |text| Url { key, text };
    given.map(url("url")).or_else(|| file.map(url("url_file")))
}

/// A secret that stands in a file, instead of under the key `plain`.
pub(super) fn secret_file(
    t: &mut Reader<'_>,
    around: Surroundings<'_>,
    plain: &'static str,
    key: &'static str,
    meaning: &'static str,
) -> Option<String> {
    let file = t.maybe(key, word(), meaning);
    // What it holds is shown under the other key.
    t.print(key, None);
    let file = file?;
    if t.has(plain) {
        let rule = format!("and `{plain}` can't both be given");
        t.wrong(key, &Wrong::new(rule, ""));
    }
    let text = text_in(&around.directory.join(file));
    text.map_err(|wrong| t.wrong(key, &wrong)).ok()
}

fn text_in(file: &Path) -> Result<String, Wrong> {
    let mut text = String::new();
    File::open(file)
        .and_then(|file| file.take(SECRET_BYTES_MAX).read_to_string(&mut text))
        .map_err(|error| Wrong::new(format!("can't be read ({error})"), ""))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}
