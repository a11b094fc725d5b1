//! Lag of a pool, from librdkafka's statistics. Pure.

use std::collections::BTreeMap;

use serde::Deserialize;

use ganger_queue::delivery::KafkaFigures;

/// Content of the statistics.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    /// True if at least one broker is connected.
    pub(crate) connected: bool,
    /// True if the group has accepted this member, or is about to.
    pub(crate) is_in_group: bool,
    pub(crate) lag: Vec<Lag>,
    pub(crate) figures: KafkaFigures,
    /// Number of connection attempts to brokers.
    pub(crate) connects: u64,
}

/// State of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lag {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    /// One past the last offset that may be read; none if unknown.
    pub(crate) end: Option<i64>,
    /// True if all of it has been fetched and taken from librdkafka.
    pub(crate) is_read: bool,
    /// True if it is neither being fetched nor about to be.
    pub(crate) is_idle: bool,
}

#[derive(Deserialize)]
struct StatisticsReport {
    #[serde(default)]
    brokers: BTreeMap<String, Broker>,
    #[serde(default)]
    topics: BTreeMap<String, Topic>,
    #[serde(default)]
    cgrp: GroupReport,
    #[serde(default)]
    tx: u64,
    #[serde(default)]
    tx_bytes: u64,
    #[serde(default)]
    rx: u64,
    #[serde(default)]
    rx_bytes: u64,
    #[serde(default)]
    rxmsgs: u64,
}

#[derive(Deserialize, Default)]
struct GroupReport {
    #[serde(default)]
    state: String,
    #[serde(default)]
    join_state: String,
}

#[derive(Deserialize)]
struct Broker {
    #[serde(default)]
    state: String,
    #[serde(default)]
    connects: u64,
}

#[derive(Deserialize)]
struct Topic {
    #[serde(default)]
    partitions: BTreeMap<String, PartitionReport>,
}

#[derive(Deserialize)]
struct PartitionReport {
    partition: i32,
    #[serde(default = "unknown")]
    hi_offset: i64,
    #[serde(default = "unknown")]
    ls_offset: i64,
    #[serde(default = "unknown")]
    next_offset: i64,
    #[serde(default)]
    fetchq_cnt: i64,
    #[serde(default)]
    fetch_state: String,
}

fn unknown() -> i64 {
    -1001
}

impl PartitionReport {
    fn lag(&self, topic: &str) -> Lag {
        // Offsets between the two belong to open transactions.
        let ends = [self.ls_offset, self.hi_offset];
        let end = ends.into_iter().find(|end| *end >= 0);
        Lag {
            topic: topic.to_owned(),
            partition: self.partition,
            end,
            is_read: self.fetchq_cnt == 0 && end.is_some_and(|end| self.next_offset >= end),
            is_idle: self.fetch_state == "none",
        }
    }
}

/// Reads the statistics; none if their format is unknown.
pub(crate) fn read(json: &[u8]) -> Option<Stats> {
    let report: StatisticsReport = serde_json::from_slice(json).ok()?;
    let mut lag = Vec::new();
    for (name, topic) in &report.topics {
        let partitions = topic.partitions.values();
        let real = partitions.filter(|partition| partition.partition >= 0);
        lag.extend(real.map(|partition| partition.lag(name)));
    }
    let up = |broker: &&Broker| broker.state == "UP";
    let brokers_up = report.brokers.values().filter(up).count() as u64;
    let partitions = report
        .topics
        .values()
        .flat_map(|topic| topic.partitions.values());
    let ahead = partitions.map(|partition| partition.fetchq_cnt.try_into().unwrap_or(0));
    let figures = KafkaFigures {
        requests: report.tx,
        responses: report.rx,
        sent_bytes: report.tx_bytes,
        received_bytes: report.rx_bytes,
        messages: report.rxmsgs,
        fetched_ahead: ahead.sum::<u64>(),
        brokers_up,
    };
    let group = report.cgrp;
    Some(Stats {
        connected: brokers_up > 0,
        connects: report.brokers.values().map(|broker| broker.connects).sum(),
        figures,
        is_in_group: group.state == "up" && group.join_state != "init",
        lag,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_partitions() {
        let json = br#"{"tx":3,"tx_bytes":300,
            "brokers":{"a":{"state":"DOWN","connects":5},"b":{"state":"UP","connects":1}},"topics":{"t":{
            "partitions":{
                "0":{"partition":0,"hi_offset":9,"ls_offset":7,"next_offset":7,"fetchq_cnt":0,
                     "fetch_state":"active","x":1},
                "1":{"partition":1,"hi_offset":5,"ls_offset":-1001,"next_offset":5,
                     "fetchq_cnt":2,"fetch_state":"none"},
                "2":{"partition":2,"hi_offset":-1001,"ls_offset":-1001},
                "-1":{"partition":-1,"hi_offset":5,"ls_offset":5}}}},
            "cgrp":{"state":"up","join_state":"steady"}}"#;
        let stats = read(json).unwrap();
        assert!(stats.connected && stats.is_in_group);
        let KafkaFigures {
            requests,
            sent_bytes,
            fetched_ahead,
            brokers_up,
            ..
        } = stats.figures;
        assert_eq!((requests, sent_bytes), (3, 300));
        assert_eq!((fetched_ahead, brokers_up), (2, 1));
        assert_eq!(stats.connects, 6);
        let each = |lag: &Lag| (lag.partition, lag.end, lag.is_read, lag.is_idle);
        let lag: Vec<_> = stats.lag.iter().map(each).collect();
        let expected = [
            (0, Some(7), true, false),
            (1, Some(5), false, true),
            (2, None, false, false),
        ];
        assert_eq!(lag, expected);
        assert_eq!(read(b"7"), None);
        assert_eq!(read(b"{}"), Some(Stats::default()));
        let outside = br#"{"cgrp":{"state":"up","join_state":"init"}}"#;
        assert!(!read(outside).unwrap().is_in_group);
    }
}
