//! Jobs of Milvaion as a configuration: a schedule for each, and a pool for each class of job.

use std::collections::BTreeMap;
use std::time::Duration;

use super::text::{TakenNames, comment, commented_out, escaped, sanitised, toml};
use ganger_core::units::show_duration;
use ganger_schedule::milvaion::{FileNote, JobTime, MilvaionJob};
use ganger_schedule::overlap::Overlap;
use ganger_schedule::problem::Problem;

/// Header that names the class of a job, as in Milvaion's own messages.
const KIND_HEADER: &str = "JobType";
/// Time limit of a run, if neither job nor worker sets one.
const TIMEOUT: Duration = Duration::from_secs(3600);

const HEAD: &str = "\
# The jobs of Milvaion. The body of each message is the data of its job, and its header JobType names the class of
# the job. Times are UTC, as in Milvaion; `zone` makes them local. `auto_disable` of a job that sets nothing is
# Milvaion's default. Past runs, statistics, versions and audit data are not taken over.
";
const POOLS: &str = "
# A pool for each class of job. While a pool can't start its program, the messages wait. Time limits are those of the
# jobs, retries the defaults of Milvaion's workers. In JobConsumers of their appsettings.json MaxParallelJobs is
# `workers`, ExecutionTimeoutSeconds `timeout`, MaxRetries + 1 `attempts`, and BaseRetryDelaySeconds `initial`.
";

/// A job with its name in the configuration.
#[derive(Debug)]
pub(super) struct Schedule<'a> {
    job: &'a MilvaionJob,
    name: String,
    /// Settings that are not taken over as they were, and the remedies.
    problems: Vec<Problem>,
}

impl Schedule<'_> {
    /// Returns what is not taken over as it was.
    pub(super) fn notes(&self) -> impl Iterator<Item = FileNote> {
        self.problems.iter().map(|problem| FileNote {
            place: self.job.place,
            problem: Problem {
                key: format!("{}: {}", self.name, problem.key)
                    .trim_end_matches([':', ' '])
                    .to_owned(),
                ..problem.clone()
            },
        })
    }

    /// Returns the schedule as TOML, whose jobs have that time limit in its pool.
    fn text(&self, queue: &str, limit: Duration) -> String {
        let job = self.job;
        let title = job.display_name.as_deref().unwrap_or(&job.kind);
        let id = job.id.as_deref().unwrap_or_default();
        let mut text = format!("{}\n", comment(format!("{title}  {id}").trim_end()));
        for problem in &self.problems {
            text += &format!("{}\n", comment(&problem.to_string()));
        }
        let mut keys = format!("[[schedules]]\nname = {}\n", toml(&self.name));
        match &job.when {
            JobTime::At(at) => keys += &format!("at = \"{at}\"\n"),
            JobTime::Cron { cron, only_days } => {
                keys += &format!("cron = {}\n", toml(cron));
                if !only_days.is_empty() {
                    keys += &format!("only = {{ days = {} }}\n", list(only_days));
                }
            }
        }
        keys += &format!("queue = {}\n", toml(queue));
        keys += &format!("headers = {{ {KIND_HEADER} = {} }}\n", toml(&job.kind));
        if job.is_json {
            keys += "content_type = \"application/json\"\n";
        }
        if !job.data.is_empty() {
            keys += &format!("body = {}\n", toml(&escaped(&job.data)));
        }
        let timeout = time_limit(job);
        if timeout < limit {
            keys += &format!("timeout = \"{}\"\n", show_duration(timeout));
        }
        if job.overlap != Overlap::Skip {
            keys += &format!("overlap = \"{}\"\n", job.overlap.as_str());
        }
        if let Some(within) = job.within {
            let within = show_duration(within);
            keys += &format!(
                "expect = {{ within = \"{within}\" }}    # zombieTimeoutMinutes: an alert; the run does not fail\n"
            );
        }
        if let Some(failures) = job.failures {
            keys += &format!("auto_disable = {{ failures = {failures}, window = \"1h\" }}\n");
        }
        if !job.tags.is_empty() {
            keys += &format!("tags = {}\n", list(&job.tags));
        }
        if let Some(description) = &job.description {
            keys += &format!("description = {}\n", toml(description));
        }
        match job.inactive {
            Some(_) => text + &commented_out(&keys),
            None => text + &keys,
        }
    }
}

/// Class of jobs, which one pool runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct JobClass<'a> {
    worker: Option<&'a str>,
    kind: &'a str,
}

/// Pool of a class of jobs.
#[derive(Debug)]
struct JobPool {
    name: String,
    /// Longest time limit of its jobs.
    timeout: Duration,
}

impl<'a> JobClass<'a> {
    fn of(job: &'a MilvaionJob) -> Self {
        Self {
            worker: job.worker.as_deref(),
            kind: &job.kind,
        }
    }

    /// Returns the pool as TOML.
    fn text(&self, pool: &JobPool, worker: &[String]) -> String {
        let program = format!("./{}", sanitised(self.kind));
        let own = ["ganger", "exec", "--", program.as_str()].map(str::to_owned);
        let words = if worker.is_empty() { &own } else { worker };
        let command = words.first().map_or("", String::as_str);
        let args = &words[1..];
        let mut text = format!(
            "\n[[pools]]\nname = {0}\nqueue = {0}\nworkers = 2\n",
            toml(&pool.name)
        );
        text += &format!("command = {}\nargs = {}\n", toml(command), list(args));
        text += &format!("timeout = \"{}\"\n", show_duration(pool.timeout));
        text + "retry = { attempts = 4, initial = \"5s\" }\n"
    }
}

/// Returns the time limit of a run.
fn time_limit(job: &MilvaionJob) -> Duration {
    job.timeout.unwrap_or(TIMEOUT)
}

/// Names the jobs.
pub(super) fn schedules(jobs: &[MilvaionJob]) -> Vec<Schedule<'_>> {
    let mut names = TakenNames::default();
    let schedules = jobs.iter().map(|job| {
        let written = job.display_name.as_deref().unwrap_or(&job.kind);
        let name = names.unique(&sanitised(written));
        let mut problems = Vec::new();
        if name != written {
            let why = match sanitised(written) == written {
                true => "is taken",
                false => "is not a valid name",
            };
            let right = format!("the schedule is `{name}`");
            problems.push(Problem::new(format!("`{written}` {why}"), right));
        }
        if let Some(reason) = &job.inactive {
            let right = "the schedule is commented out; uncomment it to have it run";
            problems.push(Problem::new(reason, right));
        }
        problems.extend(job.remarks.iter().cloned());
        Schedule {
            job,
            name,
            problems,
        }
    });
    schedules.collect()
}

/// Returns the pools that run the jobs, and their schedules, as TOML. Without a worker the program of a pool
/// is one with the name of the class.
pub(super) fn configuration(schedules: &[Schedule<'_>], worker: &[String]) -> String {
    let mut names = TakenNames::default();
    let mut pools: BTreeMap<JobClass<'_>, JobPool> = BTreeMap::new();
    for Schedule { job, .. } in schedules {
        let class = JobClass::of(job);
        let pool = pools.entry(class).or_insert_with_key(|class| {
            let worker = class.worker.map(|worker| format!("{worker}."));
            JobPool {
                name: names.unique(&sanitised(&(worker.unwrap_or_default() + class.kind))),
                timeout: Duration::ZERO,
            }
        });
        pool.timeout = pool.timeout.max(time_limit(job));
    }
    let mut text = HEAD.to_owned() + POOLS;
    text.extend(pools.iter().map(|(class, pool)| class.text(pool, worker)));
    for schedule in schedules {
        if let Some(pool) = pools.get(&JobClass::of(schedule.job)) {
            text += &format!("\n{}", schedule.text(&pool.name, pool.timeout));
        }
    }
    text
}

/// Returns texts as a list of TOML.
fn list(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| toml(text)).collect();
    format!("[{}]", texts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_config::model::Config;
    use ganger_schedule::milvaion::read;
    use ganger_schedule::template::RunFacts;
    use ganger_schedule::zone::Zones;
    use proptest::prelude::*;

    fn jobs(json: &str) -> Vec<MilvaionJob> {
        let now = "2026-06-01T00:00:00Z".parse().unwrap();
        let export = read(json, now, &Zones::bundled()).unwrap();
        assert_eq!(export.bad, []);
        export.jobs
    }

    fn imported(json: &str, worker: &[&str]) -> String {
        let jobs = jobs(json);
        let worker: Vec<String> = worker.iter().map(ToString::to_string).collect();
        configuration(&schedules(&jobs), &worker)
    }

    fn valid(text: &str) -> Config {
        let sources = "[sources.main]\nkind = \"table\"\nurl = \"sqlite:a.db\"\n";
        let text = format!("{sources}{text}");
        let environment = ganger_config::Environment::new();
        ganger_config::parse(&text, "a.toml", &environment).expect(&text)
    }

    fn body(config: &Config, schedule: usize) -> String {
        let run = RunFacts {
            schedule: "s",
            occurrence: "o",
            slot: jiff::Timestamp::UNIX_EPOCH,
            previous_slot: None,
            last_success: None,
        };
        config.schedules[schedule].body.render(&run).unwrap()
    }

    /// Whatever the texts of a job have, the configuration is valid and has them unchanged.
    #[test]
    fn what_is_imported_is_valid() {
        let texts = [
            "plain",
            "\"quotes\" 'of' \"\"\"all''' kinds\\",
            "lines\n\r\n[[pools]]\nname = 1\u{1b}[2J\u{7f}\u{2028}",
            "${HOME} $$ {{ slot }} {% raw %} {# c",
            "Günlük Satış Raporu – 日報",
            "",
            "\n",
            "-",
        ];
        for is_active in [true, false] {
            for text in texts {
                let job = serde_json::json!({
                    "id": text, "displayName": text, "description": text, "tags": [text, "b"],
                    "workerId": text, "jobType": format!("J{text}"), "jobData": text,
                    "cronExpression": "0 0 3 * * *", "isActive": is_active, text: "unknown",
                });
                let toml = imported(&job.to_string(), &["dotnet", "w.dll"]);
                let toml = match is_active {
                    true => toml,
                    false => {
                        assert_eq!(valid(&toml).schedules.len(), 0, "{toml}");
                        let at = toml.find("# [[schedules]]").unwrap();
                        let (before, after) = toml.split_at(at);
                        let lines = after
                            .lines()
                            .map(|line| line.strip_prefix("# ").unwrap_or(""));
                        before.to_owned() + &lines.collect::<Vec<_>>().join("\n")
                    }
                };
                let config = valid(&toml);
                let schedule = &config.schedules[0];
                assert_eq!(body(&config, 0), text, "{toml}");
                assert_eq!(schedule.headers[KIND_HEADER], format!("J{text}"), "{toml}");
                let description = schedule.description.clone().unwrap_or_default();
                assert_eq!(description, text, "{toml}");
                assert_eq!(config.pools[0].name, schedule.queue, "{toml}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_texts_are_kept(name in "[^\0]{0,80}", data in "[^\0]{0,80}", tag in "[^\0,]{1,20}") {
            let job = serde_json::json!({
                "displayName": name, "jobType": "J", "jobData": data, "tags": tag,
                "workerId": name, "cronExpression": "@daily",
            });
            let config = valid(&imported(&job.to_string(), &[]));
            prop_assert_eq!(body(&config, 0), data);
            let tags: Vec<&str> = config.schedules[0].tags.iter().map(String::as_str).collect();
            let tag = tag.trim();
            prop_assert_eq!(tags, if tag.is_empty() { vec![] } else { vec![tag] });
        }
    }

    #[test]
    fn each_job_has_a_name_of_its_own_and_is_told() {
        let job = |name: &str| {
            format!(
                r#"{{"displayName": "{name}", "jobType": "J", "workerId": "w", "cronExpression": "@daily"}}"#
            )
        };
        let names = [
            "backup",
            "daily report",
            "backup",
            "daily  report",
            "backup-2",
            "//",
        ];
        let all: Vec<String> = names.iter().map(|name| job(name)).collect();
        let jobs = jobs(&all.join("\n"));
        let schedules = schedules(&jobs);
        let names: Vec<&str> = schedules.iter().map(|one| one.name.as_str()).collect();
        let expected = [
            "backup",
            "daily-report",
            "backup-2",
            "daily--report",
            "backup-2-2",
            "job",
        ];
        assert_eq!(names, expected);
        let told: Vec<String> = schedules
            .iter()
            .flat_map(Schedule::notes)
            .map(|note| format!("{} {}", note.place.line, note.problem))
            .collect();
        assert_eq!(told.len(), 5);
        let taken = "3 backup-2: `backup` is taken: the schedule is `backup-2`";
        assert_eq!(told[1], taken);
        assert!(
            told[0].starts_with(
                "2 daily-report: `daily report` is not a valid name: the schedule is `daily-report`"
            ),
            "{told:?}"
        );
        assert_eq!(valid(&configuration(&schedules, &[])).schedules.len(), 6);
    }

    #[test]
    fn a_pool_has_the_jobs_of_one_class_with_their_time_limits() {
        let job = |kind: &str, worker: &str, timeout: &str| {
            format!(
                r#"{{"jobType": "{kind}", "workerId": {worker}, "cronExpression": "@daily",
                     "executionTimeoutSeconds": {timeout}}}"#
            )
        };
        let jobs = [
            job("Mail", "\"a\"", "null"),
            job("Mail", "\"a\"", "90"),
            job("Mail", "\"b\"", "90"),
            job("Mail", "\"a\"", "3600"),
            job("Mail", "null", "7200"),
            job("Mail", "null", "null"),
        ];
        let config = valid(&imported(&jobs.join("\n"), &["dotnet", "w.dll"]));
        let queues: Vec<&str> = config
            .schedules
            .iter()
            .map(|one| one.queue.as_str())
            .collect();
        assert_eq!(
            queues,
            ["a.Mail", "a.Mail", "b.Mail", "a.Mail", "Mail", "Mail"]
        );
        let (short, hour) = (Some(Duration::from_secs(90)), Some(TIMEOUT));
        let limits: Vec<_> = config
            .schedules
            .iter()
            .map(|one| one.limits.timeout)
            .collect();
        assert_eq!(limits, [None, short, None, None, None, hour]);
        let timeouts = config
            .pools
            .iter()
            .map(|pool| (pool.name.as_str(), pool.timeout));
        let timeouts: Vec<_> = timeouts.collect();
        let expected = [
            ("Mail", Some(2 * TIMEOUT)),
            ("a.Mail", hour),
            ("b.Mail", short),
        ];
        assert_eq!(timeouts, expected);
    }

    /// A hundred thousand jobs of one name take no longer than as many of different ones.
    #[test]
    fn many_jobs_of_one_name() {
        let job = r#"{"displayName": "a b", "jobType": "J", "cronExpression": "@daily"}"#;
        let jobs = jobs(&format!("[{}{job}]", format!("{job},").repeat(99_999)));
        let schedules = schedules(&jobs);
        assert_eq!(schedules[99_999].name, "a-b-100000");
    }
}
