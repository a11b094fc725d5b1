//! Two things that the crate is built with: our corrected copy of one file of librdkafka
//! (`src/broker/kafka/legacy_records.c`), which the linker takes in place of the one in rdkafka-sys, and a
//! list of the files of the libraries for workers, which `ganger init` carries: no name in a registry is
//! ours yet, and whoever takes one would run code on our users' machines.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

const SOURCE: &str = "src/broker/kafka/legacy_records.c";
const LIBRARY: &str = "ganger_legacy_records";

/// With the compiler and the flags that librdkafka itself was built with.
const MAKEFILE: &str = "\
include $(LIBRDKAFKA)/Makefile.config
libganger_legacy_records.a: $(SOURCE)
\t$(CC) -I$(LIBRDKAFKA)/src $(CPPFLAGS) $(CFLAGS) -c $< -o legacy_records.o
\t$(AR) rcs $@ legacy_records.o
";

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
    println!("cargo:rerun-if-changed={SOURCE}");
    list_libraries().expect("the files of worker-sdk can be listed");
    if env::var_os("CARGO_FEATURE_KAFKA").is_some() {
        build();
    }
}

fn build() {
    let path = |name| PathBuf::from(env::var_os(name).unwrap_or_else(|| panic!("no {name}")));
    let out = path("OUT_DIR");
    let makefile = out.join("Makefile");
    fs::write(&makefile, MAKEFILE).expect("OUT_DIR can be written");
    let variable = |name, value: PathBuf| format!("{name}={}", value.display());
    let made = Command::new("make")
        .arg("--directory")
        .arg(&out)
        .arg("--always-make")
        // Where rdkafka-sys has built it, from sources that it leaves there.
        .arg(variable("LIBRDKAFKA", path("DEP_RDKAFKA_ROOT")))
        .arg(variable("SOURCE", path("CARGO_MANIFEST_DIR").join(SOURCE)))
        .status();
    assert!(made.is_ok_and(|status| status.success()), "make has failed");
    println!("cargo:rustc-link-search=native={}", out.display());
    // Whole, for it comes before rdkafka-sys, which alone refers to it: the linker takes no second
    // definition out of an archive where it has one.
    println!("cargo:rustc-link-lib=static:+whole-archive={LIBRARY}");
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
