//! Spans as a collector gets them from a real daemon with real workers: which there are, what they
//! say, and how they hang together over workers, replies, emits and retries, on each kind of source.

use lapin::types::AMQPValue;
use nix::sys::signal::Signal;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::json;

use crate::harness::collector::{Attributes, Collector, with_variables, word, words};
use crate::harness::kafka::KafkaSite;
use crate::harness::rabbit::{Letter, Vhost, rabbit_site, text};
use crate::harness::tls::Authority;
use crate::harness::{Daemon, Event, Launch, NewMessage, Pool, Record, Scene, Workspace, trials};
use crate::ledger;

trials![
    a_message_leaves_two_spans_below_its_producers,
    the_trace_goes_on_with_replies_and_emits,
    a_retry_is_a_span_of_its_own_linked_to_the_one_before,
    a_crash_is_told_with_its_signal,
    what_is_not_sampled_passes_unchanged,
    without_a_collector_nothing_is_added,
    a_ratio_decides_for_what_has_no_parent,
    the_ledger_names_the_trace_of_a_run_and_of_a_record,
    rabbitmq_messages_carry_their_trace,
    kafka_records_carry_their_trace,
    http_with_compression_and_headers,
    an_encrypted_collector_is_trusted_by_its_authority,
    a_collector_that_is_away_is_told_of_once_and_costs_no_message,
    what_is_left_is_sent_at_the_stop,
    a_stop_does_not_wait_for_a_collector_that_is_silent,
    variables_that_make_no_sense_are_told,
    the_configuration_may_name_the_collector,
    log_records_go_to_a_collector_that_wants_them,
];

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

fn sampled() -> String {
    format!("00-{TRACE}-{PARENT}-01")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn traceparent(span: &Span) -> String {
    format!("00-{}-{}-01", hex(&span.trace_id), hex(&span.span_id))
}

fn to(url: &str) -> Vec<(&str, &str)> {
    vec![
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_METRICS_EXPORTER", "none"),
    ]
}

fn launch(variables: &[(&str, &str)]) -> Launch {
    Launch {
        through: with_variables(variables),
        ..Launch::default()
    }
}

/// A daemon on a table that sends to that collector.
fn traced(collector: &Collector, pool: Pool) -> Scene {
    traced_with(&to(&collector.url()), pool)
}

fn traced_with(variables: &[(&str, &str)], pool: Pool) -> Scene {
    let site = Workspace::new();
    let daemon = site.launch(&[pool], launch(variables));
    let table = site.table();
    Scene {
        daemon,
        table,
        site,
    }
}

/// The spans of whole attempts, the oldest first.
fn tasks(spans: &[Span]) -> Vec<&Span> {
    let is_task = |span: &&Span| span.kind() == SpanKind::Consumer;
    let mut tasks: Vec<&Span> = spans.iter().filter(is_task).collect();
    tasks.sort_by_key(|span| span.start_time_unix_nano);
    tasks
}

/// The span of the worker's part below that one.
fn part_of<'a>(spans: &'a [Span], task: &Span) -> &'a Span {
    let below = |span: &&Span| span.parent_span_id == task.span_id;
    spans.iter().find(below).expect("the worker's part")
}

/// What workers have noted, each without what it was asked for.
fn noted(record: &Record) -> Vec<String> {
    let noted = record.all(Event::Noted).into_iter();
    let values = noted.filter_map(|entry| Some(entry.text.split_once('=')?.1.to_owned()));
    values.collect()
}

/// What it notes that has no such header.
const NONE: &str = "(none)";

fn has(attributes: &Attributes, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        assert_eq!(
            attributes.get(*name).map(String::as_str),
            Some(*value),
            "{name}: {attributes:#?}"
        );
    }
}

fn a_message_leaves_two_spans_below_its_producers() {
    let collector = Collector::grpc();
    let mut variables = to("");
    let url = collector.url();
    variables[0].1 = &url;
    variables.push(("OTEL_SERVICE_NAME", "billing"));
    variables.push(("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test"));
    let scene = traced_with(&variables, Pool::new(&["--v2=1"]));
    let body = "mode:note:header:traceparent,note:header:tracestate";
    scene.table.insert(&[NewMessage::new(body)
        .header("traceparent", sampled())
        .header("tracestate", "vendor=1")
        .correlation_id("c-7")
        .message_id("m-7")]);
    let spans = collector.has_spans(2);
    scene.all_done();
    let task = tasks(&spans)[0];
    assert_eq!(
        (hex(&task.trace_id), hex(&task.parent_span_id)),
        (TRACE.into(), PARENT.into())
    );
    assert_eq!(
        (&*task.name, &*task.trace_state),
        ("process work", "vendor=1")
    );
    assert!(task.links.is_empty() && task.status.as_ref().is_none_or(|status| status.code == 0));
    let attributes = words(&task.attributes);
    has(
        &attributes,
        &[
            ("messaging.system", "ganger_table"),
            ("messaging.operation.type", "process"),
            ("messaging.operation.name", "process"),
            ("messaging.destination.name", "work"),
            ("messaging.message.id", "m-7"),
            ("messaging.message.conversation_id", "c-7"),
            ("messaging.message.body.size", &body.len().to_string()),
            ("ganger.pool", "work"),
            ("ganger.attempt", "1"),
            ("ganger.outcome", "done"),
        ],
    );
    let part = part_of(&spans, task);
    assert_eq!(
        (hex(&part.trace_id), &*part.name),
        (TRACE.into(), "work work")
    );
    let pid = scene.daemon.has_workers(1)[0].to_string();
    has(
        &words(&part.attributes),
        &[("ganger.worker", "0"), ("ganger.worker.pid", &pid)],
    );
    assert!(task.start_time_unix_nano <= part.start_time_unix_nano);
    assert!(part.start_time_unix_nano <= part.end_time_unix_nano);
    assert!(part.end_time_unix_nano <= task.end_time_unix_nano);
    // The worker's own spans hang below its part.
    assert_eq!(
        noted(&scene.record()),
        [traceparent(part), "vendor=1".to_owned()]
    );
    has(
        &collector.resource(),
        &[
            ("service.name", "billing"),
            ("service.version", env!("CARGO_PKG_VERSION")),
            ("deployment.environment", "test"),
            ("process.pid", &scene.daemon.pid().to_string()),
        ],
    );
    scene.finish();
}

fn the_trace_goes_on_with_replies_and_emits() {
    let collector = Collector::grpc();
    let scene = traced(&collector, Pool::new(&["--v2=1"]));
    let message = NewMessage::new("mode:emit:others:text,reply").reply_to("answers");
    scene
        .table
        .insert(&[message.header("traceparent", sampled())]);
    let spans = collector.has_spans(2);
    scene.all_done();
    let part = part_of(&spans, tasks(&spans)[0]);
    for queue in ["answers", "others"] {
        let sent = &scene.table.messages(queue)[0];
        assert_eq!(sent.headers["traceparent"], traceparent(part), "{queue}");
    }
    let attributes = words(&tasks(&spans)[0].attributes);
    has(
        &attributes,
        &[
            ("ganger.outcome", "replied"),
            ("ganger.reply.queue", "answers"),
        ],
    );
    scene.finish();
}

/// Of the attempts at one message, each in the same trace and linked to the one before.
fn assert_linked(spans: &[Span], outcomes: &[&str]) {
    let tasks = tasks(spans);
    let told = tasks
        .iter()
        .map(|task| words(&task.attributes)["ganger.outcome"].clone());
    assert_eq!(told.collect::<Vec<_>>(), outcomes);
    for (number, task) in tasks.iter().enumerate() {
        assert_eq!(task.trace_id, tasks[0].trace_id);
        assert_eq!(task.parent_span_id, tasks[0].parent_span_id);
        let attempt = words(&task.attributes)["ganger.attempt"].clone();
        assert_eq!(attempt, (number + 1).to_string());
        let links: Vec<_> = task.links.iter().map(|link| &link.span_id).collect();
        let expected: Vec<_> = number
            .checked_sub(1)
            .map(|before| &tasks[before].span_id)
            .into_iter()
            .collect();
        assert_eq!(links, expected);
    }
}

fn a_retry_is_a_span_of_its_own_linked_to_the_one_before() {
    let collector = Collector::grpc();
    let scene = traced(&collector, Pool::new(&["--v2=1"]).attempts(3));
    let body = "mode:note:header:x-ganger-span,until-attempt:3:500";
    scene
        .table
        .insert(&[NewMessage::new(body).header("traceparent", sampled())]);
    let spans = collector.has_spans(6);
    scene.all_done();
    assert_linked(&spans, &["retried", "retried", "done"]);
    let first = tasks(&spans)[0];
    assert_eq!(hex(&first.parent_span_id), PARENT);
    has(&words(&first.attributes), &[("error.type", "failed")]);
    let status = first.status.as_ref().unwrap();
    assert!(
        status.code == 2 && status.message.contains("500"),
        "{status:?}"
    );
    assert_eq!(part_of(&spans, first).status.as_ref().unwrap().code, 2);
    assert_eq!(
        noted(&scene.record()),
        [NONE; 3],
        "what is ours is hidden from workers"
    );
    // The same without a producer's span: the first attempt begins the trace.
    scene.table.insert(&[NewMessage::new(body)]);
    let spans = collector.has_spans(12).split_off(6);
    assert_linked(&spans, &["retried", "retried", "done"]);
    assert!(tasks(&spans)[0].parent_span_id.is_empty());
    scene.finish();
}

fn a_crash_is_told_with_its_signal() {
    let collector = Collector::grpc();
    let scene = traced(&collector, Pool::new(&["--v2=1"]).attempts(1));
    scene.send(&["mode:print:hello,log:info:note,die:kill"]);
    let spans = collector.has_spans(2);
    scene.one_dead();
    let task = tasks(&spans)[0];
    for printed in ["hello", "note"] {
        let record = scene.daemon.logged(printed);
        assert_eq!(
            record["span_id"],
            hex(&part_of(&spans, task).span_id),
            "{record}"
        );
    }
    let told = scene.daemon.logged("message dead-lettered");
    assert_eq!(told["trace_id"], hex(&task.trace_id));
    assert_eq!(told["span_id"], hex(&task.span_id));
    let expected = [("error.type", "crashed"), ("ganger.exit.signal", "9")];
    has(
        &words(&task.attributes),
        &[&expected[..], &[("ganger.outcome", "dead")]].concat(),
    );
    has(&words(&part_of(&spans, task).attributes), &expected);
    scene.finish();
}

fn what_is_not_sampled_passes_unchanged() {
    let collector = Collector::grpc();
    let scene = traced(&collector, Pool::new(&["--v2=1"]));
    let parent = format!("00-{TRACE}-{PARENT}-00");
    let message = NewMessage::new("mode:note:header:traceparent,emit:others:x,reply");
    let message = message
        .reply_to("answers")
        .header("traceparent", parent.as_str());
    scene.table.insert(&[message]);
    scene.all_done();
    // What is recorded comes later, and alone.
    scene.send(&["last"]);
    let spans = collector.has_spans(2);
    assert!(spans.iter().all(|span| hex(&span.trace_id) != TRACE));
    assert_eq!(noted(&scene.record()), [parent.as_str()]);
    for queue in ["answers", "others"] {
        assert_eq!(
            scene.table.messages(queue)[0].headers["traceparent"],
            parent
        );
    }
    scene.finish();
    assert_eq!(collector.spans().len(), 2);
}

fn without_a_collector_nothing_is_added() {
    let scene = Scene::of(Pool::new(&["--v2=1"]));
    let body = "mode:note:header:traceparent,reply";
    scene
        .table
        .insert(&[NewMessage::new(body).reply_to("answers")]);
    scene.table.insert(&[NewMessage::new(body)
        .reply_to("answers")
        .header("traceparent", sampled())]);
    scene.all_done();
    let mut noted = noted(&scene.record());
    noted.sort();
    assert_eq!(noted, [NONE.to_owned(), sampled()]);
    assert!(
        scene.table.messages("answers")[0]
            .headers
            .get("traceparent")
            .is_none()
    );
    scene.finish();
}

/// A ratio of nothing, and of everything; with the first no header is made either.
fn a_ratio_decides_for_what_has_no_parent() {
    for (ratio, count) in [("0", 0), ("1.0", 6)] {
        let collector = Collector::grpc();
        let url = collector.url();
        let mut variables = to(&url);
        variables.push(("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"));
        variables.push(("OTEL_TRACES_SAMPLER_ARG", ratio));
        let scene = traced_with(&variables, Pool::new(&["--v2=1"]));
        scene.send(&["mode:note:header:traceparent"; 3]);
        scene.all_done();
        let told = noted(&scene.record());
        assert_eq!(told.iter().filter(|text| *text != NONE).count() * 2, count);
        scene.finish();
        assert_eq!(collector.spans().len(), count);
    }
}

fn the_ledger_names_the_trace_of_a_run_and_of_a_record() {
    let collector = Collector::grpc();
    let schedule = ledger::schedule("once", "at = \"2100-01-01T00:00:00\"");
    let pool = Pool::new(&[]).after(&format!("[ledger]\nrecord = \"all\"\n{schedule}"));
    let scene = traced(&collector, pool.clone());
    scene.site.configure_commands(&[pool]);
    scene.daemon.entered();
    let run = ledger::trigger(&scene.site, "once");
    let run = ledger::becomes(&scene.site, &scene.daemon, &run, "completed");
    let spans = collector.has_spans(2);
    assert_eq!(run["trace_id"], hex(&tasks(&spans)[0].trace_id));
    let message = NewMessage::new("a")
        .message_id("m")
        .header("traceparent", sampled());
    scene.table.insert(&[message]);
    let record = scene.daemon.eventually_some("the record", || {
        let shown = ["occurrence", "show", "m", "-o", "json"];
        let shown = scene.site.ganger(&shown);
        (shown.code == Some(0)).then(|| shown.json())
    });
    assert_eq!(
        (&record["trace_id"], &record["worker"]["pool"]),
        (&json!(TRACE), &json!("work"))
    );
    scene.finish();
}

fn rabbitmq_messages_carry_their_trace() {
    let collector = Collector::grpc();
    let vhost = Vhost::shared();
    let site = rabbit_site(&vhost.url(), "");
    let pool = Pool::new(&["--v2=1"]).attempts(3);
    let daemon = site.launch(&[pool], launch(&to(&collector.url())));
    let client = vhost.client();
    client.declare("answers", &[]);
    let body = "mode:note:header:x-ganger-span,until-attempt:3:500,reply";
    let letter = Letter::new("work", body)
        .reply_to("answers")
        .correlation_id("c-1");
    client.publish(&[letter.header("traceparent", text(&sampled()))]);
    let spans = collector.has_spans(6);
    assert_linked(&spans, &["retried", "retried", "replied"]);
    let last = tasks(&spans)[2];
    assert_eq!(hex(&last.parent_span_id), PARENT);
    has(
        &words(&last.attributes),
        &[
            ("messaging.system", "rabbitmq"),
            ("messaging.rabbitmq.destination.routing_key", "work"),
            ("messaging.message.conversation_id", "c-1"),
        ],
    );
    let answer = daemon.eventually_some("the answer", || client.take("answers"));
    let expected = traceparent(part_of(&spans, last));
    assert_eq!(
        answer.value("traceparent"),
        Some(AMQPValue::LongString(expected.into()))
    );
    assert_eq!(answer.value("x-ganger-span"), None);
    assert_eq!(noted(&site.record()), [NONE; 3]);
    daemon.stop();
}

/// A first wait in its place, a second in a tier.
fn kafka_records_carry_their_trace() {
    let collector = Collector::grpc();
    let site = KafkaSite::new(1);
    let retry = r#"{ attempts = 3, initial = "20ms", factor = 100.0, max = "2s", jitter = 0.0, in_place_max = "500ms" }"#;
    let pool = site.pool(&["--v2=1"]).set("retry", retry);
    let daemon = site.site.launch(&[pool], launch(&to(&collector.url())));
    let body = "mode:until-attempt:3:500";
    let record = site.message(body).key("k").partition(0);
    site.kafka.send(&[record.header("traceparent", sampled())]);
    let spans = collector.has_spans(6);
    site.all_done(&daemon);
    assert_linked(&spans, &["retried", "retried", "done"]);
    let first = tasks(&spans)[0];
    assert_eq!(hex(&first.parent_span_id), PARENT);
    has(
        &words(&first.attributes),
        &[
            ("messaging.system", "kafka"),
            ("messaging.destination.name", &site.topic),
            ("messaging.destination.partition.id", "0"),
            ("messaging.kafka.offset", "0"),
            ("messaging.kafka.message.key", "k"),
        ],
    );
    let through: Vec<_> = site
        .tier_topics()
        .iter()
        .flat_map(|tier| site.kafka.read(tier))
        .collect();
    assert_eq!(through.len(), 1, "one wait was too long for its place");
    daemon.stop();
}

fn http_with_compression_and_headers() {
    let collector = Collector::http();
    let url = collector.url();
    let scene = traced_with(
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &url),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=s%20cret"),
            ("OTEL_METRICS_EXPORTER", "none"),
        ],
        Pool::new(&["--v2=1"]),
    );
    scene.send(&["one"]);
    let spans = collector.has_spans(2);
    assert_eq!(tasks(&spans)[0].name, "process work");
    has(
        &collector.requests()[0],
        &[
            ("content-type", "application/x-protobuf"),
            ("content-encoding", "gzip"),
            ("api-key", "s cret"),
        ],
    );
    scene.finish();
}

fn an_encrypted_collector_is_trusted_by_its_authority() {
    let authority = Authority::shared();
    for collector in [Collector::grpc(), Collector::http()] {
        let url = collector.behind_tls(authority);
        let protocol = if collector.is_grpc() {
            "grpc"
        } else {
            "http/protobuf"
        };
        let ca = authority.path("ca.pem");
        let known = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_METRICS_EXPORTER", "none"),
        ];
        let with_ca = [
            &known[..],
            &[("OTEL_EXPORTER_OTLP_CERTIFICATE", ca.to_str().unwrap())],
        ];
        let scene = traced_with(&with_ca.concat(), Pool::new(&["--v2=1"]));
        scene.send(&["one"]);
        collector.has_spans(2);
        scene.finish();
        // The system's authorities do not know it.
        let scene = traced_with(&known, Pool::new(&["--v2=1"]));
        scene.send(&["two"]);
        let told = scene.daemon.logged(AWAY);
        assert!(told["error"].as_str().unwrap().len() > 3, "{told}");
        scene.finish();
        assert_eq!(collector.spans().len(), 2);
    }
}

const AWAY: &str = "the OTLP collector accepts no spans: those beyond the buffer are lost";
const BACK: &str = "the OTLP collector accepts spans again";

fn a_collector_that_is_away_is_told_of_once_and_costs_no_message() {
    let collector = Collector::grpc();
    let address = collector.address();
    let url = collector.url();
    drop(collector);
    let mut variables = to(&url);
    variables.push(("OTEL_BSP_MAX_QUEUE_SIZE", "10"));
    let scene = traced_with(&variables, Pool::new(&["--v2=1"]));
    scene.send(&["first"]);
    let told = scene.daemon.logged(AWAY);
    assert_eq!(told["collector"], address.to_string());
    let bodies: Vec<String> = (0..200).map(|n| format!("message {n}")).collect();
    scene.send(&bodies);
    scene.all_done();
    scene.record().assert_done_once(&bodies);
    let collector = Collector::grpc_at(address);
    scene
        .daemon
        .eventually("the collector to be found again", || {
            scene.send(&["more"]);
            scene.settled();
            scene.daemon.times_logged(BACK) > 0
        });
    assert!(!collector.spans().is_empty());
    assert_eq!(scene.daemon.times_logged(AWAY), 1);
    scene.finish();
}

/// Nothing would be sent for an hour.
fn what_is_left_is_sent_at_the_stop() {
    let collector = Collector::grpc();
    let url = collector.url();
    let mut variables = to(&url);
    variables.push(("OTEL_BSP_SCHEDULE_DELAY", "3600000"));
    let scene = traced_with(&variables, Pool::new(&["--v2=1"]));
    scene.send(&["one", "two"]);
    scene.all_done();
    assert!(collector.spans().is_empty());
    scene.finish();
    assert_eq!(collector.spans().len(), 4);
}

fn a_stop_does_not_wait_for_a_collector_that_is_silent() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let mut variables = to(&url);
    variables.push(("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000"));
    variables.push(("OTEL_BSP_EXPORT_TIMEOUT", "3600000"));
    let scene = traced_with(&variables, Pool::new(&["--v2=1"]));
    scene.send(&["one"]);
    scene.all_done();
    scene.daemon.signal(Signal::SIGTERM);
    assert!(scene.daemon.exit().success());
    scene
        .daemon
        .logged("the OTLP collector did not accept the last records within 5s");
}

fn variables_that_make_no_sense_are_told() {
    let scene = traced_with(
        &[
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:1"),
            ("OTEL_TRACES_SAMPLER", "sometimes"),
        ],
        Pool::new(&[]),
    );
    let told = scene
        .daemon
        .logged("an invalid setting of OpenTelemetry is ignored");
    assert!(
        told["problem"].as_str().unwrap().ends_with("`sometimes`"),
        "{told}"
    );
    scene.finish();
}

fn the_configuration_may_name_the_collector() {
    let collector = Collector::http();
    let telemetry = |otlp: &str| {
        let table = "[sources.main]\nkind = \"table\"\nurl = \"sqlite:queue.db\"";
        Workspace::make("", &format!("[telemetry]\notlp = \"{otlp}\"\n{table}"))
    };
    let run = |site: Workspace, variables: &[(&str, &str)]| {
        let daemon: Daemon = site.launch(&[Pool::new(&["--v2=1"])], launch(variables));
        let scene = Scene {
            daemon,
            table: site.table(),
            site,
        };
        scene.send(&["one"]);
        scene.all_done();
        scene.finish();
    };
    run(
        telemetry(&collector.url()),
        &[("OTEL_METRICS_EXPORTER", "none")],
    );
    assert_eq!(collector.spans().len(), 2);
    let url = collector.url();
    run(telemetry("off"), &[("OTEL_EXPORTER_OTLP_ENDPOINT", &url)]);
    run(
        telemetry("auto"),
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &url),
            ("OTEL_SDK_DISABLED", "true"),
        ],
    );
    assert_eq!(collector.spans().len(), 2);
}

fn log_records_go_to_a_collector_that_wants_them() {
    for collector in [Collector::grpc(), Collector::http()] {
        let protocol = if collector.is_grpc() {
            "grpc"
        } else {
            "http/protobuf"
        };
        let url = collector.url();
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_EXPORTER_OTLP_LOGS_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_LOGS_HEADERS", "api-key=s%20cret"),
            ("OTEL_METRICS_EXPORTER", "none"),
        ];
        let run = |variables: &[(&str, &str)]| {
            let scene = traced_with(variables, Pool::new(&["--v2=1"]).attempts(1));
            scene.send(&["mode:answer:500"]);
            scene.one_dead();
            scene.finish();
        };
        run(&variables);
        assert!(collector.logs().is_empty(), "nobody has asked for them");
        run(&[&variables[..], &[("OTEL_LOGS_EXPORTER", "otlp")]].concat());
        let logs = collector.logs();
        let said = |text: &str| {
            let found = logs.iter().find(|one| word(one.body.as_ref()) == text);
            found.unwrap_or_else(|| panic!("not sent: {text}"))
        };
        let dead = said("message dead-lettered");
        assert_eq!((dead.severity_number, &*dead.severity_text), (17, "ERROR"));
        has(
            &words(&dead.attributes),
            &[("pool", "work"), ("reason", "failed")],
        );
        let spans = collector.spans();
        let of_it = |span: &&Span| span.span_id == dead.span_id && span.trace_id == dead.trace_id;
        assert!(spans.iter().any(|span| of_it(&span)), "{dead:?}");
        said("ganger is running");
        said("ganger has stopped");
        has(&collector.resource(), &[("service.name", "ganger")]);
        let sent = collector
            .requests()
            .into_iter()
            .filter(|one| one.contains_key("api-key"));
        assert!(sent.count() > 0);
    }
}
