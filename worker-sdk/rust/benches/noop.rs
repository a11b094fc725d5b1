//! What the library costs: tasks that do nothing, beside a loop written by hand, in one run.
//!
//! `cargo bench --features tokio --bench noop -- [ROUNDS]` prints, for one message at a time and for 64,
//! the median of the rounds' ratios of the processor time that a message takes: library / by hand. The
//! two take turns.
//! Then how long a worker takes from its start to its first frame, and what memory it has at the end.

#![expect(clippy::print_stdout, reason = "what is measured is printed")]

use std::collections::HashMap;
use std::env;
use std::fs;
use std::io::{BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use ganger_worker::{AsyncTask, Task, Worker};
use rmpv::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MESSAGES: u64 = 100_000;
const KINDS: [&str; 2] = ["threads", "tokio"];

fn main() {
    let arguments: Vec<String> = env::args().collect();
    if let [_, worker, way, concurrency] = &arguments[..] {
        if worker == "worker" {
            return work(way, concurrency.parse().expect("a number"));
        }
    }
    let rounds = arguments
        .iter()
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(5);
    for kind in KINDS {
        for ahead in [1, 64] {
            compare(kind, ahead, rounds);
        }
    }
}

fn compare(kind: &str, ahead: u64, rounds: usize) {
    let mut runs: HashMap<&str, Vec<Run>> = HashMap::new();
    for round in 0..rounds {
        let mut ways = ["library", "by hand"];
        if round % 2 == 1 {
            ways.reverse();
        }
        for way in ways {
            runs.entry(way)
                .or_default()
                .push(measure(&format!("{kind} {way}"), ahead));
        }
    }
    let (library, by_hand) = (&runs["library"], &runs["by hand"]);
    let of = |runs: &[Run], what: fn(&Run) -> f64| median(runs.iter().map(what).collect());
    let ratios = library
        .iter()
        .zip(by_hand)
        .map(|(library, by_hand)| library.micros / by_hand.micros);
    println!(
        "{kind}, {ahead} at once: library {:.2} µs, by hand {:.2} µs, ratio {:.2}",
        of(library, |run| run.micros),
        of(by_hand, |run| run.micros),
        median(ratios.collect()),
    );
    println!(
        "    library: first frame after {:.1} ms, {:.1} MiB; by hand {:.1} ms, {:.1} MiB",
        of(library, |run| run.start_ms),
        of(library, |run| run.mebibytes),
        of(by_hand, |run| run.start_ms),
        of(by_hand, |run| run.mebibytes),
    );
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

// -- workers --

fn work(way: &str, concurrency: usize) {
    let worker = Worker::new().concurrency(concurrency);
    let runtime = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().expect("a runtime")
    };
    match way {
        "threads library" => worker.run(|_: &Task| {}).expect("a worker"),
        "tokio library" => {
            runtime()
                .block_on(worker.run_async(|_: AsyncTask| async {}))
                .expect("a worker");
        }
        "threads by hand" => with_threads_by_hand(concurrency),
        "tokio by hand" => runtime().block_on(with_tokio_by_hand(concurrency)),
        other => panic!("no such way: {other}"),
    }
}

fn hello(concurrency: usize) -> Vec<u8> {
    let concurrency = concurrency.to_string();
    let headers = [
        ("sdk", "none"),
        ("version", "0"),
        ("concurrency", &concurrency),
    ];
    let headers = headers.map(|(name, value)| (Value::from(name), Value::from(value)));
    frame(&[
        ("0", "".into()),
        ("1", 100.into()),
        ("2", Value::Map(headers.to_vec())),
    ])
}

fn frame(pairs: &[(&str, Value)]) -> Vec<u8> {
    let mut data = vec![0; 4];
    let pairs = pairs
        .iter()
        .map(|(key, value)| (Value::from(*key), value.clone()));
    rmpv::encode::write_value(&mut data, &Value::Map(pairs.collect())).expect("memory takes it");
    let size = u32::try_from(data.len() - 4).expect("a size").to_be_bytes();
    data[..4].copy_from_slice(&size);
    data
}

fn answer(frame: &[u8]) -> Vec<u8> {
    let mut from = frame;
    let task = rmpv::decode::read_value(&mut from).expect("MessagePack");
    let pairs = task.as_map().expect("a map");
    let id = pairs
        .iter()
        .find(|(key, _)| key.as_str() == Some("4"))
        .expect("an id");
    let mut data = vec![0; 4];
    rmp::encode::write_map_len(&mut data, 3).expect("memory takes it");
    rmp::encode::write_str(&mut data, "0").expect("memory takes it");
    rmp::encode::write_str(&mut data, "").expect("memory takes it");
    rmp::encode::write_str(&mut data, "1").expect("memory takes it");
    rmp::encode::write_uint(&mut data, 200).expect("memory takes it");
    rmp::encode::write_str(&mut data, "4").expect("memory takes it");
    rmp::encode::write_uint(&mut data, id.1.as_u64().expect("an id")).expect("memory takes it");
    let size = u32::try_from(data.len() - 4).expect("a size").to_be_bytes();
    data[..4].copy_from_slice(&size);
    data
}

fn read_frame(from: &mut impl Read) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length).ok()?;
    let mut frame = vec![0; usize::try_from(u32::from_be_bytes(length)).ok()?];
    from.read_exact(&mut frame).ok()?;
    Some(frame)
}

fn with_threads_by_hand(concurrency: usize) {
    let pipe = UnixStream::connect(env::var("GANGER_PIPE").expect("a path")).expect("a daemon");
    let mut from = BufReader::with_capacity(1 << 16, pipe.try_clone().expect("a descriptor"));
    let to = Mutex::new(pipe);
    let send = |data: &[u8]| {
        to.lock()
            .expect("no panic")
            .write_all(data)
            .unwrap_or_default()
    };
    send(&hello(concurrency));
    if concurrency == 1 {
        while let Some(frame) = read_frame(&mut from) {
            send(&answer(&frame));
        }
        return;
    }
    let (frames, waiting) = mpsc::sync_channel::<Vec<u8>>(concurrency);
    let waiting = Mutex::new(waiting);
    std::thread::scope(|scope| {
        for _ in 0..concurrency {
            scope.spawn(|| {
                loop {
                    let frame = waiting.lock().expect("no panic").recv();
                    match frame {
                        Ok(frame) => send(&answer(&frame)),
                        Err(_) => return,
                    }
                }
            });
        }
        while let Some(frame) = read_frame(&mut from) {
            frames.send(frame).expect("a thread");
        }
        drop(frames);
    });
}

async fn with_tokio_by_hand(concurrency: usize) {
    let path = env::var("GANGER_PIPE").expect("a path");
    let pipe = tokio::net::UnixStream::connect(path)
        .await
        .expect("a daemon");
    let (from, to) = pipe.into_split();
    let mut from = tokio::io::BufReader::with_capacity(1 << 16, from);
    let to = Arc::new(tokio::sync::Mutex::new(to));
    to.lock()
        .await
        .write_all(&hello(concurrency))
        .await
        .expect("a daemon");
    loop {
        let Ok(size) = from.read_u32().await else {
            return;
        };
        let mut frame = vec![0; usize::try_from(size).expect("a size")];
        from.read_exact(&mut frame).await.expect("a frame");
        let to = Arc::clone(&to);
        let work = async move {
            let data = answer(&frame);
            to.lock().await.write_all(&data).await.unwrap_or_default();
        };
        if concurrency == 1 {
            work.await;
        } else {
            drop(tokio::spawn(work));
        }
    }
}

// -- the daemon's side --

struct Run {
    micros: f64,
    start_ms: f64,
    mebibytes: f64,
}

fn measure(way: &str, ahead: u64) -> Run {
    let path = env::temp_dir().join(format!("noop-{}", std::process::id()));
    let listener = UnixListener::bind(&path).expect("a socket");
    let started = Instant::now();
    let mut process = Command::new(env::current_exe().expect("a path"))
        .args(["worker", way, &ahead.to_string()])
        .env("GANGER_PROTOCOL", "2")
        .env("GANGER_PIPE", &path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a process");
    writeln!(process.stdin.as_mut().expect("a stdin"), "pipe").expect("a reader");
    let mut pipe = listener.accept().expect("a connection").0;
    fs::remove_file(&path).expect("the socket's file");
    let mut from = BufReader::with_capacity(1 << 16, pipe.try_clone().expect("a descriptor"));
    read_frame(&mut from).expect("a HELLO");
    let start_ms = started.elapsed().as_secs_f64() * 1000.0;
    exchange(&mut pipe, &mut from, 1000, ahead);
    let before = processor_time(process.id());
    exchange(&mut pipe, &mut from, MESSAGES, ahead);
    let used = processor_time(process.id()) - before;
    let mebibytes = resident(process.id());
    pipe.shutdown(std::net::Shutdown::Write)
        .expect("an open pipe");
    drop(process.stdin.take());
    process.wait().expect("an end");
    Run {
        micros: used.as_secs_f64() * 1e6 / MESSAGES as f64,
        start_ms,
        mebibytes,
    }
}

/// That of all threads, which have a clock finer than ticks.
fn processor_time(pid: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("its threads");
    let nanos = threads.map(|thread| {
        let path = thread.expect("a thread").path().join("schedstat");
        let text = fs::read_to_string(path).expect("its times");
        text.split(' ')
            .next()
            .and_then(|first| first.parse::<u64>().ok())
            .expect("a number")
    });
    Duration::from_nanos(nanos.sum())
}

fn resident(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .expect("its memory");
    let kibibytes: f64 = line
        .trim_end_matches("kB")
        .trim()
        .parse()
        .expect("a number");
    kibibytes / 1024.0
}

fn exchange(pipe: &mut UnixStream, from: &mut BufReader<UnixStream>, count: u64, ahead: u64) {
    let (mut sent, mut answered) = (0, 0);
    while answered < count {
        let mut heap = Vec::new();
        while sent < count && sent < answered + ahead {
            heap.extend(input(sent));
            sent += 1;
        }
        pipe.write_all(&heap).expect("a reader");
        loop {
            read_frame(from).expect("an answer");
            answered += 1;
            if from.buffer().is_empty() {
                break;
            }
        }
    }
}

fn input(id: u64) -> Vec<u8> {
    let properties = vec![("row_id".into(), id.into())];
    frame(&[
        ("0", "hello".into()),
        ("1", "".into()),
        ("2", "work".into()),
        ("3", Value::Map(Vec::new())),
        ("4", id.into()),
        ("5", 1.into()),
        ("6", Value::Nil),
        ("7", Value::Map(properties)),
    ])
}
