//! `samples/orders`: what follows from an order takes effect exactly once if the order is there, and
//! never if it is not, whoever is killed.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::Sample;
use crate::harness::postgres::PgDatabase;
use crate::harness::{Daemon, trials};
use crate::migrating::prepared;

trials![orders_placed_in_python, orders_placed_in_node];

const SCHEMA: &str = include_str!("../../../samples/orders/schema.sql");
const LEDGERS: [&str; 3] = ["stock_taken", "invoices", "points_given"];
const ORDERS: usize = 300;
/// Each so many of them is of a customer without credit, and rolled back.
const REFUSED_EVERY: usize = 4;
/// More than all of it could ever be.
const OPENING: usize = 1_000_000;
/// How often whom is killed. A daemon's messages come again after some seconds.
const KILLS: [(Victim, usize); 3] = [
    (Victim::Producer, 10),
    (Victim::Worker, 8),
    (Victim::Daemon, 2),
];
/// How many orders a producer is given before it has spoken of the first of them.
const LEAD: usize = 8;
/// At so many writes of messages the connection is cut, in the midst of the transaction, where the message
/// of a topic becomes those of its queues.
const CUTS: &str = "
    CREATE SEQUENCE writes;
    CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      IF nextval('writes') IN (60, 140, 220) THEN
        PERFORM pg_terminate_backend(pg_backend_pid());
      END IF;
      RETURN NULL;
    END $$;
    CREATE TRIGGER cut BEFORE INSERT ON consumer_messages EXECUTE FUNCTION cut()";
const CUTS_MAX: usize = 3;
/// A run's chances are made of it.
const SEED: &str = "GANGER_TEST_SEED";

#[derive(Debug, Clone, Copy)]
enum Victim {
    Producer,
    Worker,
    Daemon,
}

fn orders_placed_in_python() {
    effects_are_exact(|sample| {
        let mut command = Command::new(prepared("venv/bin/python3"));
        command.arg(sample.site.path("python/place.py"));
        command
    });
}

/// A module finds its libraries beside itself only.
fn orders_placed_in_node() {
    effects_are_exact(|sample| {
        let here = sample.site.path("node/node_modules");
        if !here.exists() {
            symlink(prepared("orders/node_modules"), here).unwrap();
        }
        let mut command = Command::new("node");
        command.arg(sample.site.path("node/place.mjs"));
        command
    });
}

fn effects_are_exact(command: fn(&Sample) -> Command) {
    let mut chance = Chance::new();
    let shop = Shop::new(command);
    let mut daemon = shop.start();
    let subscribed = "subscribed the queue to the topic";
    daemon.eventually("the queues to be subscribed", || {
        daemon.times_logged(subscribed) == LEDGERS.len()
    });
    shop.ask(CUTS);
    let mut producer = shop.place(0);
    for (after, victim) in chance.kills() {
        shop.hear(&mut producer, after);
        // Somewhere within the transaction that follows.
        (0..chance.below(1_000)).for_each(|_| std::thread::yield_now());
        match victim {
            Victim::Worker => kill_one(&daemon, &mut chance),
            Victim::Daemon => {
                daemon.crash();
                daemon = shop.start();
            }
            Victim::Producer => {
                let next = producer.kill();
                // Placed once more, or given up, whether it is there or not.
                let next = next + chance.below(2);
                producer = shop.place(next.min(ORDERS));
            }
        }
    }
    shop.hear(&mut producer, ORDERS);
    daemon.eventually("the queues to be empty", || {
        shop.ask("SELECT count(*) FROM consumer_messages") == "0"
    });
    shop.assert_exact();
    daemon.stop();
}

fn kill_one(daemon: &Daemon, chance: &mut Chance) {
    let up = daemon.eventually_some("a worker", || {
        Some(daemon.workers_up()).filter(|up| !up.is_empty())
    });
    let victim = up[chance.below(up.len())];
    // The last one may have been the same, and not be missed yet.
    let killed = kill(Pid::from_raw(victim), Signal::SIGKILL);
    assert!(matches!(killed, Ok(()) | Err(Errno::ESRCH)), "{killed:?}");
}

/// Where the sample runs.
struct Shop {
    sample: Sample,
    database: PgDatabase,
    command: fn(&Sample) -> Command,
}

impl Shop {
    fn new(command: fn(&Sample) -> Command) -> Self {
        let database = PgDatabase::alone();
        database.ask(SCHEMA);
        database.ask(&format!(
            "INSERT INTO customers (name, credit) VALUES ('ann', {OPENING}), ('bob', 0);
             INSERT INTO stock VALUES ('tea', {OPENING})"
        ));
        Self {
            sample: Sample::of("orders"),
            database,
            command,
        }
    }

    fn ask(&self, sql: &str) -> String {
        self.database.ask(sql)
    }

    fn start(&self) -> Daemon {
        // None of so many kills is a message's fault.
        self.sample.start(&[
            ("DATABASE_URL", &self.database.url()),
            ("GANGER_POOLS__STOCK__CRASHES_MAX", "1000"),
            ("GANGER_POOLS__INVOICES__CRASHES_MAX", "1000"),
            ("GANGER_POOLS__POINTS__CRASHES_MAX", "1000"),
            ("GANGER_POOLS__STOCK__RESTART__INITIAL", "10ms"),
            ("GANGER_POOLS__INVOICES__RESTART__INITIAL", "10ms"),
            ("GANGER_POOLS__POINTS__RESTART__INITIAL", "10ms"),
        ])
    }

    /// Starts a producer that places the orders from that one on, one after the other.
    fn place(&self, next: usize) -> Producer {
        let mut command = (self.command)(&self.sample);
        let mut child = command
            .env("DATABASE_URL", self.database.url())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Producer {
            orders: child.stdin.take().unwrap(),
            answers: BufReader::new(child.stdout.take().unwrap()),
            child,
            given: next,
            next,
        }
    }

    /// Has that many orders spoken of, by another producer if the connection of one is cut.
    fn hear(&self, producer: &mut Producer, until: usize) {
        let mut cuts = 0;
        while !producer.hear(until) {
            cuts += 1;
            let next = producer.next;
            assert!(cuts <= CUTS_MAX, "they end, the last one at order {next}");
            *producer = self.place(next);
        }
    }

    /// What is there, is there in each ledger and balance; nothing else is.
    fn assert_exact(&self) {
        let placed = self.ask("SELECT id FROM orders ORDER BY id");
        let all = (0..ORDERS).filter(|number| !is_refused(*number)).count();
        let given_up = all - placed.lines().count();
        assert!(given_up <= KILLS[0].1, "{given_up} of {all} are not there");
        let refused = self.ask("SELECT count(*) FROM orders WHERE customer <> 'ann'");
        assert_eq!(refused, "0");
        assert_eq!(self.ask("SELECT count(*) FROM poisoned_messages"), "0");
        for ledger in LEDGERS {
            let entered = self.ask(&format!("SELECT order_id FROM {ledger} ORDER BY order_id"));
            assert_eq!(entered, placed, "{ledger}");
        }
        let expected = self.ask(&format!(
            "SELECT {OPENING} - sum(quantity), {OPENING} - sum(total), sum(total), sum(quantity)
             FROM orders"
        ));
        let balances = "SELECT in_hand, credit, owes, points FROM stock, customers";
        let balances = self.ask(&format!("{balances} WHERE name = 'ann'"));
        assert_eq!(balances, expected, "in hand, credit, owed, points");
        let bob = self.ask("SELECT credit, owes, points FROM customers WHERE name = 'bob'");
        assert_eq!(bob, "0|0|0");
    }
}

/// One that places orders. Dropped, it is killed.
struct Producer {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// The first order that it has not been given.
    given: usize,
    /// The first order that it has not spoken of.
    next: usize,
}

impl Producer {
    /// Reads what it says until it has spoken of that many orders; false if it ends before.
    fn hear(&mut self, until: usize) -> bool {
        while self.next < until {
            for number in self.given..ORDERS.min(self.next + LEAD) {
                // One that has ended takes none.
                drop(self.orders.write_all(order(number).as_bytes()));
                self.given += 1;
            }
            if !self.hear_one() {
                return false;
            }
        }
        true
    }

    /// Whether it has said anything more, which must be right.
    fn hear_one(&mut self) -> bool {
        let mut line = String::new();
        if self.answers.read_line(&mut line).unwrap() == 0 {
            return false;
        }
        let right = match is_refused(self.next) {
            true => format!("refused {} covered\n", id(self.next)),
            false => format!("placed {}\n", id(self.next)),
        };
        assert_eq!(line, right);
        self.next += 1;
        true
    }

    /// Kills it; the first order of which it has said nothing.
    fn kill(&mut self) -> usize {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        while self.hear_one() {}
        self.next
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn id(number: usize) -> String {
    format!("o-{number:03}")
}

fn is_refused(number: usize) -> bool {
    number % REFUSED_EVERY == 1
}

/// A line for a producer.
fn order(number: usize) -> String {
    let customer = if is_refused(number) { "bob" } else { "ann" };
    let (id, quantity, total) = (id(number), 1 + number % 5, 100 + number);
    let order = json!({"id": id, "customer": customer, "article": "tea", "quantity": quantity, "total": total});
    format!("{order}\n")
}

/// Others in each run, or those of the seed that is given. A test that fails says which it had.
struct Chance {
    seed: u64,
    state: u64,
}

impl Chance {
    fn new() -> Self {
        let given = std::env::var(SEED).ok().map(|seed| seed.parse().unwrap());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let seed = given.unwrap_or_else(|| u64::from(now.subsec_nanos()));
        Self { seed, state: seed }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.state >> 33).unwrap() % bound
    }

    /// After how many orders who is killed, in this order.
    fn kills(&mut self) -> Vec<(usize, Victim)> {
        let victims = KILLS
            .into_iter()
            .flat_map(|(victim, times)| vec![victim; times]);
        let mut kills: Vec<_> = victims.map(|victim| (self.below(ORDERS), victim)).collect();
        kills.sort_by_key(|(after, _)| *after);
        kills
    }
}

impl Drop for Chance {
    fn drop(&mut self) {
        if std::thread::panicking() {
            drop(writeln!(std::io::stderr(), "{SEED}={}", self.seed));
        }
    }
}
