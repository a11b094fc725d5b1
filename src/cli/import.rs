//! `ganger schedule import`: turns the lines of a crontab into a configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use miette::bail;

use super::common::CommandResult;
use super::output;
use super::usage::wrong;
use ganger_core::foreign;
use ganger_schedule::crontab::{BadLine, Form, Job, read};
use ganger_schedule::zone::Zones;

/// Longest crontab, in bytes.
const BYTES_MAX: u64 = 1 << 20;
/// Longest name of a schedule that is made of a command, without a number.
const NAME_MAX: usize = 48;

#[derive(Debug, clap::Args)]
pub(super) struct ImportArgs {
    /// The crontab: a file, or stdin with `-`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The file has the system's form, in which a user stands before the command, as in /etc/crontab
    #[arg(long)]
    system: bool,
    /// Time zone of lines that CRON_TZ gives none; else this machine's, as for cron
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
}

pub(super) fn run(args: &ImportArgs) -> CommandResult {
    let zones = Zones::load();
    let text = match args.file.as_os_str() == "-" {
        true => foreign::text(std::io::stdin(), BYTES_MAX),
        false => File::open(&args.file).and_then(|file| foreign::text(file, BYTES_MAX)),
    };
    let name = args.file.display();
    let text = text.map_err(|error| miette::miette!("{name}: {error}"))?;
    let form = if args.system {
        Form::System
    } else {
        Form::User
    };
    let (jobs, bad) = read(&text, form, &zones);
    let zone = match &args.zone {
        Some(zone) => zone.clone(),
        None => system_zone().ok_or_else(|| {
            wrong("the time zone of this machine is not known by name: name it with --zone")
        })?,
    };
    zones
        .get(&zone)
        .map_err(|problem| wrong(problem.under("--zone")))?;
    for BadLine { line, problem } in &bad {
        let problem = foreign::line(&problem.to_string()).into_owned();
        output::note(format!("{name}:{line}: {problem}"));
    }
    if jobs.is_empty() && bad.is_empty() {
        return Err(wrong(format!("{name} has no jobs")));
    }
    output::bytes(configuration(&jobs, &zone).as_bytes())?;
    if !bad.is_empty() {
        bail!(
            "{} of {} lines with jobs are not taken over",
            bad.len(),
            bad.len() + jobs.len()
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the name of this machine's time zone, by the link that systems keep.
fn system_zone() -> Option<String> {
    let link = std::fs::canonicalize("/etc/localtime").ok()?;
    let text = link.to_str()?;
    let (_, name) = text.split_once("/zoneinfo/")?;
    Some(name.to_owned())
}

/// Jobs that one pool runs: of one user and one shell.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Runner {
    user: Option<String>,
    shell: String,
}

impl Runner {
    fn of(job: &Job) -> Self {
        Self {
            user: job.user.clone(),
            shell: job.variable("SHELL").unwrap_or("/bin/sh").to_owned(),
        }
    }
}

/// Returns the pools that run the jobs, and their schedules, as TOML.
fn configuration(jobs: &[Job], zone: &str) -> String {
    let mut names = BTreeSet::new();
    let runners: BTreeSet<Runner> = jobs.iter().map(Runner::of).collect();
    let pools: BTreeMap<Runner, String> = runners
        .into_iter()
        .map(|runner| {
            let name = match &runner.user {
                Some(user) => unique(&format!("cron-{}", sanitised(user)), &mut names),
                None => unique("cron", &mut names),
            };
            (runner, name)
        })
        .collect();
    let mut text = String::from(
        "# Each job is a message, whose body is its script. As with cron, a job that fails is not tried again: it is a\n\
         # dead letter (`ganger dead list`); what it prints is in the log.\n",
    );
    for (runner, name) in &pools {
        text += &format!("\n[[pools]]\nname = {0}\nqueue = {0}\n", toml(name));
        if let Some(user) = &runner.user {
            text += &format!("user = {}\n", toml(user));
        }
        text += "workers = 4\ncommand = \"ganger\"\n";
        text += &format!(
            "args = [\"exec\", \"--\", {}, \"{{}}\"]\n",
            toml(&runner.shell)
        );
        text += "retry = { attempts = 1 }\n";
    }
    let mut names = BTreeSet::new();
    for job in jobs {
        let name = unique(&name_of(&job.command), &mut names);
        let queue = pools.get(&Runner::of(job)).map_or("cron", String::as_str);
        let zone = job.zone.as_deref().unwrap_or(zone);
        // What looks like a template is text.
        let script = escaped(&job.script());
        text += &format!("\n[[schedules]]                    # line {}\n", job.line);
        for (key, value) in [
            ("name", name.as_str()),
            ("cron", &job.cron),
            ("zone", zone),
            ("queue", queue),
            ("body", &script),
        ] {
            text += &format!("{key} = {}\n", toml(value));
        }
        text += "overlap = \"allow\"                # cron starts a job although it still runs\n";
        text += "misfire = { policy = \"skip\" }    # cron makes up for nothing\n";
    }
    text
}

/// Returns a text as TOML, in which a dollar sign stands for itself.
fn toml(text: &str) -> String {
    ::toml::Value::String(text.replace('$', "$$")).to_string()
}

/// Returns a script as a template, in which what looks like one is text.
fn escaped(script: &str) -> String {
    let mut template = String::new();
    let mut rest = script;
    while let Some(at) = ["{{", "{%", "{#"]
        .iter()
        .filter_map(|mark| rest.find(mark))
        .min()
    {
        let (before, mark) = rest.split_at(at);
        let (mark, after) = mark.split_at(2);
        template += &format!("{before}{{{{ '{mark}' }}}}");
        rest = after;
    }
    template + rest
}

/// Returns a name for a job: that of its program.
fn name_of(command: &str) -> String {
    let is_program = |word: &&str| {
        let is_setting = word.contains('=');
        let is_shells = ["cd", "test", "[", "&&", "||", "exec", "nice", "/"].contains(word);
        !is_setting
            && !is_shells
            && word.starts_with(|c: char| c.is_alphanumeric() || c == '/' || c == '.')
    };
    let program = command.split_whitespace().find(is_program).unwrap_or("job");
    let name = Path::new(program)
        .file_name()
        .and_then(|name| name.to_str());
    sanitised(name.unwrap_or("job"))
}

/// Returns a text as a valid name.
fn sanitised(text: &str) -> String {
    let name: String = text
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "_.-".contains(c) {
                c
            } else {
                '-'
            }
        })
        .take(NAME_MAX)
        .collect();
    match name.trim_matches(['-', '.']) {
        "" => "job".to_owned(),
        name => name.to_owned(),
    }
}

/// Returns the name with a number, if it is taken, and takes it.
fn unique(name: &str, taken: &mut BTreeSet<String>) -> String {
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let mut all = std::iter::once(name.to_owned()).chain(numbered);
    let free = all.find(|name| !taken.contains(name)).unwrap_or_default();
    taken.insert(free.clone());
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imported(text: &str, form: Form) -> String {
        let (jobs, bad) = read(text, form, &Zones::bundled());
        assert_eq!(bad, []);
        configuration(&jobs, "UTC")
    }

    /// Whatever a crontab has, the configuration is valid, and each body is the script.
    #[test]
    fn what_is_imported_is_valid() {
        let scripts = [
            "echo \"$HOME\" ${X:-y} '{{ a }}' {% raw %}{% endraw %} {# c",
            "printf '\\t\"\"\"' \u{1}\u{7f}",
            "/usr/bin/réport --x=1",
            "FOO=bar nice /opt/a b",
            "&& ||",
        ];
        let lines: Vec<String> = scripts
            .iter()
            .map(|script| format!("* * * * * u@v {}", script.replace('%', "\\%")))
            .collect();
        let text = imported(&lines.join("\n"), Form::System);
        let sources = "[sources.main]\nkind = \"table\"\nurl = \"sqlite:a.db\"\n";
        let text = format!("{sources}{text}");
        let environment = ganger_config::Environment::new();
        let config = ganger_config::parse(&text, "a.toml", &environment).expect(&text);
        assert_eq!(config.schedules.len(), scripts.len());
        for (schedule, script) in config.schedules.iter().zip(scripts) {
            let run = ganger_schedule::template::RunFacts {
                schedule: "s",
                occurrence: "o",
                slot: jiff::Timestamp::UNIX_EPOCH,
                previous_slot: None,
                last_success: None,
            };
            let body = schedule.body.render(&run).unwrap();
            assert_eq!(body, format!("{script}\n"));
        }
        assert_eq!(config.pools.len(), 1);
        assert_eq!(config.pools[0].name, "cron-u-v");
    }

    #[test]
    fn a_job_is_named_by_its_program() {
        for (command, name) in [
            ("/usr/local/bin/backup --all", "backup"),
            ("cd / && run-parts --report /etc/cron.hourly", "run-parts"),
            ("[ -x /usr/bin/x ] && FOO=1 ./tidy.sh", "x"),
            ("&&", "job"),
        ] {
            assert_eq!(name_of(command), name, "{command}");
        }
    }
}
