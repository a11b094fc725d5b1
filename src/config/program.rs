//! Finding a worker's program as starting it would, and how its command may be shown.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::model::WorkerCommand;
use super::redact::redact;

/// Where programs are looked for if the worker has no `PATH`, as the C library does.
const PATH_DEFAULT: &str = "/bin:/usr/bin";

/// The words of a command as they may be shown: without secrets.
pub fn shown(command: &WorkerCommand) -> Vec<String> {
    let args = command.args.iter().map(|arg| redact(arg));
    std::iter::once(command.program.clone())
        .chain(args)
        .collect()
}

/// The file that starting the command would run: a name without a slash is looked up in the
/// `PATH` of the worker, any other is a path relative to its `cwd`.
///
/// # Errors
/// Why there is none, in a sentence.
pub fn find_program(command: &WorkerCommand) -> Result<PathBuf, String> {
    let has_spaces = command.program.contains(char::is_whitespace);
    look_up(command).map_err(|why| match has_spaces {
        true => format!("{why}; what follows the program's name goes into `args`"),
        false => why,
    })
}

fn look_up(command: &WorkerCommand) -> Result<PathBuf, String> {
    let directory = command.cwd.as_deref().unwrap_or(Path::new(""));
    if command.program.contains('/') {
        let path = directory.join(&command.program);
        return match runnable(&path) {
            Ok(()) => Ok(path),
            Err(why) => Err(format!(
                "the program can't be run: `{}` {why}",
                path.display()
            )),
        };
    }
    let path = command.env.get("PATH").map_or(PATH_DEFAULT, String::as_str);
    path.split(':')
        .map(|entry| directory.join(entry).join(&command.program))
        .find(|path| runnable(path).is_ok())
        .ok_or_else(|| {
            format!(
                "`{}` is in no directory of the PATH `{path}`",
                command.program
            )
        })
}

/// Whether it is a file that someone may run. Who may is for the kernel to say: the worker may
/// run as another user than we do.
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
                "is in no directory of the PATH",
            ),
            (
                command("worker", None, cwd),
                "is in no directory of the PATH `/bin:/usr/bin`",
            ),
            (command("bin/notes", None, cwd), "is not executable"),
            (command("./bin", None, cwd), "is not a file"),
            (command("./worker", None, cwd), "does not exist"),
            (
                command("worker --fast", Some(&path), None),
                "; what follows the program's name goes into `args`",
            ),
            (command("bin/worker 3", None, cwd), "goes into `args`"),
        ] {
            let error = find_program(&wrong).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
