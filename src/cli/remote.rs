//! Which running daemon a command means, and how it is asked: on this machine through its socket,
//! with `--host` over the network.

use std::fs::File;
use std::path::PathBuf;

use miette::{IntoDiagnostic, Report, miette};
use tokio::runtime::{Builder, Runtime};
use url::Url;

use super::common::ConfigFile;
use super::usage::wrong;
use ganger_admin::Places;
use ganger_admin::client::{ClientError, Remote, Target, segment};
use ganger_config::Problems;
use ganger_config::model::{Config, Secret};
use ganger_core::foreign;

/// The variable that holds the token.
const TOKEN: &str = "GANGER_ADMIN_TOKEN";
/// The longest file of a token that is read, as the daemon reads it.
const TOKEN_BYTES_MAX: u64 = 4096;

/// Which daemon is meant.
#[derive(Debug, clap::Args)]
pub(super) struct Address {
    #[command(flatten)]
    config: ConfigFile,
    /// Ask the daemon at this address, such as http://10.0.0.7:9464, instead of using --config
    #[arg(long, value_name = "URL")]
    host: Option<Url>,
    /// A file that holds the token for --host; else GANGER_ADMIN_TOKEN holds it
    #[arg(long, value_name = "FILE", requires = "host")]
    token_file: Option<PathBuf>,
}

impl Address {
    /// The daemon there. Nothing is opened yet.
    pub(super) fn remote(&self) -> miette::Result<Remote> {
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
    pub(super) fn load(&self) -> Result<Config, Problems> {
        self.config.load()
    }

    /// Its address, if it was given.
    pub(super) fn host(&self) -> Option<&Url> {
        self.host.as_ref()
    }

    /// How people call it: by its address, or by its configuration.
    pub(super) fn name(&self) -> String {
        match &self.host {
            Some(url) => url.to_string(),
            None => self.config.path.display().to_string(),
        }
    }

    /// The configuration may be unreadable for whoever asks, or wrong just now: its socket is where
    /// it would be without a say in it.
    fn places(&self) -> miette::Result<Places> {
        if !self.config.path.exists() {
            let path = self.config.path.display();
            return Err(wrong(format!(
                "there is no configuration `{path}` to find the daemon by: give its path with \
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

/// What a question is asked on: one thread.
pub(super) fn runtime() -> miette::Result<Runtime> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.into_diagnostic()
}

/// Asks, and waits for what comes of it.
pub(super) fn block_on<T>(work: impl Future<Output = T>) -> miette::Result<T> {
    Ok(runtime()?.block_on(work))
}

/// The report of a request that was not done. What the daemon finds wrong with it was wrong on the command
/// line.
pub(super) fn undone(error: ClientError) -> Report {
    match error {
        ClientError::Refused {
            status: 400 | 404 | 422,
            ..
        } => wrong(error),
        error => Report::from_err(error),
    }
}

/// Where a pool is asked for something.
pub(super) fn pool_path(pool: &str, verb: &str) -> String {
    let pool = segment(pool);
    format!("/v1/pools/{pool}/{verb}")
        .trim_end_matches('/')
        .to_owned()
}
