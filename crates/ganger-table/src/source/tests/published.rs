//! Tests of the statements and claims of `proto-spec/table.md`, which is for other programs.

use super::*;

const TEXT: &str = include_str!("../../../../../proto-spec/table.md");
/// Steps from an empty file to the current tables.
const STEPS: [&str; 12] = [
    include_str!("../../sqlite/v1.sql"),
    include_str!("../../sqlite/v2.sql"),
    include_str!("../../sqlite/v3.sql"),
    include_str!("../../sqlite/v4.sql"),
    include_str!("../../sqlite/v5.sql"),
    include_str!("../../sqlite/v6.sql"),
    include_str!("../../sqlite/v7.sql"),
    include_str!("../../sqlite/v8.sql"),
    include_str!("../../sqlite/v9.sql"),
    include_str!("../../sqlite/v10.sql"),
    include_str!("../../sqlite/v11.sql"),
    include_str!("../../sqlite/topics.sql"),
];

/// Returns the code blocks of one language.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    let after = TEXT.split(fence.as_str()).skip(1);
    after
        .map(|block| block.split("```").next().unwrap())
        .collect()
}

#[test]
fn the_text_shows_the_tables_as_they_are() {
    let shown = STEPS.map(|step| step.split_once("\n\n").unwrap().1);
    assert_eq!(blocks("sqlite"), shown);
}

#[test]
fn every_column_is_explained() {
    for line in STEPS
        .iter()
        .flat_map(|step| step.lines())
        .filter(|line| line.starts_with("  ") && !line.contains("WHERE"))
    {
        let column = line.split_whitespace().next().unwrap();
        // Part of a constraint or a trigger.
        if column.ends_with(',') || column.starts_with(|first: char| first.is_uppercase()) {
            continue;
        }
        assert!(TEXT.contains(&format!("`{column}`")), "{column}");
    }
}

#[tokio::test]
async fn the_examples_work() {
    let rig = Rig::new();
    rig.execute(
        "INSERT INTO poisoned_messages (pool, queue, reason, error, attempts, crashes, lapses, oom, \
         stderr, first_failed_at, last_failed_at, body, headers, priority, created_at) \
         VALUES ('p', 'mail', 'failed', '', 1, 0, 0, 0, '[]', 0, 0, 'dead', '{}', 0, 0); \
         INSERT INTO consumer_messages (queue, body, correlation_id) \
         VALUES ('replies.4f1c', 'answer', 'order-17')",
    );
    let examples = blocks("sql");
    assert_eq!(examples.len(), 6);
    examples.iter().for_each(|sql| rig.execute(sql));
    let bodies: String =
        rig.get("SELECT group_concat(body || available_after) FROM consumer_messages");
    assert!(bodies.starts_with(r#"hello0,{"to": "ann"}1"#), "{bodies}");
    assert!(bodies.ends_with(",dead0"), "{bodies}");
}
