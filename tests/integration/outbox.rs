//! A message in the transaction of the sender's own rows: it is there if they are, and never was if they
//! are rolled back, whatever dies meanwhile.

use std::collections::BTreeSet;

use crate::harness::{Event, Pool, Scene, trials};

trials![what_is_committed_is_handled_and_what_is_rolled_back_never,];

/// So many orders are placed, half of them in vain.
const ORDERS: usize = 400;
/// So often the daemon is killed meanwhile, and as often a worker.
const KILLS: usize = 4;

fn what_is_committed_is_handled_and_what_is_rolled_back_never() {
    let pool = Pool::new(&["--mode=sleep:1"])
        .set("workers", "2")
        .attempts(1000)
        .set("crashes_max", "1000")
        .set("lapses_max", "1000");
    let mut scene = Scene::of(pool.clone());
    let shop = scene.site.table();
    shop.run("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        .unwrap();
    for number in 0..ORDERS {
        let end = match number % 2 {
            0 => "COMMIT",
            _ => "ROLLBACK",
        };
        let placed = format!(
            "BEGIN;
             INSERT INTO orders VALUES ({number});
             INSERT INTO consumer_messages (queue, body) VALUES ('work', 'order {number}');
             {end}"
        );
        shop.run(&placed).unwrap();
        if number % (ORDERS / KILLS) == ORDERS / KILLS / 2 {
            let worker = scene.daemon.has_workers(2)[0];
            nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(worker),
                nix::sys::signal::SIGKILL,
            )
            .ok();
        }
        if number % (ORDERS / KILLS) == ORDERS / KILLS - 1 {
            scene.daemon.crash();
            scene.daemon = scene.site.start(std::slice::from_ref(&pool));
        }
    }
    scene.all_done();
    let orders = shop.ask("SELECT 'order ' || id FROM orders ORDER BY id");
    let orders: Vec<&str> = orders.lines().collect();
    assert_eq!(orders.len(), ORDERS / 2);
    let record = scene.record();
    record.assert_none_lost(&orders);
    let begun: BTreeSet<&str> = record.texts(Event::Began).into_iter().collect();
    let orders: BTreeSet<&str> = orders.into_iter().collect();
    assert_eq!(begun, orders, "nothing was begun that was rolled back");
    scene.finish();
}
