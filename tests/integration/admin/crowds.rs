//! Crowds before the API: connections that say nothing, that say it slowly, that do not read, that
//! stay, and bodies that are never whole. Probes are answered all the same.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use tokio::time::Instant;

use super::{api, open, scene, site, site_with};
use crate::harness::{Api, Daemon, Pool, Scene, trials};

trials![
    connections_that_say_nothing_keep_no_probe_out,
    a_trickle_keeps_no_probe_out,
    answers_that_nobody_reads_keep_no_probe_out,
    event_streams_keep_no_probe_out,
    bodies_that_are_never_whole_stay_within_the_bound,
];

/// More than a listener has connections.
const CROWD: usize = 140;
/// Within which a probe is answered, on a machine that is busy with other tests.
const PROBED_WITHIN: Duration = Duration::from_secs(3);

fn telemetry(daemon: &Daemon) -> Api {
    let listening = daemon.logs("listening", |record| record["key"] == "telemetry.listen");
    let address = listening["address"].as_str().unwrap();
    Api::Port(address.rsplit_once(':').unwrap().1.parse().unwrap())
}

/// A daemon with both listeners.
fn both() -> (Scene, [Api; 2]) {
    let site = site("[telemetry]\nlisten = \"127.0.0.1:0\"");
    let scene = Scene::at(site, &[Pool::new(&[])]);
    let listeners = [open(&scene.daemon), telemetry(&scene.daemon)];
    (scene, listeners)
}

fn connect(api: &Api) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", api.port())).unwrap();
    stream.set_write_timeout(Some(PROBED_WITHIN)).unwrap();
    stream
}

fn crowd(api: &Api, said: &str) -> Vec<TcpStream> {
    let join = |_| {
        let mut stream = connect(api);
        // Its own connection may have had to make room already.
        drop(stream.write_all(said.as_bytes()));
        stream
    };
    (0..CROWD).map(join).collect()
}

fn probe(api: &Api) {
    for path in ["/livez", "/readyz"] {
        let asked = Instant::now();
        assert_eq!(api.get(path).status, 200, "{path}");
        let took = asked.elapsed();
        assert!(took < PROBED_WITHIN, "{path} took {took:?}");
    }
}

fn is_ready(scene: &Scene, api: &Api) {
    scene
        .daemon
        .eventually("it is ready", || api.get("/readyz").status == 200);
}

fn connections_that_say_nothing_keep_no_probe_out() {
    let (scene, listeners) = both();
    for api in &listeners {
        is_ready(&scene, api);
        let silent = crowd(api, "");
        let halves = crowd(api, "GET /livez HTTP/1.1\r\nHost: local");
        (0..5).for_each(|_| probe(api));
        drop((silent, halves));
    }
    scene.finish();
}

fn a_trickle_keeps_no_probe_out() {
    let (scene, listeners) = both();
    for api in &listeners {
        is_ready(&scene, api);
        let mut trickle = crowd(api, "GET /livez HTTP/1.1\r\nX: ");
        for _ in 0..10 {
            for stream in &mut trickle {
                if stream.write_all(b"x").is_err() {
                    *stream = connect(api);
                }
            }
            probe(api);
        }
    }
    scene.finish();
}

fn answers_that_nobody_reads_keep_no_probe_out() {
    let (scene, listeners) = both();
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for api in &listeners {
        is_ready(&scene, api);
        let deaf: Vec<TcpStream> = (0..CROWD)
            .map(|_| {
                let mut stream = connect(api);
                setsockopt(&stream, sockopt::RcvBuf, &4096).unwrap();
                drop(stream.write_all(request.repeat(5).as_bytes()));
                stream
            })
            .collect();
        (0..5).for_each(|_| probe(api));
        drop(deaf);
    }
    scene.finish();
}

fn event_streams_keep_no_probe_out() {
    let scene = scene(Pool::new(&[]));
    let api = api(&scene.daemon);
    is_ready(&scene, &api);
    let token = api.token().unwrap();
    let request = format!(
        "GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    let mut status = [0; 12];
    let (mut streams, mut answers) = (Vec::new(), Vec::new());
    // One after the other: who has no answer yet may have to make room.
    for _ in 0..CROWD {
        let mut stream = connect(&api);
        stream.write_all(request.as_bytes()).unwrap();
        stream.read_exact(&mut status).unwrap();
        answers.push(String::from_utf8_lossy(&status[9..]).into_owned());
        streams.push(stream);
    }
    let served = answers.iter().filter(|status| *status == "200").count();
    let refused = answers.iter().filter(|status| *status == "503").count();
    assert_eq!((served, refused), (32, CROWD - 32));
    (0..5).for_each(|_| probe(&api));
    assert_eq!(api.get("/v1/status").status, 200);
    drop(streams);
    scene
        .daemon
        .eventually("places to be free again", || api.events(None).is_served());
    scene.finish();
}

/// Ten messages of 90 MiB, half of each: more than fourteen times the bound.
fn bodies_that_are_never_whole_stay_within_the_bound() {
    const MIB: usize = 1 << 20;
    let site = site_with(
        "drain_timeout = \"10s\"\nbuffered_bytes_max = \"32MiB\"",
        "",
    );
    let scene = Scene::at(site, &[Pool::new(&[])]);
    let api = api(&scene.daemon);
    is_ready(&scene, &api);
    let token = api.token().unwrap();
    let head = format!(
        "POST /v1/queues/work/messages HTTP/1.1\r\nHost: localhost\r\n\
         Authorization: Bearer {token}\r\nContent-Length: {}\r\n\r\n{{\"body\": \"",
        90 * MIB
    );
    let half = vec![b'x'; MIB];
    let streams: Vec<TcpStream> = std::thread::scope(|scope| {
        let send = || {
            let mut stream = connect(&api);
            let written = stream.write_all(head.as_bytes());
            // Who is refused can't write on.
            let pieces = (0..45).map(|_| stream.write_all(&half));
            drop(written.and(pieces.collect::<Result<(), _>>()));
            stream
        };
        let sending: Vec<_> = (0..10).map(|_| scope.spawn(send)).collect();
        probe(&api);
        sending.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let resident = scene.daemon.resident_kib_max() / 1024;
    assert!(resident < 200, "{resident} MiB");
    drop(streams);
    let large = serde_json::json!({ "body": "x".repeat(10 * MIB) }).to_string();
    scene.daemon.eventually("a message to be taken again", || {
        api.post("/v1/queues/work/messages", &large).status == 200
    });
    scene.all_done();
    scene.finish();
}
