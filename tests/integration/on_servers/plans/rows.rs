//! The rows among which the statements are run, and the statistics that the server has of them.

use crate::harness::Base;

/// Tables that had rows once: the statistics say that there are none.
pub(super) fn emptied() -> String {
    let (rows, gone) = (among(1000), numbers(60_000));
    format!(
        "BEGIN; {rows}
         INSERT INTO consumer_messages (queue, body) SELECT 'work', 'x' FROM {gone};
         DELETE FROM consumer_messages; DELETE FROM poisoned_messages; DELETE FROM finished_messages;
         DELETE FROM published_messages; DELETE FROM occurrences WHERE schedule = 'other';
         DELETE FROM occurrence_events WHERE occurrence LIKE 'ffff-%';
         DELETE FROM occurrence_logs WHERE occurrence LIKE 'ffff-%';
         DELETE FROM schedules WHERE name LIKE 'other%'; DELETE FROM schedule_outbox;
         DELETE FROM schedule_versions WHERE schedule LIKE 'other-%'; DELETE FROM ledger_audit WHERE subject = 'other';
         COMMIT; {}",
        counted()
    )
}

/// Begins a transaction that goes on seeing what is there now.
pub(super) fn begin_to_look() -> &'static str {
    match Base::of_this_test() {
        Base::Mariadb => "START TRANSACTION WITH CONSISTENT SNAPSHOT",
        _ => "BEGIN ISOLATION LEVEL REPEATABLE READ",
    }
}

/// Has the server count them.
pub(super) fn counted() -> &'static str {
    match Base::of_this_test() {
        Base::Mariadb => {
            "ANALYZE TABLE consumer_messages, poisoned_messages, finished_messages, published_messages,
             schedules, occurrences, occurrence_events, occurrence_logs, schedule_outbox, schedule_versions, ledger_audit"
        }
        _ => {
            "ANALYZE consumer_messages, poisoned_messages, finished_messages, published_messages,
             schedules, occurrences, occurrence_events, occurrence_logs, schedule_outbox, schedule_versions, ledger_audit"
        }
    }
}

/// So many rows of each kind that nobody is to read: another queue's with keys, for a later time, in another
/// daemon's hands, given up, finished, published; of occurrences the failed ones ended long ago, but are kept.
pub(super) fn among(rows: u32) -> String {
    let numbers = numbers(rows);
    let (key, token, zero) = match Base::of_this_test() {
        Base::Mariadb => ("`key`", ", token", ", 0"),
        _ => ("key", "", ""),
    };
    format!(
        "INSERT INTO consumer_messages (queue, body, priority, unique_key, unique_scope, unique_until)
         SELECT 'other', 'x', n % 3, n, 'until', 4102444800000 FROM {numbers};
         INSERT INTO consumer_messages (queue, body, available_after)
         SELECT 'work', 'x', 4102444800000 + n FROM {numbers};
         INSERT INTO consumer_messages (queue, body, owner, claim)
         SELECT 'work', 'x', (SELECT min(id) FROM owners WHERE host = 'elsewhere'), n FROM {numbers};
         INSERT INTO poisoned_messages (pool, queue, reason, error, attempts, crashes, lapses, oom, stderr,
           first_failed_at, last_failed_at, body, headers, priority, created_at)
         SELECT 'other', 'work', 'failed', 'x', 1, 0, 0, 0, '[]', 1, 1, 'x', '{{}}', 0, 1 FROM {numbers};
         INSERT INTO finished_messages (source, queue, {key}, emit_id, step, finished_at, expires_at{token})
         SELECT 'main', 'work', n, '', 0, 1, 4102444800000{zero} FROM {numbers};
         INSERT INTO occurrences (id, schedule, version, slot, queue, message_id, state, queued_at, fingerprint,
           correlation_id, ended_at)
         SELECT CONCAT('ffff-', 10000000 + n), 'other', 1, n, 'work', n, 2 + n % 2, 1, n, n,
           CASE n % 2 WHEN 0 THEN 4102444800000 ELSE 1 END
         FROM {numbers};
         INSERT INTO occurrence_events (occurrence, at, to_state, attempt)
         SELECT CONCAT('ffff-', 10000000 + n), 1, 2, 1 FROM {numbers};
         INSERT INTO occurrence_logs (occurrence, line, at, attempt, stream, text)
         SELECT CONCAT('ffff-', 10000000 + n), 0, 1, 1, 'log', 'x' FROM {numbers};
         INSERT INTO schedule_outbox (occurrence, source, message, held_until)
         SELECT CONCAT('ffff-', 10000000 + n), 'nobodys', '{{}}', n % 2 FROM {numbers};
         INSERT INTO schedules (name, definition, wake_at)
         SELECT CONCAT('other-', n), '{{}}', 4102444800000 + n FROM {numbers};
         INSERT INTO schedules (name, definition, wake_at) VALUES ('other', '{{}}', 4102444800000);
         INSERT INTO schedule_versions (schedule, version, at, origin, definition)
         SELECT CONCAT('other-', n), 1, 1, 'sql', '{{}}' FROM {numbers};
         INSERT INTO ledger_audit (at, action, subject)
         SELECT 4102444800000 + n, 'pause', 'other' FROM {numbers};
         {}",
        published(&self::numbers(rows / 10))
    )
}

/// Fewer of them: a trigger is run for each. Where it removes them at once they are there without it. Nobody is
/// subscribed.
fn published(numbers: &str) -> String {
    let insert = format!(
        "INSERT INTO published_messages (topic, body, unsubscribed) SELECT 'nobodys', 'x', 'drop' FROM {numbers};"
    );
    match Base::of_this_test() {
        Base::Mariadb => insert,
        _ => format!(
            "SET session_replication_role = replica; {insert} RESET session_replication_role;"
        ),
    }
}

/// Another daemon, which lives.
pub(super) fn neighbour() -> &'static str {
    match Base::of_this_test() {
        Base::Mariadb => {
            "INSERT INTO owners (host, pid, pool, started_at, lease_ms, beaten_at, lock_name)
             VALUES ('elsewhere', 1, 'work', 1, 3600000, 4102444800000, 'none.1')"
        }
        _ => {
            "INSERT INTO owners (host, pid, pool, started_at, lease_ms, beaten_at, lock_key)
             VALUES ('elsewhere', 1, 'work', 1, 3600000, 4102444800000, -1)"
        }
    }
}

/// So many numbers, as a table.
fn numbers(upto: u32) -> String {
    match Base::of_this_test() {
        // In words that MySQL has, too.
        Base::Mariadb => format!(
            "JSON_TABLE(CONCAT('[0', REPEAT(',0', {upto} - 1), ']'), '$[*]'
               COLUMNS (n FOR ORDINALITY)) AS numbers"
        ),
        _ => format!("generate_series(1, {upto}) AS numbers(n)"),
    }
}
