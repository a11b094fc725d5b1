//! The `ganger` program: parse the command line, run the command, print what went wrong, exit.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    ganger::cli::main(ganger::cli::Cli::parse())
}
