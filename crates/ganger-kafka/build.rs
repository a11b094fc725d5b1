//! The corrected copy of one file of librdkafka, which the linker uses instead of the one in rdkafka-sys.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

const SOURCE: &str = "src/broker/legacy_records.c";
const LIBRARY: &str = "ganger_legacy_records";

/// Compiles with the compiler and the flags that librdkafka itself was built with.
const MAKEFILE: &str = "\
include $(LIBRDKAFKA)/Makefile.config
libganger_legacy_records.a: $(SOURCE)
\t$(CC) -I$(LIBRDKAFKA)/src $(CPPFLAGS) $(CFLAGS) -c $< -o legacy_records.o
\t$(AR) rcs $@ legacy_records.o
";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={SOURCE}");
    build();
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
        // The directory in which rdkafka-sys has built it, from sources that it leaves there.
        .arg(variable("LIBRDKAFKA", path("DEP_RDKAFKA_ROOT")))
        .arg(variable("SOURCE", path("CARGO_MANIFEST_DIR").join(SOURCE)))
        .status();
    assert!(made.is_ok_and(|status| status.success()), "make has failed");
    println!("cargo:rustc-link-search=native={}", out.display());
    // Linked as a whole, since it comes before rdkafka-sys, which alone refers to it: the linker takes no
    // second definition out of an archive if it has one.
    println!("cargo:rustc-link-lib=static:+whole-archive={LIBRARY}");
}
