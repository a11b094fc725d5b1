//! Files of cron: what each line runs, and when. In the form of a user's table, or of the system's, whose
//! lines name a user.

use crate::cron::{Cron, Dialect};
use crate::problem::Problem;
use crate::timing::Rule;
use crate::zone::Zones;

/// Form of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Of a user, as `crontab -l` prints it.
    User,
    /// Of the system, as `/etc/crontab` and the files of `/etc/cron.d`: a user stands before the command.
    System,
}

/// A line that runs a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Number of the line, from 1.
    pub line: usize,
    /// Expression.
    pub cron: String,
    /// Zone of the expression, if the file sets one with `CRON_TZ`.
    pub zone: Option<String>,
    /// User that the command runs as, in the system's form.
    pub user: Option<String>,
    /// Command for the shell.
    pub command: String,
    /// Standard input of the command: what follows a `%`.
    pub input: Option<String>,
    /// Variables that the file sets before the line, in their order.
    pub variables: Vec<(String, String)>,
}

impl Job {
    /// Returns the value of a variable.
    pub fn variable(&self, name: &str) -> Option<&str> {
        let mut found = self.variables.iter().filter(|(other, _)| other == name);
        found.next().map(|(_, value)| value.as_str())
    }

    /// Returns the script that does what cron does: the variables, then the command with its input. A home that the
    /// file sets is the directory of the command.
    pub fn script(&self) -> String {
        let mut script = String::new();
        for (name, value) in &self.variables {
            if !matches!(name.as_str(), "SHELL" | "MAILTO" | "CRON_TZ") {
                script += &format!("export {name}={}\n", quoted(value));
            }
        }
        if self.variable("HOME").is_some() {
            script += "cd \"$HOME\" || exit\n";
        }
        match &self.input {
            Some(input) => script += &with_input(&self.command, input),
            None => script += &format!("{}\n", self.command),
        }
        script
    }
}

/// A line that can't be taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// Number of the line, from 1.
    pub line: usize,
    /// The mistake, and the remedy.
    pub problem: Problem,
}

/// Reads a file: its jobs, and the lines that can't be taken over.
pub fn read(text: &str, form: Form, zones: &Zones) -> (Vec<Job>, Vec<BadLine>) {
    let mut reader = LineReader {
        form,
        zones,
        variables: Vec::new(),
        unknown_zone: None,
    };
    let (mut jobs, mut bad) = (Vec::new(), Vec::new());
    for (line, text) in (1..).zip(text.lines()) {
        match reader.line(line, text.trim()) {
            Ok(job) => jobs.extend(job),
            Err(problem) => bad.push(BadLine { line, problem }),
        }
    }
    (jobs, bad)
}

struct LineReader<'a> {
    form: Form,
    zones: &'a Zones,
    variables: Vec<(String, String)>,
    /// Problem of the zone that holds for the lines that follow, if it is unknown.
    unknown_zone: Option<Problem>,
}

impl LineReader<'_> {
    fn line(&mut self, line: usize, text: &str) -> Result<Option<Job>, Problem> {
        if text.is_empty() || text.starts_with('#') {
            return Ok(None);
        }
        if text.contains('\0') {
            let right = "remove it: a configuration can't hold it";
            return Err(Problem::new("the line has a NUL character", right));
        }
        if let Some((name, value)) = setting(text) {
            if name == "CRON_TZ" {
                self.check_zone(line, &value)?;
            }
            self.variables.retain(|(other, _)| *other != name);
            self.variables.push((name, value));
            return Ok(None);
        }
        let (cron, rest) = self.time(text)?;
        let (user, command) = match self.form {
            Form::User => (None, rest),
            Form::System => {
                let (user, command) = word(rest);
                (Some(user.to_owned()), command)
            }
        };
        if command.is_empty() {
            let right = match self.form {
                Form::User => "write a command after the time",
                Form::System => {
                    "write a user and a command after the time, or read it as a user's table"
                }
            };
            return Err(Problem::new("there is no command", right));
        }
        if let Some(problem) = &self.unknown_zone {
            return Err(problem.clone());
        }
        let (command, input) = split(command);
        let zone = self.variables.iter().find(|(name, _)| name == "CRON_TZ");
        let zone = zone
            .map(|(_, zone)| zone.clone())
            .filter(|zone| !zone.is_empty());
        Ok(Some(Job {
            line,
            cron,
            zone,
            user,
            command,
            input,
            variables: self.variables.clone(),
        }))
    }

    /// Checks the zone of the lines that follow. If it is unknown, these can't be taken over.
    fn check_zone(&mut self, line: usize, name: &str) -> Result<(), Problem> {
        let known = match name {
            "" => Ok(()),
            name => self.zones.get(name).map(|_| ()),
        };
        self.unknown_zone = known.is_err().then(|| {
            let wrong =
                format!("the time zone of line {line} is unknown, so that the time is unclear");
            Problem::new(wrong, "correct CRON_TZ there")
        });
        known
    }

    /// Reads the time, and returns what follows it.
    fn time<'t>(&self, text: &'t str) -> Result<(String, &'t str), Problem> {
        // A minus keeps some crons from logging the job.
        let text = text.strip_prefix('-').unwrap_or(text);
        let (first, rest) = word(text);
        if first.eq_ignore_ascii_case("@reboot") {
            let right = "let the service manager start it, as with a systemd unit";
            return Err(Problem::new("`@reboot` is no time", right));
        }
        if first.eq_ignore_ascii_case("@every") {
            let (period, rest) = word(rest);
            let cron = format!("{first} {period}");
            Rule::parse(&cron, Dialect::Standard, "crontab")?;
            return Ok((cron, rest));
        }
        let fields = if first.starts_with('@') { 1 } else { 5 };
        let mut rest = if fields == 1 { rest } else { text };
        let mut words = vec![first];
        if fields > 1 {
            words.clear();
            for _ in 0..fields {
                let (field, after) = word(rest);
                words.push(field);
                rest = after;
            }
        }
        let cron = words.join(" ");
        Cron::parse(&cron, Dialect::Standard, "crontab")?;
        Ok((cron, rest))
    }
}

/// Returns the first word, and what follows it.
fn word(text: &str) -> (&str, &str) {
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    (word, rest.trim_start())
}

/// Reads `NAME = value`, in quotes or not.
fn setting(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    let unquoted = |text: &str| {
        let text = text.trim();
        let inner = ['"', '\''].iter().find_map(|quote| {
            let inner = text.strip_prefix(*quote)?.strip_suffix(*quote)?;
            Some(inner.to_owned())
        });
        inner.unwrap_or_else(|| text.to_owned())
    };
    let name = unquoted(name);
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    (begins && is_name).then(|| (name, unquoted(value)))
}

/// Splits a command from its input, which begins after the first `%`: each further one is a line's end. A
/// `\%` is a percent sign. In the command, as in cron, `\\` escapes nothing that follows.
fn split(text: &str) -> (String, Option<String>) {
    let (mut command, mut input) = (String::new(), None::<String>);
    let mut is_escaped = false;
    for c in text.chars() {
        let is_input = input.is_some();
        let part = input.as_mut().unwrap_or(&mut command);
        match (c, is_escaped) {
            ('%', true) => {
                part.pop();
                part.push('%');
            }
            ('%', false) if is_input => part.push('\n'),
            ('%', false) => input = Some(String::new()),
            (c, _) => part.push(c),
        }
        is_escaped = c == '\\' && (is_input || !is_escaped);
    }
    (command.trim_end().to_owned(), input)
}

/// Returns the script of a command that reads this input. The braces keep the input apart from a comment, and from the
/// last of several programs.
fn with_input(command: &str, input: &str) -> String {
    let mut end = String::from("END");
    while input.lines().any(|line| line == end) {
        end += "_";
    }
    let line_end = match input.is_empty() || input.ends_with('\n') {
        true => "",
        false => "\n",
    };
    format!("{{\n{command}\n}} <<'{end}'\n{input}{line_end}{end}\n")
}

/// Returns a text as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(text: &str, form: Form) -> Vec<Job> {
        let (jobs, bad) = read(text, form, &Zones::bundled());
        assert_eq!(bad, []);
        jobs
    }

    fn one(text: &str) -> Job {
        let mut jobs = jobs(text, Form::User);
        assert_eq!(jobs.len(), 1, "{text}");
        jobs.remove(0)
    }

    fn wrong(text: &str, form: Form) -> String {
        let (jobs, bad) = read(text, form, &Zones::bundled());
        assert_eq!((jobs.len(), bad.len()), (0, 1), "{text}");
        format!("{} {}", bad[0].line, bad[0].problem)
    }

    #[test]
    fn a_line_is_a_time_and_a_command() {
        for (text, cron, command) in [
            ("*/5 * * * * /bin/true", "*/5 * * * *", "/bin/true"),
            (
                "  30\t2  * * MON-FRI\tbackup --all  /srv ",
                "30 2 * * MON-FRI",
                "backup --all  /srv",
            ),
            ("@daily run", "@daily", "run"),
            ("-0 4 * * 7 quiet", "0 4 * * 7", "quiet"),
            ("0 0 1 * * a=b env", "0 0 1 * *", "a=b env"),
            ("0 0 * * * date +\\%F > x", "0 0 * * *", "date +%F > x"),
        ] {
            let job = one(text);
            assert_eq!((&*job.cron, &*job.command), (cron, command), "{text}");
            assert_eq!((job.input, job.user), (None, None));
        }
    }

    #[test]
    fn a_percent_sign_begins_the_input() {
        let job = one("0 0 * * * mail ann%Hello%%bye \\% END");
        assert_eq!(job.command, "mail ann");
        assert_eq!(job.input.as_deref(), Some("Hello\n\nbye % END"));
        let script = "{\nmail ann\n} <<'END'\nHello\n\nbye % END\nEND\n";
        assert_eq!(job.script(), script);
        let job = one("0 0 * * * cat%END%x");
        assert_eq!(job.script(), "{\ncat\n} <<'END_'\nEND\nx\nEND_\n");
        assert_eq!(one("0 0 * * * cat%").script(), "{\ncat\n} <<'END'\nEND\n");
        let script = "{\ncat\n} <<'END'\na\n\nEND\n";
        assert_eq!(one("0 0 * * * cat%a%%").script(), script);
    }

    #[test]
    fn input_is_never_run_and_is_read_by_the_first_program() {
        for (line, printed) in [
            ("0 5 * * * echo backup # at 50% echo bad", "backup\n"),
            ("0 5 * * * cat && echo done%hello", "hello\ndone\n"),
            ("0 5 * * * cat%END%$HOME", "END\n$HOME\n"),
        ] {
            let mut shell = std::process::Command::new("/bin/sh");
            let output = shell.arg("-c").arg(one(line).script()).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), printed, "{line}");
        }
    }

    #[test]
    fn a_backslash_escapes_as_in_cron() {
        for (text, command, input) in [
            (r"a\\%b", r"a\\", Some("b")),
            (r"a\\\%b", r"a\\%b", None),
            (r"a\b%c\d", r"a\b", Some(r"c\d")),
            (r"a%b\\%c", "a", Some(r"b\%c")),
        ] {
            let expected = (command.to_owned(), input.map(str::to_owned));
            assert_eq!(split(text), expected, "{text}");
        }
    }

    #[test]
    fn a_period_is_taken_over() {
        let job = one("@every 5m run %x");
        assert_eq!((&*job.cron, &*job.command), ("@every 5m", "run"));
        let problem = wrong("@every run", Form::User);
        assert!(problem.contains("write `@every 5m`"), "{problem}");
    }

    #[test]
    fn jobs_of_an_unknown_zone_are_refused_until_the_next_zone() {
        let text = "CRON_TZ=Europe/Berlin\n0 1 * * * a\nCRON_TZ=Berlin\n0 2 * * * b\n0 3 * * * c\n\
                    CRON_TZ=UTC\n0 4 * * * d\nCRON_TZ=x\n0 5 * * * e\nCRON_TZ=\n0 6 * * * f\n";
        let (jobs, bad) = read(text, Form::User, &Zones::bundled());
        let jobs: Vec<_> = jobs
            .iter()
            .map(|job| (job.line, job.zone.as_deref()))
            .collect();
        assert_eq!(
            jobs,
            [(2, Some("Europe/Berlin")), (7, Some("UTC")), (11, None)]
        );
        let lines: Vec<usize> = bad.iter().map(|bad| bad.line).collect();
        assert_eq!(lines, [3, 4, 5, 8, 9]);
        assert_eq!(
            bad[1].problem.to_string(),
            "the time zone of line 3 is unknown, so that the time is unclear: correct CRON_TZ there"
        );
    }

    #[test]
    fn variables_hold_for_the_lines_that_follow() {
        let text = "# a comment\n\
                    SHELL=/bin/bash\n\
                    PATH = \"/usr/bin:/bin\"\n\
                    MAILTO=ann\n\
                    0 1 * * * first\n\
                    CRON_TZ=Europe/Berlin\n\
                    GREETING='it'\n\
                    PATH=/opt\n\
                    0 2 * * * second\n\
                    CRON_TZ=\n\
                    0 3 * * * third\n";
        let jobs = jobs(text, Form::User);
        assert_eq!(jobs[0].script(), "export PATH='/usr/bin:/bin'\nfirst\n");
        assert_eq!(jobs[0].variable("SHELL"), Some("/bin/bash"));
        assert_eq!((jobs[0].line, jobs[0].zone.as_deref()), (5, None));
        assert_eq!(
            jobs[1].script(),
            "export GREETING='it'\nexport PATH='/opt'\nsecond\n"
        );
        assert_eq!(jobs[1].zone.as_deref(), Some("Europe/Berlin"));
        assert_eq!(jobs[2].zone, None);
    }

    #[test]
    fn a_command_runs_in_the_home_that_the_file_sets() {
        let job = one("HOME=/srv\n0 1 * * * ./x");
        assert_eq!(
            job.script(),
            "export HOME='/srv'\ncd \"$HOME\" || exit\n./x\n"
        );
    }

    #[test]
    fn the_systems_lines_name_a_user() {
        let text =
            "17 *\t* * *\troot\tcd / && run-parts --report /etc/cron.hourly\n@weekly www  tidy\n";
        let jobs = jobs(text, Form::System);
        assert_eq!(jobs[0].user.as_deref(), Some("root"));
        assert_eq!(
            jobs[0].command,
            "cd / && run-parts --report /etc/cron.hourly"
        );
        assert_eq!(
            (jobs[1].user.as_deref(), &*jobs[1].command),
            (Some("www"), "tidy")
        );
    }

    #[test]
    fn a_line_that_can_not_be_taken_over_is_told() {
        for (text, form, expected) in [
            (
                "@reboot x",
                Form::User,
                "1 `@reboot` is no time: let the service manager",
            ),
            (
                "\n60 * * * * x",
                Form::User,
                "2 minute `60` is out of range",
            ),
            (
                "0 0 * * *",
                Form::User,
                "1 there is no command: write a command",
            ),
            (
                "0 0 * * * root",
                Form::System,
                "1 there is no command: write a user",
            ),
            ("hello", Form::User, "1 "),
            (
                "CRON_TZ=Berlin",
                Form::User,
                "1 time zone `Berlin` is unknown",
            ),
            ("@sometimes x", Form::User, "1 "),
            (
                "0 0 * * * a\0b",
                Form::User,
                "1 the line has a NUL character: remove it",
            ),
        ] {
            let problem = wrong(text, form);
            assert!(problem.starts_with(expected), "{text}: {problem}");
        }
    }

    #[test]
    fn a_value_is_one_word_whatever_is_in_it() {
        let job = one("A=it's $HOME `x`\n* * * * * env");
        assert_eq!(job.script(), "export A='it'\\''s $HOME `x`'\nenv\n");
    }
}
