//! Certificates of the tests' own making.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};

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
