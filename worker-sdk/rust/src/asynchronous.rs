//! The worker of `async` handlers: a task of the runtime for each message.

use std::future::{Future, poll_fn};
use std::io::BufRead;
use std::ops::Deref;
use std::os::unix::net::UnixStream;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use tokio::io::AsyncReadExt;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::Semaphore;

use crate::frames::Frames;
use crate::handle::{Duty, Reason, judged};
use crate::link::Link;
use crate::outbox::Outbox;
use crate::outcome::{IntoOutcome, Outcome};
use crate::task::emit;
use crate::wire::Input;
use crate::worker::attempt;
use crate::{Error, Task, Value, Worker, panics, start};

/// A message as an `async` handler sees it: a [`Task`] whose [`emit`](Self::emit) is awaited.
#[derive(Debug)]
pub struct AsyncTask(Task);

impl Deref for AsyncTask {
    type Target = Task;

    fn deref(&self) -> &Task {
        &self.0
    }
}

impl AsyncTask {
    /// As [`Task::emit`], and waits while much is on its way to the daemon. (That of the task itself
    /// fails then.)
    ///
    /// # Errors
    /// As [`Task::emit`].
    pub async fn emit(
        &self,
        queue: &str,
        message: impl AsRef<[u8]>,
        headers: &[(&str, Value)],
    ) -> Result<(), Error> {
        let headers = self.check_emit(queue, headers)?;
        let handle = self.handle();
        let output = handle.about(emit(queue, message.as_ref(), &headers));
        handle.link.outbox.note_async(output, &handle.over).await
    }
}

impl Worker {
    /// As [`run`](Self::run), for a handler that is `async`, on the current runtime of tokio, which must
    /// have I/O and time enabled. When a message is to be abandoned, the handler's future is dropped and
    /// a retry is answered, unless it has asked for its [`cancellation`](Task::cancellation).
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn run_async<H, F, R>(mut self, handler: H) -> Result<(), Error>
    where
        H: Fn(AsyncTask) -> F + Send + Sync + 'static,
        F: Future<Output = R> + Send + 'static,
        R: IntoOutcome + 'static,
    {
        let (pipe, control) = self.connect()?;
        self.serve_async(handler, pipe, control, start::spoken())
            .await
    }

    /// As [`run_async`](Self::run_async), on a connection that is there already.
    pub(crate) async fn serve_async<H, F, R>(
        &self,
        handler: H,
        pipe: UnixStream,
        control: impl BufRead + Send + 'static,
        version: u32,
    ) -> Result<(), Error>
    where
        H: Fn(AsyncTask) -> F + Send + Sync + 'static,
        F: Future<Output = R> + Send + 'static,
        R: IntoOutcome + 'static,
    {
        panics::watch();
        pipe.set_nonblocking(true)?;
        let outbox = Outbox::of_a_task(self.frame_bytes_max);
        let link = Link::new(pipe.try_clone()?, outbox, version);
        let (read, write) = tokio::net::UnixStream::from_std(pipe)?.into_split();
        let concurrency = self.concurrency_in(version);
        if version > 1 {
            link.greet(concurrency)?;
        }
        link.listen(control)?;
        self.watch(&link);
        let writing = Arc::clone(&link);
        let writer = tokio::spawn(async move { writing.outbox.write_to(write).await });
        let reader = Reader {
            handler: Arc::new(handler),
            link: Arc::clone(&link),
            room: Arc::new(Semaphore::new(concurrency)),
        };
        if let Err(error) = reader.read(read, Frames::new(self.frame_bytes_max)).await {
            link.fail(error);
        }
        let all = u32::try_from(concurrency).unwrap_or(u32::MAX);
        // It is never closed: this waits for those in hand.
        drop(reader.room.acquire_many(all).await);
        link.give_back_held();
        link.outbox.close();
        drop(writer.await);
        link.result()
    }
}

struct Reader<H> {
    handler: Arc<H>,
    link: Arc<Link>,
    /// A permit for each message that may be in hand.
    room: Arc<Semaphore>,
}

impl<H> Reader<H> {
    /// Takes what comes until the pipe ends, or is broken.
    async fn read<F, R>(&self, mut pipe: OwnedReadHalf, mut frames: Frames) -> Result<(), Error>
    where
        H: Fn(AsyncTask) -> F + Send + Sync + 'static,
        F: Future<Output = R> + Send + 'static,
        R: IntoOutcome + 'static,
    {
        loop {
            while let Some(frame) = frames.next()? {
                let input = Input::decode(frame)?;
                let Ok(permit) = Arc::clone(&self.room).acquire_owned().await else {
                    return Ok(()); // it is never closed
                };
                let (handler, link) = (Arc::clone(&self.handler), Arc::clone(&self.link));
                tokio::spawn(async move {
                    work(&*handler, &link, input).await;
                    drop(permit);
                });
            }
            match pipe.read(frames.space()?).await {
                // A daemon that is gone needs this worker no more.
                Ok(0) | Err(_) => return Ok(()),
                Ok(count) => frames.filled(count),
            }
        }
    }
}

/// Works on one message, and answers it.
async fn work<H, F, R>(handler: &H, link: &Arc<Link>, input: Input)
where
    H: Fn(AsyncTask) -> F,
    F: Future<Output = R>,
    R: IntoOutcome,
{
    let Some((task, duty)) = link.begin(input) else {
        return;
    };
    let result = match attempt(&duty, || Box::pin(handler(AsyncTask(task)))) {
        Ok(future) => attend(&duty, future).await,
        Err(panic) => Err(Reason::Failed(panic)),
    };
    duty.answer(result);
}

/// Brings a handler's future to its end, or drops it when its message is to be abandoned.
async fn attend<F, R>(duty: &Duty, future: Pin<Box<F>>) -> Result<Outcome, Reason>
where
    F: Future<Output = R>,
    R: IntoOutcome,
{
    let mut future = Some(future);
    let mut cancelled = pin!(duty.handle.cancelled());
    let result = poll_fn(|context| {
        let Some(work) = &mut future else {
            return Poll::Ready(Err(Reason::Cancelled(String::new())));
        };
        match attempt(duty, || work.as_mut().poll(context).map(judged)) {
            Ok(Poll::Pending) => {}
            Ok(Poll::Ready(result)) => return Poll::Ready(result),
            Err(panic) => return Poll::Ready(Err(Reason::Failed(panic))),
        }
        if !duty.handle.is_heeded() && cancelled.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(Reason::Cancelled(String::new())));
        }
        Poll::Pending
    })
    .await;
    match attempt(duty, || drop(future.take())) {
        Ok(()) => result,
        Err(panic) => Err(Reason::Failed(panic)),
    }
}
