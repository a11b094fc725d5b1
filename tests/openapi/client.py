"""Asks a daemon through the client that is generated from the description of its API: what comes is
what the description says, as the client has types for it."""

import sys
import time

from ganger_client import AuthenticatedClient
from ganger_client.api.dead_letters import groups, list_, retry, show
from ganger_client.api.health import metrics, readyz
from ganger_client.api.messages import publish
from ganger_client.api.pools import all_, one, scale
from ganger_client.api.schedules import (
    enter_schedule,
    explain_schedule,
    ledger,
    list_occurrences,
    list_schedules,
    next_slots,
    occurrence_log,
    pause_all_schedules,
    pause_schedule,
    remove_schedule,
    resume_all_schedules,
    resume_schedule,
    show_occurrence,
    show_schedule,
    trigger_schedule,
)
from ganger_client.api.sources import sources
from ganger_client.api.status import status
from ganger_client.api.subscriptions import subscriptions, unsubscribe
from ganger_client.models import (
    Changed,
    Chosen,
    DeadLetter,
    Done,
    EnterScheduleBody,
    ExplainTimes,
    Explained,
    Health,
    Ledger,
    Letters,
    Message,
    OccurrenceDetails,
    OccurrenceLog,
    Occurrences,
    PauseSchedule,
    PoolStatus,
    Problem,
    Published,
    Reply,
    ResumeSchedule,
    Scale,
    ScheduleDetails,
    ScheduleEntered,
    ScheduleTriggered,
    Status,
    Steered,
    TriggerSchedule,
)


def wait_for(look):
    """Returns what is there at last."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if found := look():
            return found
        time.sleep(0.05)
    raise TimeoutError(look)


def main(url: str, token: str) -> None:
    client = AuthenticatedClient(base_url=url, token=token)
    stranger = AuthenticatedClient(base_url=url, token="guessed")

    def is_ready():
        health = readyz.sync(client=client)
        return isinstance(health, Health) and health.ok

    wait_for(is_ready)
    assert "ganger_build_info" in metrics.sync(client=client)
    everything = status.sync(client=client)
    assert isinstance(everything, Status)
    assert [pool.name for pool in everything.pools] == ["work"]
    assert isinstance(one.sync("work", client=client), PoolStatus)
    assert len(all_.sync(client=client)) == 1

    missing = one.sync("play", client=client)
    assert isinstance(missing, Problem) and missing.status == 404, missing
    refused = status.sync(client=stranger)
    assert isinstance(refused, Problem) and refused.status == 401, refused
    done = scale.sync("work", client=client, body=Scale(workers=2))
    assert isinstance(done, Steered), done

    message = Message(body="mode:reply hello", correlation_id="c-1", priority=3)
    published = publish.sync("work", client=client, body=message, wait="20s")
    assert isinstance(published, Published), published
    assert isinstance(published.reply, Reply), published
    assert published.reply.body == "re: mode:reply hello", published

    wrong = Message(body="mode:answer:400 wrong")
    assert publish.sync("work", client=client, body=wrong).sent == 1

    def dead():
        letters = list_.sync("main", client=client)
        assert isinstance(letters, Letters), letters
        return letters.letters

    letter = wait_for(dead)[0]
    assert isinstance(letter, DeadLetter) and isinstance(letter.id, str), letter
    assert letter.body == wrong.body, letter
    assert groups.sync("main", client=client).groups[0].id == letter.id
    assert show.sync("main", letter.id, client=client).id == letter.id
    mended = Chosen(ids=[letter.id], body="mended")
    changed = retry.sync("main", client=client, body=mended)
    assert isinstance(changed, Changed) and changed.changed == 1, changed
    again = retry.sync("main", client=client, body=mended)
    assert isinstance(again, Problem) and again.status == 404, again
    assert again.changed == 0, again
    known = sources.sync(client=client)
    assert [source.name for source in known] == ["main"], known
    assert subscriptions.sync(client=client) == []
    lost = unsubscribe.sync("main", "placed", "work", client=client)
    assert isinstance(lost, Problem) and lost.status == 404, lost
    schedules(client)
    print("done")


def schedules(client: AuthenticatedClient) -> None:
    """Enters a schedule, runs it, and removes it."""
    assert isinstance(ledger.sync(client=client), Ledger)
    keys = EnterScheduleBody.from_dict({"at": "2100-01-01T00:00:00", "queue": "work", "body": "x"})
    entered = enter_schedule.sync("far", client=client, body=keys)
    assert isinstance(entered, ScheduleEntered) and entered.change == "created", entered
    wrong = EnterScheduleBody.from_dict({"cron": "0 24 * * *", "queue": "work"})
    refused = enter_schedule.sync("far", client=client, body=wrong)
    assert isinstance(refused, Problem) and refused.status == 422, refused
    assert "write 0 to 23" in refused.errors[0], refused

    assert isinstance(pause_all_schedules.sync(client=client), Done)
    assert isinstance(resume_all_schedules.sync(client=client), Done)
    reason = PauseSchedule(reason="maintenance")
    assert isinstance(pause_schedule.sync("far", client=client, body=reason), Done)
    paused = list_schedules.sync(client=client, state="paused")
    assert [(one.name, one.state_reason) for one in paused] == [("far", "maintenance")], paused
    made_up = ResumeSchedule(make_up=True)
    assert isinstance(resume_schedule.sync("far", client=client, body=made_up), Done)

    triggered = trigger_schedule.sync("far", client=client, body=TriggerSchedule(reason="a try"))
    assert isinstance(triggered, ScheduleTriggered), triggered
    ended = show_occurrence.sync(triggered.occurrence, client=client, wait="20s")
    assert isinstance(ended, OccurrenceDetails), ended
    assert (ended.state, ended.slot) == ("completed", None), ended
    assert ended.events[0].note == "triggered: a try", ended
    log = occurrence_log.sync(ended.id, client=client, limit=10)
    assert isinstance(log, OccurrenceLog) and log.state == "completed", log
    listed = list_occurrences.sync(client=client, schedule="far", limit=1)
    assert isinstance(listed, Occurrences), listed
    assert (listed.occurrences[0].id, listed.cursor) == (ended.id, None), listed
    shown = show_schedule.sync("far", client=client)
    assert isinstance(shown, ScheduleDetails), shown
    assert shown.occurrences[0].id == ended.id, shown
    assert [slot.slot for slot in next_slots.sync("far", client=client)] == ["2100-01-01T00:00:00Z"]

    times = ExplainTimes(cron="0 9 * * MON", zone="Europe/Berlin", n=2)
    explained = explain_schedule.sync(client=client, body=times)
    assert isinstance(explained, Explained) and len(explained.slots) == 2, explained
    assert isinstance(remove_schedule.sync("far", client=client), Done)
    missing = show_schedule.sync("far", client=client)
    assert isinstance(missing, Problem) and missing.status == 404, missing


main(*sys.argv[1:])
