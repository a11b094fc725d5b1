//! Encryption of connections to external servers: trusted authorities and own certificate, from files that
//! the configuration names. The data sent over them is the caller's.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use ganger_core::foreign;

/// Reason that no connection can be encrypted.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// A file can't be read.
    #[error("reading `{}` failed: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the operating system or the parser.
        why: String,
    },
    /// The content of the files can't be used.
    #[error("setting up TLS failed: {0}")]
    Tls(#[from] rustls::Error),
}

/// Trusted authorities and own certificate of an encrypted connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct Trust<'a> {
    /// PEM: the authorities that may have signed the server's certificate; none for the system's.
    pub ca_file: Option<&'a Path>,
    /// PEM: our certificate and its key.
    pub identity: Option<(&'a Path, &'a Path)>,
}

/// Makes TLS settings that accept servers whose certificate a trusted authority has signed.
pub fn checking(trust: Trust<'_>) -> Result<ClientConfig, TrustError> {
    believing(authorities(trust)?, trust)
}

/// Makes TLS settings that accept servers whose certificate one of these authorities has signed.
pub fn believing(authorities: RootCertStore, trust: Trust<'_>) -> Result<ClientConfig, TrustError> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(authorities);
    let Some((certificate, key)) = trust.identity else {
        return Ok(config.with_no_client_auth());
    };
    let secret = PrivateKeyDer::from_pem_slice(&content(key)?);
    let secret = secret.map_err(|error| unreadable(key, error))?;
    Ok(config.with_client_auth_cert(certificates(certificate)?, secret)?)
}

/// Reads the trusted authorities.
pub fn authorities(trust: Trust<'_>) -> Result<RootCertStore, TrustError> {
    let mut store = RootCertStore::empty();
    match trust.ca_file {
        Some(path) => {
            for certificate in certificates(path)? {
                store.add(certificate)?;
            }
        }
        None => {
            // Unusable certificates are skipped: a store has hundreds.
            let found = rustls_native_certs::load_native_certs();
            store.add_parsable_certificates(found.certs);
        }
    }
    Ok(store)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TrustError> {
    let all = content(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&all).collect();
    match all {
        Ok(all) if all.is_empty() => Err(unreadable(path, "it contains no certificate")),
        Ok(all) => Ok(all),
        Err(error) => Err(unreadable(path, error)),
    }
}

fn content(path: &Path) -> Result<Vec<u8>, TrustError> {
    let bytes = fs::read(path).map_err(|error| unreadable(path, error))?;
    Ok(foreign::without_mark(&bytes).to_vec())
}

fn unreadable(path: &Path, why: impl ToString) -> TrustError {
    TrustError::File {
        path: path.to_owned(),
        why: why.to_string(),
    }
}
