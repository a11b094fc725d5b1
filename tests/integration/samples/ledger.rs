//! `samples/ledger`: each transfer takes effect exactly once, whoever is killed.

use std::collections::BTreeMap;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::{Sample, errors, settled};
use crate::harness::postgres::PgDatabase;
use crate::harness::rabbit::{Letter, Vhost};
use crate::harness::{Daemon, trials};

trials![
    balances_are_exact_whoever_is_killed,
    what_can_not_be_booked_is_rejected,
];

const SCHEMA: &str = include_str!("../../../samples/ledger/schema.sql");
const ACCOUNTS: usize = 10;
/// More than one account could ever pay.
const OPENING: i64 = 1_000_000;
const TRANSFERS: usize = 1_500;
/// Each so many of them is sent a second time.
const TWICE_EVERY: usize = 10;
/// How many are booked from one kill to the next.
const BOOKED_A_KILL: usize = 50;

/// Where the sample runs.
struct Ledger {
    sample: Sample,
    vhost: Vhost,
    database: PgDatabase,
}

impl Ledger {
    fn new(database: PgDatabase) -> Self {
        database.ask(SCHEMA);
        let accounts = format!(
            "SELECT 'a' || n, {OPENING} FROM generate_series(0, {}) n",
            ACCOUNTS - 1
        );
        database.ask(&format!("INSERT INTO accounts {accounts}"));
        Self {
            sample: Sample::of("ledger"),
            vhost: Vhost::shared(),
            database,
        }
    }

    fn start(&self) -> Daemon {
        self.sample.start(&[
            ("RABBITMQ_URL", &self.vhost.url()),
            ("DATABASE_URL", &self.database.url()),
            // None of so many kills is a message's fault.
            ("GANGER_POOLS__LEDGER__CRASHES_MAX", "1000"),
            ("GANGER_POOLS__LEDGER__RESTART__INITIAL", "10ms"),
        ])
    }

    fn send(&self, bodies: &[String]) {
        let letters = bodies.iter().map(|body| Letter::new("transfers", body));
        self.vhost.client().publish(&letters.collect::<Vec<_>>());
    }

    fn booked(&self) -> usize {
        let count = self.database.ask("SELECT count(*) FROM transfers");
        count.parse().unwrap()
    }

    fn balances(&self) -> BTreeMap<String, i64> {
        let told = self.database.ask("SELECT name, balance FROM accounts");
        let pair = |line: &str| {
            let (name, balance) = line.split_once('|').unwrap();
            (name.to_owned(), balance.parse().unwrap())
        };
        told.lines().map(pair).collect()
    }

    /// Kills one worker each time that some more are booked, until so many are.
    fn kill_workers(&self, daemon: &Daemon, chance: &mut Chance, until: usize) {
        let first = self.booked() + BOOKED_A_KILL;
        for booked in (first..until).step_by(BOOKED_A_KILL) {
            let what = format!("{booked} to be booked");
            daemon.eventually(&what, || self.booked() >= booked);
            let up = daemon.eventually_some("a worker", || {
                Some(daemon.workers_up()).filter(|up| !up.is_empty())
            });
            let victim = up[chance.below(up.len())];
            // The last one may have been the same, and not be missed yet.
            let killed = kill(Pid::from_raw(victim), Signal::SIGKILL);
            assert!(matches!(killed, Ok(()) | Err(Errno::ESRCH)), "{killed:?}");
        }
    }
}

/// The same numbers in each run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

fn transfer(id: &str, debit: &str, credit: &str, amount: i64) -> String {
    json!({"id": id, "debit": debit, "credit": credit, "amount": amount}).to_string()
}

/// Transfers, some of them twice, and what each account has after them.
fn transfers(chance: &mut Chance) -> (Vec<String>, BTreeMap<String, i64>) {
    let name = |number: usize| format!("a{number}");
    let mut balances: BTreeMap<_, _> = (0..ACCOUNTS).map(|n| (name(n), OPENING)).collect();
    let mut bodies = Vec::new();
    for number in 0..TRANSFERS {
        let debit = chance.below(ACCOUNTS);
        let credit = (debit + 1 + chance.below(ACCOUNTS - 1)) % ACCOUNTS;
        let amount = 1 + i64::try_from(chance.below(500)).unwrap();
        *balances.get_mut(&name(debit)).unwrap() -= amount;
        *balances.get_mut(&name(credit)).unwrap() += amount;
        let body = transfer(&format!("t-{number}"), &name(debit), &name(credit), amount);
        if number % TWICE_EVERY == 0 {
            bodies.push(body.clone());
        }
        bodies.push(body);
    }
    (bodies, balances)
}

fn balances_are_exact_whoever_is_killed() {
    let ledger = Ledger::new(PgDatabase::alone());
    let mut chance = Chance(1);
    let (bodies, expected) = transfers(&mut chance);
    let daemon = ledger.start();
    ledger.send(&bodies);
    ledger.kill_workers(&daemon, &mut chance, TRANSFERS / 3);
    daemon.crash();
    let daemon = ledger.start();
    ledger.kill_workers(&daemon, &mut chance, 2 * TRANSFERS / 3);
    ledger.database.kill();
    ledger.database.start_again();
    ledger.kill_workers(&daemon, &mut chance, TRANSFERS);
    let dead = settled(&daemon, &ledger.vhost, "transfers");
    assert!(dead.is_empty(), "{dead:#?}");
    assert_eq!(ledger.booked(), TRANSFERS);
    assert_eq!(ledger.balances(), expected);
    daemon.stop();
}

fn what_can_not_be_booked_is_rejected() {
    let ledger = Ledger::new(PgDatabase::shared());
    let daemon = ledger.start();
    ledger.send(&[transfer("known", "a0", "a1", 1)]);
    assert_eq!(settled(&daemon, &ledger.vhost, "transfers").len(), 0);
    ledger.send(&[
        transfer("known", "a0", "a1", 2),
        transfer("over", "a0", "a1", OPENING),
        transfer("alone", "a0", "a0", 1),
        transfer("none", "a0", "a1", 0),
        transfer("back", "a0", "a1", -1),
        transfer("nobody", "b0", "a1", 1),
        transfer("lost", "a0", "b1", 1),
        r#"{"id": "half", "debit": "a0", "credit": "a1", "amount": 0.5}"#.into(),
        r#"{"id": "huge", "debit": "a0", "credit": "a1", "amount": 1000000000000000000000}"#.into(),
        "a0 to a1".into(),
    ]);
    let dead = errors(&settled(&daemon, &ledger.vhost, "transfers"));
    let expected = [
        "between_two: ",
        "covered: ",
        "no such transfer: bigint out of range",
        "no transfer: Expecting value",
        "no transfer: it must have",
        "positive: ",
        "positive: ",
        "the id stands for another transfer: known",
        "transfers_credit_fkey: ",
        "transfers_debit_fkey: ",
    ];
    assert_eq!(dead.len(), expected.len(), "{dead:#?}");
    for (error, part) in dead.iter().zip(expected) {
        let why = error.strip_prefix("rejected by the worker: ").unwrap();
        assert!(why.starts_with(part), "{part:?}: {dead:#?}");
    }
    assert_eq!(ledger.booked(), 1);
    assert_eq!(ledger.balances().values().sum::<i64>(), OPENING * 10);
    assert_eq!(ledger.balances()["a0"], OPENING - 1);
    daemon.stop();
}
