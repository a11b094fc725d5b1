//! Tests that the command line is well formed and its help unchanged: a change of the texts that operators
//! read shows in the snapshots.

use clap::CommandFactory;

use super::*;

#[test]
fn the_command_line_is_well_formed() {
    Cli::command().debug_assert();
}

/// Some commands exist only with their features.
#[cfg(all(feature = "admin", feature = "sqlite"))]
#[test]
fn the_help_of_each_command_is_what_it_was() {
    let mut program = Cli::command().term_width(90).disable_help_subcommand(true);
    program.build();
    let mut seen = 0;
    each(&mut program, &mut seen);
    assert!(seen > 20, "{seen} commands");
}

#[cfg(all(feature = "admin", feature = "sqlite"))]
fn each(command: &mut clap::Command, seen: &mut usize) {
    if command.is_hide_set() {
        return;
    }
    *seen += 1;
    // What the variables hold is whoever runs the tests' own business.
    let told = command.clone();
    let mut told = told.mut_args(|argument| argument.hide_env_values(true));
    let (short, long) = (told.render_help(), told.render_long_help());
    let (short, long) = (short.to_string(), long.to_string());
    let text = match short == long {
        true => format!("-h, --help\n\n{short}"),
        false => format!("-h\n\n{short}\n--help\n\n{long}"),
    };
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let text = lines.join("\n");
    let name = told.get_bin_name().unwrap_or("ganger").replace(' ', "_");
    insta::with_settings!({ snapshot_path => "snapshots/help", prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(name, text);
    });
    for command in command.get_subcommands_mut() {
        each(command, seen);
    }
}
