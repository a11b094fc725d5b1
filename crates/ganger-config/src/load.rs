//! From a path to the model. The only module of this crate, beside `url_file`, that reads files.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::environment::Environment;
use super::keys::shared::ReadContext;
use super::model::Config;
use super::print::Page;
use super::problem::{Origin, Problems, Report};
use super::reader::Reader;
use super::tree::Table;
use super::{keys, overrides, tree};
use ganger_core::{foreign, started_in};

/// The longest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Reads the configuration from a file, or from all `*.toml` of a directory in the order of their names:
/// tables merge, pools follow on, and no key may be set twice. `${VAR}` is expanded and `GANGER_*`
/// overrides keys, both from `environment`.
///
/// Relative paths in it start from the file's directory, and come out absolute.
///
/// # Errors
/// Every problem, at once.
pub fn load(path: &Path, environment: &Environment) -> Result<Config, Problems> {
    let (directory, texts) = read_all(path)?;
    Ok(from_texts(&texts, &directory, environment)?.0)
}

/// Returns the configuration with every default filled in, as TOML. In the same environment it loads to
/// the same model, except for secrets that do not come from variables of their own names.
///
/// # Errors
/// As [`load`].
pub fn print(path: &Path, environment: &Environment) -> Result<String, Problems> {
    let (directory, texts) = read_all(path)?;
    Ok(from_texts(&texts, &directory, environment)?.1.whole())
}

/// Returns the directory that relative paths start from, and the files with their names.
pub(super) fn read_all(path: &Path) -> Result<(PathBuf, Vec<(String, String)>), Problems> {
    let problem = |error: io::Error| {
        let message = format!(
            "the configuration `{}` can't be read: {error}",
            path.display()
        );
        let help = "give the path of a TOML file, or of a directory of them, with --config";
        Problems::of_file(&path.to_string_lossy(), message, help)
    };
    let absolute = started_in::absolute(path).map_err(problem)?;
    let (directory, files) = files_at(path, &absolute).map_err(problem)?;
    let mut texts = Vec::new();
    for file in files {
        let name = file.to_string_lossy().into_owned();
        let text = read(&file).map_err(|error| {
            let message = format!("the configuration `{name}` can't be read: {error}");
            let help = "give the path of a TOML file, or of a directory of them, with --config";
            Problems::of_file(&name, message, help)
        })?;
        texts.push((name, text));
    }
    Ok((directory, texts))
}

/// Reads the configuration from a text. `name` is its name in problems; relative paths start from its
/// directory.
///
/// # Errors
/// Every problem, at once.
pub fn parse(text: &str, name: &str, environment: &Environment) -> Result<Config, Problems> {
    let directory = Path::new(name).parent().unwrap_or(Path::new(""));
    Ok(from_texts(&[(name.into(), text.into())], directory, environment)?.0)
}

/// Returns the directory that relative paths start from, and the files to read, named as the user named
/// them.
fn files_at(path: &Path, absolute: &Path) -> io::Result<(PathBuf, Vec<PathBuf>)> {
    if !path.is_dir() {
        let directory = absolute.parent().unwrap_or(absolute);
        return Ok((directory.into(), vec![path.into()]));
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !hidden && entry.path().extension().is_some_and(|e| e == "toml") {
            files.push(entry.path());
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(io::Error::other("the directory contains no *.toml"));
    }
    Ok((absolute.into(), files))
}

fn read(file: &Path) -> io::Result<String> {
    foreign::text(File::open(file)?, FILE_BYTES_MAX)
}

pub(super) fn from_texts(
    texts: &[(String, String)],
    directory: &Path,
    environment: &Environment,
) -> Result<(Config, Page), Problems> {
    let mut report = Report::default();
    let mut root = Table::new();
    let mut whole = true;
    for (name, text) in texts {
        let number = report.file(name, text);
        match tree::parse(text, number, environment, &report) {
            Some(table) => tree::merge(&mut root, table, "", &report),
            None => whole = false,
        }
    }
    if !whole {
        // A key missing in the rest may be in the part that could not be read.
        return Err(report.into_problems());
    }
    overrides::apply(&mut root, environment, &mut report);
    let around = ReadContext {
        directory,
        environment,
    };
    let mut reader = Reader::new(&root, Origin::default(), &report);
    let mut config = keys::config(&mut reader, around);
    let (_, page) = reader.finish();
    config.effective = page.flat();
    if report.is_clean() {
        Ok((config, page))
    } else {
        Err(report.into_problems())
    }
}
