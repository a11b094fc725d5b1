//! What is large: more than a statement of PostgreSQL's holds, or than it takes in a moment.

use crate::harness::postgres::PgDatabase;
use crate::harness::{Event, Flow, NewMessage, Pool, Proxy, Workspace, trials};

trials![
    ; long:
    replies_of_more_than_a_gigabyte_are_written,
    a_row_that_cannot_be_read_holds_nobody_up,
];

/// The fastest compression, so that the test is about sizes.
fn database() -> PgDatabase {
    PgDatabase::alone_with(|_| vec!["default_toast_compression=lz4".to_owned()])
}

/// They are all there before the first of them can be written.
fn replies_of_more_than_a_gigabyte_are_written() {
    let database = database();
    let proxy = Proxy::to(database.port());
    let way = database.url_at(proxy.port());
    let (replies, bytes) = (3, 360 << 20);
    let pool = Pool::new(&["--v2=1"])
        .set("workers", &replies.to_string())
        .set("prefetch", "1")
        .text("frame_bytes_max", "512MiB");
    let site = Workspace::on("", "", Some(database));
    let daemon = site.start_elsewhere(&way, &[pool]);
    let table = site.table();
    for one in 0..replies {
        let body = format!("mode:wait:go,reply-bytes:{bytes} {one}");
        table.insert(&[NewMessage::new(&body).reply_to("answers")]);
    }
    let happened = |event, often| site.record().all(event).len() == often;
    daemon.eventually("all to be begun", || happened(Event::Began, replies));
    proxy.flow(Flow {
        refuses: true,
        ..Flow::default()
    });
    proxy.cut();
    site.touch("go");
    daemon.eventually("all to be answered", || happened(Event::Done, replies));
    proxy.flow(Flow::default());
    daemon.eventually("all to be written", || table.count("work") == 0);
    let there = "SELECT count(*), min(length(body)) FROM consumer_messages WHERE queue = 'answers'";
    assert_eq!(site.postgres().ask(there), format!("{replies}|{bytes}"));
    assert_eq!(table.dead(), []);
    daemon.stop();
}

/// It could be written, one column after the other, but one answer of the server's can't hold it.
fn a_row_that_cannot_be_read_holds_nobody_up() {
    let site = Workspace::on("", "", Some(database()));
    let daemon = site.start(&[Pool::new(&[])]);
    let table = site.table();
    site.postgres().ask(
        "INSERT INTO consumer_messages (queue, body, priority)
         SELECT 'work', repeat('y', 600 << 20), 9;
         UPDATE consumer_messages
         SET headers = ('{\"x\": \"' || repeat('z', 500 << 20) || '\"}')::json",
    );
    table.insert(&[NewMessage::new("small")]);
    daemon.eventually("the other to be done", || table.count("work") == 1);
    site.record().assert_done_once(&["small"]);
    daemon.logged(
        "this message can't be claimed or dead-lettered: rejected by the database; skipped for 5 minutes",
    );
    daemon.stop();
}
