//! Start of the source: it searches for a broker and creates its clients, repeatedly until it succeeds or has
//! to stop. Obstacles are temporary: an unreachable broker, or a thread that can't be started on a machine
//! with too many.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use super::health::{Health, HealthIssue};
use super::purpose::Purpose;
use crate::broker::consumer::Consumer;
use crate::broker::error::KafkaError;
use crate::broker::producer::Producer;
use crate::broker::setup::{Plan, Setup};
use crate::broker::topic_requirements::Found;
use ganger_core::backoff::AWAY;
use ganger_core::threads::aside;
use ganger_queue::credit::intake;
use ganger_queue::delivery::{Intake, SourceEnd};

/// Time that one attempt waits for a connection.
const ATTEMPT_WITHIN: Duration = Duration::from_millis(500);

/// State of a source that can start.
pub(super) struct Startup {
    pub(super) plan: Plan,
    pub(super) found: Found,
    pub(super) consumer: Consumer,
    pub(super) producer: Producer<Purpose>,
}

/// Searches for a broker, unless one was found already, and creates the clients. None if the source has to
/// stop before.
pub(super) async fn begin(
    setup: Setup,
    mut found: Option<Found>,
    end: &mut SourceEnd,
    health: &mut Health,
    wakeup: &Arc<Notify>,
) -> Option<Startup> {
    let setup = Arc::new(Mutex::new(setup));
    let mut failures = 0;
    loop {
        let thread = thread::Builder::new().name("kafka-setup".to_owned());
        let looked = match found.take() {
            Some(found) => Ok(found),
            None => unless_closed(end, prepare(&setup, thread)).await?,
        };
        match looked.and_then(|found| clients(&setup, found, wakeup)) {
            Ok(begun) => {
                health.resolve(end, HealthIssue::Setup);
                return Some(begun);
            }
            Err(problem) => health.begin(end, HealthIssue::Setup, problem),
        }
        failures += 1;
        let pause = AWAY.wait(failures, fastrand::f64());
        unless_closed(end, sleep(pause)).await?;
    }
}

/// Searches for a broker, on the given thread, since it may take as long as a broker takes to answer.
async fn prepare(setup: &Arc<Mutex<Setup>>, thread: thread::Builder) -> Result<Found, String> {
    let setup = Arc::clone(setup);
    let looked = aside(thread, move || {
        held(&setup).prepare_blocking(ATTEMPT_WITHIN)
    })
    .await;
    let found = looked.map_err(|error| error.to_string())?;
    found.map_err(|error| error.to_string())
}

fn clients(setup: &Mutex<Setup>, found: Found, wakeup: &Arc<Notify>) -> Result<Startup, String> {
    let plan = held(setup).plan.clone();
    let made = || -> Result<_, KafkaError> {
        Ok((plan.consumer(&found, wakeup)?, plan.producer(wakeup)?))
    };
    let (consumer, producer) = made().map_err(|error| error.to_string())?;
    Ok(Startup {
        plan,
        found,
        consumer,
        producer,
    })
}

/// Locks the setup, even if a holder panicked: each attempt starts from the beginning.
fn held(setup: &Mutex<Setup>) -> MutexGuard<'_, Setup> {
    setup.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a future, unless the intake closes before.
async fn unless_closed<T>(end: &mut SourceEnd, future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    loop {
        if intake(end) == Intake::Closed {
            return None;
        }
        tokio::select! {
            _ = end.intake.changed() => {}
            value = &mut future => return Some(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::settings::tests::source;
    use ganger_config::sample::policy;

    /// No machine has enough memory for such a stack: creating the thread fails, as it would beyond the limit
    /// of threads.
    #[tokio::test]
    async fn a_thread_that_is_refused_is_a_problem_and_no_end() {
        let setup = Setup::new(&source(&[]), &policy()).unwrap();
        let setup = Arc::new(Mutex::new(setup));
        let refused = thread::Builder::new().stack_size(1 << 60);
        let problem = prepare(&setup, refused).await.unwrap_err();
        assert!(problem.contains("spawning a thread failed"), "{problem}");
        // The setup survived: the next attempt finds no broker, as it should.
        let problem = prepare(&setup, thread::Builder::new()).await.unwrap_err();
        assert!(!problem.contains("thread"), "{problem}");
    }
}
