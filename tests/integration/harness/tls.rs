//! Certificates of the tests' own making.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

/// The name that servers prove to have, beside their address.
pub(crate) const SERVER_NAME: &str = "broker.test";

/// What the authority is called that all servers of the tests are signed by.
pub(crate) const KNOWN: &str = "tests' authority";

/// Who signs, with the files that the signed ones need.
pub(crate) struct Authority {
    dir: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// The one that all servers of the tests are signed by.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: LazyLock<Authority> = LazyLock::new(|| Authority::called(KNOWN));
        &SHARED
    }

    /// One that no server is signed by, whatever it is called.
    pub(crate) fn called(who: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("ganger-tls-").tempdir();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        name(&mut params, who);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let authority = Self {
            dir: dir.unwrap(),
            issuer: Issuer::new(params, key),
        };
        fs::write(authority.path("ca.pem"), certificate.pem()).unwrap();
        let names = ["127.0.0.1", SERVER_NAME];
        authority.sign("server", &names, ExtendedKeyUsagePurpose::ServerAuth);
        authority.sign("client", &[], ExtendedKeyUsagePurpose::ClientAuth);
        authority
    }

    fn sign(&self, who: &str, names: &[&str], purpose: ExtendedKeyUsagePurpose) {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![purpose];
        name(&mut params, who);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.path(&format!("{who}.pem")), certificate.pem()).unwrap();
        fs::write(self.path(&format!("{who}.key")), key.serialize_pem()).unwrap();
    }

    /// A file of it: `ca.pem`, `server.pem`, `server.key`, `client.pem` or `client.key`.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Settings of a RabbitMQ server that is signed by it, and more of them.
    pub(crate) fn server_settings(&self, more: &str) -> String {
        let path = |name: &str| self.path(name).display().to_string();
        format!(
            "ssl_options.cacertfile = {}\nssl_options.certfile = {}\nssl_options.keyfile = {}\n{more}\n",
            path("ca.pem"),
            path("server.pem"),
            path("server.key"),
        )
    }
}

fn name(params: &mut CertificateParams, name: &str) {
    params.distinguished_name.push(DnType::CommonName, name);
}

/// A path as a TOML text.
pub(crate) fn quoted(path: &Path) -> String {
    serde_json::Value::from(path.to_str().unwrap()).to_string()
}

/// A door to a server on this machine behind which all is encrypted, for as long as the runtime lives:
/// its URL. It proves to be one that the authority has signed.
pub(crate) fn door(runtime: &Runtime, authority: &Authority, inside: SocketAddr) -> String {
    let acceptor = TlsAcceptor::from(Arc::new(identity(authority)));
    let door = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let url = format!("https://{}", door.local_addr().unwrap());
    runtime.spawn(async move {
        while let Ok((stream, _)) = door.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // Who does not trust it hangs up.
                let mut outer = acceptor.accept(stream).await?;
                let mut inner = TcpStream::connect(inside).await?;
                tokio::io::copy_bidirectional(&mut outer, &mut inner).await
            });
        }
    });
    url
}

fn identity(authority: &Authority) -> ServerConfig {
    let certificates = CertificateDer::pem_file_iter(authority.path("server.pem")).unwrap();
    let certificates = certificates.collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_file(authority.path("server.key")).unwrap();
    ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .unwrap()
}
