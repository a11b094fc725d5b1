//! `ganger man`: the manual pages, generated from the command line's definition.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Command;
use clap_mangen::Man;
use miette::{IntoDiagnostic, WrapErr};

use super::common::CommandResult;
use super::output;

/// Sections that the command line does not provide: signals, files, further reading.
const FURTHER_SECTIONS: &str = include_str!("man.roff");

#[derive(Debug, clap::Args)]
pub(super) struct ManArgs {
    /// Write a page for each command into this directory, which is created if necessary
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Prints the page of the whole program, or writes those of all commands.
pub(super) fn run(args: &ManArgs, program: Command, exit_codes: &str) -> CommandResult {
    let pages = pages(program, exit_codes).into_diagnostic()?;
    match &args.dir {
        None => {
            let page = pages.first().map(|(_, text)| text.as_slice());
            output::bytes(page.unwrap_or_default())?;
        }
        Some(dir) => write(dir, &pages)
            .into_diagnostic()
            .wrap_err_with(|| format!("writing the manual to {} failed", dir.display()))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn write(dir: &Path, pages: &[(String, Vec<u8>)]) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for (name, text) in pages {
        fs::write(dir.join(name), text)?;
    }
    Ok(())
}

/// Returns all pages with their file names, that of the program first.
fn pages(program: Command, exit_codes: &str) -> io::Result<Vec<(String, Vec<u8>)>> {
    // What follows the help has sections of its own here.
    let mut program = program.disable_help_subcommand(true).after_help(None);
    program.build();
    let mut pages = vec![(file_name(&program), page(&program, exit_codes)?)];
    add_subcommands(&program, &mut pages)?;
    Ok(pages)
}

fn add_subcommands(command: &Command, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    for sub in shown {
        let mut text = Vec::new();
        man(sub).render(&mut text)?;
        pages.push((file_name(sub), text));
        add_subcommands(sub, pages)?;
    }
    Ok(())
}

fn file_name(command: &Command) -> String {
    man(command).get_filename()
}

fn man(command: &Command) -> Man {
    let source = concat!("ganger ", env!("CARGO_PKG_VERSION"));
    Man::new(command.clone()).source(source)
}

/// Returns the page of the program itself.
fn page(program: &Command, exit_codes: &str) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    man(program).render(&mut text)?;
    text.extend_from_slice(exit_status(exit_codes).as_bytes());
    text.extend_from_slice(FURTHER_SECTIONS.as_bytes());
    Ok(text)
}

/// Formats the help's list of exit codes as a section: a code, two spaces, its meaning.
fn exit_status(exit_codes: &str) -> String {
    let lines = exit_codes.lines().map(str::trim);
    let codes = lines.filter_map(|line| line.split_once("  "));
    let section = codes.map(|(code, meaning)| format!(".TP\n{code}\n{}\n", meaning.trim()));
    format!(".SH \"EXIT STATUS\"\n{}", section.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_become_a_section() {
        let section = exit_status("Exit codes:\n  0  done\n  1  it failed");
        let wanted = ".SH \"EXIT STATUS\"\n.TP\n0\ndone\n.TP\n1\nit failed\n";
        assert_eq!(section, wanted);
    }
}
