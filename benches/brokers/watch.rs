//! One measured interval, and the same interval in all rounds: the throughput, and the processor time of the
//! consuming process and of the broker.

use serde::Serialize;

use crate::common::figures::{Run, Series};
use crate::common::machine::monotonic_nanos;
use crate::common::show::{number, tenths};

/// Results of an interval.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watched {
    consumer: Run,
    broker: Run,
}

impl Watched {
    pub(crate) fn per_second(&self) -> f64 {
        self.consumer.per_second()
    }

    pub(crate) fn cpu_micros(&self) -> f64 {
        self.consumer.cpu_micros()
    }

    pub(crate) fn broker_micros(&self) -> f64 {
        self.broker.cpu_micros()
    }
}

/// Processor times of two processes from the beginning of an interval to its end.
pub(crate) struct Watch<C, B> {
    consumer: C,
    broker: B,
    consumer_begun: f64,
    broker_begun: f64,
    begun: i64,
}

impl<C, B> Watch<C, B>
where
    C: Fn() -> miette::Result<f64>,
    B: Fn() -> miette::Result<f64>,
{
    /// Begins an interval now. Each of the two functions returns a process's processor time so far, in
    /// seconds.
    pub(crate) fn begin(consumer: C, broker: B) -> miette::Result<Self> {
        Ok(Self {
            consumer_begun: consumer()?,
            broker_begun: broker()?,
            consumer,
            broker,
            begun: monotonic_nanos(),
        })
    }

    /// Ends the interval at the arrival of the last message, in nanoseconds of CLOCK_MONOTONIC, and reads the
    /// processor times now that everything is acknowledged.
    pub(crate) fn end(self, messages: usize, last_nanos: i64) -> miette::Result<Watched> {
        let consumer_seconds = (self.consumer)()? - self.consumer_begun;
        let broker_seconds = (self.broker)()? - self.broker_begun;
        let seconds = seconds(last_nanos - self.begun);
        let run = |cpu_seconds| Run {
            messages,
            seconds,
            cpu_seconds,
        };
        Ok(Watched {
            consumer: run(consumer_seconds),
            broker: run(broker_seconds),
        })
    }
}

/// Converts nanoseconds to seconds.
#[expect(clippy::cast_precision_loss, reason = "exact for the first 100 days")]
pub(crate) fn seconds(nanos: i64) -> f64 {
    nanos as f64 / 1e9
}

/// The same interval in every round.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Rounds {
    consumer: Series,
    broker: Series,
}

impl Rounds {
    pub(crate) fn push(&mut self, watched: Watched) {
        self.consumer.push(watched.consumer);
        self.broker.push(watched.broker);
    }

    /// Returns the median of the messages per second.
    pub(crate) fn per_second(&self) -> f64 {
        self.consumer.per_second()
    }

    /// Returns the median of the consumer's processor time per message, in microseconds.
    pub(crate) fn cpu_micros(&self) -> f64 {
        self.consumer.cpu_micros()
    }

    /// Returns the consumer's processor time per message in each round, in microseconds.
    pub(crate) fn each_cpu_micros(&self) -> Vec<f64> {
        self.consumer.0.iter().map(Run::cpu_micros).collect()
    }

    /// Returns the processor time per message of the consumer and the broker together in each round, in
    /// microseconds.
    pub(crate) fn each_whole_micros(&self) -> Vec<f64> {
        let brokers = self.broker.0.iter().map(Run::cpu_micros);
        let pairs = self.each_cpu_micros().into_iter().zip(brokers);
        pairs.map(|(consumer, broker)| consumer + broker).collect()
    }

    /// Returns the median over the rounds of this throughput as a share of the other's in the same round.
    pub(crate) fn ratio_to(&self, other: &Self) -> f64 {
        self.consumer.ratio_to(&other.consumer)
    }

    /// Returns the messages per second, and the microseconds per message of the consumer and of the broker.
    pub(crate) fn cells(&self) -> [String; 3] {
        [
            number(self.per_second()),
            tenths(self.cpu_micros()),
            tenths(self.broker.cpu_micros()),
        ]
    }
}
