//! Check whether a partition's log is still the one that was read. After an unclean election it may have lost
//! its end and grown past it again: then an offset that was done is another message. Every commit carries the
//! leader epoch of the last message read, and a leader knows the offset at which that epoch ended.
//!
//! librdkafka queries that when the leader changes, and on every seek, but does not report the answer. So a
//! separate client seeks to the position read so far: if the log has diverged, librdkafka goes back by
//! itself, and the first message that it returns shows how far.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::message::Message as _;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::consumer::{Consumer, Inbox, Native, TopicPartition};
use super::ends::ends_of;
use super::error::{KafkaError, words};
use super::setup::event_loop;

/// Timeout for all partitions together.
const WITHIN: Duration = Duration::from_secs(5);

/// Offset from which a partition's log is no longer the one that was read, if any; or the reason why
/// that is not known now.
pub(crate) type Fork = Result<Option<i64>, String>;

/// Determines where logs diverge from the part that was read. The list is one of commits, as returned by the
/// broker, since it holds their epochs; each offset is the end of the part that was read. A log that no
/// longer holds any of that part, or that is too short and of unknown epoch, diverges where reading begins by
/// `properties`.
pub(crate) fn forks(
    native: &Native,
    properties: &ClientConfig,
    pool: &str,
    read: &TopicPartitionList,
) -> Result<HashMap<TopicPartition, Fork>, KafkaError> {
    let read_to: Vec<(TopicPartition, i64)> = read
        .elements()
        .iter()
        .filter_map(|element| match element.offset() {
            Offset::Offset(to) if to > 0 => {
                Some(((element.topic().to_owned(), element.partition()), to))
            }
            _ => None,
        })
        .collect();
    if read_to.is_empty() {
        return Ok(HashMap::new());
    }
    let names: Vec<TopicPartition> = read_to.iter().map(|(name, _)| name.clone()).collect();
    // This comes before the other query, so that no message arriving between them is skipped.
    let mut ends = ends_of(native, &names, Offset::End);
    let found = event_loop()?.block_on(seek(properties, pool, read, &read_to))?;
    let judged = found.into_iter().map(|((name, to), probed)| {
        let end = ends.remove(&name).and_then(Result::ok);
        let fork = judge(to, end, probed);
        (name, fork)
    });
    Ok(judged.collect())
}

/// Result of reading at the position reached before.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Probed {
    /// The first message had this offset.
    Message(i64),
    /// The log ends here.
    End,
    /// Nothing was read, with the reason.
    Nothing(String),
}

/// Determines where a log diverges, from the offset up to which it was read and its end just before.
fn judge(read_to: i64, end: Option<i64>, probed: Probed) -> Fork {
    match (probed, end) {
        (Probed::Message(first), _) => Ok((first < read_to).then_some(first)),
        (Probed::End, Some(end)) => Ok((end < read_to).then_some(end)),
        (Probed::End, None) => Err("its end is unknown".to_owned()),
        (Probed::Nothing(why), _) => Err(why),
    }
}

/// One partition being checked.
struct PartitionProbe {
    name: TopicPartition,
    to: i64,
    inbox: Inbox,
    probed: Option<Probed>,
}

async fn seek(
    properties: &ClientConfig,
    pool: &str,
    read: &TopicPartitionList,
    read_to: &[(TopicPartition, i64)],
) -> Result<Vec<((TopicPartition, i64), Probed)>, KafkaError> {
    const ACTION: &str = "checking whether logs have diverged";
    let deadline = Instant::now() + WITHIN;
    let wakeup = Arc::new(Notify::new());
    let consumer = Consumer::new(properties, pool, Arc::clone(&wakeup))?;
    let mut probes = Vec::with_capacity(read_to.len());
    for (name, to) in read_to {
        let inbox = consumer.inbox(&name.0, name.1);
        let inbox = inbox.ok_or(KafkaError::Failed {
            action: ACTION,
            why: "a partition has no queue".to_owned(),
        })?;
        probes.push(PartitionProbe {
            name: name.clone(),
            to: *to,
            inbox,
            probed: None,
        });
    }
    let native = consumer.native();
    let begun = native.assign(read);
    begun.map_err(|error| KafkaError::of_request(ACTION, &error))?;
    // librdkafka checks the epoch on a seek, not on an assignment.
    let sought = native.seek_partitions(read.clone(), WITHIN);
    let sought = sought.map_err(|error| KafkaError::of_request(ACTION, &error))?;
    for probe in &mut probes {
        let element = sought.find_partition(&probe.name.0, probe.name.1);
        if let Some(Err(error)) = element.map(|element| element.error()) {
            probe.probed = Some(Probed::Nothing(super::error::of(&error)));
        }
    }
    loop {
        drop(consumer.poll(|_| ()));
        probes.iter_mut().for_each(PartitionProbe::probe);
        let is_over = probes.iter().all(|probe| probe.probed.is_some());
        if is_over || timeout_at(deadline, wakeup.notified()).await.is_err() {
            break;
        }
    }
    let probed = |probe: PartitionProbe| {
        let silence = || Probed::Nothing(format!("its leader has not answered for {WITHIN:?}"));
        ((probe.name, probe.to), probe.probed.unwrap_or_else(silence))
    };
    Ok(probes.into_iter().map(probed).collect())
}

impl PartitionProbe {
    fn probe(&mut self) {
        while self.probed.is_none()
            && let Some(next) = self.inbox.next()
        {
            self.probed = match next {
                Ok(message) => Some(Probed::Message(message.offset())),
                Err(Code::PartitionEOF) => Some(Probed::End),
                Err(code) => Some(Probed::Nothing(words(code))),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_probed_tells_where_a_log_departs() {
        let table = [
            // The log is unchanged, with or without further messages.
            (100, Some(120), Probed::Message(100), Ok(None)),
            (100, Some(120), Probed::Message(107), Ok(None)),
            (100, Some(100), Probed::End, Ok(None)),
            // The log was cut, and has grown again, whether or not past the part that was read.
            (100, Some(150), Probed::Message(45), Ok(Some(45))),
            (100, Some(60), Probed::Message(45), Ok(Some(45))),
            // The log was cut, and nothing was written since, or only after its end was queried.
            (100, Some(45), Probed::End, Ok(Some(45))),
            (100, Some(45), Probed::Message(46), Ok(Some(46))),
        ];
        for (read_to, end, probed, expected) in table {
            let got = judge(read_to, end, probed.clone());
            assert_eq!(got, expected, "{read_to} {end:?} {probed:?}");
        }
        assert!(judge(100, None, Probed::End).is_err());
        assert!(judge(100, Some(100), Probed::Nothing("away".to_owned())).is_err());
    }
}
