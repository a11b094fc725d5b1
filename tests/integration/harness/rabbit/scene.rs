//! One daemon that reads a queue of RabbitMQ, in a virtual host of its own.

use nix::sys::signal::Signal;
use serde_json::Value;

use super::client::Client;
use super::letter::Letter;
use super::vhost::Vhost;
use crate::harness::pool::QUEUE;
use crate::harness::{Daemon, Event, Pool, Record, Workspace, field, said};

/// Where the pool's dead letters are.
pub(crate) const DEAD: &str = "work.dead";

const STATUS: &str = "status of the pool";
const RELOADED: &str = "configuration reloaded";

/// The daemon, and what is around it.
pub(crate) struct RabbitScene {
    pub(crate) daemon: Daemon,
    pub(crate) client: Client,
    pub(crate) site: Workspace,
    pub(crate) vhost: Vhost,
}

impl RabbitScene {
    /// Starts a daemon with that one pool.
    pub(crate) fn of(pool: Pool) -> Self {
        Self::with("", pool)
    }

    /// With settings of the source beside its address.
    pub(crate) fn with(settings: &str, pool: Pool) -> Self {
        Self::at(Vhost::shared(), settings, &[pool])
    }

    /// In a virtual host that is prepared.
    pub(crate) fn at(vhost: Vhost, settings: &str, pools: &[Pool]) -> Self {
        let url = vhost.url();
        Self::by(&url, vhost, settings, pools)
    }

    /// By another address, such as a proxy's.
    pub(crate) fn by(url: &str, vhost: Vhost, settings: &str, pools: &[Pool]) -> Self {
        let site = rabbit_site(url, settings);
        let daemon = site.start(pools);
        Self {
            daemon,
            client: vhost.client(),
            site,
            vhost,
        }
    }

    /// Puts messages into the pool's queue, once the daemon has made it.
    pub(crate) fn send<T: AsRef<str>>(&self, bodies: &[T]) {
        let is_made = || self.client.ready(QUEUE).is_some();
        self.daemon.eventually("the queue to be made", is_made);
        let letter = |body: &T| Letter::new(QUEUE, body.as_ref());
        let letters: Vec<Letter> = bodies.iter().map(letter).collect();
        self.client.publish(&letters);
    }

    /// What the workers have recorded so far.
    pub(crate) fn record(&self) -> Record {
        self.site.record()
    }

    /// Waits until the daemon consumes the queue: one that is seen earlier may not be ready yet.
    pub(crate) fn is_consumed(&self) {
        let of_the_queue = format!("{QUEUE} ");
        self.daemon.eventually("a consumer", || {
            let consumers = self.vhost.consumers();
            consumers.iter().any(|one| one.starts_with(&of_the_queue))
        });
    }

    /// How many messages the queue and its retry tiers have, those in hand included.
    pub(crate) fn left(&self) -> u64 {
        let totals = self.vhost.totals();
        let own = totals
            .iter()
            .filter(|(queue, _)| queue.starts_with(QUEUE) && *queue != DEAD);
        own.map(|(_, total)| total).sum()
    }

    /// Waits until everything is done or dead.
    pub(crate) fn settled(&self) {
        self.daemon
            .eventually("the queues to be empty", || self.left() == 0);
    }

    /// Waits until everything is settled and sees that nothing has died of it.
    pub(crate) fn all_done(&self) {
        self.settled();
        let dead = self.client.ready(DEAD).unwrap_or_default();
        assert_eq!(dead, 0, "{:#?}", self.client.take_all(DEAD));
    }

    /// Takes out a queue's answers and sees that there is one at least to each of these messages.
    pub(crate) fn assert_answered(&self, queue: &str, bodies: &[String]) {
        let answers = self.client.take_all(queue);
        for body in bodies {
            let expected = format!("re: {body}");
            let found = answers.iter().any(|answer| answer.text() == expected);
            assert!(found, "no answer to {body}");
        }
    }

    /// Waits until everything is settled, and takes out the one message that is dead.
    pub(crate) fn one_dead(&self) -> Letter {
        self.settled();
        let mut dead = self.client.take_all(DEAD);
        assert_eq!(dead.len(), 1, "{dead:#?}");
        dead.remove(0)
    }

    /// Waits until workers have recorded that they have begun these messages.
    pub(crate) fn begun<T: AsRef<str> + std::fmt::Debug>(&self, bodies: &[T]) {
        let what = format!("workers to begin {bodies:?}");
        self.daemon.eventually(&what, || {
            let record = self.record();
            let begun = |body: &T| !record.of(Event::Began, body.as_ref()).is_empty();
            bodies.iter().all(begun)
        });
    }

    /// Waits until that many messages are done.
    pub(crate) fn done(&self, count: usize) {
        self.daemon.eventually(&format!("{count} to be done"), || {
            self.record().all(Event::Done).len() >= count
        });
    }

    /// What the pool says of itself now.
    pub(crate) fn status(&self) -> Value {
        let before = self.daemon.times_logged(STATUS);
        self.daemon.signal(Signal::SIGUSR1);
        self.daemon.eventually_some("the status", || {
            let all = self.daemon.records(|record| said(record, STATUS));
            all.into_iter().nth(before)
        })
    }

    /// Waits until the source has logged that problem and the pool says that it has it.
    pub(crate) fn has_problem(&self, problem: &str) {
        let what = format!("the problem {problem:?}");
        let has = |record: &Value, name| field(record, name).contains(problem);
        self.daemon.eventually(&what, || {
            let told = |record: &Value| has(record, "problem");
            !self.daemon.records(told).is_empty()
        });
        self.daemon.eventually(&what, || {
            let status = self.status();
            has(&status, "source_problem") && field(&status, "state") == "source down"
        });
    }

    /// Waits until the pool says that its source has no problem.
    pub(crate) fn has_no_problem(&self) {
        self.daemon.eventually("a status without a problem", || {
            field(&self.status(), "source_problem").is_empty()
        });
    }

    /// Gives the daemon other pools and waits until it has them.
    pub(crate) fn reload(&self, pools: &[Pool]) {
        let times = self.daemon.times_logged(RELOADED);
        self.site.reconfigure(&self.daemon, pools);
        self.daemon.signal(Signal::SIGHUP);
        self.daemon
            .eventually("the reload", || self.daemon.times_logged(RELOADED) > times);
    }

    /// Pauses the pool, resumes it or the like, by a command.
    pub(crate) fn steer(&self, how: &str) {
        let config = self.daemon.config().to_str().unwrap();
        let ran = self.site.ganger(&[how, QUEUE, "--config", config]);
        ran.good();
    }

    /// Stops the daemon as an operator would and sees that nothing is left behind.
    pub(crate) fn finish(self) {
        self.daemon.stop();
    }
}

/// A directory for daemons whose source is at that address.
pub(crate) fn rabbit_site(url: &str, settings: &str) -> Workspace {
    let url = serde_json::Value::from(url);
    Workspace::with_sections(&format!(
        "[sources.main]\nkind = \"rabbitmq\"\nurl = {url}\n{settings}"
    ))
}

/// The daemon refuses to start with such a source; what it complains of.
pub(crate) fn refused(url: &str, settings: &str, pools: &[Pool]) -> String {
    let site = rabbit_site(url, settings);
    site.configure_commands(pools);
    site.ganger(&["run"]).bad(1)
}

/// The daemon refuses to start with such a source, or waits for it to mend; either way it complains
/// of that.
pub(crate) fn complaint(url: &str, settings: &str, part: &str) -> String {
    let site = rabbit_site(url, settings);
    site.configure_commands(&[Pool::new(&[])]);
    site.complaint(&["run"], part)
}
