//! TLS for the driver: `sslmode` decides which certificates are trusted.

use mysql_async::{ClientIdentity, SslOpts};
use rustls::RootCertStore;

use super::error::MysqlError;
use ganger_config::model::{MysqlDatabase, SslMode};
use ganger_https::trust::{self, Trust, TrustError};

/// Returns the encryption of connections, if there is any. Without a CA file, `prefer` and `require`
/// encrypt, but accept any certificate.
pub(super) fn encryption(database: &MysqlDatabase) -> Result<Option<SslOpts>, MysqlError> {
    let mode = database.ssl_mode;
    if mode == SslMode::Disable {
        return Ok(None);
    }
    let identity = database.identity.as_ref();
    let asks =
        matches!(mode, SslMode::VerifyCa | SslMode::VerifyFull) || database.ca_file.is_some();
    if asks || identity.is_some() {
        // Checked here, so that an unusable file is reported before any server is contacted.
        trust::checking(Trust {
            ca_file: database.ca_file.as_deref(),
            identity: identity.map(|own| (own.cert_file.as_path(), own.key_file.as_path())),
        })?;
    }
    let mut encryption = SslOpts::default()
        .with_danger_accept_invalid_certs(!asks)
        .with_danger_skip_domain_validation(mode != SslMode::VerifyFull);
    if asks && mode != SslMode::VerifyFull {
        // The driver recognises errors that are only about the host name by this word. With the current
        // version of rustls, their text has it only if it is the host name.
        encryption = encryption.with_danger_tls_hostname_override(Some("NotValidForName"));
    }
    if asks {
        let believing = encryption.with_disable_built_in_roots(true);
        encryption = match &database.ca_file {
            Some(path) => believing.with_root_certs(vec![path.clone().into()]),
            None => {
                let authorities = system_certificates().into_iter().map(Into::into);
                believing.with_root_certs(authorities.collect())
            }
        };
    }
    let identity = identity
        .map(|own| ClientIdentity::new(own.cert_file.clone().into(), own.key_file.clone().into()));
    Ok(Some(encryption.with_client_identity(identity)))
}

/// Returns the system's certificate authorities. Unusable ones are skipped: a store has hundreds.
fn system_certificates() -> Vec<Vec<u8>> {
    let found = rustls_native_certs::load_native_certs().certs.into_iter();
    let usable = found.filter(|one| RootCertStore::empty().add(one.clone()).is_ok());
    usable.map(|one| one.as_ref().to_vec()).collect()
}

impl From<TrustError> for MysqlError {
    fn from(error: TrustError) -> Self {
        match error {
            TrustError::File { path, why } => Self::TlsFile { path, why },
            TrustError::Tls(error) => Self::Command {
                doing: "preparing an encrypted connection",
                why: error.to_string(),
                is_lost: false,
            },
        }
    }
}
