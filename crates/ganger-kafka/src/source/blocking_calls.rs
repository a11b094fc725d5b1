//! What has to be asked of a broker and waited for: each question on a thread of its own, since
//! librdkafka's calls for them block, and polling has to go on. The answers come to the task like
//! anything else that happens.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rdkafka::consumer::{CommitMode, Consumer as _};
use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList, TopicPartitionListElem};
use tokio::sync::{mpsc, oneshot};

use super::commits::CommitAnswer;
use crate::broker::begins::{Begins, Part, Standing};
use crate::broker::consumer::{Commit, Native, TopicPartition};
use crate::broker::error::KafkaError;
use crate::broker::setup::event_loop;
use crate::broker::topics;
use crate::broker::wanted::{Found, There, Wanted};
use ganger_config::model::KafkaSource;

/// More than there are questions at a time; a thread with an answer waits for room else.
const ANSWERS_WAITING_MAX: usize = 64;

/// What a thread has found out.
#[derive(Debug)]
pub(super) enum Answer {
    /// Where the partitions begin that the group gave us.
    Begins(Result<Begins, KafkaError>),
    /// Likewise, of those that were not known then.
    Later(Result<Begins, KafkaError>),
    /// How partitions stand whose position is gone.
    Standings(Vec<(Part, Result<Standing, String>)>),
    /// The topics, after the policy has changed or some have appeared; with the number of the question.
    Topics(u64, Result<Found, KafkaError>),
    /// Which topics and tiers there are.
    There(Result<There, KafkaError>),
    /// How a commit ended.
    Committed(CommitAnswer),
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

/// The topics that a pool needs.
pub(super) fn topics(
    config: &KafkaSource,
    wanted: &Wanted,
    native: &Native,
) -> Result<Found, KafkaError> {
    event_loop()?.block_on(topics::prepare(config, wanted, native))
}

/// Commits, and waits until the broker has it.
pub(super) fn commit(native: &Native, commits: &[Commit]) -> CommitAnswer {
    by_topic(commits, |some| commit_at_once(native, some))
}

const MISSING: Result<(), Code> = Err(Code::UnknownTopicOrPartition);

/// Commits all together, and once more each topic by itself where one is not there: the others may be
/// committed, and librdkafka tells no more than that one is not.
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
    // It has the epoch of the last message of each partition. That of the last one that is done may
    // be lower; then it is known no worse where the log departs.
    let positions = native.position();
    let list = positions.map_err(|error| error.rdkafka_error_code().unwrap_or(Code::Fail))?;
    let list = listed(list, commits).ok_or(Code::InvalidArgument)?;
    // An asynchronous one never tells: the library sets no callback that librdkafka would call.
    let done = native.commit(&list, CommitMode::Sync);
    done.map_err(|error| error.rdkafka_error_code().unwrap_or(Code::Fail))
}

/// Makes a list of positions one of commits. Of what is not committed it has no offset.
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
