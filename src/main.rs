//! The `ganger` program: parses the command line, runs the command, prints errors, exits.

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(any(feature = "otlp", feature = "rabbitmq"))]
    // Whoever makes a TLS configuration without saying with which cryptography gets this one.
    // That there is one already can't be: nothing ran before.
    drop(rustls::crypto::ring::default_provider().install_default());
    ganger::cli::main()
}
