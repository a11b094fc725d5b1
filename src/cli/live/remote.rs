//! Address of the running daemon that a command acts on, and requests to it: on this machine through its
//! socket, with `--host` over the network.

use std::fs::File;
use std::path::PathBuf;

use miette::{IntoDiagnostic, Report, miette};
use tokio::runtime::{Builder, Runtime};
use url::{ParseError, Url};

use crate::cli::common::ConfigFile;
use crate::cli::usage::wrong;
use ganger_admin::Places;
use ganger_admin::client::{ClientError, Remote, Target, segment};
use ganger_config::Problems;
use ganger_config::model::{Config, Secret};
use ganger_core::foreign;

/// Name of the variable that holds the token.
const TOKEN: &str = "GANGER_ADMIN_TOKEN";
/// Maximum size of a token file, as for the daemon, in bytes.
const TOKEN_BYTES_MAX: u64 = 4096;

/// Address of the daemon.
#[derive(Debug, clap::Args)]
pub(crate) struct Address {
    #[command(flatten)]
    config: ConfigFile,
    /// Ask the daemon at this address, such as http://10.0.0.7:9464, instead of using --config
    #[arg(long, value_name = "URL", value_parser = host)]
    host: Option<Url>,
    /// File with the token for --host; otherwise GANGER_ADMIN_TOKEN holds it
    #[arg(long, value_name = "FILE", requires = "host")]
    token_file: Option<PathBuf>,
}

fn host(text: &str) -> Result<Url, String> {
    let right = "it must begin with http://, as http://10.0.0.7:9464 does";
    text.parse().map_err(|error| match error {
        ParseError::RelativeUrlWithoutBase => right.to_owned(),
        error => format!("{error}: {right}"),
    })
}

impl Address {
    /// Returns a client of the daemon at this address. Nothing is opened yet.
    pub(crate) fn remote(&self) -> miette::Result<Remote> {
        let target = match &self.host {
            None => Target::Here(self.places()?),
            Some(url) if url.scheme() != "http" || url.host().is_none() => {
                return Err(wrong(format!(
                    "--host must be http://HOST:PORT: `{url}`; for TLS, put a proxy before the daemon"
                )));
            }
            Some(url) => Target::There {
                url: url.clone(),
                token: self.token()?,
            },
        };
        Ok(Remote::new(target))
    }

    /// Reads the configuration.
    pub(crate) fn load(&self) -> Result<Config, Problems> {
        self.config.load()
    }

    /// Returns the daemon's address, if it was given.
    pub(crate) fn host(&self) -> Option<&Url> {
        self.host.as_ref()
    }

    /// Returns the daemon's name for people: its address, or its configuration.
    pub(super) fn name(&self) -> String {
        match &self.host {
            Some(url) => url.to_string(),
            None => self.config.path.display().to_string(),
        }
    }

    /// Returns the possible places of the socket. A configuration that the caller can't read, or that is
    /// invalid just now, counts as one that does not set the socket.
    fn places(&self) -> miette::Result<Places> {
        if !self.config.path.exists() {
            let path = self.config.path.display();
            return Err(wrong(format!(
                "there is no configuration `{path}` to locate the daemon: give its path with \
                 --config, or the daemon's address with --host"
            )));
        }
        let socket = match self.config.load() {
            Ok(config) => config.admin.socket,
            Err(_) => None,
        };
        Ok(self.config.places(socket.as_deref()))
    }

    fn token(&self) -> miette::Result<Option<Secret>> {
        let text = match &self.token_file {
            Some(file) => {
                let text = File::open(file).and_then(|file| foreign::text(file, TOKEN_BYTES_MAX));
                Some(text.map_err(|error| {
                    miette!("the token file `{}` can't be read: {error}", file.display())
                })?)
            }
            None => std::env::var(TOKEN).ok(),
        };
        Ok(text.map(|text| Secret::new(text.trim())))
    }
}

/// Creates the runtime for a request: one thread.
pub(super) fn runtime() -> miette::Result<Runtime> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.into_diagnostic()
}

/// Runs a request and waits for its result.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> miette::Result<T> {
    Ok(runtime()?.block_on(work))
}

/// Returns the report of a request that was not done. A request that the daemon finds invalid counts as a
/// wrong command line.
pub(crate) fn undone(error: ClientError) -> Report {
    match error {
        ClientError::Refused {
            status: 400 | 404 | 422,
            ..
        } => wrong(error),
        error => Report::from_err(error),
    }
}

/// Returns the path of a request to a pool.
pub(super) fn pool_path(pool: &str, verb: &str) -> String {
    let pool = segment(pool);
    format!("/v1/pools/{pool}/{verb}")
        .trim_end_matches('/')
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_a_scheme_is_told_what_is_missing() {
        assert!(host("http://127.0.0.1:9464").is_ok());
        for wrong in ["127.0.0.1:9464", "http://"] {
            let told = host(wrong).unwrap_err();
            assert!(told.contains("must begin with http://"), "{told}");
            assert!(!told.contains("relative"), "{told}");
        }
    }
}
