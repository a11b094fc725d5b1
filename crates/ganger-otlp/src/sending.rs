//! Sends queued telemetry to its collector, batch by batch, until the end; and logs once each time that
//! the collector stops or resumes accepting.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::settings::Batching;
use ganger_telemetry::queue::Queue;

/// A signal and its destination, in words.
#[derive(Debug, Clone, Copy)]
pub(super) struct Route<'a> {
    /// The signal.
    pub(super) what: &'static str,
    /// The destination: host and port of a URL only, which are no secret.
    pub(super) to: &'a str,
}

/// Sends items as they come, and at the end the rest.
pub(super) async fn send_all<T>(
    route: Route<'_>,
    queue: &Queue<T>,
    batching: Batching,
    mut closing: watch::Receiver<bool>,
    send: impl AsyncFn(Vec<T>) -> Result<(), String>,
) {
    let mut health = Health::default();
    let mut is_over = false;
    while !is_over {
        tokio::select! {
            biased;
            // A dropped sender means the end, too.
            _ = closing.wait_for(|closing| *closing) => is_over = true,
            () = queue.full() => {}
            () = tokio::time::sleep(batching.delay) => {}
        }
        loop {
            let batch = queue.take();
            if batch.is_empty() {
                break;
            }
            let count = batch.len() as u64;
            let result = bounded(batching.timeout, send(batch)).await;
            if result.is_err() {
                queue.lose(count);
            }
            let is_away = result.is_err();
            health.record_result(route, &result);
            if is_away && !is_over {
                // The collector may be back for the next batch.
                break;
            }
        }
        health.lost(route, queue.lost());
    }
}

/// Bounds a request in time: a timeout counts as a failure.
pub(super) async fn bounded(
    within: Duration,
    sending: impl Future<Output = Result<(), String>>,
) -> Result<(), String> {
    let late = || Err(format!("it did not answer within {within:?}"));
    timeout(within, sending).await.unwrap_or_else(|_| late())
}

/// Tracks whether the collector accepts telemetry.
#[derive(Debug, Default)]
pub(super) struct Health {
    is_away: bool,
    /// Number of lost items at the last check.
    lost: u64,
    /// Items are lost although the collector accepts telemetry.
    is_short: bool,
}

impl Health {
    /// Records the result of a request.
    pub(super) fn record_result(&mut self, route: Route<'_>, result: &Result<(), String>) {
        let Route { what, to } = route;
        match result {
            Err(error) if !self.is_away => {
                self.is_away = true;
                tracing::warn!(
                    collector = to,
                    error,
                    "the OTLP collector accepts no {what}: those beyond the buffer are lost"
                );
            }
            Ok(()) if self.is_away => {
                self.is_away = false;
                tracing::info!(collector = to, "the OTLP collector accepts {what} again");
            }
            Ok(()) | Err(_) => {}
        }
    }

    /// Records the number of items lost since the start.
    fn lost(&mut self, route: Route<'_>, lost: u64) {
        let is_short = lost > self.lost && !self.is_away;
        let (what, since_start) = (route.what, lost);
        if is_short && !self.is_short {
            tracing::warn!(
                since_start,
                "{what} are lost: more are produced than the OTLP collector accepts"
            );
        }
        self.is_short = is_short;
        self.lost = lost;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;
    use ganger_telemetry::capture::logged;

    const ROUTE: Route<'static> = Route {
        what: "spans",
        to: "host:1",
    };
    const BATCHING: Batching = Batching {
        delay: Duration::from_secs(5),
        waiting_max: 4,
        batch: 2,
        timeout: Duration::from_secs(30),
    };

    fn run(work: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime.unwrap().block_on(work);
    }

    #[test]
    fn all_is_sent_in_batches_and_at_the_end_the_rest() {
        let (close, closing) = watch::channel(false);
        let queue = Queue::new(4, 2);
        let sent = RefCell::new(Vec::new());
        let send = async |batch: Vec<u32>| {
            sent.borrow_mut().push(batch);
            Ok(())
        };
        run(async {
            let sending = send_all(ROUTE, &queue, BATCHING, closing, send);
            let feeding = async {
                (1..=3).for_each(|one| queue.push(one));
                tokio::time::sleep(Duration::from_secs(60)).await;
                queue.push(4);
                close.send(true).unwrap();
            };
            tokio::join!(sending, feeding);
        });
        assert_eq!(*sent.borrow(), [vec![1, 2], vec![3], vec![4]]);
        assert_eq!(queue.lost(), 0);
    }

    #[test]
    fn one_that_is_away_is_told_of_once_and_counted() {
        let (_close, closing) = watch::channel(false);
        let queue = Queue::new(4, 2);
        let is_away = Cell::new(true);
        let send = async |_| match is_away.get() {
            true => Err("connection refused".to_owned()),
            false => Ok(()),
        };
        let text = logged("info", || {
            run(async {
                let sending = send_all(ROUTE, &queue, BATCHING, closing, send);
                let feeding = async {
                    for n in 0..20 {
                        queue.push(n);
                        is_away.set(n < 10);
                        tokio::time::sleep(BATCHING.delay * 2).await;
                    }
                };
                tokio::select! {
                    () = sending => {}
                    () = feeding => {}
                }
            });
        });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].contains("accepts no spans") && lines[0].contains("connection refused"));
        assert!(lines[1].contains("accepts spans again"), "{text}");
        assert_eq!(queue.lost(), 10);
    }

    #[test]
    fn one_that_never_answers_is_away() {
        run(async {
            let never = std::future::pending();
            let error = bounded(Duration::from_secs(3), never).await.unwrap_err();
            assert_eq!(error, "it did not answer within 3s");
        });
    }

    #[test]
    fn what_is_lost_for_want_of_room_is_told_once() {
        let text = logged("info", || {
            let mut health = Health::default();
            for lost in [0, 3, 9, 9, 9, 12] {
                health.lost(ROUTE, lost);
            }
        });
        assert_eq!(text.matches("spans are lost").count(), 2, "{text}");
    }
}
