"""Sends mail from a queue: {"to": "ann@example.com", "subject": "Hello", "text": "…"}

A mail that the relay has taken is written down in SENT, and not sent again when its message comes
again. One gap is left, for there is no transaction over SMTP: a worker that dies after the relay's
last word and before it has written that down. Then the mail goes out twice, with one and the same
Message-ID, by which many servers and mail programs drop the second.
"""

from __future__ import annotations

import contextlib
import json
import os
import smtplib
import sqlite3
import uuid
from email.message import EmailMessage
from email.utils import localtime, parseaddr

from ganger_worker import Outcome, Task, done, reject, retry, run

RELAY = (os.environ["SMTP_HOST"], int(os.environ["SMTP_PORT"]))
FROM = os.environ["MAIL_FROM"]
DOMAIN = parseaddr(FROM)[1].partition("@")[2]
ANSWER_SECONDS = 20  # for each of the relay's answers

sent = sqlite3.connect(os.environ["SENT"], timeout=10, isolation_level=None)
sent.execute("CREATE TABLE IF NOT EXISTS sent (id TEXT PRIMARY KEY, at TEXT DEFAULT CURRENT_TIMESTAMP)")
sent.execute("DELETE FROM sent WHERE at < datetime('now', '-30 days')")  # far beyond any retry


def deliver(task: Task) -> Outcome:
    id = message_id(task)
    if sent.execute("SELECT 1 FROM sent WHERE id = ?", [id]).fetchone():
        return done()
    try:
        mail = compose(id, json.loads(task.bytes))
    except (KeyError, TypeError, ValueError) as error:
        return reject(f"no mail: {type(error).__name__}: {error}")
    try:
        send(mail)
    except smtplib.SMTPRecipientsRefused as error:
        [(code, text)] = error.recipients.values()
        return judged(code, text)
    except (smtplib.SMTPSenderRefused, smtplib.SMTPDataError) as error:
        return judged(error.smtp_code, error.smtp_error)
    except (smtplib.SMTPNotSupportedError, UnicodeError) as error:
        return reject(f"the relay has no way to say this: {error}")
    except (smtplib.SMTPException, OSError) as error:
        # It is away, or wants nothing of us: no fault of this mail.
        return retry(f"the relay: {type(error).__name__}: {error}")
    return done()


def message_id(task: Task) -> str:
    """The same each time that the message comes. Its sender's own name for it lasts longest."""
    name = task.properties.get("message_id") or f"row {task.properties['row_id']}"
    return f"<{uuid.uuid5(uuid.NAMESPACE_OID, f'{task.queue} {name}')}@{DOMAIN}>"


def compose(id: str, order: dict[str, str]) -> EmailMessage:
    mail = EmailMessage()
    mail["Message-ID"] = id
    mail["Date"] = localtime()
    mail["From"] = FROM
    mail["To"] = order["to"]
    if len(mail["To"].addresses) != 1:  # of several, the relay may take some and refuse others
        raise ValueError(f"to must be one address: {order['to']}")
    mail["Subject"] = order["subject"]
    mail.set_content(order["text"])
    return mail


def send(mail: EmailMessage) -> None:
    """Returns when the relay has taken it and that is written down."""
    relay = smtplib.SMTP(*RELAY, timeout=ANSWER_SECONDS)
    with contextlib.closing(relay):
        relay.send_message(mail)
        sent.execute("INSERT OR IGNORE INTO sent (id) VALUES (?)", [mail["Message-ID"]])
        with contextlib.suppress(smtplib.SMTPException, OSError):
            relay.quit()  # what it says to that changes nothing


def judged(code: int, text: bytes | str) -> Outcome:
    """By the relay's code: 4xx for not now, 5xx for never."""
    words = text if isinstance(text, str) else text.decode(errors="replace")
    verdict = reject if code >= 500 else retry
    return verdict(f"the relay answered {code} {words}")


run(deliver)
