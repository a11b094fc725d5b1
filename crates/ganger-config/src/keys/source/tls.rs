//! The TLS files that several kinds of source have.

use std::path::PathBuf;

use crate::keys::shared::ReadContext;
use crate::model::Identity;
use crate::print;
use crate::reader::Reader;
use crate::value_types::word;

/// Trusted authorities, and our certificate.
#[derive(Debug, Clone, Default)]
pub(super) struct TlsFiles {
    pub(super) ca_file: Option<PathBuf>,
    pub(super) identity: Option<Identity>,
}

pub(super) fn files(t: &mut Reader<'_>, around: ReadContext<'_>) -> TlsFiles {
    let mut file = |key, meaning| {
        let file = t.maybe(key, word(), meaning);
        let file = file.map(|file: String| around.directory.join(file));
        let shown = file.as_ref();
        t.print(key, shown.map(|file| print::text(&file.to_string_lossy())));
        file
    };
    let ca_file = file(
        "ca_file",
        "PEM file: the authorities that may have signed the server's certificate; the system's if \
         omitted.",
    );
    let cert_file = file(
        "cert_file",
        "PEM file: the client certificate and its chain up to the authority.",
    );
    let key_file = file(
        "key_file",
        "PEM file: the private key of the client certificate.",
    );
    let identity = match (cert_file, key_file) {
        (Some(cert_file), Some(key_file)) => Some(Identity {
            cert_file,
            key_file,
        }),
        (Some(_), None) => {
            t.missing("key_file", "a certificate requires its key");
            None
        }
        (None, Some(_)) => {
            t.missing("cert_file", "a key requires its certificate");
            None
        }
        (None, None) => None,
    };
    TlsFiles { ca_file, identity }
}
