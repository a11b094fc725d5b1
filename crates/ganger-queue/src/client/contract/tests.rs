use super::*;

/// A source of dead letters of which some are held, and some match no criteria.
#[derive(Debug)]
struct Letters {
    ids: BTreeSet<u32>,
    /// Those whose key another message has.
    held: BTreeSet<u32>,
    fails_at: Option<u32>,
}

impl Letters {
    fn chosen(&self, filter: &DeadFilter) -> BTreeSet<u32> {
        let ids = filter.ids.as_ref().unwrap().iter();
        let ids = ids.map(|id| id.parse::<u32>().unwrap());
        ids.filter(|id| self.ids.contains(id)).collect()
    }

    fn take(&mut self, ids: &BTreeSet<u32>) -> Result<usize, Partial> {
        if self.fails_at.is_some_and(|id| ids.contains(&id)) {
            return Err(SourceFault::unusable("not this one").into());
        }
        self.ids.retain(|id| !ids.contains(id));
        Ok(ids.len())
    }
}

impl QueueClient for Letters {
    fn dead_list(&mut self, page: &Page, each: &mut Each<'_>) -> Result<Listed, SourceFault> {
        let after = page.after.as_ref().map_or(0, |id| id.parse().unwrap());
        for id in self.ids.iter().filter(|id| **id > after) {
            let letter = DeadLetter {
                id: id.to_string(),
                error: if id % 2 == 0 { "even" } else { "odd" }.to_owned(),
                ..DeadLetter::default()
            };
            if each(letter).is_break() {
                return Ok(Listed::More);
            }
        }
        Ok(Listed::All)
    }

    fn dead_retry(&mut self, filter: &DeadFilter, _: &RetryTarget) -> Result<usize, Partial> {
        let mut ids = self.chosen(filter);
        ids.retain(|id| !self.held.contains(id));
        self.take(&ids)
    }

    fn dead_held(&mut self, filter: &DeadFilter) -> Result<usize, SourceFault> {
        Ok(self.chosen(filter).intersection(&self.held).count())
    }

    fn dead_drop(&mut self, filter: &DeadFilter) -> Result<usize, Partial> {
        self.take(&self.chosen(filter))
    }

    fn check(&mut self) -> Result<Vec<String>, SourceFault> {
        Ok(Vec::new())
    }

    fn send(&mut self, _: &[Outgoing]) -> Result<(), Partial> {
        Ok(())
    }

    fn depth(&mut self, _: &str) -> Result<Depth, SourceFault> {
        Ok(Depth::default())
    }

    fn reply_to(&mut self, unique: &str) -> Result<String, SourceFault> {
        Ok(unique.to_owned())
    }

    fn take_reply(&mut self, _: &str, _: &str) -> Result<Option<Reply>, SourceFault> {
        Ok(None)
    }

    fn wait_for_change(&mut self, _: Duration) {}
}

fn letters(count: u32) -> Letters {
    Letters {
        ids: (1..=count).collect(),
        held: BTreeSet::new(),
        fails_at: None,
    }
}

/// Changes them in steps of at most so many, until so many steps were begun. Returns the results.
fn change(
    letters: &mut Letters,
    change: DeadChange,
    filter: &DeadFilter,
    (most, begun_max): (usize, usize),
) -> (Vec<Step>, Result<(), Partial>) {
    let (mut steps, mut begun) = (Vec::new(), 0);
    let result = letters.dead_change(filter, change, &mut |step| {
        steps.push(step);
        begun += 1;
        (begun <= begun_max).then_some(most)
    });
    steps.remove(0);
    (steps, result)
}

fn changed(steps: &[Step]) -> Vec<usize> {
    steps.iter().map(|step| step.changed).collect()
}

#[test]
fn steps_go_through_all_that_match_and_end_where_they_may_not_go_on() {
    let all = DeadFilter::default();
    let mut some = letters(7);
    let (steps, result) = change(&mut some, DeadChange::Drop, &all, (3, 1));
    assert!(result.is_ok());
    assert_eq!(changed(&steps), [3]);
    let (steps, _) = change(&mut some, DeadChange::Drop, &all, (3, 100));
    assert_eq!(changed(&steps), [3, 1]);
    assert!(some.ids.is_empty());
    let mut some = letters(7);
    let mut even = DeadFilter::default();
    even.criteria.error = Some("even".to_owned());
    let (steps, _) = change(&mut some, DeadChange::Retry, &even, (2, 100));
    assert_eq!(changed(&steps), [2, 1]);
    assert_eq!(some.ids, BTreeSet::from([1, 3, 5, 7]));
}

#[test]
fn those_that_stay_are_counted_once_and_hold_up_nothing() {
    let mut some = Letters {
        held: BTreeSet::from([1, 2, 5]),
        ..letters(6)
    };
    let all = DeadFilter::default();
    let (steps, _) = change(&mut some, DeadChange::Retry, &all, (2, 100));
    assert_eq!(changed(&steps), [0, 2, 1]);
    assert_eq!(steps.iter().map(|step| step.held).sum::<usize>(), 3);
    assert_eq!(some.ids, some.held);
}

#[test]
fn a_fault_ends_the_steps_and_they_may_begin_again() {
    let mut some = Letters {
        fails_at: Some(4),
        ..letters(6)
    };
    let all = DeadFilter::default();
    let (steps, result) = change(&mut some, DeadChange::Drop, &all, (3, 100));
    assert_eq!(changed(&steps), [3]);
    assert_eq!(result.unwrap_err().done, 0);
    some.fails_at = None;
    let (steps, _) = change(&mut some, DeadChange::Drop, &all, (3, 100));
    assert_eq!(changed(&steps), [3]);
}

/// So many that match nothing are no reason to read on without a word.
#[test]
fn a_long_way_without_a_match_is_walked_in_steps() {
    let none = DeadFilter {
        criteria: Criteria {
            error: Some("none".to_owned()),
            ..Criteria::default()
        },
        ..DeadFilter::default()
    };
    let mut some = letters(25_000);
    let (steps, _) = change(&mut some, DeadChange::Drop, &none, (3, 100));
    assert_eq!(changed(&steps), [0, 0, 0]);
    assert_eq!(some.ids.len(), 25_000);
}
