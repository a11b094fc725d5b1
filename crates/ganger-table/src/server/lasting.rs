//! A connection to a server that is made anew where it was lost, and given up where it does not answer.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::timeout;

use super::registry::Undone;
use crate::table::Fault;

/// How long a silent server is waited for. Its own limit for a statement is less.
pub(crate) const ANSWERS_WITHIN: Duration = Duration::from_secs(15);

/// A connection, with whatever it knows.
pub(crate) trait Openable: Sized {
    /// Where it is made to.
    type Place;
    /// Why it can't be made.
    type Refusal: Display;
    /// What goes wrong with what it is asked.
    type Error: Into<Undone>;

    fn open(place: &Self::Place) -> impl Future<Output = Result<Self, Self::Refusal>> + Send;

    fn is_closed(&self) -> bool;

    /// Ends it at once, whatever is under way.
    fn hang_up(self);
}

/// No answer has come for as long as one is waited for.
#[derive(Debug)]
pub(crate) struct Silent(pub(crate) Duration);

/// One that stands whenever it can.
#[derive(Debug)]
pub(crate) struct Lasting<C: Openable> {
    place: C::Place,
    connection: Option<C>,
}

impl<C: Openable> Lasting<C> {
    /// It is made when it is needed, if it is not there.
    pub(crate) fn new(place: C::Place, connection: Option<C>) -> Self {
        Self { place, connection }
    }

    /// The connection, made anew where it was lost.
    pub(crate) async fn get(&mut self) -> Result<&mut C, Fault> {
        let connection = match self.connection.take().filter(|one| !one.is_closed()) {
            Some(connection) => connection,
            None => {
                let opened = Box::pin(C::open(&self.place)).await;
                opened.map_err(|refusal| Fault::passing(refusal.to_string()))?
            }
        };
        Ok(self.connection.insert(connection))
    }

    /// Asks it, and waits for the answer as long as usual.
    pub(crate) async fn ask<T>(
        &mut self,
        ask: impl AsyncFnOnce(&mut C) -> Result<T, C::Error>,
    ) -> Result<T, Fault> {
        let asked = ask(self.get().await?);
        let answer = timeout(ANSWERS_WITHIN, Box::pin(asked)).await;
        self.heard(answer.map_err(|_| Silent(ANSWERS_WITHIN)))
    }

    /// What was answered; without an answer, or after some of them, the connection is given up.
    pub(crate) fn heard<T>(
        &mut self,
        answer: Result<Result<T, C::Error>, Silent>,
    ) -> Result<T, Fault> {
        let undone = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => error.into(),
            Err(Silent(waited)) => Undone {
                fault: Fault::passing(format!(
                    "the server has not answered for {} s",
                    waited.as_secs()
                )),
                ends_the_connection: true,
            },
        };
        if undone.ends_the_connection
            && let Some(connection) = self.connection.take()
        {
            connection.hang_up();
        }
        Err(undone.fault)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Which it is, and whether it was lost.
    struct Numbered(u32, bool);

    /// Whether the connection ends with it.
    struct Problem(bool);

    impl From<Problem> for Undone {
        fn from(Problem(ends_the_connection): Problem) -> Self {
            Self {
                fault: Fault::passing("a problem"),
                ends_the_connection,
            }
        }
    }

    impl Openable for Numbered {
        type Place = AtomicU32;
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

        fn hang_up(self) {}
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_made_anew_where_it_was_lost_or_is_of_no_use() {
        let mut lasting: Lasting<Numbered> = Lasting::new(AtomicU32::new(0), None);
        let which = async |one: &mut Numbered| Ok(one.0);
        assert_eq!(lasting.ask(which).await.unwrap_err().problem, "not yet");
        assert_eq!(lasting.ask(which).await, Ok(1));
        let refuses = async |_: &mut Numbered| Err::<(), _>(Problem(false));
        assert_eq!(lasting.ask(refuses).await.unwrap_err().problem, "a problem");
        assert_eq!(lasting.ask(which).await, Ok(1));
        let breaks = async |_: &mut Numbered| Err::<(), _>(Problem(true));
        lasting.ask(breaks).await.unwrap_err();
        assert_eq!(lasting.ask(which).await, Ok(2));
        let stays_silent = async |_: &mut Numbered| pending::<Result<(), Problem>>().await;
        let silent = lasting.ask(stays_silent).await.unwrap_err();
        assert_eq!(silent.problem, "the server has not answered for 15 s");
        lasting.get().await.unwrap().1 = true;
        assert_eq!(lasting.ask(which).await, Ok(4));
    }
}
