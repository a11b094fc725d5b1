"""Does what follows from an order: takes it from the stock, puts it on the invoice, or gives points.

Each message comes at least once. The ledger of its queue has the order's id as its key, and the entry
and what it stands for are one transaction: either nothing of it is there, and it is done when the
message comes again, or all of it is, and then the entry says so.
"""

from __future__ import annotations

import json
import os
from typing import Any

import psycopg
from ganger_worker import Outcome, Task, done, reject, retry, run
from psycopg.conninfo import make_conninfo
from psycopg.errors import DataError, IntegrityError, OperationalError

# For each queue: its ledger's entry, and what goes with it.
EFFECTS = {
    "stock": (
        "INSERT INTO stock_taken VALUES (%(id)s, %(quantity)s) ON CONFLICT (order_id) DO NOTHING",
        "UPDATE stock SET in_hand = in_hand - %(quantity)s WHERE article = %(article)s",
    ),
    "invoices": (
        "INSERT INTO invoices VALUES (%(id)s, %(total)s) ON CONFLICT (order_id) DO NOTHING",
        "UPDATE customers SET owes = owes + %(total)s WHERE name = %(customer)s",
    ),
    "points": (
        "INSERT INTO points_given VALUES (%(id)s, %(quantity)s) ON CONFLICT (order_id) DO NOTHING",
        "UPDATE customers SET points = points + %(quantity)s WHERE name = %(customer)s",
    ),
}
# A server that is silent must not keep a worker for ever, nor a worker that is frozen its locks.
DATABASE = make_conninfo(
    os.environ["DATABASE_URL"],
    connect_timeout=5,
    tcp_user_timeout=5_000,
    options="-c statement_timeout=5s -c idle_in_transaction_session_timeout=5s",
)
connection: psycopg.Connection[Any] | None = None


def handle(task: Task) -> Outcome:
    try:
        order = json.loads(task.bytes)
        order = {name: order[name] for name in ("id", "customer", "article", "quantity", "total")}
    except (ValueError, KeyError, TypeError) as error:
        return reject(f"no order: {type(error).__name__}: {error}")
    try:
        take_effect(*EFFECTS[task.queue], order)
    except (IntegrityError, DataError) as error:
        return reject(f"no such order: {error}")
    except OperationalError as error:
        # Away, restarting, too slow, a deadlock: nothing is done, or the entry is there next time.
        return retry(f"the database: {error}")
    return done()


def take_effect(entry: str, effect: str, order: dict[str, Any]) -> None:
    global connection  # made anew when it is lost
    if connection is None or connection.closed:
        connection = psycopg.connect(DATABASE, autocommit=True)
    with connection.transaction():
        # Waits for another worker's transaction with the same order.
        if connection.execute(entry, order).rowcount == 1:
            connection.execute(effect, order)


run(handle)
