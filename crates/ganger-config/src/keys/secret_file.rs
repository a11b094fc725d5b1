//! Secrets in files of their own.

use std::fs::File;
use std::path::Path;

use super::shared::ReadContext;
use crate::reader::Reader;
use crate::value_types::{Wrong, word};
use ganger_core::foreign;

/// The longest secret that a file may hold, in bytes.
const SECRET_BYTES_MAX: u64 = 4096;

/// Reads a secret from a file, given instead of the key `plain`.
pub(crate) fn secret_file(
    t: &mut Reader<'_>,
    around: ReadContext<'_>,
    plain: &'static str,
    key: &'static str,
    meaning: &'static str,
) -> Option<String> {
    let file = t.maybe(key, word(), meaning);
    // Its content is shown under the other key.
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
    let text = File::open(file)
        .and_then(|file| foreign::text(file, SECRET_BYTES_MAX))
        .map_err(|error| Wrong::new(format!("can't be read ({error})"), ""))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}
