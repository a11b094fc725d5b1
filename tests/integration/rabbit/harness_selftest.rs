//! What the other tests stand on: a server that can be killed, a client, and a proxy that misbehaves
//! as it is told.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use crate::harness::rabbit::{Letter, Vhost, kind, rough, text};
use crate::harness::{Flow, Proxy, look, trials};

trials![
    a_killed_node_has_what_it_confirmed,
    totals_count_what_is_in_hand,
    a_proxy_stalls_drips_cuts_and_resets,
];

fn a_killed_node_has_what_it_confirmed() {
    let node = rough();
    let vhost = node.vhost();
    let client = vhost.client();
    client.declare("q", &[kind("quorum")]);
    let letters: Vec<Letter> = (0..100)
        .map(|n| Letter::new("q", format!("{n}")).header("n", text("x")))
        .collect();
    client.publish(&letters);
    node.kill();
    node.start_again();
    let bodies: Vec<String> = vhost
        .client()
        .take_all("q")
        .iter()
        .map(|letter| letter.text().to_owned())
        .collect();
    assert_eq!(bodies, (0..100).map(|n| n.to_string()).collect::<Vec<_>>());
}

fn totals_count_what_is_in_hand() {
    let vhost = Vhost::shared();
    let client = vhost.client();
    for (queue, kind_of) in [("q", "quorum"), ("c", "classic")] {
        client.declare(queue, &[kind(kind_of)]);
        client.publish(&[Letter::new(queue, "a"), Letter::new(queue, "b")]);
        let _in_hand = client.hold(queue);
        assert_eq!(client.ready(queue), Some(1));
        assert_eq!(vhost.totals()[queue], 2);
    }
    assert_eq!(client.ready("other"), None);
}

/// A proxy before a server that says back what it is told, and a client of it.
fn joined() -> (Proxy, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut back = stream.try_clone().unwrap();
            drop(std::io::copy(&mut stream, &mut back));
        }
    });
    let proxy = Proxy::to(port);
    let client = connect(&proxy);
    (proxy, client)
}

fn connect(proxy: &Proxy) -> TcpStream {
    TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).unwrap()
}

fn echo(client: &mut TcpStream, text: &[u8]) {
    let mut back = vec![0; text.len()];
    client.write_all(text).unwrap();
    client.read_exact(&mut back).unwrap();
    assert_eq!(back, text);
}

fn a_proxy_stalls_drips_cuts_and_resets() {
    let (proxy, mut client) = joined();
    echo(&mut client, b"hello");
    proxy.flow(Flow {
        drips: true,
        ..Flow::default()
    });
    echo(&mut client, b"few at a time");
    proxy.flow(Flow {
        down_is_stalled: true,
        ..Flow::default()
    });
    client.write_all(b"held").unwrap();
    client.set_nonblocking(true).unwrap();
    let nothing = client.read(&mut [0; 4]).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
    client.set_nonblocking(false).unwrap();
    proxy.flow(Flow::default());
    let mut held = [0; 4];
    client.read_exact(&mut held).unwrap();
    assert_eq!(&held, b"held");
    proxy.cut();
    assert_eq!(client.read(&mut held).unwrap(), 0, "an end");
    let mut client = connect(&proxy);
    echo(&mut client, b"once more");
    proxy.reset();
    let reset = look(|| client.read(&mut held).err()).unwrap();
    assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
    assert_eq!(proxy.accepted(), 2);
}
