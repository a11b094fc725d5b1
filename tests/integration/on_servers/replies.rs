//! Replies: to whom they can't go, and who waits for them.

use crate::harness::{Base, Event, NewMessage, Pool, Scene, trials_on};

trials_on![a_reply_to_a_queue_that_no_column_takes_is_a_dead_letter,];

/// What the settlement is refused with, and what no letter may be refused with in its turn.
fn a_reply_to_a_queue_that_no_column_takes_is_a_dead_letter() {
    let scene = Scene::of(Pool::new(&["--v2=1"]));
    // PostgreSQL has no NUL in a text, MySQL and MariaDB no longer name, and the first no such name in an index.
    let no_text = b"mode:reply:answers\0 a";
    let long: String = (0..20_000).map(|n| format!("{:08x}", n * 40_503)).collect();
    let too_long = format!("mode:reply:{long} b");
    let bodies = match Base::of_this_test() {
        Base::Postgres => vec![NewMessage::binary(no_text), NewMessage::new(&too_long)],
        Base::Mariadb => vec![NewMessage::new(&too_long)],
        Base::Sqlite => panic!("a test that is about servers"),
    };
    let count = bodies.len();
    scene.table.insert(&bodies);
    scene.settled();
    let dead = scene.table.dead();
    assert_eq!(dead.len(), count, "{dead:#?}");
    for letter in &dead {
        assert_eq!(letter.reason, "unroutable_reply", "{letter:#?}");
        assert!(letter.error.starts_with("the reply to `"), "{letter:#?}");
        assert!(letter.reply_queue.as_ref().unwrap().len() <= 4096);
    }
    // The other has a NUL, too, and so is no text.
    let replies = dead.iter().filter_map(|letter| letter.reply_body.as_ref());
    let replies: Vec<&String> = replies.collect();
    assert_eq!(replies, [&format!("re: {too_long}")]);
    assert_eq!(scene.record().all(Event::Done).len(), count);
    let refused = "settlements are refused";
    let problem = |record: &serde_json::Value| record.to_string().contains(refused);
    assert!(scene.daemon.records(problem).is_empty());
    scene.finish();
}
