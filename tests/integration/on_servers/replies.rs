//! Replies: to whom they can't go, and who waits for them.

use std::time::Duration;

use tokio::time::Instant;

use crate::harness::{Base, Database, Event, NewMessage, Pool, Scene, Workspace, trials_on};

trials_on![
    a_reply_to_a_queue_that_no_column_takes_is_a_dead_letter,
    a_reply_is_waited_for_over_a_restart_of_the_server,
];

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
    let refused = "settlements are rejected";
    let problem = |record: &serde_json::Value| record.to_string().contains(refused);
    assert!(scene.daemon.records(problem).is_empty());
    scene.finish();
}

/// Both by the command and over HTTP. Who waits gives up long after this test would.
fn a_reply_is_waited_for_over_a_restart_of_the_server() {
    let database = Database::alone();
    let url = database.url();
    let sections = format!(
        "[sources.main]\nkind = \"table\"\nurl = \"{url}\"\n[admin]\nlisten = \"127.0.0.1:0\""
    );
    let site = Workspace::make("", &sections);
    let pool = Pool::new(&["--v2=2"]);
    let daemon = site.start(std::slice::from_ref(&pool));
    site.configure_commands(&[pool]);
    let api = crate::admin::api(&daemon);
    let (sent, posted) = ("mode:wait:go,reply sent", "mode:wait:go,reply posted");
    let command = ["send", "work", sent, "--reply", "--reply-timeout", "10m"];
    let message = serde_json::json!({ "body": posted }).to_string();
    let path = "/v1/queues/work/messages?wait=5m";
    let went = std::thread::scope(|scope| {
        let command = scope.spawn(|| site.ganger(&command).good());
        let request = scope.spawn(|| api.post(path, &message).json());
        daemon.eventually("both to be begun", || {
            site.record().all(Event::Began).len() == 2
        });
        database.stop();
        database.start_again();
        let went = Instant::now();
        site.touch("go");
        let printed = command.join().unwrap();
        assert_eq!(printed.trim_end(), format!("re: {sent}"));
        let answer = request.join().unwrap();
        assert_eq!(answer["reply"]["body"], format!("re: {posted}"));
        went
    });
    let took = went.elapsed();
    assert!(took < Duration::from_secs(20), "it took {took:?}");
    daemon.stop();
}
