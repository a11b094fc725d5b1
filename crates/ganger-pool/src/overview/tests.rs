use super::*;
use ganger_config as config;

fn status(state: DaemonState, pools: &[PoolState]) -> Status {
    let text = "[sources.main]\nkind = \"table\"\nurl = \"sqlite:a.db\"\n\
                [[pools]]\nname = \"p\"\nqueue = \"q\"\ncommand = \"true\"";
    let config = config::parse(text, "test.toml", &config::Environment::new()).unwrap();
    let overview = Overview::new(Budget::new(Some(1 << 20)), &config);
    overview.set_state(state);
    let pool = |state: &PoolState| {
        Arc::new(PoolStatus {
            name: state.as_str().into(),
            state: *state,
            ..PoolStatus::default()
        })
    };
    overview.of(pools.iter().map(pool).collect())
}

#[test]
fn what_a_daemon_can_do_nothing_about_is_no_reason() {
    use PoolState::*;
    let fine = [Running, Open, Paused, Draining, Drained];
    assert!(status(DaemonState::Running, &fine).not_ready().is_empty());
    let reasons = status(DaemonState::Running, &[Starting, Degraded, SourceDown]).not_ready();
    assert_eq!(reasons.len(), 3, "{reasons:?}");
    let all = [Starting, Degraded, SourceDown, SourceDown, Running];
    let unnamed = status(DaemonState::Running, &all).not_ready_unnamed();
    assert_eq!(unnamed.len(), 3, "{unnamed:?}");
    assert_eq!(unnamed[2], "pools whose source is unavailable: 2");
    let names = [Starting, Degraded, SourceDown].map(|state| format!("`{}`", state.as_str()));
    assert!(
        !unnamed
            .iter()
            .any(|text| names.iter().any(|name| text.contains(name)))
    );
    let stopping = status(DaemonState::Stopping, &fine).not_ready();
    assert_eq!(stopping, ["the daemon is stopping"]);
}

#[tokio::test(start_paused = true)]
async fn ages_are_right_whatever_the_clock_is_set_to() {
    let text = "[sources.main]\nkind = \"table\"\nurl = \"sqlite:a.db\"\n\
                [[pools]]\nname = \"p\"\nqueue = \"q\"\ncommand = \"true\"";
    let config = config::parse(text, "test.toml", &config::Environment::new()).unwrap();
    let mut overview = Overview::new(Budget::new(Some(1 << 20)), &config);
    // The clock was set back by an hour since the start.
    overview.started_at += Duration::from_hours(1);
    let pool = PoolStatus::starting(&config.pools[0]);
    tokio::time::advance(Duration::from_secs(7)).await;
    let status = overview.of(vec![Arc::new(pool)]);
    assert!((status.uptime_seconds - 7.0).abs() < 0.1, "{status:?}");
    assert!(
        (status.pools[0].age_seconds - 7.0).abs() < 0.1,
        "{status:?}"
    );
}

#[test]
fn it_reads_what_it_writes() {
    let written = status(DaemonState::Running, &[PoolState::Open]);
    let text = serde_json::to_string(&written).unwrap();
    let read: Status = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
}
