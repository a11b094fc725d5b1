//! The metrics in the text format of Prometheus (its specification: version 0.0.4).

use metrics::{Key, Label};
use metrics_exporter_prometheus::LabelSet;
use metrics_exporter_prometheus::formatting::{
    write_help_line, write_metric_line, write_type_line,
};

use super::family::{Family, Sample, SampleValue};
use ganger_telemetry::metrics::spread::{BOUNDS, Spread};

/// Content type of the output of [`text`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Writes all metrics. One that has no series now is left out.
pub fn text(families: &[Family]) -> String {
    let mut text = String::new();
    for family in families.iter().filter(|family| !family.samples.is_empty()) {
        write_help_line(&mut text, family.name, None, None, family.help);
        write_type_line(&mut text, family.name, None, None, family.kind.as_str());
        for sample in &family.samples {
            write(&mut text, family.name, sample);
        }
    }
    text
}

fn write(text: &mut String, name: &str, sample: &Sample) {
    let labels = sample.labels.iter();
    let labels: Vec<Label> = labels
        .map(|(name, value)| Label::new(*name, value.clone()))
        .collect();
    let key = Key::from_parts(name.to_owned(), labels);
    let labels = LabelSet::from_key_and_global(&key, &Default::default());
    match &sample.value {
        SampleValue::Number(number) => {
            write_metric_line::<&str, f64>(text, name, None, &labels, None, *number, None);
        }
        SampleValue::Spread(spread) => write_spread(text, name, &labels, spread),
    }
}

fn write_spread(text: &mut String, name: &str, labels: &LabelSet, spread: &Spread) {
    let mut sum = 0;
    for (bound, count) in BOUNDS.iter().zip(&spread.counts) {
        sum += count;
        write_metric_line(
            text,
            name,
            Some("bucket"),
            labels,
            Some(("le", bound)),
            sum,
            None,
        );
    }
    let count = spread.count();
    write_metric_line(
        text,
        name,
        Some("bucket"),
        labels,
        Some(("le", "+Inf")),
        count,
        None,
    );
    write_metric_line::<&str, f64>(text, name, Some("sum"), labels, None, spread.seconds, None);
    write_metric_line::<&str, u64>(text, name, Some("count"), labels, None, count, None);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_written_in_cumulated_buckets() {
        let mut counts = vec![0; BOUNDS.len() + 1];
        (counts[0], counts[3], counts[BOUNDS.len()]) = (2, 1, 4);
        let spread = Spread {
            counts,
            seconds: 1.5,
        };
        let family = Family::histogram("h_seconds", "Help.").of([Sample {
            labels: vec![("pool", "a\"b\n".into())],
            value: SampleValue::Spread(spread),
        }]);
        let text = text(&[family, Family::gauge("empty", "None.")]);
        let lines: Vec<&str> = text.lines().collect();
        let pool = r#"pool="a\"b\n""#;
        assert_eq!(
            lines[..2],
            ["# HELP h_seconds Help.", "# TYPE h_seconds histogram"]
        );
        assert_eq!(
            lines[2],
            format!("h_seconds_bucket{{{pool},le=\"0.0001\"}} 2")
        );
        assert_eq!(
            lines[5],
            format!("h_seconds_bucket{{{pool},le=\"0.001\"}} 3")
        );
        let last = lines.len() - 3;
        assert_eq!(
            lines[last],
            format!("h_seconds_bucket{{{pool},le=\"+Inf\"}} 7")
        );
        assert_eq!(lines[last + 1], format!("h_seconds_sum{{{pool}}} 1.5"));
        assert_eq!(lines[last + 2], format!("h_seconds_count{{{pool}}} 7"));
    }
}
