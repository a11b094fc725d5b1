//! Crontabs as configurations: a schedule for each job, and the pools that run them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use nix::unistd::User;

use super::text::{TakenNames, commented_out, escaped, sanitised, toml};
use ganger_schedule::crontab::Job;

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

/// Returns the home directory of a user, if this machine knows the user.
pub(super) fn home_of(user: &str) -> Option<PathBuf> {
    let user = User::from_name(user).ok().flatten()?;
    Some(user.dir)
}

/// Returns the pools that run the jobs, and their schedules, as TOML.
pub(super) fn configuration(
    jobs: &[Job],
    zone: &str,
    home_of: impl Fn(&str) -> Option<PathBuf>,
) -> String {
    let mut names = TakenNames::default();
    let runners: BTreeSet<Runner> = jobs.iter().map(Runner::of).collect();
    let pools: BTreeMap<Runner, String> = runners
        .into_iter()
        .map(|runner| {
            let name = match &runner.user {
                Some(user) => names.unique(&format!("cron-{}", sanitised(user))),
                None => names.unique("cron"),
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
        text += &surroundings(runner, &home_of);
        text +=
            "workers = 4                      # further jobs wait; cron starts them all at once\n";
        text += "command = \"ganger\"\n";
        text += &format!(
            "args = [\"exec\", \"--\", {}, \"{{}}\"]\n",
            toml(&runner.shell)
        );
        text += "retry = { attempts = 1 }\n";
    }
    let mut names = TakenNames::default();
    for job in jobs {
        let name = names.unique(&name_of(&job.command));
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

/// Returns the directory and the variables with which cron runs the jobs; as comments if the user is unknown.
fn surroundings(runner: &Runner, home_of: impl Fn(&str) -> Option<PathBuf>) -> String {
    let known = runner.user.as_deref();
    let known = known.and_then(|user| Some((user, home_of(user)?)));
    let keys = |user: &str, home: &Path| {
        let (user, home) = (toml(user), toml(&home.to_string_lossy()));
        let shell = toml(&runner.shell);
        format!("cwd = {home}\nenv = {{ HOME = {home}, LOGNAME = {user}, SHELL = {shell} }}\n")
    };
    match known {
        Some((user, home)) => keys(user, &home),
        None => format!(
            "# cron runs a job in the home directory of its user. Without these keys a job runs in the directory of the\n\
             # daemon, and has the HOME of the daemon:\n{}",
            commented_out(&keys("USER", Path::new("/home/USER")))
        ),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_schedule::crontab::{Form, read};
    use ganger_schedule::zone::Zones;

    fn imported(text: &str, form: Form) -> String {
        let (jobs, bad) = read(text, form, &Zones::bundled());
        assert_eq!(bad, []);
        let home_of = |user: &str| (user == "ann").then(|| PathBuf::from("/home/ann"));
        configuration(&jobs, "UTC", home_of)
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
    fn jobs_of_a_known_user_run_where_cron_runs_them() {
        let text = imported("SHELL=/bin/bash\n* * * * * ann x\n", Form::System);
        let keys = "user = \"ann\"\ncwd = \"/home/ann\"\n\
                    env = { HOME = \"/home/ann\", LOGNAME = \"ann\", SHELL = \"/bin/bash\" }\n";
        assert!(text.contains(keys), "{text}");
        let text = imported("* * * * * bob x\n", Form::System);
        assert!(
            text.contains("\n# cwd = \"/home/USER\"\n# env = { HOME"),
            "{text}"
        );
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
