//! A connection to a server that is opened again after it was lost, and closed if the server does not
//! answer.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::timeout;

use super::registry::RequestFailure;
use crate::table::Fault;

/// Maximum time to wait for an answer. The server's own limit for a statement is shorter.
pub(crate) const ANSWERS_WITHIN: Duration = Duration::from_secs(15);

/// A connection that can be opened again.
pub(crate) trait Openable: Sized {
    /// Address and options of the connection.
    type Target;
    /// Reason that it can't be opened.
    type Refusal: Display;
    /// Error of a request.
    type Error: Into<RequestFailure>;

    fn open(target: &Self::Target) -> impl Future<Output = Result<Self, Self::Refusal>> + Send;

    fn is_closed(&self) -> bool;

    /// Closes it at once, even while a request is running.
    fn abort(self);
}

/// No answer came within this time.
#[derive(Debug)]
pub(crate) struct NoAnswer(pub(crate) Duration);

/// A connection that is opened again when needed.
#[derive(Debug)]
pub(crate) struct Reconnecting<C: Openable> {
    target: C::Target,
    connection: Option<C>,
}

impl<C: Openable> Reconnecting<C> {
    /// Makes one that opens its connection on first use if there is none.
    pub(crate) fn new(target: C::Target, connection: Option<C>) -> Self {
        Self { target, connection }
    }

    /// Returns the connection, and opens it again if it was lost.
    pub(crate) async fn get(&mut self) -> Result<&mut C, Fault> {
        let connection = match self.connection.take().filter(|one| !one.is_closed()) {
            Some(connection) => connection,
            None => {
                let opened = Box::pin(C::open(&self.target)).await;
                opened.map_err(|refusal| Fault::transient(refusal.to_string()))?
            }
        };
        Ok(self.connection.insert(connection))
    }

    /// Sends a request, and waits for the answer up to [`ANSWERS_WITHIN`].
    pub(crate) async fn ask<T>(
        &mut self,
        ask: impl AsyncFnOnce(&mut C) -> Result<T, C::Error>,
    ) -> Result<T, Fault> {
        let asked = ask(self.get().await?);
        let answer = timeout(ANSWERS_WITHIN, Box::pin(asked)).await;
        self.check_answer(answer.map_err(|_| NoAnswer(ANSWERS_WITHIN)))
    }

    /// Returns the answer. Without one, and after an error that ends the connection, the connection is
    /// closed.
    pub(crate) fn check_answer<T>(
        &mut self,
        answer: Result<Result<T, C::Error>, NoAnswer>,
    ) -> Result<T, Fault> {
        let failure = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => error.into(),
            Err(NoAnswer(waited)) => RequestFailure {
                fault: Fault::transient(format!(
                    "no answer from the server within {} s",
                    waited.as_secs()
                )),
                ends_the_connection: true,
            },
        };
        if failure.ends_the_connection
            && let Some(connection) = self.connection.take()
        {
            connection.abort();
        }
        Err(failure.fault)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A connection: its number, and true once it was lost.
    struct Numbered(u32, bool);

    /// An error: true if it ends the connection.
    struct Problem(bool);

    impl From<Problem> for RequestFailure {
        fn from(Problem(ends_the_connection): Problem) -> Self {
            Self {
                fault: Fault::transient("a problem"),
                ends_the_connection,
            }
        }
    }

    impl Openable for Numbered {
        type Target = AtomicU32;
        type Refusal = &'static str;
        type Error = Problem;

        async fn open(opened: &AtomicU32) -> Result<Self, &'static str> {
            match opened.fetch_add(1, Ordering::Relaxed) {
                0 => Err("not yet"),
                number => Ok(Self(number, false)),
            }
        }

        fn is_closed(&self) -> bool {
            self.1
        }

        fn abort(self) {}
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_made_anew_where_it_was_lost_or_is_of_no_use() {
        let mut connection: Reconnecting<Numbered> = Reconnecting::new(AtomicU32::new(0), None);
        let which = async |one: &mut Numbered| Ok(one.0);
        assert_eq!(connection.ask(which).await.unwrap_err().problem, "not yet");
        assert_eq!(connection.ask(which).await, Ok(1));
        let refuses = async |_: &mut Numbered| Err::<(), _>(Problem(false));
        assert_eq!(
            connection.ask(refuses).await.unwrap_err().problem,
            "a problem"
        );
        assert_eq!(connection.ask(which).await, Ok(1));
        let breaks = async |_: &mut Numbered| Err::<(), _>(Problem(true));
        connection.ask(breaks).await.unwrap_err();
        assert_eq!(connection.ask(which).await, Ok(2));
        let stays_silent = async |_: &mut Numbered| pending::<Result<(), Problem>>().await;
        let silent = connection.ask(stays_silent).await.unwrap_err();
        assert_eq!(silent.problem, "no answer from the server within 15 s");
        connection.get().await.unwrap().1 = true;
        assert_eq!(connection.ask(which).await, Ok(4));
    }
}
