//! TLS for the driver, by the crate's only provider: `sslmode` decides which certificates are trusted.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{self, ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::error::PostgresError;
use ganger_config::model::{PostgresDatabase, SslMode};
use ganger_https::trust::{self, Trust, TrustError};

/// Makes encrypted connections out of plain ones.
#[derive(Clone)]
pub(crate) struct Encryption(TlsConnector);

impl std::fmt::Debug for Encryption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encryption").finish_non_exhaustive()
    }
}

impl Encryption {
    /// Reads the trusted authorities, and the client's certificate.
    pub(crate) fn of(database: &PostgresDatabase) -> Result<Self, PostgresError> {
        let config = client_config(database)?;
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }
}

/// Returns the configuration of TLS. As with libpq, `prefer` and `require` without a CA file encrypt,
/// but accept any certificate.
fn client_config(database: &PostgresDatabase) -> Result<ClientConfig, PostgresError> {
    let identity = database.identity.as_ref();
    let trust = Trust {
        ca_file: database.ca_file.as_deref(),
        identity: identity.map(|own| (own.cert_file.as_path(), own.key_file.as_path())),
    };
    let asks = match (database.ssl_mode, trust.ca_file) {
        (SslMode::VerifyFull, _) => return Ok(trust::checking(trust)?),
        (SslMode::VerifyCa, _) | (_, Some(_)) => Some(trust::authorities(trust)?),
        (SslMode::Disable | SslMode::Prefer | SslMode::Require, None) => None,
    };
    let mut config = trust::believing(RootCertStore::empty(), trust)?;
    let verifier = Lenient::asking(asks)?;
    config
        .dangerous()
        .set_certificate_verifier(Arc::new(verifier));
    Ok(config)
}

impl From<TrustError> for PostgresError {
    fn from(error: TrustError) -> Self {
        match error {
            TrustError::File { path, why } => Self::TlsFile { path, why },
            TrustError::Tls(error) => Self::System {
                why: format!("TLS can't be set up: {error}"),
            },
        }
    }
}

/// A verifier that ignores the host name: it checks the issuer of a certificate or, without authorities,
/// nothing.
#[derive(Debug)]
struct Lenient {
    asks: Option<Arc<WebPkiServerVerifier>>,
}

impl Lenient {
    fn asking(authorities: Option<RootCertStore>) -> Result<Self, PostgresError> {
        let provider = Arc::new(ring::default_provider());
        let verifier = |authorities| {
            WebPkiServerVerifier::builder_with_provider(Arc::new(authorities), provider).build()
        };
        let asks = authorities.map(verifier).transpose();
        let asks = asks.map_err(|error| PostgresError::NoAuthorities {
            why: error.to_string(),
        })?;
        Ok(Self { asks })
    }
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(asks) = &self.asks else {
            return Ok(ServerCertVerified::assertion());
        };
        match asks.verify_server_cert(certificate, others, name, ocsp, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = ring::default_provider().signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, &known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = ring::default_provider().signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, &known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let known = ring::default_provider().signature_verification_algorithms;
        known.supported_schemes()
    }
}

impl MakeTlsConnect<Socket> for Encryption {
    type Stream = Encrypted;
    type TlsConnect = Handshake;
    type Error = InvalidDnsNameError;

    fn make_tls_connect(&mut self, host: &str) -> Result<Handshake, InvalidDnsNameError> {
        // A Unix socket has no host name, and no TLS either.
        let name = if host.is_empty() { "localhost" } else { host };
        Ok(Handshake {
            connector: self.0.clone(),
            name: ServerName::try_from(name.to_owned())?,
        })
    }
}

/// A handshake with the server of that name.
pub(crate) struct Handshake {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl TlsConnect<Socket> for Handshake {
    type Stream = Encrypted;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted>> + Send>>;

    fn connect(self, stream: Socket) -> Self::Future {
        let Self { connector, name } = self;
        Box::pin(async move { Ok(Encrypted(connector.connect(name, stream).await?)) })
    }
}

/// An encrypted connection.
#[derive(Debug)]
pub(crate) struct Encrypted(TlsStream<Socket>);

impl tls::TlsStream for Encrypted {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
