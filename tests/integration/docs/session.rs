//! One shell for the commands of one page.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use libtest_mimic::Trial;

use super::page::{self, Block, Page, Part};
use crate::harness::{self, PROGRAM, Workspace};
use crate::python::python;

/// What the shell begins with.
const SHELL: &str = include_str!("shell.sh");
/// Python as programs find it, too: the one of the tests, which an environment of its own is a link to.
const PYTHON: &str = r#"#!/bin/sh
case "$1 $2" in
'-m venv') exec ln -s "$VENV" "$3" ;;
*) exec "$VENV/bin/python3" "$@" ;;
esac
"#;
/// Begins the report of a command's end in the shell's output; no command prints it.
const END: char = '\u{1e}';
/// How long all commands of a page may take together.
const DEADLINE: Duration = Duration::from_secs(180);

/// One for each page with commands.
pub(super) fn trials() -> Vec<Trial> {
    let pages = page::all().into_iter();
    let pages = pages.filter(|page| !steps(page).is_empty());
    let trial = |page: Page| {
        let name = format!("docs::session::commands_of_{}", page.path);
        Trial::test(name, move || {
            run(&page);
            Ok(())
        })
    };
    pages.map(trial).collect()
}

/// A command as it is typed.
#[derive(Debug, Default)]
struct Step {
    place: String,
    command: String,
    /// What it prints, where the page shows that.
    expected: Vec<String>,
    figures_vary: bool,
}

fn steps(page: &Page) -> Vec<Step> {
    let mut steps = Vec::new();
    for part in &page.parts {
        match part {
            Part::Setup(command) => steps.push(Step {
                place: format!("{}, setup", page.path),
                command: command.clone(),
                ..Step::default()
            }),
            Part::Block(block) if block.is_for_others() => {}
            Part::Block(block) => match block.language.as_str() {
                "console" => steps.extend(typed(block)),
                "sql" => steps.push(fed(block, "sqlite3 ganger.db")),
                "python" => steps.push(fed(block, "python3 -")),
                _ => {}
            },
        }
    }
    steps
}

/// The commands of a block, each with what follows it.
fn typed(block: &Block) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in block.text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step {
                place: block.place.clone(),
                command: command.to_owned(),
                expected: Vec::new(),
                figures_vary: block.figures_vary,
            });
            continue;
        }
        let step = steps.last_mut();
        let step = step.unwrap_or_else(|| panic!("{}: no `$ ` in front", block.place));
        match line.strip_prefix("> ") {
            Some(more) => write!(step.command, "\n{more}").unwrap(),
            None => step.expected.push(line.to_owned()),
        }
    }
    steps
}

/// A block as the input of a program.
fn fed(block: &Block, program: &str) -> Step {
    Step {
        place: block.place.clone(),
        command: format!("{program} <<'END_OF_BLOCK'\n{}END_OF_BLOCK", block.text),
        ..Step::default()
    }
}

fn run(page: &Page) {
    let steps = steps(page);
    let shell = Shell::of(&page.path, &steps);
    let ended = shell.wait();
    let out = shell.read("out");
    let mut told = out.split(END);
    for step in &steps {
        let printed = told.next().unwrap_or_default();
        let done = told.next().is_some_and(|code| code == "0");
        let all = || {
            format!(
                "{}\n$ {}\n{printed}{}",
                step.place,
                step.command,
                shell.read("err")
            )
        };
        assert!(done, "failed: {}", all());
        assert!(
            step.expected.is_empty() || is_as_told(step, printed),
            "not as told: {}",
            all()
        );
    }
    let ended =
        ended.unwrap_or_else(|| panic!("{} goes on and on: {}", page.path, shell.read("err")));
    assert!(ended.success(), "{}: {}", page.path, shell.read("err"));
}

/// Whether that is what the page says that it prints.
fn is_as_told(step: &Step, printed: &str) -> bool {
    let plain = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let line = words.join(" ");
        if step.figures_vary {
            without_figures(&line)
        } else {
            line
        }
    };
    let expected: Vec<String> = step.expected.iter().map(|line| plain(line)).collect();
    let printed: Vec<String> = printed.trim().lines().map(plain).collect();
    matches(&expected.join("\n"), &printed.join("\n"))
}

/// Each number becomes one sign.
fn without_figures(line: &str) -> String {
    let digits = |letter: char| letter.is_ascii_digit() || letter == '.';
    let words = line.split(' ');
    let words = words.map(|word| if word.chars().all(digits) { "#" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// Whether the text is the pattern, in which `…` stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(rest) = text.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    let after = middle.iter().try_fold(rest, |rest, part| {
        rest.find(part).map(|at| &rest[at + part.len()..])
    });
    after.is_some_and(|rest| rest.ends_with(last))
}

/// The shell, in a directory of its own. Whatever it has started ends with it.
struct Shell {
    site: Workspace,
    child: std::cell::RefCell<Child>,
    mark: String,
}

impl Shell {
    fn of(page: &str, steps: &[Step]) -> Self {
        let site = Workspace::new();
        let mut script = SHELL.to_owned();
        for (number, step) in steps.iter().enumerate() {
            let file = format!("step-{number}");
            site.put(&file, &format!("{}\n", step.command), false);
            let file = site.path(&file);
            writeln!(script, ". {}; ended $? || exit", file.display()).unwrap();
        }
        site.put("script", &script, false);
        // As a checkout is, in what the pages use of it.
        for folder in ["home", "bin", "checkout"] {
            fs::create_dir(site.path(folder)).unwrap();
        }
        for folder in ["samples", "worker-sdk"] {
            link(
                &page::top().join(folder),
                &site.path("checkout").join(folder),
            );
        }
        link(Path::new(PROGRAM), &site.path("bin/ganger"));
        site.put("bin/python3", PYTHON, true);
        let mark = format!("{}-{page}", std::process::id());
        let child = begin(&site, &mark);
        Self {
            site,
            child: child.into(),
            mark,
        }
    }

    fn wait(&self) -> Option<ExitStatus> {
        harness::look_for(DEADLINE, || self.child.borrow_mut().try_wait().unwrap())
    }

    fn read(&self, name: &str) -> String {
        let bytes = fs::read(self.site.path(name)).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

fn begin(site: &Workspace, mark: &str) -> Child {
    let file = |name: &str| File::create(site.path(name)).unwrap();
    let path = format!(
        "{}:{}",
        site.path("bin").display(),
        std::env::var("PATH").unwrap()
    );
    let python = python();
    let venv: PathBuf = python.ancestors().nth(2).unwrap().to_owned();
    Command::new("bash")
        .arg(site.path("script"))
        .current_dir(site.path("checkout"))
        .env_clear()
        .env("PATH", path)
        .env("HOME", site.path("home"))
        .env("VENV", venv)
        .env("PIP_NO_INDEX", "1")
        // Our own library is installed already, from its folder. As pip reads it, 0 says no isolation.
        .env("PIP_DRY_RUN", "1")
        .env("PIP_NO_BUILD_ISOLATION", "0")
        .env("PIP_DISABLE_PIP_VERSION_CHECK", "1")
        .env(harness::MARK, mark)
        .stdin(Stdio::null())
        .stdout(file("out"))
        .stderr(file("err"))
        .spawn()
        .unwrap()
}

fn link(to: &Path, at: &Path) {
    std::os::unix::fs::symlink(to, at).unwrap();
}

impl Drop for Shell {
    fn drop(&mut self) {
        harness::kill_marked(&self.mark);
        // One that has ended already is no news.
        drop(self.child.borrow_mut().wait());
    }
}
