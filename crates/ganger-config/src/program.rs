//! Finds a worker's program as starting it would, and shows its command without secrets.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::model::WorkerCommand;
use super::redact;

/// Search path if the worker has no `PATH`, as in the C library.
const PATH_DEFAULT: &str = "/bin:/usr/bin";

/// Returns the words of a command without secrets.
pub fn shown(command: &WorkerCommand) -> Vec<String> {
    let program = std::iter::once(command.program.clone());
    program.chain(redact::words(&command.args)).collect()
}

/// Number of bytes of a script that the kernel reads to find its interpreter.
const FIRST_LINE_BYTES_MAX: u64 = 256;

/// Returns the file that starting the command would run: a name without a slash is looked up in the
/// `PATH` of the worker, any other is a path relative to its `cwd`. If it is a script, its interpreter
/// exists too.
///
/// # Errors
/// The reason that there is none, in a sentence.
pub fn find_program(command: &WorkerCommand) -> Result<PathBuf, String> {
    let has_spaces = command.program.contains(char::is_whitespace);
    let path = look_up(command).map_err(|why| match has_spaces {
        true => format!("{why}; arguments of the program go into `args`"),
        false => why,
    })?;
    missing_interpreter(&path, command).map_or(Ok(path), Err)
}

/// Explains the system's error that there is no such program although its file exists. None if the file
/// does not.
pub fn missing_part(command: &WorkerCommand) -> Option<String> {
    let path = look_up(command).ok()?;
    missing_interpreter(&path, command).or_else(|| {
        let path = path.display();
        Some(format!(
            "`{path}` exists, but the loader that it requires does not"
        ))
    })
}

/// Explains the first line of a script whose interpreter does not exist. The kernel takes the whole line,
/// including a carriage return at its end.
fn missing_interpreter(path: &Path, command: &WorkerCommand) -> Option<String> {
    let first_line = first_line(path)?;
    let words = first_line.strip_prefix("#!")?.trim_matches([' ', '\t']);
    let (interpreter, argument) = words.split_once([' ', '\t']).unwrap_or((words, ""));
    let missing = match runnable(&directory(command).join(interpreter)) {
        Err(_) => interpreter,
        Ok(()) => {
            let name = looked_up_by_env(interpreter, argument)?;
            if in_path(name, command).is_some() {
                return None;
            }
            name
        }
    };
    let cr = match missing.ends_with('\r') {
        true => "; its lines end with CR LF, as on Windows, and must end with LF",
        false => "",
    };
    Some(format!(
        "the program can't be run: `{}` exists, but the interpreter in its first line does not: \
         `{}`{cr}",
        path.display(),
        missing.escape_default(),
    ))
}

/// Returns the first line; none if we may not read the file, or it is no text: the worker may run as
/// another user.
fn first_line(path: &Path) -> Option<String> {
    let mut start = Vec::new();
    let file = File::open(path).ok()?;
    file.take(FIRST_LINE_BYTES_MAX)
        .read_to_end(&mut start)
        .ok()?;
    let line = start.split(|byte| *byte == b'\n').next()?;
    String::from_utf8(line.to_vec()).ok()
}

/// Returns the program that `env` is to look for, if the script's first line runs `env`. All text after
/// its name is one argument. An argument of `-S` is judged in its simple form only: with quotes,
/// variables, options or a `PATH` of its own `env` may look for something else, or elsewhere.
fn looked_up_by_env<'a>(interpreter: &str, argument: &'a str) -> Option<&'a str> {
    let argument = argument.trim_start_matches([' ', '\t']);
    let is_env = Path::new(interpreter).file_name()? == "env";
    let is_name = |word: &&str| !word.is_empty() && !word.starts_with('-') && !word.contains('=');
    let is_assignment =
        |word: &str| word.contains('=') && !word.starts_with('-') && !word.starts_with("PATH=");
    match argument.strip_prefix("-S") {
        Some(words) if words.contains(['"', '\'', '\\', '$']) => None,
        Some(words) => words
            .split([' ', '\t'])
            .find(|word| !word.is_empty() && !is_assignment(word))
            .filter(is_name),
        None => Some(argument).filter(is_name),
    }
    .filter(|name| is_env && !name.contains('/'))
}

fn directory(command: &WorkerCommand) -> &Path {
    command.cwd.as_deref().unwrap_or(Path::new(""))
}

fn path_of(command: &WorkerCommand) -> &str {
    command.env.get("PATH").map_or(PATH_DEFAULT, String::as_str)
}

fn in_path(name: &str, command: &WorkerCommand) -> Option<PathBuf> {
    path_of(command)
        .split(':')
        .map(|entry| directory(command).join(entry).join(name))
        .find(|path| runnable(path).is_ok())
}

fn look_up(command: &WorkerCommand) -> Result<PathBuf, String> {
    if command.program.contains('/') {
        let path = directory(command).join(&command.program);
        return match runnable(&path) {
            Ok(()) => Ok(path),
            Err(why) => Err(format!(
                "the program can't be run: `{}` {why}",
                path.display()
            )),
        };
    }
    in_path(&command.program, command).ok_or_else(|| {
        format!(
            "`{}` is not in any directory of the PATH `{}`",
            command.program,
            path_of(command)
        )
    })
}

/// Checks that the path is a file that someone may execute. Who may is for the kernel to say: the worker
/// may run as another user than we do.
fn runnable(path: &Path) -> Result<(), &'static str> {
    match path.metadata() {
        Err(_) => Err("does not exist"),
        Ok(data) if !data.is_file() => Err("is not a file"),
        Ok(data) if data.permissions().mode() & 0o111 == 0 => Err("is not executable"),
        Ok(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::Limits;
    use super::*;
    use std::fs;

    fn command(program: &str, path: Option<&str>, cwd: Option<&Path>) -> WorkerCommand {
        WorkerCommand {
            program: program.into(),
            args: Vec::new(),
            env: path
                .map(|p| ("PATH".into(), p.into()))
                .into_iter()
                .collect(),
            cwd: cwd.map(PathBuf::from),
            user: None,
            limits: Limits::default(),
        }
    }

    #[test]
    fn a_name_is_looked_up_and_a_path_is_taken() {
        let home = tempfile::tempdir().unwrap();
        let bin = home.path().join("bin");
        fs::create_dir(&bin).unwrap();
        for (name, mode) in [("worker", 0o755), ("notes", 0o644)] {
            fs::write(bin.join(name), "").unwrap();
            fs::set_permissions(bin.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let path = format!("/nowhere:{}", bin.display());
        let found = Ok(bin.join("worker"));
        let cwd = Some(home.path());
        assert_eq!(find_program(&command("worker", Some(&path), None)), found);
        assert_eq!(find_program(&command("worker", Some("bin"), cwd)), found);
        assert_eq!(find_program(&command("bin/worker", None, cwd)), found);
        for (wrong, why) in [
            (
                command("notes", Some(&path), None),
                "is not in any directory of the PATH",
            ),
            (
                command("worker", None, cwd),
                "is not in any directory of the PATH `/bin:/usr/bin`",
            ),
            (command("bin/notes", None, cwd), "is not executable"),
            (command("./bin", None, cwd), "is not a file"),
            (command("./worker", None, cwd), "does not exist"),
            (
                command("worker --fast", Some(&path), None),
                "; arguments of the program go into `args`",
            ),
            (command("bin/worker 3", None, cwd), "go into `args`"),
        ] {
            let error = find_program(&wrong).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    /// Returns the fault found in a script with that first line; none if it can be run.
    fn wrong_with(first_line: &str) -> Option<String> {
        let home = tempfile::tempdir().unwrap();
        let script = home.path().join("script");
        fs::write(&script, format!("{first_line}\nexit 0\n")).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let why = find_program(&command("./script", None, Some(home.path()))).err()?;
        let (_, missing) = why.split_once("first line does not: ").unwrap();
        Some(missing.to_owned())
    }

    #[test]
    fn a_script_needs_its_interpreter() {
        for runs in [
            "#!/bin/sh",
            "#! /bin/sh -e",
            "#!/usr/bin/env sh",
            "#!/usr/bin/env -S LANG=C sh -e",
            "#!/usr/bin/env -S PATH=/nowhere python9",
            "#!/usr/bin/env -S -u LANG python9",
            "#!/usr/bin/env -S \"python9\" -u",
            "#!/usr/bin/env -S ${PYTHON} x",
            "#!/usr/bin/env /bin/sh",
            "#!/bin/sh -e\r",
            "no script",
            "\x7fELF",
            "",
        ] {
            assert_eq!(wrong_with(runs), None, "{runs:?}");
        }
        let cr = "; its lines end with CR LF, as on Windows, and must end with LF";
        for (line, missing) in [
            ("#!/usr/bin/python9", "`/usr/bin/python9`".to_owned()),
            ("#!/bin/sh\r", format!("`/bin/sh\\r`{cr}")),
            ("#!/usr/bin/env python9", "`python9`".to_owned()),
            ("#!/usr/bin/env sh\r", format!("`sh\\r`{cr}")),
            ("#!/usr/bin/env -S python9 -u", "`python9`".to_owned()),
            ("#!/usr/bin/env sh -e", "`sh -e`".to_owned()),
        ] {
            assert_eq!(wrong_with(line), Some(missing), "{line:?}");
        }
    }
}
