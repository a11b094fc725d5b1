//! `samples/rpc`: its client gets an answer to each question, and is told what is none.

use super::{Sample, run, run_well, settled};
use crate::harness::rabbit::{Letter, Vhost};
use crate::harness::trials;

trials![callers_are_answered];

fn callers_are_answered() {
    let (sample, vhost) = (Sample::of("rpc"), Vhost::shared());
    let url = vhost.url();
    let client = |questions: &[&str]| {
        let mut command = sample.python();
        command.arg("client.py").args(questions);
        command.env("RABBITMQ_URL", &url);
        command
    };
    let (well, told) = run(&mut client(&["1"]));
    assert!(!well && told.contains("UnroutableError"), "{told}");

    let daemon = sample.start(&[("RABBITMQ_URL", &url)]);
    let told = run_well(&mut client(&["10", "20", "ten", "10001", "300"]));
    let expected = "10: 55\n\
        20: 6765\n\
        ten: error: the body must be a whole number\n\
        10001: error: the number must be within 0..=10000\n\
        300: 222232244629420445529739893461909967206666939096499764990979600\n";
    assert_eq!(told, expected);

    // An answer goes to a caller, and nowhere else.
    let elsewhere = Letter::new("rpc.fibonacci", "10").reply_to("another");
    vhost.client().publish(&[elsewhere]);
    let dead = settled(&daemon, &vhost, "rpc.fibonacci");
    assert_eq!(dead.len(), 1, "{dead:#?}");
    assert!(
        dead[0].word("x-ganger-error").contains("publish_to"),
        "{dead:#?}"
    );
    daemon.stop();
}
