//! `ganger init`: writes a first worker, its pool and its test, which one command runs.

mod libraries;
mod templates;

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use miette::{IntoDiagnostic, miette};

use super::common::CommandResult;
use super::output;
use super::usage::wrong;
use templates::{LIBRARY, LIBRARY_PATH, Language, Template};

#[derive(Debug, clap::Args)]
pub(super) struct InitArgs {
    /// The worker's programming language
    language: Language,
    /// The directory for the files; created if it does not exist
    #[arg(default_value = ".", value_name = "DIR")]
    directory: PathBuf,
    /// Use the worker's library in this folder, such as worker-sdk/python in a checkout of ganger, instead
    /// of a copy of its own
    #[arg(long, value_name = "PATH")]
    sdk: Option<PathBuf>,
}

/// A file to be written.
#[derive(Debug, PartialEq, Eq)]
struct NewFile {
    name: String,
    text: String,
}

pub(super) fn run(args: &InitArgs) -> CommandResult {
    let template = args.language.template();
    let sdk = args.sdk.as_deref().map(|path| folder_of(path, template));
    let files = files_of(template, sdk.transpose()?.as_deref());
    let there = |file: &&NewFile| args.directory.join(&file.name).symlink_metadata().is_ok();
    let there: Vec<&str> = files.iter().filter(there).map(|file| &*file.name).collect();
    if !there.is_empty() {
        return Err(miette!(
            "nothing was written, because no file is overwritten: `{}` already has {}",
            args.directory.display(),
            there.join(", ")
        ));
    }
    write(&args.directory, &files).into_diagnostic()?;
    for name in shown(&files) {
        output::line(format_args!("  {}", args.directory.join(name).display()))?;
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

/// Returns the names of the files; for those in the library's folder only the folder's.
fn shown(files: &[NewFile]) -> Vec<&str> {
    let mut names: Vec<&str> = files
        .iter()
        .map(|file| match file.name.split_once('/') {
            Some((LIBRARY, _)) => LIBRARY,
            _ => &*file.name,
        })
        .collect();
    names.dedup();
    names
}

/// Returns the commands to type next.
fn attempt(directory: &Path) -> String {
    match directory.join("try").display().to_string() {
        path if path.contains('/') => path,
        path => format!("./{path}"),
    }
}

/// Returns the library's folder by its absolute path, for programs that are started elsewhere.
fn folder_of(path: &Path, template: &Template) -> miette::Result<String> {
    let Some(sdk) = template.sdk else {
        return Err(wrong(
            "such a worker needs no library: --sdk is not supported",
        ));
    };
    let shown = path.display();
    let absolute = path.canonicalize();
    let absolute =
        absolute.map_err(|error| wrong(format!("there is no folder `{shown}`: {error}")))?;
    if !absolute.join(sdk.manifest).is_file() {
        return Err(wrong(format!(
            "`{shown}` is not the library's folder: it has no {}",
            sdk.manifest
        )));
    }
    let absolute = absolute.to_str().map(ToOwned::to_owned);
    let absolute = absolute.ok_or_else(|| wrong(format!("the path must be UTF-8: `{shown}`")))?;
    // It goes into files of many kinds, each with an escape of its own.
    match absolute.contains(['"', '\'', '\\', '<', '&', '$', '\n', ' ', '#']) {
        true => Err(wrong(format!(
            "the path contains a character that is not allowed in a manifest: `{absolute}`"
        ))),
        false => Ok(absolute),
    }
}

/// Returns the files of a worker, with its library: a copy of it, or the folder `sdk`.
fn files_of(template: &Template, sdk: Option<&str>) -> Vec<NewFile> {
    let own = template.files.iter();
    let mut files: Vec<NewFile> = templates::COMMON
        .iter()
        .chain(own)
        .map(|(name, text)| NewFile {
            name: (*name).to_owned(),
            text: match sdk {
                Some(path) => text.replace(LIBRARY_PATH, path),
                None => (*text).to_owned(),
            },
        })
        .collect();
    for file in &mut files {
        match &*file.name {
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
            _ => {}
        }
    }
    let carried = template.sdk.filter(|_| sdk.is_none());
    let carried = carried.iter().flat_map(|carried| carried.files);
    files.extend(carried.map(|(name, text)| NewFile {
        name: format!("{LIBRARY}/{name}"),
        text: (*text).to_owned(),
    }));
    files
}

/// Writes all of the files, or none if one fails.
fn write(directory: &Path, files: &[NewFile]) -> io::Result<()> {
    let mut written = Vec::new();
    for file in files {
        let path = directory.join(&file.name);
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
    use ganger_config as config;

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
    fn every_worker_has_its_library_as_a_copy_or_as_a_folder() {
        let in_library = |file: &&NewFile| file.name.starts_with("ganger-worker/");
        for language in Language::value_variants() {
            let template = language.template();
            let Some(sdk) = template.sdk else {
                continue;
            };
            let copied = files_of(template, None);
            let names: Vec<&str> = copied.iter().map(|file| &*file.name).collect();
            let manifest = format!("{LIBRARY}/{}", sdk.manifest);
            assert!(names.contains(&&*manifest), "{language:?}: {names:?}");
            assert!(copied.iter().filter(in_library).count() > 5, "{names:?}");
            assert_eq!(shown(&copied).last(), Some(&LIBRARY));

            let elsewhere = files_of(template, Some("/some/where"));
            assert_eq!(elsewhere.iter().filter(in_library).count(), 0);
            let naming = |files: &[NewFile], path: &str| {
                let own = files.iter().filter(|file| !in_library(file));
                own.filter(|file| file.text.contains(path)).count()
            };
            assert!(naming(&copied, LIBRARY_PATH) > 0, "{language:?}");
            assert_eq!(
                naming(&elsewhere, "/some/where"),
                naming(&copied, LIBRARY_PATH)
            );
            assert_eq!(naming(&elsewhere, LIBRARY_PATH), 0, "{language:?}");
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
        let file = |name: &str| NewFile {
            name: name.into(),
            text: "#!x".into(),
        };
        write(place.path(), &[file("a"), file("sub/b")]).unwrap_err();
        assert!(!place.path().join("a").exists());
        write(place.path(), &[file("a"), file("c/b")]).unwrap();
        assert!(place.path().join("c/b").exists());
    }
}
