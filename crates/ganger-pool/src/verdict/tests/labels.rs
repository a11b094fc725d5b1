//! Tests of the labels that describe a reply's body.

use super::*;

/// A body created by a worker has its own type and encoding.
#[test]
fn what_the_message_says_of_its_own_body_is_not_said_of_the_reply() {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let asked = |property: Option<&str>| Message {
        headers: vec![
            pair("Content-Type", "text/xml"),
            pair("content-encoding", "gzip"),
        ],
        properties: property
            .map(|kind| ("content_type", Property::Text(kind.into())))
            .into_iter()
            .collect(),
        ..message()
    };
    let answered = |message: &Message, headers: &[(&str, &str)]| {
        let headers = headers.iter().map(|(name, value)| pair(name, value));
        let output = Output {
            headers: Some(headers.collect()),
            ..output(201)
        };
        let (history, policy) = (History::default(), policy());
        let case = Case {
            message,
            history,
            policy: &policy,
            chance: 0.5,
        };
        outgoing("answers".into(), output, case)
    };
    let said = |reply: &Outgoing| {
        let text = |said: Option<&str>| said.unwrap_or_default().to_owned();
        (text(reply.content_type()), text(reply.content_encoding()))
    };
    let (by_header, by_both) = (asked(None), asked(Some("text/plain")));
    let own: [(&str, &str); 2] = [("CONTENT-TYPE", "text/json"), ("Content-Encoding", "br")];
    for (message, headers, expected) in [
        (&by_header, &own[..0], ("text/xml", "")),
        (&by_both, &own[..0], ("text/plain", "")),
        (&by_header, &own[..1], ("text/json", "")),
        (&by_both, &own[..], ("text/json", "br")),
        (&by_both, &[("content-type", "")], ("", "")),
    ] {
        let reply = answered(message, headers);
        let expected = (expected.0.to_owned(), expected.1.to_owned());
        assert_eq!(said(&reply), expected, "{reply:?}");
        assert!(
            reply.headers.len() <= 1 + 2.min(headers.len().max(1)),
            "{reply:?}"
        );
    }
}
