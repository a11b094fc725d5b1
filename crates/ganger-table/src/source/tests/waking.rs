//! Tests of wake-ups: by other programs' writes, by time, by credit. The poll is an hour away in all of
//! them.

use super::*;
use ganger_queue::delivery::Outgoing;

#[tokio::test]
async fn plain_sql_of_another_connection_wakes_an_idle_source() {
    let rig = Rig::new();
    let mut source = rig.source(&Shared::default(), 1);
    for n in 0..20 {
        rig.insert(&n.to_string());
        assert_eq!(source.finish_next().await, n.to_string());
    }
    source.end().await;
}

#[tokio::test]
async fn a_client_sends_and_takes_the_answer() {
    let rig = Rig::new();
    let mut source = rig.source(&Shared::default(), 1);
    let mut client = rig.client();
    let ask = Outgoing {
        queue: "q".to_owned(),
        body: "6 * 7".into(),
        correlation_id: "c".to_owned(),
        reply_to: Some("answers.1".to_owned()),
        ..Outgoing::default()
    };
    client.send(std::slice::from_ref(&ask)).unwrap();
    let delivery = source.next().await;
    assert_eq!(delivery.message.reply_to.as_deref(), Some("answers.1"));
    assert_eq!(client.take_reply("answers.1", "c").unwrap(), None);
    let answer = Outgoing {
        queue: "answers.1".to_owned(),
        body: "42".into(),
        correlation_id: "c".to_owned(),
        ..Outgoing::default()
    };
    delivery.settle(Outcome::Reply(Box::new(answer)));
    let reply = tokio::task::spawn_blocking(move || {
        loop {
            if let Some(reply) = client.take_reply("answers.1", "c").unwrap() {
                return reply;
            }
            client.wait_for_change(SOON);
        }
    });
    let reply = timeout(SOON, reply).await.unwrap().unwrap();
    assert_eq!(
        (reply.body.as_ref(), reply.correlation_id.as_str()),
        (&b"42"[..], "c")
    );
    source.end().await;
}

/// Without file events, as on some file systems, a waiting client polls by itself.
#[tokio::test]
async fn a_client_that_is_told_of_nothing_looks_again() {
    let rig = Rig::new();
    let mut client = rig.client();
    let waited = tokio::task::spawn_blocking(move || {
        (0..3).for_each(|_| client.wait_for_change(NEVER));
    });
    timeout(SOON, waited).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_delayed_message_comes_when_it_is_due_and_not_before() {
    let rig = Rig::new();
    rig.execute(&format!(
        "INSERT INTO consumer_messages (queue, body, available_after) VALUES \
         ('q', 'later', {}), ('q', 'soon', {}), ('q', 'past', 1)",
        NOW_MS + 24 * 3600 * 1000,
        NOW_MS + 50
    ));
    let mut source = rig.source(&Shared::default(), 3);
    assert_eq!(source.finish_next().await, "past");
    rig.set_clock(NOW_MS + 50);
    assert_eq!(source.finish_next().await, "soon");
    source.end().await;
    assert!(
        rig.counters().starts_with("attempts 0"),
        "one stays: {}",
        rig.counters()
    );
}

#[tokio::test]
async fn credit_wakes() {
    let rig = Rig::new();
    rig.insert("a");
    let mut source = rig.source(&Shared::default(), 0);
    source.until(|state| state.healthy).await;
    source.credit(1);
    assert_eq!(source.finish_next().await, "a");
    source.end().await;
}

#[tokio::test]
async fn a_pool_that_is_gone_ends_its_source_and_gives_everything_back() {
    let rig = Rig::new();
    (0..5).for_each(|n| rig.insert(&n.to_string()));
    let mut source = rig.source(&Shared::default(), 5);
    let held = source.next().await;
    let Source {
        pool, mut running, ..
    } = source;
    drop((pool, held));
    timeout(SOON, running.ended()).await.unwrap().unwrap();
    let free = "SELECT count(*) FROM consumer_messages WHERE owner IS NULL AND attempts = 0";
    assert_eq!(rig.get::<i64>(free), 5);
    assert_eq!(rig.get::<i64>("SELECT count(*) FROM owners"), 0);
}
