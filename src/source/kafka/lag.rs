//! How far behind a pool is: out of librdkafka's statistics. Pure.

use std::collections::BTreeMap;

use serde::Deserialize;

/// What the statistics say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Stats {
    /// At least one broker is connected.
    pub(super) connected: bool,
    pub(super) lag: Vec<Lag>,
}

/// Where a partition ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lag {
    pub(super) topic: String,
    pub(super) partition: i32,
    /// One past the last offset that may be read.
    pub(super) end: i64,
}

#[derive(Deserialize)]
struct Report {
    #[serde(default)]
    brokers: BTreeMap<String, Broker>,
    #[serde(default)]
    topics: BTreeMap<String, Topic>,
}

#[derive(Deserialize)]
struct Broker {
    #[serde(default)]
    state: String,
}

#[derive(Deserialize)]
struct Topic {
    #[serde(default)]
    partitions: BTreeMap<String, Partition>,
}

#[derive(Deserialize)]
struct Partition {
    partition: i32,
    #[serde(default = "unknown")]
    hi_offset: i64,
    #[serde(default = "unknown")]
    ls_offset: i64,
}

fn unknown() -> i64 {
    -1001
}

/// Reads the statistics; none if they are not of the form that we know.
pub(super) fn read(json: &[u8]) -> Option<Stats> {
    let report: Report = serde_json::from_slice(json).ok()?;
    let mut lag = Vec::new();
    for (name, topic) in &report.topics {
        for partition in topic.partitions.values() {
            // What lies between the two is of transactions that are not over.
            let end = match partition.ls_offset {
                end if end >= 0 => end,
                _ => partition.hi_offset,
            };
            if partition.partition >= 0 && end >= 0 {
                lag.push(Lag {
                    topic: name.clone(),
                    partition: partition.partition,
                    end,
                });
            }
        }
    }
    let connected = report.brokers.values().any(|broker| broker.state == "UP");
    Some(Stats { connected, lag })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_partitions() {
        let json = br#"{"brokers":{"a":{"state":"DOWN"},"b":{"state":"UP"}},"topics":{"t":{
            "partitions":{
                "0":{"partition":0,"hi_offset":9,"ls_offset":7,"x":1},
                "1":{"partition":1,"hi_offset":5,"ls_offset":-1001},
                "2":{"partition":2,"hi_offset":-1001,"ls_offset":-1001},
                "-1":{"partition":-1,"hi_offset":5,"ls_offset":5}}}}}"#;
        let stats = read(json).unwrap();
        assert!(stats.connected);
        let ends: Vec<(i32, i64)> = stats
            .lag
            .iter()
            .map(|lag| (lag.partition, lag.end))
            .collect();
        assert_eq!(ends, [(0, 7), (1, 5)]);
        assert_eq!(read(b"7"), None);
        assert_eq!(read(b"{}"), Some(Stats::default()));
    }
}
