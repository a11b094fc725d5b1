//! `ganger open`: opens a browser that is logged in.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use miette::{IntoDiagnostic, miette};
use serde_json::Value;
use tempfile::NamedTempFile;
use url::Url;

use super::remote::{Address, block_on};
use crate::cli::common::CommandResult;
use crate::cli::output;
use ganger_config::model::is_loopback;

#[derive(Debug, clap::Args)]
pub(crate) struct OpenArgs {
    #[command(flatten)]
    address: Address,
    /// Print the URL instead of opening it; it is valid once and for a minute
    #[arg(long)]
    print: bool,
}

pub(super) fn run(args: &OpenArgs) -> CommandResult {
    let remote = args.address.remote()?;
    let login = block_on(remote.post("/v1/logins", None))?.into_diagnostic()?;
    let url = login_url(&login, args.address.host())?;
    if args.print {
        output::line(url)?;
    } else if let Err(problem) = open(&url) {
        output::note(format!(
            "{problem}. Open this URL; it is valid once and for a minute:"
        ));
        output::line(url)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the URL to open: as the daemon gives it; if that is of the daemon's own machine, under the address at which
/// the daemon was asked.
pub(super) fn login_url(login: &Value, host: Option<&Url>) -> miette::Result<Url> {
    let url: Option<Url> = login["url"].as_str().and_then(|url| url.parse().ok());
    let url = url.ok_or_else(|| miette!("the daemon gave no URL; is it another version?"))?;
    let is_its_own = is_loopback(url.host_str().unwrap_or_default());
    let Some(host) = host.filter(|_| is_its_own) else {
        return Ok(url);
    };
    let mut there = host.clone();
    there.set_path(url.path());
    there.set_query(url.query());
    Ok(there)
}

/// Opens a page that leads to the URL. Other users can see the arguments of processes; only this one can read
/// the page.
fn open(url: &Url) -> miette::Result<()> {
    let page = page(url).into_diagnostic()?;
    let opened = Command::new("xdg-open")
        .arg(&page)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match opened {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(miette!("xdg-open failed, {status}")),
        Err(error) => Err(miette!("running xdg-open failed: {error}")),
    }
}

/// Writes the page over the previous one; a browser may read it late.
fn page(url: &Url) -> std::io::Result<PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty());
    let mut page = match &own {
        Some(directory) => NamedTempFile::new_in(directory)?,
        None => NamedTempFile::new()?,
    };
    write!(
        page,
        "<!doctype html><meta http-equiv=refresh content=\"0; url={url}\">"
    )?;
    match own {
        Some(directory) => {
            let path = PathBuf::from(directory).join("ganger-login.html");
            page.persist(&path)?;
            Ok(path)
        }
        None => Ok(page.keep()?.1),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_url_leads_to_where_the_daemon_was_asked() {
        let login = json!({ "url": "http://127.0.0.1:9464/ui/login?code=c" });
        let far = "http://10.0.0.7:80/x".parse().unwrap();
        let shown = |host| login_url(&login, host).unwrap().to_string();
        assert_eq!(shown(None), "http://127.0.0.1:9464/ui/login?code=c");
        assert_eq!(shown(Some(&far)), "http://10.0.0.7/ui/login?code=c");
        let public = json!({ "url": "https://ganger.example/ui/login?code=c" });
        let url = login_url(&public, Some(&far)).unwrap();
        assert_eq!(url.as_str(), "https://ganger.example/ui/login?code=c");
        assert!(login_url(&json!({}), None).is_err());
    }
}
