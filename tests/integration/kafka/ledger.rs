//! Two programs as one would write them: Fibonacci numbers on request, and a ledger whose balances
//! are right to the last, however often its workers are killed.

use std::collections::BTreeMap;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rusqlite::Connection;

use crate::harness::kafka::{KafkaSite, NewRecord, Stored};
use crate::harness::{Event, trials};
use crate::modes_worker::LEDGER_SCHEMA;

trials![
    fibonacci_numbers_are_answered,
    balances_are_exact_under_kills,
];

fn fibonacci_numbers_are_answered() {
    let site = KafkaSite::new(3);
    let answers = site.named("answers");
    site.kafka.make_topic(&answers, 3);
    let pool = site.pool(&["--mode=fibonacci"]).set("workers", "2");
    let daemon = site.start(&pool);
    let question = |n: usize| {
        site.message(&(n % 90).to_string())
            .key(format!("caller {}", n % 7))
            .header("ReplyTo", &answers)
            .header("CorrelationId", format!("question {n}"))
            .header("answered-by", "nobody yet")
            .header("tenant", "blue")
    };
    let count = 300;
    site.kafka
        .send(&(0..count).map(question).collect::<Vec<NewRecord>>());
    site.all_done(&daemon);
    let answers = site.kafka.read(&answers);
    let by_question: BTreeMap<String, &Stored> = answers
        .iter()
        .map(|answer| (answer.header("CorrelationId").unwrap(), answer))
        .collect();
    assert_eq!((by_question.len(), answers.len()), (count, count));
    for n in 0..count {
        let answer = by_question[&format!("question {n}")];
        assert_eq!(answer.text(), fibonacci(n % 90), "fibonacci({})", n % 90);
        let key = format!("caller {}", n % 7);
        assert_eq!(answer.key.as_deref(), Some(key.as_bytes()));
        assert_eq!(answer.header("tenant").as_deref(), Some("blue"));
        let by = answer
            .headers
            .iter()
            .filter(|(name, _)| name == "answered-by");
        let by: Vec<_> = by.map(|(_, value)| value.as_deref()).collect();
        assert_eq!(
            by,
            [Some(b"modes-worker".as_slice())],
            "the worker's is over it"
        );
    }
    daemon.stop();
}

fn fibonacci(n: usize) -> String {
    let (mut a, mut b) = (0_u64, 1_u64);
    for _ in 0..n {
        (a, b) = (b, a + b);
    }
    a.to_string()
}

const ACCOUNTS: usize = 50;
const ENTRIES: usize = 100;

/// Each withdrawal takes all that the deposits before it have left: one that came too early would
/// be refused.
fn balances_are_exact_under_kills() {
    let site = KafkaSite::new(6);
    let ledger = Connection::open(site.site.path("ledger.db")).unwrap();
    ledger.execute_batch(LEDGER_SCHEMA).unwrap();
    let balance = |account: usize| i64::try_from(account).unwrap() + 1;
    let mut records = Vec::new();
    for number in 0..ENTRIES {
        for account in 0..ACCOUNTS {
            let amount = amount(number, balance(account));
            let text = format!("a{account} {number} {amount}");
            records.push(site.message(&text).key(format!("a{account}")));
        }
    }
    for account in 0..ACCOUNTS {
        let open = "INSERT INTO accounts VALUES (?1, 0)";
        ledger.execute(open, [format!("a{account}")]).unwrap();
    }
    site.kafka.send(&records);
    let pool = site.pool(&["--v2=1", "--mode=book"]).set("workers", "4");
    let pool = pool
        .set("restart", "{}")
        .attempts(1000)
        .set("crashes_max", "1000");
    let daemon = site.start(&pool);
    let mut progress = site.progress();
    let mut kills = 0;
    while progress.done() < records.len() {
        kills += usize::from(kill_a_worker(&daemon.workers_up()));
        let done = progress.done();
        daemon.within(Duration::from_secs(60), "more to be done", || {
            progress.done() >= records.len().min(done + 100)
        });
    }
    site.all_done(&daemon);
    for account in 0..ACCOUNTS {
        let select = "SELECT balance FROM accounts WHERE account = ?1";
        let account_name = format!("a{account}");
        let found: i64 = ledger
            .query_row(select, [account_name], |row| row.get(0))
            .unwrap();
        assert_eq!(found, balance(account), "account {account}");
    }
    let record = site.record();
    assert_eq!(record.texts(Event::Noted), Vec::<&str>::new(), "refused");
    assert!(kills >= 10, "only {kills} kills");
    daemon.stop();
}

/// Deposits and withdrawals in turn, which in the end leave that balance.
fn amount(number: usize, balance: i64) -> i64 {
    let turn = i64::try_from(number / 2).unwrap() + 1;
    match number {
        _ if number + 1 == ENTRIES => balance - turn,
        _ if number.is_multiple_of(2) => turn,
        _ => -turn,
    }
}

fn kill_a_worker(up: &[i32]) -> bool {
    let Some(pid) = fastrand::choice(up) else {
        return false;
    };
    match kill(Pid::from_raw(*pid), Signal::SIGKILL) {
        Ok(()) => true,
        Err(Errno::ESRCH) => false,
        Err(error) => panic!("{error}"),
    }
}
