//! Tests of `budget`.

use proptest::prelude::*;

use super::*;

const MIB: usize = 1 << 20;

fn waiting(budget: &Budget) -> Vec<String> {
    budget.standing().waiting
}

#[test]
fn what_may_be_drawn_is_what_is_left_and_among_those_who_wait_an_equal_part() {
    let table: [(&[(usize, bool)], usize); 8] = [
        (&[], 90),
        (&[(30, false)], 60),
        (&[(90, false)], 0),
        (&[(200, false)], 0),
        // Another party that waits and holds less keeps us at half.
        (&[(0, true)], 45),
        (&[(30, false), (0, true)], 30),
        // Another party that waits and holds more leaves us what there is.
        (&[(80, true)], 10),
        (&[(0, true), (0, true)], 30),
    ];
    for (others, expected) in table {
        let may = allowed(90, others.iter().copied());
        assert_eq!(may, expected, "{others:?}");
    }
}

#[test]
fn who_holds_nothing_gets_one_of_any_size() {
    let budget = Budget::new(Some(MIB));
    let (a, b) = (budget.share("a"), budget.share("b").within(10));
    let first = a.take(5 * MIB).unwrap();
    assert!(a.take(1).is_none(), "only one");
    let second = b.take(5 * MIB).unwrap();
    assert!(b.take(0).is_none());
    assert_eq!(budget.standing().drawn, 10 * MIB);
    drop((first, second));
    assert_eq!(budget.standing().drawn, 0);
    assert!(a.take(MIB).is_some() && b.take(1).is_some());
}

#[test]
fn what_a_source_may_hold_by_itself_is_not_waited_for_elsewhere() {
    let budget = Budget::new(Some(MIB));
    let share = budget.share("p").within(100);
    let _held = share.take(100).unwrap();
    assert!(share.take(1).is_none());
    assert_eq!(share.room(), 0);
    assert_eq!(waiting(&budget), [""; 0]);
}

#[test]
fn small_messages_are_drawn_for_in_quanta() {
    let budget = Budget::new(Some(MIB));
    let share = budget.share("p");
    let first = share.take(1).unwrap();
    assert_eq!(budget.standing().drawn, QUANTUM);
    let more: Vec<Hold> = (1..QUANTUM).map_while(|_| share.take(1)).collect();
    assert_eq!(
        (more.len() + 1, budget.standing().drawn),
        (QUANTUM, QUANTUM)
    );
    drop((first, more));
    assert_eq!((share.used(), budget.standing().drawn), (0, 0));
}

#[test]
fn who_gets_one_beyond_the_bound_gets_no_more_for_that() {
    let budget = Budget::new(Some(100 << 10));
    let (a, b) = (budget.share("a"), budget.share("b"));
    let _all = (a.take(1 << 10).unwrap(), a.take(98 << 10).unwrap());
    let _one = b.take(53 << 10).unwrap();
    assert!(b.take(3 << 10).is_none(), "not what is left of a quantum");
    assert_eq!(budget.standing().drawn, (100 + 53) << 10);
}

/// One share has it all; the other must come to its half, whatever the first one does.
#[tokio::test]
async fn nobody_keeps_all_for_itself() {
    let budget = Budget::new(Some(100 * MIB));
    let (hog, other) = (budget.share("hog"), budget.share("other"));
    let mut hogs: Vec<Hold> = std::iter::from_fn(|| hog.take(MIB)).collect();
    assert_eq!(hogs.len(), 100);
    let mut others = vec![other.take(MIB).unwrap()];
    assert!(other.take(MIB).is_none());
    assert_eq!(waiting(&budget), ["hog", "other"]);
    for _ in 0..60 {
        hogs.pop();
        hogs.extend(hog.take(MIB));
        // Whoever waits is notified of what comes free.
        other.freed().await;
        others.extend(other.take(MIB));
    }
    assert_eq!((hogs.len(), others.len()), (50, 50));
    // When the other needs no more, all is the first one's again.
    others.clear();
    other.rest();
    other.rest();
    assert_eq!(waiting(&budget), ["hog"]);
    hogs.extend(std::iter::from_fn(|| hog.take(MIB)));
    assert_eq!(hogs.len(), 100);
}

#[tokio::test]
async fn a_higher_bound_wakes_who_waits() {
    let budget = Budget::new(Some(MIB));
    let share = budget.share("p");
    let _held = share.take(MIB).unwrap();
    assert!(share.take(MIB).is_none());
    share.freed().await;
    budget.set(Some(2 * MIB));
    share.freed().await;
    let _more = share.take(MIB).unwrap();
    share.rest();
    share.rest();
    assert_eq!(waiting(&budget), [""; 0]);
}

#[tokio::test]
async fn what_was_promised_is_given_up_when_others_wait() {
    let budget = Budget::new(Some(90 * MIB));
    let (broker, table) = (budget.share("broker"), budget.share("table"));
    broker.promise(90 * MIB);
    let _first = table.take(MIB).unwrap();
    assert!(table.take(MIB).is_none());
    broker.freed().await;
    assert_eq!(broker.most(), 45 * MIB);
    broker.promise(broker.most());
    assert_eq!(table.most(), 45 * MIB);
    assert!(table.take(44 * MIB).is_some());
}

#[test]
fn one_that_ends_leaves_nothing_behind() {
    let budget = Budget::new(Some(MIB));
    let share = budget.share("p");
    let held = share.take(MIB).unwrap();
    assert!(share.take(1).is_none());
    share.promise(5);
    drop(share);
    assert_eq!(waiting(&budget), ["p"], "what it handed out is still there");
    drop(held);
    let nothing = BudgetState {
        drawn: 0,
        bytes_max: MIB,
        waiting: Vec::new(),
    };
    assert_eq!(budget.standing(), nothing);
}

#[test]
fn without_a_bound_it_is_a_part_of_the_memory() {
    let text = "MemTotal:       16303020 kB\nMemFree:          102400 kB\n";
    assert_eq!(total(text), Some(16_303_020 * 1024));
    assert_eq!(total("nothing"), None);
    let memory = usize::try_from(memory().unwrap()).unwrap();
    assert_eq!(Budget::new(None).standing().bytes_max, memory / 4);
}

proptest! {
    /// In any sequence of events the books are right, holdings stay within the bound but for one
    /// message of each share, and a share that holds nothing gets one.
    #[test]
    fn the_bound_holds(
        steps in proptest::collection::vec((0..4_usize, 1..60_usize, any::<bool>()), 1..200),
    ) {
        let budget = Budget::new(Some(100 * 1024));
        let shares: Vec<Share> = (0..4).map(|_| budget.share("p")).collect();
        let mut held: Vec<Vec<Hold>> = vec![Vec::new(), Vec::new(), Vec::new(), Vec::new()];
        for (who, bytes, takes) in steps {
            let share = &shares[who];
            let used_before = share.used();
            if !takes {
                held[who].pop();
            } else if let Some(hold) = share.take(bytes * 1024) {
                held[who].push(hold);
            } else {
                prop_assert!(used_before > 0);
            }
            share.rest();
            let used: Vec<usize> = shares.iter().map(Share::used).collect();
            let sums = held.iter().map(|held| held.iter().map(|hold| hold.bytes).sum());
            prop_assert_eq!(&used, &sums.collect::<Vec<usize>>());
            let beyond: usize = held.iter().map(|held| held.first().map_or(0, |hold| hold.bytes)).sum();
            prop_assert!(used.iter().sum::<usize>() <= 100 * 1024 + beyond, "{used:?}");
            prop_assert!(budget.standing().drawn >= used.iter().sum());
        }
        held.clear();
        prop_assert_eq!(budget.standing().drawn, 0);
    }
}
