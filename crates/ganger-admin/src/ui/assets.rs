//! Style and script of the pages: part of the program, and kept by browsers for as long as they are the same.

use std::sync::OnceLock;

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

/// Beginning of the paths of files. Also the page of the login loads them: there is no secret in them.
pub(crate) const ASSETS: &str = "/ui/assets/";

/// A file that pages load.
#[derive(Debug)]
pub(super) struct Asset {
    stem: &'static str,
    extension: &'static str,
    kind: &'static str,
    text: &'static str,
    name: OnceLock<String>,
}

/// The style of all pages.
pub(super) static STYLE: Asset = Asset {
    stem: "ganger",
    extension: "css",
    kind: "text/css; charset=utf-8",
    text: include_str!("assets/ganger.css"),
    name: OnceLock::new(),
};

/// The script of all pages.
pub(super) static SCRIPT: Asset = Asset {
    stem: "ganger",
    extension: "js",
    kind: "text/javascript; charset=utf-8",
    text: include_str!("assets/ganger.js"),
    name: OnceLock::new(),
};

impl Asset {
    /// Returns its name, which is another one if the text is another.
    fn name(&self) -> &str {
        self.name.get_or_init(|| {
            let hash = Sha256::digest(self.text.as_bytes());
            let hash: String = hash
                .iter()
                .take(6)
                .map(|byte| format!("{byte:02x}"))
                .collect();
            format!("{}.{hash}.{}", self.stem, self.extension)
        })
    }

    /// Returns the path at which it is served.
    pub(super) fn path(&self) -> String {
        format!("{ASSETS}{}", self.name())
    }
}

/// Sends a file that pages load.
pub(super) async fn asset(Path(name): Path<String>) -> Response {
    let Some(asset) = [&STYLE, &SCRIPT]
        .into_iter()
        .find(|asset| asset.name() == name)
    else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let headers = [
        (header::CONTENT_TYPE, asset.kind),
        (
            header::CACHE_CONTROL,
            "private, max-age=31536000, immutable",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, asset.text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_small() {
        let bytes = SCRIPT.text.len();
        assert!(bytes <= 30 << 10, "{bytes} bytes");
    }

    /// A brace too many costs the rule after it, without a word.
    #[test]
    fn the_braces_of_styles_are_paired() {
        let mut open: i32 = 0;
        for (number, line) in STYLE.text.lines().enumerate() {
            for brace in line.matches(['{', '}']) {
                open += if brace == "{" { 1 } else { -1 };
                assert!(open >= 0, "line {}: {line}", number + 1);
            }
        }
        assert_eq!(open, 0);
    }
}
