//! Blocking queries to a broker: each runs on a thread of its own, since librdkafka's calls for them block,
//! and polling has to continue. The answers arrive at the task like other events.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rdkafka::consumer::{CommitMode, Consumer as _};
use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList, TopicPartitionListElem};
use tokio::sync::{mpsc, oneshot};

use super::commits::CommitAnswer;
use crate::broker::consumer::{Commit, Native, TopicPartition};
use crate::broker::error::KafkaError;
use crate::broker::setup::event_loop;
use crate::broker::start_positions::{LogQuery, LogState, Part, QueryContext, StartPositions};
use crate::broker::topic_requirements::{ExistingTopics, Found, TopicRequirements};
use crate::broker::{start_positions, topics};
use ganger_config::model::KafkaSource;

/// Maximum number of answers that wait. It is higher than the number of queries open at a time; a thread
/// whose answer does not fit waits for room.
const ANSWERS_WAITING_MAX: usize = 64;

/// A blocking query.
#[derive(Debug)]
pub(super) enum Query {
    /// Start positions of the partitions that the group assigned.
    StartPositions(Vec<TopicPartition>),
    /// Start positions of partitions for which they were not known before.
    Later(Vec<TopicPartition>),
    /// State of partitions whose position no longer exists.
    LogStates(Vec<LogQuery>),
    /// Topics, which are created if needed; with the number of the query.
    Topics(u64, TopicRequirements),
    /// Existing topics and tiers.
    Existing(TopicRequirements),
    /// A commit.
    Commit(Vec<Commit>),
}

/// Result of the query of the same name.
#[derive(Debug)]
pub(super) enum Answer {
    StartPositions(Result<StartPositions, KafkaError>),
    Later(Result<StartPositions, KafkaError>),
    LogStates(Vec<(Part, Result<LogState, String>)>),
    Topics(u64, Result<Found, KafkaError>),
    Existing(Result<ExistingTopics, KafkaError>),
    Committed(CommitAnswer),
}

impl Query {
    /// Returns the name of its thread.
    fn thread(&self) -> &'static str {
        match self {
            Self::StartPositions(_) | Self::Later(_) => "kafka-begins",
            Self::LogStates(_) => "kafka-logs",
            Self::Topics(..) => "kafka-topics",
            Self::Existing(_) => "kafka-look",
            Self::Commit(_) => "kafka-commit",
        }
    }

    /// Returns the answer for a query that has failed for this reason.
    fn failed(&self, why: &str) -> Answer {
        let error = || KafkaError::unanswered(why);
        match self {
            Self::StartPositions(_) => Answer::StartPositions(Err(error())),
            Self::Later(_) => Answer::Later(Err(error())),
            Self::LogStates(asked) => {
                let each = |asked: &LogQuery| (asked.part, Err(error().to_string()));
                Answer::LogStates(asked.iter().map(each).collect())
            }
            Self::Topics(number, _) => Answer::Topics(*number, Err(error())),
            Self::Existing(_) => Answer::Existing(Err(error())),
            Self::Commit(_) => Answer::Committed(CommitAnswer::failed(Code::Fail)),
        }
    }

    fn answer(self, native: &Native, query_context: &QueryContext, config: &KafkaSource) -> Answer {
        match self {
            Self::StartPositions(partitions) => Answer::StartPositions(start_positions::determine(
                native,
                &partitions,
                query_context,
            )),
            Self::Later(partitions) => Answer::Later(start_positions::determine(
                native,
                &partitions,
                query_context,
            )),
            Self::LogStates(asked) => {
                Answer::LogStates(start_positions::log_states(native, &asked, query_context))
            }
            Self::Topics(number, wanted) => Answer::Topics(number, topics(config, &wanted, native)),
            Self::Existing(wanted) => Answer::Existing(topics::existing(config, &wanted, native)),
            Self::Commit(commits) => Answer::Committed(commit(native, &commits)),
        }
    }
}

/// Open queries.
#[derive(Debug)]
pub(super) struct OpenQueries {
    sender: mpsc::Sender<Answer>,
    receiver: mpsc::Receiver<Answer>,
    /// Answers to be handled next.
    next: VecDeque<Answer>,
}

impl OpenQueries {
    pub(super) fn new() -> Self {
        let (sender, receiver) = mpsc::channel(ANSWERS_WAITING_MAX);
        Self {
            sender,
            receiver,
            next: VecDeque::new(),
        }
    }

    /// Starts a query. A query that panics, or for which no thread can be started, has failed.
    pub(super) fn ask(
        &mut self,
        query: Query,
        native: &Arc<Native>,
        query_context: QueryContext,
        config: &KafkaSource,
    ) {
        let (sender, native, config) = (self.sender.clone(), Arc::clone(native), config.clone());
        let (name, panicked) = (query.thread(), query.failed("it panicked"));
        let without_thread = query.failed("no thread could be started");
        let body = move || {
            let answer = AssertUnwindSafe(|| query.answer(&native, &query_context, &config));
            let answer = catch_unwind(answer).unwrap_or(panicked);
            // The receiver may have been dropped.
            drop(sender.blocking_send(answer));
        };
        if run_on_thread(name, body).is_none() {
            self.next.push_back(without_thread);
        }
    }

    /// Resolves when there is an answer.
    pub(super) async fn answered(&mut self) {
        if self.next.is_empty() {
            let answer = self.receiver.recv().await;
            self.next.extend(answer);
        }
    }

    /// Returns an answer that has arrived.
    pub(super) fn answer(&mut self) -> Option<Answer> {
        let next = self.next.pop_front();
        next.or_else(|| self.receiver.try_recv().ok())
    }
}

/// Runs blocking work on a thread of its own.
pub(super) fn run_on_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<oneshot::Receiver<T>> {
    let (sender, receiver) = oneshot::channel();
    // A dropped receiver is no error.
    let body = move || drop(sender.send(work()));
    let spawned = std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body);
    match spawned {
        Ok(_) => Some(receiver),
        Err(error) => {
            tracing::error!(%error, name, "no thread could be started");
            None
        }
    }
}

/// Returns the topics that a pool needs.
fn topics(
    config: &KafkaSource,
    wanted: &TopicRequirements,
    native: &Native,
) -> Result<Found, KafkaError> {
    event_loop()?.block_on(topics::prepare(config, wanted, native))
}

/// Commits, and waits for the broker's confirmation.
fn commit(native: &Native, commits: &[Commit]) -> CommitAnswer {
    by_topic(commits, |some| commit_at_once(native, some))
}

const MISSING: Result<(), Code> = Err(Code::UnknownTopicOrPartition);

/// Commits all together, and each topic separately if one does not exist: the others may be committed, and
/// librdkafka reports only that one is missing.
fn by_topic(commits: &[Commit], commit: impl Fn(&[Commit]) -> Result<(), Code>) -> CommitAnswer {
    let together = commit(commits);
    if together != MISSING {
        return CommitAnswer {
            result: together,
            missing: BTreeSet::new(),
        };
    }
    let mut topics: BTreeMap<&str, Vec<Commit>> = BTreeMap::new();
    for one in commits {
        topics.entry(&one.topic).or_default().push(one.clone());
    }
    let mut answer = CommitAnswer::failed(Code::UnknownTopicOrPartition);
    let is_alone = topics.len() == 1;
    for (topic, some) in topics {
        let end = if is_alone { MISSING } else { commit(&some) };
        match end {
            MISSING => drop(answer.missing.insert(topic.to_owned())),
            end if answer.result == MISSING => answer.result = end,
            end => answer.result = answer.result.and(end),
        }
    }
    answer
}

fn commit_at_once(native: &Native, commits: &[Commit]) -> Result<(), Code> {
    // The list has the leader epoch of the last message of each partition. That of the last message done may
    // be lower; then the point where the log diverges is known just as well.
    let positions = native.position();
    let list = positions.map_err(|error| error.rdkafka_error_code().unwrap_or(Code::Fail))?;
    let list = listed(list, commits).ok_or(Code::InvalidArgument)?;
    // An asynchronous commit never reports: the library sets no callback that librdkafka would call.
    let done = native.commit(&list, CommitMode::Sync);
    done.map_err(|error| error.rdkafka_error_code().unwrap_or(Code::Fail))
}

/// Turns a list of positions into one of commits. Partitions that are not committed get no offset.
fn listed(mut list: TopicPartitionList, commits: &[Commit]) -> Option<TopicPartitionList> {
    let named = |commit| (name(commit), commit);
    let mut left: HashMap<TopicPartition, &Commit> = commits.iter().map(named).collect();
    for mut element in list.elements() {
        let at = (element.topic().to_owned(), element.partition());
        match left.remove(&at) {
            Some(commit) => set(&mut element, commit)?,
            None => element.set_offset(Offset::Invalid).ok()?,
        }
    }
    for commit in left.into_values() {
        set(
            &mut list.add_partition(&commit.topic, commit.partition),
            commit,
        )?;
    }
    Some(list)
}

fn name(commit: &Commit) -> TopicPartition {
    (commit.topic.clone(), commit.partition)
}

fn set(element: &mut TopicPartitionListElem<'_>, commit: &Commit) -> Option<()> {
    element.set_offset(Offset::Offset(commit.offset)).ok()?;
    if !commit.metadata.is_empty() {
        element.set_metadata(&commit.metadata);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_that_is_not_there_holds_up_no_other() {
        let commits = |topics: &[&str]| -> Vec<Commit> {
            let commit = |(topic, partition): (&&str, i32)| Commit {
                topic: (*topic).to_owned(),
                partition,
                offset: 1,
                metadata: String::new(),
            };
            topics.iter().zip(0..).map(commit).collect()
        };
        let refused = |some: &[Commit]| match some {
            some if some.iter().any(|one| one.topic == "gone") => MISSING,
            some if some.iter().any(|one| one.topic == "bad") => Err(Code::RebalanceInProgress),
            _ => Ok(()),
        };
        let bad = Err(Code::RebalanceInProgress);
        let table = [
            (vec!["a", "b"], Ok(()), vec![]),
            (vec!["a", "bad"], bad, vec![]),
            (vec!["a", "gone", "gone", "b"], Ok(()), vec!["gone"]),
            (vec!["gone", "gone"], MISSING, vec!["gone"]),
            (vec!["a", "bad", "gone", "z"], bad, vec!["gone"]),
        ];
        for (topics, result, missing) in table {
            let answer = by_topic(&commits(&topics), refused);
            let missing = missing.into_iter().map(str::to_owned).collect();
            assert_eq!(answer, CommitAnswer { result, missing }, "{topics:?}");
        }
    }
}
