//! The metrics in OpenTelemetry's form, under their Prometheus names.

use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
};

use ganger_admin::exposition::{Family, FamilyKind, Sample, SampleValue};
use ganger_telemetry::metrics::spread::{BOUNDS, Spread};

/// Start of the totals and time of the reading, in nanoseconds of Unix time.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: u64,
    now: u64,
}

/// Writes all metrics as they are now. Totals count since the daemon's start; one of a pool that a
/// reload has recreated begins at zero again, which readers see as a reset. A metric that has no
/// series now is left out.
pub(crate) fn metrics(families: &[Family], started_at: SystemTime) -> Vec<Metric> {
    let span = Span {
        start: nanos(started_at),
        now: nanos(SystemTime::now()),
    };
    let shown = families.iter().filter(|family| !family.samples.is_empty());
    shown.map(|family| metric(family, span)).collect()
}

fn nanos(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn metric(family: &Family, span: Span) -> Metric {
    let temporality = AggregationTemporality::Cumulative.into();
    let numbers = || number_points(&family.samples, span);
    let data = match family.kind {
        FamilyKind::Gauge => Data::Gauge(Gauge {
            data_points: numbers(),
        }),
        FamilyKind::Counter => Data::Sum(Sum {
            data_points: numbers(),
            aggregation_temporality: temporality,
            is_monotonic: true,
        }),
        FamilyKind::Histogram => Data::Histogram(Histogram {
            data_points: spread_points(&family.samples, span),
            aggregation_temporality: temporality,
        }),
    };
    Metric {
        name: family.name.to_owned(),
        description: family.help.to_owned(),
        unit: unit(family.name).to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

/// Returns the unit of a metric, by its Prometheus name.
fn unit(name: &str) -> &'static str {
    match name.trim_end_matches("_total") {
        name if name.ends_with("_seconds") => "s",
        name if name.ends_with("_bytes") => "By",
        _ => "",
    }
}

fn number_points(samples: &[Sample], span: Span) -> Vec<NumberDataPoint> {
    let point = |sample: &Sample| match &sample.value {
        SampleValue::Number(number) => Some(NumberDataPoint {
            attributes: attributes(sample),
            start_time_unix_nano: span.start,
            time_unix_nano: span.now,
            value: Some(Number::AsDouble(*number)),
            ..NumberDataPoint::default()
        }),
        SampleValue::Spread(_) => None,
    };
    samples.iter().filter_map(point).collect()
}

fn spread_points(samples: &[Sample], span: Span) -> Vec<HistogramDataPoint> {
    let point = |sample: &Sample| match &sample.value {
        SampleValue::Spread(spread) => Some(spread_point(sample, spread, span)),
        SampleValue::Number(_) => None,
    };
    samples.iter().filter_map(point).collect()
}

fn spread_point(sample: &Sample, spread: &Spread, span: Span) -> HistogramDataPoint {
    let mut counts = spread.counts.clone();
    // Of a pool that has shown nothing yet there is none.
    counts.resize(BOUNDS.len() + 1, 0);
    HistogramDataPoint {
        attributes: attributes(sample),
        start_time_unix_nano: span.start,
        time_unix_nano: span.now,
        count: spread.count(),
        sum: Some(spread.seconds),
        bucket_counts: counts,
        explicit_bounds: BOUNDS.to_vec(),
        ..HistogramDataPoint::default()
    }
}

fn attributes(sample: &Sample) -> Vec<KeyValue> {
    let attribute = |(name, value): &(&'static str, String)| KeyValue {
        key: (*name).to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(value.clone())),
        }),
        ..KeyValue::default()
    };
    sample.labels.iter().map(attribute).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_form_and_what_has_no_series_is_left_out() {
        let labels = || vec![("pool", "p".to_owned())];
        let spread = Spread {
            counts: (0..=BOUNDS.len() as u64).collect(),
            seconds: 1.5,
        };
        let families = [
            Family::counter("a_seconds_total", "A").of([Sample::number(labels(), 2.5)]),
            Family::gauge("b_bytes", "B").of([Sample::count(Vec::new(), 7)]),
            Family::histogram("c_seconds", "C").of([Sample {
                labels: labels(),
                value: SampleValue::Spread(spread.clone()),
            }]),
            Family::gauge("d", "D"),
        ];
        let metrics = metrics(&families, UNIX_EPOCH);
        let named: Vec<(&str, &str)> = metrics
            .iter()
            .map(|metric| (metric.name.as_str(), metric.unit.as_str()))
            .collect();
        assert_eq!(
            named,
            [
                ("a_seconds_total", "s"),
                ("b_bytes", "By"),
                ("c_seconds", "s")
            ]
        );
        let Some(Data::Sum(sum)) = &metrics[0].data else {
            panic!("{metrics:?}")
        };
        assert!(sum.is_monotonic);
        let point = &sum.data_points[0];
        assert_eq!(point.value, Some(Number::AsDouble(2.5)));
        assert_eq!(point.attributes[0].key, "pool");
        assert!(point.time_unix_nano > point.start_time_unix_nano);
        assert!(matches!(&metrics[1].data, Some(Data::Gauge(_))));
        let Some(Data::Histogram(histogram)) = &metrics[2].data else {
            panic!("{metrics:?}")
        };
        let point = &histogram.data_points[0];
        assert_eq!(point.bucket_counts, spread.counts);
        assert_eq!(point.explicit_bounds.len() + 1, point.bucket_counts.len());
        assert_eq!((point.count, point.sum), (spread.count(), Some(1.5)));
    }
}
