//! First and last offsets and leaders of partitions, as reported by the brokers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::thread;
use std::time::Duration;

use rdkafka::consumer::Consumer as _;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::consumer::{Native, TopicPartition};
use super::error::KafkaError;

/// Timeout of a query.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// First or last offset of a partition, or the reason why it is not known now.
pub(super) type End = Result<i64, String>;

/// Returns the leaders of the partitions of these topics; partitions without a leader are left out.
pub(super) fn leaders(
    native: &Native,
    partitions: &[TopicPartition],
) -> Result<HashMap<TopicPartition, i32>, KafkaError> {
    let topics: BTreeSet<&str> = partitions.iter().map(|(topic, _)| topic.as_str()).collect();
    let mut leaders = HashMap::new();
    for topic in topics {
        let told = native.fetch_metadata(Some(topic), ANSWER_WITHIN);
        let told = told.map_err(|error| KafkaError::of_request("asking for leaders", &error))?;
        let each = told.topics().iter().flat_map(|topic| topic.partitions());
        leaders.extend(
            each.filter(|partition| partition.leader() >= 0)
                .map(|partition| ((topic.to_owned(), partition.id()), partition.leader())),
        );
    }
    Ok(leaders)
}

/// Returns one end of each of these partitions, or the reason why it is not known. Each leader is queried
/// separately: a query to several leaders would fail as a whole if one does not answer.
pub(super) fn ends_of(
    native: &Native,
    partitions: &[TopicPartition],
    end: Offset,
) -> HashMap<TopicPartition, End> {
    match leaders(native, partitions) {
        Ok(leaders) => ask_each(partitions, &leaders, |these| ask_ends(native, these, end)),
        Err(error) => none_of(partitions, &error).collect(),
    }
}

/// Queries the partitions of each leader separately, all at the same time.
fn ask_each(
    partitions: &[TopicPartition],
    leaders: &HashMap<TopicPartition, i32>,
    ask: impl Fn(&[TopicPartition]) -> Result<HashMap<TopicPartition, i64>, KafkaError> + Sync,
) -> HashMap<TopicPartition, End> {
    let mut led: BTreeMap<Option<i32>, Vec<TopicPartition>> = BTreeMap::new();
    for partition in partitions {
        let leader = leaders.get(partition).copied();
        led.entry(leader).or_default().push(partition.clone());
    }
    let ask = |these: &[TopicPartition]| -> Vec<(TopicPartition, End)> {
        match ask(these) {
            Ok(ends) => {
                let end = |these: &TopicPartition| ends.get(these).copied();
                let told = |these: &TopicPartition| {
                    end(these).ok_or("the broker did not report it".to_owned())
                };
                these
                    .iter()
                    .map(|each| (each.clone(), told(each)))
                    .collect()
            }
            Err(error) => none_of(these, &error).collect(),
        }
    };
    let (ask, mut ends) = (&ask, HashMap::new());
    thread::scope(|scope| {
        let asked: Vec<_> = led
            .values()
            .map(|these| {
                let thread = thread::Builder::new().name("kafka-ends".to_owned());
                (these, thread.spawn_scoped(scope, move || ask(these)))
            })
            .collect();
        for (these, asked) in asked {
            match asked.map(thread::ScopedJoinHandle::join) {
                Ok(Ok(told)) => ends.extend(told),
                Ok(Err(_)) => ends.extend(none_of(these, &KafkaError::panicked())),
                Err(error) => ends.extend(none_of(these, &error)),
            }
        }
    });
    ends
}

/// Returns an unknown end for each of these partitions.
fn none_of(
    partitions: &[TopicPartition],
    why: &impl ToString,
) -> impl Iterator<Item = (TopicPartition, End)> {
    let why = why.to_string();
    let none = move |partition: &TopicPartition| (partition.clone(), Err(why.clone()));
    partitions.iter().map(none)
}

/// Returns one end of each of these partitions. Partitions without an answer are left out.
fn ask_ends(
    native: &Native,
    partitions: &[TopicPartition],
    end: Offset,
) -> Result<HashMap<TopicPartition, i64>, KafkaError> {
    const ACTION: &str = "asking where partitions begin or end";
    let mut asked = TopicPartitionList::with_capacity(partitions.len());
    for (topic, partition) in partitions {
        // As a timestamp, these values ask for that end.
        let set = asked.add_partition(topic, *partition).set_offset(end);
        set.map_err(|error| KafkaError::of_request(ACTION, &error))?;
    }
    let told = native.offsets_for_times(asked, ANSWER_WITHIN);
    let told = told.map_err(|error| KafkaError::of_request(ACTION, &error))?;
    let known = told.elements().into_iter().filter_map(|element| {
        let Offset::Offset(offset) = element.offset() else {
            return None;
        };
        let is_known = element.error().is_ok();
        is_known.then(|| ((element.topic().to_owned(), element.partition()), offset))
    });
    Ok(known.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_that_does_not_answer_keeps_no_other_from_it() {
        let partition = |number| ("t".to_owned(), number);
        let partitions: Vec<TopicPartition> = (0..5).map(partition).collect();
        let leaders = [(0, 1), (1, 2), (2, 1), (3, 3)];
        let leaders = leaders.map(|(number, leader)| (partition(number), leader));
        let ends = ask_each(&partitions, &HashMap::from(leaders), |these| {
            if these.contains(&partition(1)) {
                return Err(KafkaError::panicked());
            }
            let known = these.iter().filter(|(_, number)| *number != 2);
            Ok(known
                .map(|each| (each.clone(), i64::from(each.1)))
                .collect())
        });
        assert_eq!(ends.len(), partitions.len(), "{ends:?}");
        for (number, is_told) in [(0, true), (1, false), (2, false), (3, true), (4, true)] {
            let end = ends.get(&partition(number)).unwrap();
            assert_eq!(end.is_ok(), is_told, "{number}: {end:?}");
        }
    }
}
