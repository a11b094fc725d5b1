//! The keys of `[[pools]]` for a worker's command: the program, its environment, its limits.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Value as Json, json};

use super::shared::ReadContext;
use crate::environment::Environment;
use crate::model::{Limits, WorkerCommand};
use crate::print;
use crate::reader::Reader;
use crate::redact;
use crate::shell_words;
use crate::tree::{Node, Value};
use crate::value_types::compound::list_of;
use crate::value_types::{Kind, Wrong, boolean, integer, size, text, word};
use ganger_core::started_in;

/// Variables of the daemon's own environment that every worker inherits.
const INHERITED: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];
/// Prefix of variables that only the daemon may set.
const RESERVED: &str = "GANGER_";
/// Variables of the daemon alone: a process that has them can speak to the service manager in its name,
/// or take the sockets passed to it.
const OF_THE_DAEMON: [&str; 6] = [
    "LISTEN_FDNAMES",
    "LISTEN_FDS",
    "LISTEN_PID",
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
];

/// Reads a worker's command.
pub(super) fn read(t: &mut Reader<'_>, around: ReadContext<'_>) -> WorkerCommand {
    WorkerCommand {
        program: t.must(
            "command",
            word(),
            "Program of the worker: a name that is looked up in the worker's `PATH`, or a path, \
             relative to `cwd`.",
        ),
        args: t.or(
            "args",
            Arguments,
            "[]",
            "Arguments of the program; a single text is split into words as by a shell, without \
             expansions or other shell syntax.",
        ),
        env: environment(t, around.environment),
        cwd: directory(t, around),
        user: t.maybe(
            "user",
            word(),
            "User that the worker runs as, if the daemon is root; the daemon's own if omitted.",
        ),
        limits: t.table(
            "limits",
            "Limits that the kernel enforces on a worker.",
            limits,
        ),
    }
}

/// Returns the environment: inherited variables, then those that the file sets.
fn environment(t: &mut Reader<'_>, own: &Environment) -> Environment {
    let inherit = t.or(
        "env_inherit",
        InheritKind,
        "[]",
        "Variables that a worker inherits from the daemon in addition to PATH, HOME, LANG and TZ; \
         `true` for all, except those that begin with `GANGER_` and those of the service manager's \
         protocol, such as `NOTIFY_SOCKET`.",
    );
    let set: BTreeMap<String, String> = t.map(
        "env",
        "a variable's name",
        variable,
        text(),
        "Variables of the worker's environment, in addition to those it inherits.",
    );
    let wanted = |name: &str| match &inherit {
        Inherit::All => inheritable(name).is_ok(),
        Inherit::Names(names) => {
            INHERITED.contains(&name) || names.iter().any(|wanted| wanted == name)
        }
    };
    let inherited = own.iter().filter(|(name, _)| wanted(name));
    let inherited = inherited.map(|(name, value)| (name.clone(), value.clone()));
    let all: BTreeMap<String, String> = inherited.chain(set).collect();
    // Inherited variables are shown with the rest, with this daemon's values.
    t.print("env_inherit", None);
    let shown = all.iter();
    let shown = shown.map(|(name, value)| (print::key(name), print::variable(name, value)));
    t.print("env", Some(print::table(shown)));
    all
}

fn variable(name: &str) -> Result<String, Wrong> {
    if name.starts_with(RESERVED) {
        let help =
            "variables with this prefix describe the pool to its workers: choose another name";
        return Err(Wrong::new("must not begin with `GANGER_`", help));
    }
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(Wrong::new("must be the name of a variable", ""));
    }
    Ok(name.into())
}

fn inheritable(name: &str) -> Result<(), Wrong> {
    if OF_THE_DAEMON.contains(&name) {
        let wrong = format!("must not name `{name}`");
        let help =
            "it belongs to the protocol between the service manager and the daemon: leave it out";
        return Err(Wrong::new(wrong, help));
    }
    variable(name).map(drop)
}

fn directory(t: &mut Reader<'_>, around: ReadContext<'_>) -> Option<PathBuf> {
    let path = t.maybe(
        "cwd",
        word(),
        "Working directory, relative to the directory of this file; the daemon's own if omitted.",
    );
    let path = path.map(|path| around.directory.join(path));
    let shown = path.as_ref();
    t.print(
        "cwd",
        shown.map(|path| print::text(&path.to_string_lossy())),
    );
    // If our own is reached through a link, a worker starts where the link leads at that time.
    path.or_else(|| started_in::link().map(PathBuf::from))
}

fn limits(t: &mut Reader<'_>) -> Limits {
    Limits {
        memory_bytes: t.maybe(
            "memory",
            size(1 << 20..=1 << 44),
            "Maximum private memory (`RLIMIT_DATA`); the daemon's own limit if omitted.",
        ),
        open_files: t.maybe(
            "open_files",
            integer(16..=1_048_576),
            "Maximum number of open files (`RLIMIT_NOFILE`); the limit that the daemon was started \
             with if omitted.",
        ),
        cpu_nice: t.maybe(
            "cpu_nice",
            integer(-20..=19),
            "Niceness; the daemon's own if omitted.",
        ),
    }
}

/// A list of arguments, or one text to be split.
pub(super) struct Arguments;

impl Kind for Arguments {
    type Value = Vec<String>;

    fn read(&self, node: &Node) -> Result<Vec<String>, Wrong> {
        let split = |line: String| {
            let help = "end each quote, or write the arguments as a list";
            shell_words::split(&line).map_err(|error| Wrong::new(error.to_string(), help))
        };
        match &node.value {
            Value::List(_) => list_of(text()).read(node),
            Value::Text(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Boolean(_)
            | Value::Table(_)
            | Value::Date
            | Value::Broken(_) => text().read(node).and_then(split),
        }
    }

    fn show(&self, value: &Vec<String>) -> String {
        print::list(redact::words(value).iter().map(|arg| print::text(arg)))
    }

    fn describe(&self) -> String {
        "list of text, or text".into()
    }

    fn schema(&self) -> Json {
        json!({ "anyOf": [list_of(text()).schema(), text().schema()] })
    }
}

/// Value of `env_inherit`.
enum Inherit {
    All,
    Names(Vec<String>),
}

struct InheritKind;

impl Kind for InheritKind {
    type Value = Inherit;

    fn read(&self, node: &Node) -> Result<Inherit, Wrong> {
        match node.value {
            Value::Boolean(true) => return Ok(Inherit::All),
            Value::Boolean(false) => return Ok(Inherit::Names(Vec::new())),
            _ => {}
        }
        let names = list_of(word()).read(node).map_err(|_| {
            let help = "write the names, as in [\"SSL_CERT_FILE\"], or true for all";
            Wrong::new("must be a list of variables, or true", help)
        })?;
        names.iter().try_for_each(|name| inheritable(name))?;
        Ok(Inherit::Names(names))
    }

    fn show(&self, value: &Inherit) -> String {
        match value {
            Inherit::All => boolean().show(&true),
            Inherit::Names(names) => list_of(word()).show(names),
        }
    }

    fn describe(&self) -> String {
        "list of text, or boolean".into()
    }

    fn schema(&self) -> Json {
        json!({ "anyOf": [list_of(word()).schema(), { "type": "boolean" }] })
    }
}
