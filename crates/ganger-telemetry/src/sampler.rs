//! Sampling of attempts, by the rules of OpenTelemetry's samplers. Pure.

use ganger_core::trace_context::SpanContext;

/// Decides whether spans are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampler {
    /// The decision of the message's parent span is followed.
    pub(crate) by_parent: bool,
    /// Number of trace ids sampled, out of 2^63.
    pub share: u64,
}

/// All trace ids.
const ALL: u64 = 1 << 63;

impl Sampler {
    /// The default: follow the parent's decision, and record everything else.
    pub const DEFAULT: Self = Self {
        by_parent: true,
        share: ALL,
    };

    /// Makes the sampler from `OTEL_TRACES_SAMPLER` and its `_ARG`, or returns the rule that they break.
    pub fn read(name: Option<&str>, argument: Option<&str>) -> Result<Self, String> {
        let Some(name) = name.map(str::trim).filter(|name| !name.is_empty()) else {
            return Ok(Self::DEFAULT);
        };
        let (by_parent, kind) = match name.strip_prefix("parentbased_") {
            Some(kind) => (true, kind),
            None => (false, name),
        };
        let share = match kind {
            "always_on" => ALL,
            "always_off" => 0,
            "traceidratio" => share(argument)?,
            _ => {
                return Err(format!(
                    "OTEL_TRACES_SAMPLER must be always_on, always_off or traceidratio, or one of \
                     these behind `parentbased_`: `{name}`"
                ));
            }
        };
        Ok(Self { by_parent, share })
    }

    /// Returns the span of an attempt, if it is recorded. `random` decides for a new trace, and becomes
    /// part of its id, so that other samplers decide likewise.
    pub(crate) fn span(
        self,
        parent: Option<SpanContext>,
        earlier: Option<SpanContext>,
        random: u64,
    ) -> Option<SpanContext> {
        if let Some(parent) = parent {
            let sampled = match self.by_parent {
                true => parent.is_sampled(),
                false => self.takes(last_eight(parent.trace_id)),
            };
            return sampled.then(|| parent.child());
        }
        // The attempt before was recorded: this one belongs to the same trace.
        if let Some(earlier) = earlier {
            return (self.share > 0).then(|| earlier.child());
        }
        let new = || u128::from(fastrand::u64(1..)) << 64 | u128::from(random);
        self.takes(random).then(|| SpanContext::in_trace(new()))
    }

    /// Returns whether a trace id is sampled, as the SDKs decide it.
    fn takes(self, number: u64) -> bool {
        number >> 1 < self.share
    }
}

/// Returns the part of a trace id that decides whether it is sampled.
fn last_eight([.., a, b, c, d, e, f, g, h]: [u8; 16]) -> u64 {
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// Returns the share for a ratio, which is 1 if none is given.
fn share(argument: Option<&str>) -> Result<u64, String> {
    let Some(text) = argument.map(str::trim).filter(|text| !text.is_empty()) else {
        return Ok(ALL);
    };
    let ratio = text.parse::<f64>().ok();
    let ratio = ratio.filter(|ratio| (0.0..=1.0).contains(ratio));
    let ratio =
        ratio.ok_or_else(|| format!("OTEL_TRACES_SAMPLER_ARG must be within 0..=1: `{text}`"))?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "both are powers of two within the range of the other type"
    )]
    let share = (ratio * ALL as f64) as u64;
    Ok(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(name: &str, argument: &str) -> Sampler {
        Sampler::read(Some(name), Some(argument)).unwrap()
    }

    #[test]
    fn the_variables_are_read_or_refused() {
        let (half, all) = (1 << 62, 1 << 63);
        let is = |by_parent, share| Ok(Sampler { by_parent, share });
        for (name, argument, expected) in [
            (None, None, is(true, all)),
            (Some(""), Some("7"), is(true, all)),
            (Some("always_on"), None, is(false, all)),
            (Some("always_off"), None, is(false, 0)),
            (Some("traceidratio"), Some("0.5"), is(false, half)),
            (Some("traceidratio"), None, is(false, all)),
            (
                Some("parentbased_traceidratio"),
                Some(" 0.5 "),
                is(true, half),
            ),
            (Some("parentbased_always_off"), None, is(true, 0)),
        ] {
            assert_eq!(
                Sampler::read(name, argument),
                expected,
                "{name:?} {argument:?}"
            );
        }
        let refused = |name, argument| Sampler::read(Some(name), Some(argument)).unwrap_err();
        assert!(refused("jaeger_remote", "").ends_with("`jaeger_remote`"));
        assert!(refused("traceidratio", "1.5").ends_with("must be within 0..=1: `1.5`"));
        assert!(refused("traceidratio", "NaN").ends_with("`NaN`"));
    }

    #[test]
    fn the_parent_decides_where_it_is_asked() {
        let sampled = SpanContext::in_trace(u128::MAX);
        let not = SpanContext {
            flags: 0,
            ..sampled
        };
        let by_parent = sampler("parentbased_always_off", "");
        let span = by_parent.span(Some(sampled), None, 0).unwrap();
        assert_eq!(span.trace_id, sampled.trace_id);
        assert!(span.span_id != sampled.span_id && span.is_sampled());
        assert_eq!(by_parent.span(Some(not), None, 0), None);
        assert_eq!(by_parent.span(None, None, 0), None);
        let on = sampler("always_on", "");
        assert!(on.span(Some(not), None, 0).unwrap().is_sampled());
        let few = sampler("traceidratio", "0.01");
        assert_eq!(
            few.span(Some(sampled), None, 0),
            None,
            "by the trace's number"
        );
    }

    #[test]
    fn a_ratio_takes_its_share_and_tells_by_the_number_of_the_trace() {
        let few = sampler("parentbased_traceidratio", "0.01");
        let mut random = fastrand::Rng::with_seed(7);
        let taken = (0..100_000).filter_map(|_| few.span(None, None, random.u64(..)));
        let taken: Vec<SpanContext> = taken.collect();
        assert!((800..1200).contains(&taken.len()), "{}", taken.len());
        let whole = sampler("traceidratio", "0.01");
        for span in taken {
            assert!(whole.span(Some(span), None, 0).is_some(), "{span}");
        }
    }

    #[test]
    fn the_next_attempt_belongs_to_the_trace_of_the_one_before() {
        let earlier = SpanContext::in_trace(u128::MAX);
        let few = sampler("parentbased_traceidratio", "0.01");
        let span = few.span(None, Some(earlier), u64::MAX).unwrap();
        assert_eq!(span.trace_id, earlier.trace_id);
        assert_eq!(sampler("always_off", "").span(None, Some(earlier), 0), None);
    }
}
