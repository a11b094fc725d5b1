//! Pools whose thread the operating system refuses.

use super::*;
use ganger_config as config;
use ganger_core::threads;

fn with_unstarted_pool(body: threads::Body) -> Daemon {
    let text = "[sources.main]\nkind = \"table\"\nurl = \"sqlite:a.db\"\n\
                [[pools]]\nname = \"p\"\nqueue = \"q\"\ncommand = \"w\"\n";
    let config = config::parse(text, "test.toml", &config::Environment::new()).unwrap();
    let policy = Arc::clone(&config.pools[0]);
    let mut daemon = Daemon::new(config);
    daemon.started = true;
    let running = Running {
        orders: watch::channel(Orders::new(Arc::clone(&policy))).0,
        rules: watch::channel(policy).0,
        steered: None,
        unbegun: Some(life::tests::refused("p", body)),
        dismissed: false,
    };
    daemon.pools.insert("p".to_owned(), running);
    daemon
}

#[test]
fn a_pool_whose_thread_is_refused_is_tried_again() {
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    let mut daemon = with_unstarted_pool(Box::new(move || tell.send(()).unwrap()));
    let due = daemon.next_try().unwrap();
    daemon.try_again(due);
    assert_eq!(told.recv(), Ok(()));
    assert!(!daemon.is_finished() && daemon.next_try().is_none());
}

#[test]
fn a_pool_that_has_no_thread_keeps_no_stop_waiting() {
    let mut daemon = with_unstarted_pool(Box::new(|| panic!("nobody wants it any more")));
    daemon.stop();
    assert!(daemon.is_finished() && daemon.failure.is_none());
}
