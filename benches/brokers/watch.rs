//! One measured interval, and the same in all rounds: the speed, and the processor time of the
//! process that consumes and of the broker that it consumes from.

use serde::Serialize;

use crate::common::figures::{Run, Series};
use crate::common::machine::monotonic_nanos;
use crate::common::show::{number, tenths};

/// What an interval has shown.
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

/// Looks at two processes from the beginning of an interval to its end.
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
    /// Begins now. Each of the two tells a process's time on processors so far, in seconds.
    pub(crate) fn begin(consumer: C, broker: B) -> miette::Result<Self> {
        Ok(Self {
            consumer_begun: consumer()?,
            broker_begun: broker()?,
            consumer,
            broker,
            begun: monotonic_nanos(),
        })
    }

    /// Ended when the last message came, in nanoseconds of CLOCK_MONOTONIC; now that all is
    /// acknowledged, the processes are looked at.
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

/// Nanoseconds as seconds.
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

    /// The median of the messages per second.
    pub(crate) fn per_second(&self) -> f64 {
        self.consumer.per_second()
    }

    /// The median of the consumer's processor time per message, in microseconds.
    pub(crate) fn cpu_micros(&self) -> f64 {
        self.consumer.cpu_micros()
    }

    /// The consumer's processor time for a message, in microseconds, in each round.
    pub(crate) fn each_cpu_micros(&self) -> Vec<f64> {
        self.consumer.0.iter().map(Run::cpu_micros).collect()
    }

    /// That of the consumer and the broker.
    pub(crate) fn each_whole_micros(&self) -> Vec<f64> {
        let brokers = self.broker.0.iter().map(Run::cpu_micros);
        let pairs = self.each_cpu_micros().into_iter().zip(brokers);
        pairs.map(|(consumer, broker)| consumer + broker).collect()
    }

    /// The median over the rounds of our speed as a share of theirs in the same round.
    pub(crate) fn ratio_to(&self, other: &Self) -> f64 {
        self.consumer.ratio_to(&other.consumer)
    }

    /// Messages per second, the consumer's and the broker's microseconds of each.
    pub(crate) fn cells(&self) -> [String; 3] {
        [
            number(self.per_second()),
            tenths(self.cpu_micros()),
            tenths(self.broker.cpu_micros()),
        ]
    }
}
