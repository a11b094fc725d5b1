//! `samples/fetch`: 32 pages at once by one worker, and what becomes of those that are none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::sync::Barrier;

use super::Sample;
use super::web::{Answer, Heard, Web, answer};
use crate::harness::kafka::{Group, Kafka, NewRecord};
use crate::harness::trials;

trials![pages_are_summarised_32_at_once];

/// As many as the worker's concurrency.
const AT_ONCE: usize = 32;
const PAGES: usize = 2 * AT_ONCE;
/// More than the worker takes.
const TOO_LONG: usize = (2 << 20) + 1;

const PAGE: &str = "<html><head><title> Bees &amp; \n honey</title>
    <style>p { color: honey }</style></head><body><h1>Not this</h1>
    <p>Honey is <b>made by bees</b>. Clearly honey keeps!
    <script>nor('this')</script><p>Honey from clearly older tombs.</body>";

fn page() -> Answer {
    answer(200, &[("content-type", "text/html; charset=utf-8")], PAGE)
}

async fn says(request: Heard, asked: Arc<AtomicUsize>, together: Arc<Barrier>) -> Answer {
    match (&*request.path, request.before) {
        ("/busy", 0) => answer(503, &[("retry-after", "1")], ""),
        ("/busy", _) => page(),
        ("/old", _) => answer(302, &[("location", "/busy")], ""),
        ("/missing", _) => answer(404, &[], ""),
        ("/picture", _) => answer(200, &[("content-type", "image/png")], ""),
        ("/long", _) => answer(200, &[("content-type", "text/html")], vec![b'a'; TOO_LONG]),
        _ => {
            // The first ones are answered when all of them are here.
            if asked.fetch_add(1, Ordering::Relaxed) < AT_ONCE {
                together.wait().await;
            }
            page()
        }
    }
}

fn pages_are_summarised_32_at_once() {
    let (sample, kafka) = (Sample::of("fetch"), Kafka::shared());
    kafka.make_topic("pages", 3);
    kafka.make_topic("summaries", 3);
    let asked = Arc::<AtomicUsize>::default();
    let together = Arc::new(Barrier::new(AT_ONCE));
    let web = Web::that(move |request| says(request, asked.clone(), together.clone()));
    let daemon = sample.start(&[("KAFKA_BROKERS", &kafka.address())]);

    let send = |urls: &[String]| {
        let records = urls.iter().map(|url| NewRecord::new("pages", url));
        kafka.send(&records.collect::<Vec<_>>());
    };
    let pages: Vec<String> = (0..PAGES).map(|n| web.url(&format!("/page/{n}"))).collect();
    send(&pages);
    send(&["/busy", "/old"].map(|path| web.url(path)));
    let bad = ["/missing", "/picture", "/long"].map(|path| web.url(path));
    send(&bad);
    send(&["no url".into()]);

    let (group, dead) = (Group::of(&kafka, "fetch"), "pages.fetch.dead");
    daemon.eventually("all to be settled", || {
        group.lag("pages") == 0 && kafka.read("summaries").len() >= PAGES + 2
    });
    let summaries = kafka.texts("summaries");
    let summaries = summaries
        .iter()
        .map(|text| serde_json::from_str(text).unwrap());
    let summaries: BTreeMap<String, Value> = summaries
        .map(|summary: Value| (summary["url"].as_str().unwrap().to_owned(), summary))
        .collect();
    for url in pages.iter().chain([&web.url("/busy")]) {
        let expected = json!({
            "url": url,
            "title": "Bees & honey",
            "first": "Honey is made by bees.",
            "words": ["honey", "clearly", "keeps", "older", "tombs"],
        });
        assert_eq!(summaries[url], expected);
    }
    assert!(web.heard("/busy").len() >= 2);
    let dead = kafka.read(dead);
    let errors: Vec<String> = dead
        .iter()
        .map(|it| it.header("x-ganger-error").unwrap())
        .collect();
    assert_eq!(errors.len(), bad.len() + 1, "{errors:#?}");
    for url in bad.iter().map(String::as_str).chain(["no url"]) {
        assert!(
            errors.iter().any(|error| error.contains(url)),
            "{url}: {errors:#?}"
        );
    }
    daemon.stop();
}
