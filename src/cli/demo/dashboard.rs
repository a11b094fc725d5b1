//! The dashboard of the demo's daemon.

use std::any::Any;
use std::io::{self, IsTerminal};
use std::path::Path;

use super::super::common::ConfigFile;
use super::super::{interfaces, output};
use super::stage::Stage;

/// The dashboard. Its socket is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Dashboard {
    _interfaces: Box<dyn Any>,
}

impl Dashboard {
    /// Serves the dashboard, and prints its URL.
    pub(super) fn open(stage: &Stage, directory: &Path) -> miette::Result<Self> {
        // Its socket has a name of its own by that of the file, which need not be there.
        let file = ConfigFile {
            path: directory.join("demo.toml"),
        };
        let opened = stage.open_interfaces(&file)?;
        let url = interfaces::login(&file)?;
        output::note(format!("dashboard, valid once and for a minute: {url}"));
        pause("Open it, then press Enter: workers will be killed.");
        Ok(Self {
            _interfaces: opened,
        })
    }
}

/// Waits for Enter, if somebody is there.
pub(super) fn pause(invitation: &str) {
    if io::stdin().is_terminal() && io::stderr().is_terminal() {
        output::note(invitation);
        // At the end of input nobody is there either.
        drop(io::stdin().read_line(&mut String::new()));
    }
}
