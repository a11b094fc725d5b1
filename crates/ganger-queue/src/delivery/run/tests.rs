use super::*;

fn notes() -> RunNotes {
    let notes = RunNotes::default();
    notes.keep(Some(LogLimits::default()));
    notes
}

fn run(notes: &RunNotes, occurrence: &str) -> Arc<Run> {
    notes.run(&Arc::from(occurrence), 2, None).unwrap()
}

fn say(run: &Run, text: &str) {
    run.line(LogStream::Stdout, "info", || text.to_owned());
}

fn texts(note: &RunNote) -> Vec<&str> {
    note.lines.iter().map(|line| &*line.text).collect()
}

#[test]
fn what_a_run_tells_is_taken_in_order_and_only_once() {
    let notes = notes();
    let one = run(&notes, "one");
    say(&one, "first");
    one.line(LogStream::Log, "warn", || "second".to_owned());
    one.progress("1 of 2");
    one.progress("2 of 2");
    let taken = notes.take();
    let [note] = &taken[..] else {
        panic!("{taken:?}");
    };
    assert_eq!(texts(note), ["first", "second"]);
    assert_eq!((note.lines[1].attempt, note.lines[1].level), (2, "warn"));
    assert_eq!(note.progress.as_deref(), Some("2 of 2"));
    assert!(notes.take().is_empty());
}

#[test]
fn a_ledger_that_is_away_costs_no_more_than_so_much_memory_and_lines_are_counted() {
    let notes = notes();
    let (noisy, quiet) = (run(&notes, "noisy"), run(&notes, "quiet"));
    let long = "x".repeat(8192);
    (0..1000).for_each(|_| say(&noisy, &long));
    let taken = notes.take();
    assert!(size(&taken) <= BYTES_MAX);
    // What is being written counts, too.
    say(&quiet, &long);
    quiet.progress("still told");
    notes.done(size(&taken), taken);
    let mut taken = notes.take();
    taken.sort_by(|one, other| one.occurrence.cmp(&other.occurrence));
    let [noisy_note, quiet_note] = &taken[..] else {
        panic!("{taken:?}");
    };
    let kept = noisy_note.lines.len() as u64;
    assert!(kept > 0 && noisy_note.dropped > 0);
    assert_eq!(kept + noisy_note.dropped, 1000);
    assert_eq!(notes.counts().lines_dropped, noisy_note.dropped + 1);
    assert_eq!((quiet_note.lines.len(), quiet_note.dropped), (0, 1));
    assert_eq!(quiet_note.progress.as_deref(), Some("still told"));
    notes.done(size(&taken), Vec::new());
    say(&quiet, "kept again");
    assert_eq!(texts(&notes.take()[0]), ["kept again"]);
}

#[test]
fn what_could_not_be_written_comes_before_what_was_told_since() {
    let notes = notes();
    let one = run(&notes, "one");
    say(&one, "first");
    one.progress("old");
    let taken = notes.take();
    say(&one, "second");
    one.progress("new");
    notes.done(size(&taken), taken);
    let taken = notes.take();
    assert_eq!(texts(&taken[0]), ["first", "second"]);
    assert_eq!(taken[0].progress.as_deref(), Some("new"));
}

#[test]
fn life_is_proved_of_runs_that_a_worker_has_had_for_long() {
    let notes = notes();
    let (begun, over, waiting) = (run(&notes, "begun"), run(&notes, "over"), run(&notes, "w"));
    begun.begin();
    over.begin();
    over.end(None);
    notes.prove_life(Duration::from_secs(3600));
    assert!(notes.take().is_empty());
    notes.prove_life(Duration::ZERO);
    drop(waiting);
    let taken = notes.take();
    let [note] = &taken[..] else {
        panic!("{taken:?}");
    };
    assert_eq!((&*note.occurrence, note.lines.len()), ("begun", 0));
}

#[test]
fn ends_are_counted_by_state_and_only_by_who_has_the_message() {
    let notes = notes();
    let claim = Arc::new(());
    let claimed = Some(Arc::downgrade(&claim));
    let lost = notes.run(&Arc::from("lost"), 1, claimed).unwrap();
    drop(claim);
    lost.end(Some(OccurrenceState::Completed));
    // The message comes again.
    run(&notes, "one").end(None);
    for state in [OccurrenceState::Completed, OccurrenceState::TimedOut] {
        run(&notes, "one").end(Some(state));
    }
    run(&notes, "other").end(Some(OccurrenceState::Completed));
    let expected = BTreeMap::from([
        (OccurrenceState::Completed, 2),
        (OccurrenceState::Failed, 0),
        (OccurrenceState::TimedOut, 1),
        (OccurrenceState::Cancelled, 0),
    ]);
    assert_eq!(notes.counts().ended, expected);
}

#[test]
fn nothing_is_kept_of_a_run_that_another_has_or_that_nobody_writes() {
    let notes = notes();
    let claim = Arc::new(());
    let claimed = Some(Arc::downgrade(&claim));
    let lost = notes.run(&Arc::from("lost"), 1, claimed).unwrap();
    drop(claim);
    say(&lost, "late");
    lost.progress("late");
    lost.dropped();
    assert!(notes.take().is_empty());
    let no_log = LogLimits {
        lines: 0,
        ..LogLimits::default()
    };
    notes.keep(Some(no_log));
    let silent = run(&notes, "silent");
    say(&silent, "unwanted");
    silent.dropped();
    assert!(notes.take().is_empty());
    silent.progress("wanted");
    assert_eq!(notes.take().len(), 1);
    notes.keep(None);
    silent.progress("unwanted");
    assert!(notes.take().is_empty());
    assert!(notes.run(&Arc::from("none"), 1, None).is_none());
}
