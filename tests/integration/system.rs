//! What the daemon has of the system and gives back to it: open files, its children's ends, the
//! orphans of a container, what a killed daemon has left; and that it obeys while it starts.

use std::net::{Ipv4Addr, TcpListener};

use nix::sys::signal::Signal;

use crate::harness::{Pool, Scene, Site, trials};

trials![
    a_start_that_waits_for_a_broker_tells_its_status_and_stops,
    a_reload_that_waits_for_a_broker_holds_up_nothing,
];

/// A broker that takes connections and says nothing, and the section of a source there.
fn silent_broker() -> (TcpListener, String) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let section = format!(
        "[sources.silent]\nkind = \"rabbitmq\"\nconnect_timeout = \"1h\"\n\
         url = \"amqp://guest:guest@127.0.0.1:{port}/\"\n"
    );
    (listener, section)
}

fn a_start_that_waits_for_a_broker_tells_its_status_and_stops() {
    let (listener, section) = silent_broker();
    let site = Site::with_sections(&section);
    let (reader, writer) = std::io::pipe().unwrap();
    let mut daemon = site.start_unheard(&[Pool::new(&[])], writer);
    daemon.listen(reader);
    let _connection = listener.accept().unwrap();
    daemon.signal(Signal::SIGUSR1);
    daemon.logged("status of the daemon");
    daemon.stop();
}

fn a_reload_that_waits_for_a_broker_holds_up_nothing() {
    let (listener, silent) = silent_broker();
    let table = "[sources.main]\nkind = \"table\"\nurl = \"sqlite:queue.db\"\n";
    let site = Site::with_sections(&format!("{table}{silent}"));
    let pool = Pool::new(&[]).text("source", "main");
    let scene = Scene::at(site, std::slice::from_ref(&pool));
    let waiting = Pool::new(&[])
        .text("name", "waiting")
        .text("source", "silent");
    scene
        .site
        .reconfigure(&scene.daemon, &[pool.clone(), waiting]);
    scene.daemon.signal(Signal::SIGHUP);
    let _connection = listener.accept().unwrap();
    scene.daemon.signal(Signal::SIGUSR1);
    scene.daemon.logged("status of the pool");
    scene.send(&["work"]);
    scene.all_done();
    // What is asked for meanwhile comes after it.
    scene.site.reconfigure(&scene.daemon, &[pool]);
    scene.daemon.signal(Signal::SIGHUP);
    scene
        .daemon
        .logged("the reload waits for the one before it");
    scene.finish();
}
