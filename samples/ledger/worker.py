"""Books transfers: {"id": "t-1", "debit": "ann", "credit": "bob", "amount": 250}

Each message comes at least once. The transfer's id and the change of both balances are one
transaction, so it takes effect exactly once, whenever this process, the daemon, the broker or the
database is killed: either nothing of it is there, and it is booked when it comes again, or all of it
is, and then its id says so.
"""

from __future__ import annotations

import json
import os
from typing import Any, TypeAlias

import psycopg
from ganger_worker import Outcome, Task, done, reject, retry, run
from psycopg.conninfo import make_conninfo
from psycopg.errors import DataError, IntegrityError, OperationalError

# A server that is silent must not keep a worker for ever, nor a worker that is frozen its locks.
DATABASE = make_conninfo(
    os.environ["DATABASE_URL"],
    connect_timeout=5,
    tcp_user_timeout=5_000,
    options="-c statement_timeout=5s -c idle_in_transaction_session_timeout=5s",
)
Transfer: TypeAlias = tuple[str, str, str, int]


class Ledger:
    """One connection, made anew when it is lost."""

    def __init__(self) -> None:
        self._connection: psycopg.Connection[Any] | None = None

    def book(self, id: str, debit: str, credit: str, amount: int) -> bool:
        """Whether it has taken effect; False where the id stands for another transfer."""
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(DATABASE, autocommit=True)
        connection = self._connection
        transfer = (id, debit, credit, amount)
        with connection.transaction():
            # Waits for another worker's transaction with the same id.
            booked = connection.execute(
                "INSERT INTO transfers (id, debit, credit, amount) VALUES (%s, %s, %s, %s)"
                " ON CONFLICT (id) DO NOTHING",
                transfer,
            )
            if booked.rowcount == 0:
                known = connection.execute(
                    "SELECT id, debit, credit, amount FROM transfers WHERE id = %s", [id]
                )
                return known.fetchone() == transfer
            # In the order of their names, so that no two workers wait for one another.
            for name, change in sorted([(debit, -amount), (credit, amount)]):
                connection.execute(
                    "UPDATE accounts SET balance = balance + %s WHERE name = %s", [change, name]
                )
        return True


def handle(task: Task) -> Outcome:
    try:
        transfer = transfer_of(json.loads(task.bytes))
    except ValueError as error:
        return reject(f"no transfer: {error}")
    try:
        if not ledger.book(*transfer):
            return reject(f"the id stands for another transfer: {transfer[0]}")
    except (IntegrityError, DataError) as error:
        # Not covered, no such account, no such amount: the constraint's name says which.
        what = error.diag.constraint_name or "no such transfer"
        return reject(f"{what}: {error.diag.message_primary or error}")
    except OperationalError as error:
        # Away, restarting, too slow, a deadlock: nothing is booked, or the id is there next time.
        return retry(f"the database: {error}")
    return done()


def transfer_of(order: object) -> Transfer:
    match order:
        case {"id": str(id), "debit": str(debit), "credit": str(credit), "amount": int(amount)}:
            return id, debit, credit, amount
    raise ValueError("it must have the texts id, debit and credit, and amount, a whole number")


ledger = Ledger()
run(handle)
