//! A list of the files of the libraries for workers, which `ganger init` carries: no name in a registry is
//! ours yet, and whoever takes one would run code on our users' machines.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

const LANGUAGES: [&str; 8] = [
    "dotnet", "go", "java", "node", "php", "python", "ruby", "rust",
];

/// Names of what tests or measures a library, shows it, or has been made of it.
const LEFT_OUT: [&str; 17] = [
    "__pycache__",
    "bench",
    "benches",
    "bin",
    "chaos",
    "check",
    "clippy.toml",
    "dist",
    "examples",
    "node_modules",
    "noop",
    "obj",
    "out",
    "target",
    "test",
    "tests",
    "vendor",
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    list_libraries().expect("the files of worker-sdk can be listed");
}

/// Writes what `src/cli/init/libraries.rs` includes.
fn list_libraries() -> io::Result<()> {
    let libraries = Path::new("worker-sdk").canonicalize()?;
    let mut list = String::new();
    for language in LANGUAGES {
        let root = libraries.join(language);
        let mut files = Vec::new();
        find(&root, &mut files)?;
        files.sort();
        let name = language.to_uppercase();
        writeln!(list, "pub(super) const {name}: &[(&str, &str)] = &[")
            .map_err(io::Error::other)?;
        for file in files {
            // Not the folder: what is beside these does not matter. A new one comes with a change.
            println!("cargo:rerun-if-changed={}", file.display());
            // What someone has built there is none of its texts.
            if fs::read_to_string(&file).is_err() {
                continue;
            }
            let name = file.strip_prefix(&root).map_err(io::Error::other)?;
            writeln!(list, "    ({name:?}, include_str!({file:?})),").map_err(io::Error::other)?;
        }
        list.push_str("];\n");
    }
    let directory = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    let path = PathBuf::from(directory).join("libraries.rs");
    // What is written again is compiled again.
    if fs::read_to_string(&path).is_ok_and(|there| there == list) {
        return Ok(());
    }
    fs::write(path, list)
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with('.') || name.ends_with("_test.go") || LEFT_OUT.contains(&&*name) {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true => find(&entry.path(), files)?,
            false => files.push(entry.path()),
        }
    }
    Ok(())
}
