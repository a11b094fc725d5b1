//! Records to store for a dead letter, and their form: unchanged; if the broker rejects that, with less
//! detail of the failure; if it is too large even then, in parts, which get smaller until they are accepted.
//! The message itself is never shortened. Pure.

use std::collections::VecDeque;

use rdkafka::error::RDKafkaErrorCode as Code;

use crate::broker::error::{is_its_fault, is_too_large};
use crate::broker::parts;
use crate::broker::record::Outbound;
use ganger_queue::dead_letter::{header, without_end};

/// Part size that most topics accept: their batches may be 1 MiB unless they are set otherwise.
const PART_BYTES_MAX: usize = 960 << 10;
/// Minimum part size: a topic that accepts less is unusable.
const PART_BYTES_MIN: usize = 4 << 10;
/// Below this part size, the failure's details may be too large for part 0.
const DETAILED_PART_BYTES: usize = 32 << 10;
/// Maximum size of the error in a shortened dead letter.
const SHORT_ERROR_BYTES_MAX: usize = 256;

/// Form in which a record is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoredForm {
    Whole,
    /// With hardly any detail of the failure.
    Short,
    /// In parts of at most that size in bytes.
    Parts(usize),
}

/// A dead letter being stored, preceded by its reply if that is a record of its own.
#[derive(Debug)]
pub(super) struct DeadLetterWrite {
    /// Items to store, the dead letter last.
    all: Vec<Outbound>,
    /// Number of stored items.
    stored: usize,
    /// Form of the next item.
    form: StoredForm,
    /// Its records that are not stored yet; its own is the last.
    records: VecDeque<Outbound>,
}

impl DeadLetterWrite {
    /// Prepares the records of a dead letter and its reply.
    pub(super) fn new(reply: Option<Outbound>, letter: Outbound) -> Self {
        let mut write = Self {
            all: reply.into_iter().chain([letter]).collect(),
            stored: 0,
            form: StoredForm::Whole,
            records: VecDeque::new(),
        };
        write.cut();
        write
    }

    /// Returns the next record to store; none if all are stored.
    pub(super) fn next(&self) -> Option<&Outbound> {
        self.records.front()
    }

    /// Marks that record as stored.
    pub(super) fn stored(&mut self) {
        self.records.pop_front();
        if !self.records.is_empty() {
            return;
        }
        self.stored += 1;
        self.form = StoredForm::Whole;
        self.cut();
    }

    /// Returns whether another form may be accepted after a rejection with this code.
    pub(super) fn may_shrink(&self, code: Code) -> bool {
        self.smaller(code).is_some()
    }

    /// Switches to the next such form. Records already stored in the last form are stored again, under the
    /// same keys.
    pub(super) fn shrink(&mut self, code: Code) {
        if let Some(form) = self.smaller(code) {
            self.form = form;
            self.cut();
        }
    }

    fn smaller(&self, code: Code) -> Option<StoredForm> {
        let is_too_large = is_too_large(code);
        let first = self.all.get(self.stored)?;
        match self.form {
            StoredForm::Whole if is_its_fault(code) && has_details(first) => {
                Some(StoredForm::Short)
            }
            StoredForm::Whole | StoredForm::Short if is_too_large => {
                Some(StoredForm::Parts(PART_BYTES_MAX))
            }
            StoredForm::Parts(bytes) if is_too_large && bytes / 2 >= PART_BYTES_MIN => {
                Some(StoredForm::Parts(bytes / 2))
            }
            StoredForm::Whole | StoredForm::Short | StoredForm::Parts(_) => None,
        }
    }

    fn cut(&mut self) {
        self.records = match (self.all.get(self.stored), self.form) {
            (None, _) => VecDeque::new(),
            (Some(first), StoredForm::Whole) => [first.clone()].into(),
            (Some(first), StoredForm::Short) => [shortened(first)].into(),
            (Some(first), StoredForm::Parts(bytes)) if bytes >= DETAILED_PART_BYTES => {
                parts::split(first, bytes).into()
            }
            (Some(first), StoredForm::Parts(bytes)) => {
                parts::split(&shortened(first), bytes).into()
            }
        };
    }
}

fn has_details(record: &Outbound) -> bool {
    let wordy = [header::STDERR, header::ERROR];
    let mut headers = record.headers.iter();
    headers.any(|(name, _)| wordy.contains(&name.as_str()))
}

/// Removes the worker's last lines and shortens the error.
fn shortened(record: &Outbound) -> Outbound {
    let mut record = record.clone();
    record.headers.retain(|(name, _)| name != header::STDERR);
    let errors = record
        .headers
        .iter_mut()
        .filter(|(name, _)| name == header::ERROR);
    for (_, value) in errors {
        let text = String::from_utf8_lossy(value.as_deref().unwrap_or_default()).into_owned();
        let text = without_end(&text, SHORT_ERROR_BYTES_MAX).into_owned();
        *value = Some(text.into());
    }
    record
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::broker::headers;
    use crate::broker::headers::Raw;

    fn letter(value_bytes: usize) -> Outbound {
        let mut headers: Raw = vec![("colour".to_owned(), Some("red".into()))];
        headers.extend(headers::own(vec![
            (header::DEAD_LETTER_ID, "id-1".to_owned()),
            (header::ERROR, "e".repeat(5_000)),
            (header::STDERR, "s".repeat(10_000)),
        ]));
        Outbound {
            topic: "dead".to_owned(),
            key: Some("id-1".into()),
            value: Some(vec![7; value_bytes].into()),
            headers,
            timestamp_ms: None,
            compressed: true,
        }
    }

    fn reply(value_bytes: usize) -> Outbound {
        Outbound {
            key: Some("id-1/reply".into()),
            value: Some(vec![8; value_bytes].into()),
            ..Outbound::default()
        }
    }

    /// Simulates a topic that accepts records up to a size in bytes; returns its final content or the error.
    fn store(mut write: DeadLetterWrite, bytes_max: usize) -> Result<Vec<Outbound>, Code> {
        let mut stored = Vec::new();
        while let Some(record) = write.next() {
            if record.bytes() <= bytes_max {
                stored.push(record.clone());
                write.stored();
            } else if write.may_shrink(Code::MessageSizeTooLarge) {
                write.shrink(Code::MessageSizeTooLarge);
            } else {
                return Err(Code::MessageSizeTooLarge);
            }
        }
        Ok(stored)
    }

    fn keys(stored: &[Outbound]) -> Vec<String> {
        let key = |record: &Outbound| String::from_utf8(record.key.clone().unwrap().into());
        stored.iter().map(|record| key(record).unwrap()).collect()
    }

    #[test]
    fn what_is_taken_as_it_is_stays_so_and_the_reply_goes_first() {
        let stored = store(DeadLetterWrite::new(Some(reply(9)), letter(9)), 1 << 20).unwrap();
        assert_eq!(stored, [reply(9), letter(9)]);
    }

    #[test]
    fn first_what_is_said_of_the_failure_is_cut_and_nothing_else() {
        let stored = store(DeadLetterWrite::new(None, letter(50_000)), 60_000).unwrap();
        assert_eq!(keys(&stored), ["id-1"]);
        let find = |name| headers::find(&stored[0].headers, name);
        assert_eq!(find(header::STDERR), None);
        assert!(find(header::ERROR).unwrap().len() <= SHORT_ERROR_BYTES_MAX);
        assert_eq!(find("colour").as_deref(), Some("red"));
        assert_eq!(stored[0].value, letter(50_000).value);
    }

    #[test]
    fn what_is_too_large_even_then_goes_in_parts_the_letter_last() {
        let bytes_max = 1 << 20;
        let stored = store(
            DeadLetterWrite::new(Some(reply(3 << 20)), letter(2 << 20)),
            bytes_max,
        )
        .unwrap();
        let expected = [
            "id-1/reply/part/1",
            "id-1/reply/part/2",
            "id-1/reply/part/3",
            "id-1/reply/part/4",
            "id-1/reply",
            "id-1/part/1",
            "id-1/part/2",
            "id-1/part/3",
            "id-1",
        ];
        assert_eq!(keys(&stored), expected);
        let head = stored.last().unwrap();
        assert!(
            headers::find(&head.headers, header::STDERR).is_some(),
            "there is room"
        );
    }

    #[test]
    fn parts_get_smaller_until_they_are_taken() {
        let stored = store(DeadLetterWrite::new(None, letter(100_000)), 10_000).unwrap();
        let bytes: usize = stored
            .iter()
            .filter_map(|part| part.value.as_ref())
            .map(Bytes::len)
            .sum();
        assert!(bytes > 100_000, "{bytes}");
        assert_eq!(keys(&stored).last().unwrap(), "id-1");
        let refused = store(DeadLetterWrite::new(None, letter(100_000)), 100);
        assert_eq!(refused, Err(Code::MessageSizeTooLarge));
    }

    #[test]
    fn what_is_refused_for_another_reason_is_not_cut_up() {
        let mut write = DeadLetterWrite::new(None, letter(9));
        assert!(!write.may_shrink(Code::TopicAuthorizationFailed));
        assert!(write.may_shrink(Code::InvalidRecord));
        write.shrink(Code::InvalidRecord);
        assert!(!write.may_shrink(Code::InvalidRecord));
        assert_eq!(write.records.len(), 1);
    }
}
