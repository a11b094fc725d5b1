//! `ganger init`: a first worker, its pool and its test, to be tried with one command.

mod templates;

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use miette::{IntoDiagnostic, WrapErr, miette};

use super::common::CommandResult;
use super::output;
use templates::{Language, Sdk, Template};

#[derive(Debug, clap::Args)]
pub(super) struct InitArgs {
    /// What the worker is written in
    language: Language,
    /// Where its files go; a directory that is made if it is not there
    #[arg(default_value = ".", value_name = "DIR")]
    directory: PathBuf,
    /// The worker's library as a folder, such as worker-sdk/python in a checkout of ganger, instead of
    /// the one in the language's registry
    #[arg(long, value_name = "PATH")]
    sdk: Option<PathBuf>,
}

/// A file to be written.
#[derive(Debug, PartialEq, Eq)]
struct NewFile {
    name: &'static str,
    text: String,
}

pub(super) fn run(args: &InitArgs) -> CommandResult {
    let template = args.language.template();
    let sdk = args.sdk.as_deref().map(|path| folder_of(path, template));
    let files = files_of(template, sdk.transpose()?.as_ref());
    let there = |file: &&NewFile| args.directory.join(file.name).symlink_metadata().is_ok();
    let there: Vec<&str> = files.iter().filter(there).map(|file| file.name).collect();
    if !there.is_empty() {
        return Err(miette!(
            "nothing is overwritten, and nothing was written: `{}` has {} already",
            args.directory.display(),
            there.join(", ")
        ));
    }
    write(&args.directory, &files).into_diagnostic()?;
    for file in &files {
        output::line(format_args!(
            "  {}",
            args.directory.join(file.name).display()
        ))?;
    }
    let name = args.language.to_possible_value();
    let name = name
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default();
    output::line(format_args!(
        "A worker ({name}), its pool and its test. To see it answer: {}",
        attempt(&args.directory)
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// What is to be typed.
fn attempt(directory: &Path) -> String {
    match directory.join("try").display().to_string() {
        path if path.contains('/') => path,
        path => format!("./{path}"),
    }
}

/// The library's folder, by its absolute path, for programs that are started elsewhere.
fn folder_of(path: &Path, template: &Template) -> miette::Result<(Sdk, String)> {
    let Some(sdk) = template.sdk else {
        return Err(miette!(
            "such a worker needs no library: --sdk can't be used"
        ));
    };
    let shown = path.display();
    let absolute = path.canonicalize().into_diagnostic();
    let absolute = absolute.wrap_err_with(|| format!("there is no folder `{shown}`"))?;
    if !absolute.join(sdk.manifest).is_file() {
        return Err(miette!(
            "`{shown}` is not the library's folder: it has no {}",
            sdk.manifest
        ));
    }
    let absolute = absolute.to_str().map(ToOwned::to_owned);
    let absolute = absolute.ok_or_else(|| miette!("the path must be UTF-8: `{shown}`"))?;
    // It goes into files of many kinds, each with an escape of its own.
    match absolute.contains(['"', '\'', '\\', '<', '&', '$', '\n', ' ', '#']) {
        true => Err(miette!(
            "the path has a character that a manifest can't have: `{absolute}`"
        )),
        false => Ok((sdk, absolute)),
    }
}

fn files_of(template: &Template, sdk: Option<&(Sdk, String)>) -> Vec<NewFile> {
    let own = template.files.iter().copied();
    let mut files: Vec<NewFile> = templates::COMMON
        .iter()
        .copied()
        .chain(own)
        .map(|(name, text)| NewFile {
            name,
            text: text.to_owned(),
        })
        .collect();
    for file in &mut files {
        match file.name {
            "ganger.toml" => {
                file.text = file
                    .text
                    .replace(
                        r#"command = "./worker""#,
                        &format!("command = \"{}\"", template.command),
                    )
                    .replace("args = []", &format!("args = {}", template.args));
            }
            "README.md" => {
                file.text = file
                    .text
                    .replace("TEST", template.test)
                    .replace("WORKER", template.worker)
                    .replace("LIBRARY", template.library);
            }
            ".gitignore" => file.text.push_str(template.ignored),
            name => {
                if let Some((sdk, path)) = sdk.filter(|(sdk, _)| sdk.file == name) {
                    file.text = file.text.replace(sdk.from, &sdk.to.replace("PATH", path));
                }
            }
        }
    }
    files
}

/// Writes all of them or, where something goes wrong, none.
fn write(directory: &Path, files: &[NewFile]) -> io::Result<()> {
    let mut written = Vec::new();
    for file in files {
        let path = directory.join(file.name);
        if let Err(error) = write_new(&path, &file.text) {
            for path in written {
                drop(fs::remove_file(path));
            }
            let error = format!("{error}: `{}`", path.display());
            return Err(io::Error::other(error));
        }
        written.push(path);
    }
    Ok(())
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    // A configuration that others may write is warned of; what begins so is a program.
    let mode = if text.starts_with("#!") { 0o755 } else { 0o644 };
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn every_configuration_is_right() {
        for language in Language::value_variants() {
            let files = files_of(language.template(), None);
            let file = files
                .iter()
                .find(|file| file.name == "ganger.toml")
                .unwrap();
            let config = config::parse(&file.text, "ganger.toml", &Default::default()).unwrap();
            let command = &config.pools[0].command;
            assert_eq!(command.program, language.template().command);
        }
    }

    #[test]
    fn every_library_may_be_a_folder() {
        for language in Language::value_variants() {
            let template = language.template();
            let Some(sdk) = template.sdk else {
                continue;
            };
            let from_registry = files_of(template, None);
            let local = files_of(template, Some(&(sdk, "/some/where".into())));
            for (registry, local) in from_registry.iter().zip(&local) {
                let is_it = registry.name == sdk.file;
                assert_eq!(local.text.contains("/some/where"), is_it, "{language:?}");
                assert_eq!(registry == local, !is_it, "{language:?}");
            }
        }
    }

    #[test]
    fn nothing_is_left_to_be_filled_in() {
        for language in Language::value_variants() {
            let files = files_of(language.template(), None);
            let readme = files.iter().find(|file| file.name == "README.md").unwrap();
            for word in ["TEST", "WORKER", "LIBRARY"] {
                assert!(!readme.text.contains(word), "{language:?}: {word}");
            }
        }
    }

    #[test]
    fn all_is_written_or_nothing() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("sub"), "a file where a folder is wanted").unwrap();
        let file = |name| NewFile {
            name,
            text: "#!x".into(),
        };
        write(place.path(), &[file("a"), file("sub/b")]).unwrap_err();
        assert!(!place.path().join("a").exists());
        write(place.path(), &[file("a"), file("c/b")]).unwrap();
        assert!(place.path().join("c/b").exists());
    }
}
