//! What has to be asked of a broker and waited for: each question on a thread of its own, since
//! librdkafka's calls for them block, and polling has to go on. The answers come to the task like
//! anything else that happens.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::sync::{mpsc, oneshot};

use super::consumer::{Commit, Context, TopicPartition};
use super::error::KafkaError;
use super::lanes::Part;
use super::settings::Reset;
use super::setup::event_loop;
use super::topics::{self, Found, Wanted};
use crate::config::model::KafkaSource;

/// How long a question may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// More than there are questions at a time; a thread with an answer waits for room else.
const ANSWERS_WAITING_MAX: usize = 64;

/// What a thread has found out.
#[derive(Debug)]
pub(super) enum Answer {
    /// Where the partitions begin that the group gave us.
    Begins(Result<Begins, KafkaError>),
    /// Likewise, of those that were not known then.
    Later(Result<Begins, KafkaError>),
    /// Where a partition begins and ends whose position is gone.
    Ends(Part, Result<(i64, i64), KafkaError>),
    /// The topics, after the policy has changed; with the number of the question.
    Topics(u64, Result<Found, KafkaError>),
    /// How a commit ended.
    Committed(Result<(), Code>),
}

/// Where a partition begins for us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Begin {
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) offset: i64,
    /// The metadata of the group's commit; none where it has committed nothing.
    pub(super) committed: Option<String>,
}

/// Where partitions begin for us.
#[derive(Debug, Default)]
pub(super) struct Begins {
    pub(super) begun: Vec<Begin>,
    /// Of which it can't be told now, and why.
    pub(super) unknown: Vec<(TopicPartition, String)>,
    /// Of which nothing is committed, and which are not to be read then.
    pub(super) unread: Vec<TopicPartition>,
}

/// The questions that are open.
#[derive(Debug)]
pub(super) struct Asking {
    tell: mpsc::Sender<Answer>,
    told: mpsc::Receiver<Answer>,
    next: Option<Answer>,
}

impl Asking {
    pub(super) fn new() -> Self {
        let (tell, told) = mpsc::channel(ANSWERS_WAITING_MAX);
        Self {
            tell,
            told,
            next: None,
        }
    }

    /// Asks. `failed` is the answer if the question panics. False if there is no thread to be had.
    pub(super) fn ask(
        &self,
        name: &str,
        failed: Answer,
        question: impl FnOnce() -> Answer + Send + 'static,
    ) -> bool {
        let tell = self.tell.clone();
        let body = move || {
            let answer = catch_unwind(AssertUnwindSafe(question)).unwrap_or(failed);
            // Whoever asked may have ended.
            drop(tell.blocking_send(answer));
        };
        aside(name, body).is_some()
    }

    /// Resolves when there is an answer.
    pub(super) async fn answered(&mut self) {
        if self.next.is_none() {
            self.next = self.told.recv().await;
        }
    }

    /// An answer that is there.
    pub(super) fn answer(&mut self) -> Option<Answer> {
        self.next.take().or_else(|| self.told.try_recv().ok())
    }
}

/// Does something that blocks on a thread of its own.
pub(super) fn aside<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<oneshot::Receiver<T>> {
    let (tell, told) = oneshot::channel();
    // Nobody listening any more is no trouble.
    let body = move || drop(tell.send(work()));
    let spawned = std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body);
    match spawned {
        Ok(_) => Some(told),
        Err(error) => {
            tracing::error!(%error, name, "there is no thread to be had");
            None
        }
    }
}

type Native = BaseConsumer<Context>;

/// Where partitions begin: where the group's commits say, or else at an end.
pub(super) fn begins(
    native: &Native,
    partitions: &[TopicPartition],
    main: &str,
    reset: Reset,
) -> Result<Begins, KafkaError> {
    const WHAT: &str = "reading the group's commits";
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    for (topic, partition) in partitions {
        list.add_partition(topic, *partition);
    }
    let committed = native
        .committed_offsets(list, ANSWER_WITHIN)
        .map_err(|error| KafkaError::of_request(WHAT, &error))?;
    let mut begins = Begins::default();
    for element in committed.elements() {
        let fault = element.error();
        fault.map_err(|error| KafkaError::of_request(WHAT, &error))?;
        let partition = (element.topic().to_owned(), element.partition());
        let Offset::Offset(offset) = element.offset() else {
            // A tier is read from its first message, whatever is set for the topic.
            let reset = if partition.0 == main {
                reset
            } else {
                Reset::Earliest
            };
            begin_at_an_end(native, partition, reset, &mut begins);
            continue;
        };
        // The library panics over text that is not UTF-8.
        let text = catch_unwind(AssertUnwindSafe(|| element.metadata().to_owned()));
        begins.begun.push(Begin {
            topic: partition.0,
            partition: partition.1,
            offset,
            committed: Some(text.unwrap_or_else(|_| "not UTF-8".to_owned())),
        });
    }
    Ok(begins)
}

fn begin_at_an_end(native: &Native, at: TopicPartition, reset: Reset, begins: &mut Begins) {
    if reset == Reset::Refuse {
        begins.unread.push(at);
        return;
    }
    let (topic, partition) = at;
    match ends(native, &topic, partition) {
        Ok((first, end)) => begins.begun.push(Begin {
            topic,
            partition,
            offset: if reset == Reset::Latest { end } else { first },
            committed: None,
        }),
        Err(error) => begins.unknown.push(((topic, partition), error.to_string())),
    }
}

/// The first offset of a partition, and one past the last.
pub(super) fn ends(native: &Native, topic: &str, partition: i32) -> Result<(i64, i64), KafkaError> {
    let ends = native.fetch_watermarks(topic, partition, ANSWER_WITHIN);
    ends.map_err(|error| KafkaError::of_request("reading where a partition begins", &error))
}

/// The topics that a pool needs.
pub(super) fn topics(
    config: &KafkaSource,
    wanted: &Wanted,
    native: &Native,
) -> Result<Found, KafkaError> {
    event_loop()?.block_on(topics::prepare(config, wanted, native))
}

/// Commits, and waits until the broker has it.
pub(super) fn commit(native: &Native, commits: &[Commit]) -> Result<(), Code> {
    let mut list = TopicPartitionList::with_capacity(commits.len());
    for commit in commits {
        let mut element = list.add_partition(&commit.topic, commit.partition);
        if element.set_offset(Offset::Offset(commit.offset)).is_err() {
            return Err(Code::InvalidArgument);
        }
        if !commit.metadata.is_empty() {
            element.set_metadata(&commit.metadata);
        }
    }
    // An asynchronous one never tells: the library sets no callback that librdkafka would call.
    let done = native.commit(&list, CommitMode::Sync);
    done.map_err(|error| error.rdkafka_error_code().unwrap_or(Code::Fail))
}
