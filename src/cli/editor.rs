//! A text in the user's editor. What was typed is never lost: its file is removed only once the text is of no use.

use std::env;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use miette::{IntoDiagnostic, WrapErr, bail};
use signal_hook::consts::{SIGINT, SIGQUIT};
use signal_hook::flag;
use tempfile::{Builder, TempPath};

use super::output;
use super::usage::wrong;
use ganger_core::foreign;

/// Longest text, in bytes.
const TEXT_BYTES_MAX: u64 = 4 << 20;
/// Variables that name an editor; the first that is set counts.
const EDITORS: [&str; 2] = ["VISUAL", "EDITOR"];

/// A text that was edited, in its file.
#[derive(Debug)]
pub(super) struct Edited {
    path: TempPath,
    /// The text.
    pub(super) text: String,
}

/// Returns whether there is a terminal for an editor.
pub(super) fn has_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Opens a text in the editor, in a file of such a name.
///
/// # Errors
/// If no editor is named, it can't be run, or it fails: then the file stays if the text is another.
pub(super) fn edited((prefix, suffix): (&str, &str), text: &str) -> miette::Result<Edited> {
    let mut named = EDITORS.into_iter().filter_map(env::var_os);
    let Some(editor) = named.find(|editor| !editor.is_empty()) else {
        return Err(wrong(
            "there is no editor: set VISUAL or EDITOR, or give the keys to change, such as --cron",
        ));
    };
    let editor = editor.to_string_lossy();
    let file = Builder::new().prefix(prefix).suffix(suffix).tempfile();
    let mut file = file.into_diagnostic()?;
    file.write_all(text.as_bytes()).into_diagnostic()?;
    let path = file.into_temp_path();
    // A key that interrupts is for the editor, which shares the terminal with this process and the shell. They do not
    // ignore it: the editor would inherit that.
    let mut command = Command::new("sh");
    // It may be a command with arguments.
    let script = format!("trap : INT QUIT; {editor} \"$1\"");
    command.args(["-c", &script, "sh"]);
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGQUIT] {
        let registered = flag::register_conditional_default(signal, Arc::clone(&is_over));
        registered.into_diagnostic()?;
    }
    let status = command.arg(&path).status();
    is_over.store(true, Ordering::Relaxed);
    let status = status.into_diagnostic().wrap_err("sh")?;
    let read = File::open(&path).and_then(|file| foreign::text(file, TEXT_BYTES_MAX));
    let read = match read {
        Ok(read) => read,
        Err(error) => {
            let name = path.display().to_string();
            drop(path.keep());
            bail!("{name}: {error}");
        }
    };
    let edited = Edited { path, text: read };
    if !status.success() {
        if edited.text != text {
            edited.keep();
        }
        bail!(
            "nothing was changed: the editor `{}` ended with {status}",
            foreign::line(&editor)
        );
    }
    Ok(edited)
}

impl Edited {
    /// Returns the path of its file.
    pub(super) fn path(&self) -> String {
        self.path.display().to_string()
    }

    /// Leaves the file, and prints its path.
    pub(super) fn keep(self) {
        let path = self.path();
        match self.path.keep() {
            Ok(_) => output::note(format!("the text is kept in {path}")),
            Err(error) => output::note(format!("the text can't be kept: {error}")),
        }
    }
}
