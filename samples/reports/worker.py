"""Makes the report of a day from orders.csv: {"day": "2026-11-28"}

The report appears completely or not at all, so a run that is repeated replaces its own. What this logs
and how far it has come is kept with the run (`ganger occurrence log`, `show`), and so is the result.
"""

from __future__ import annotations

import csv
import json
import os
from collections import defaultdict
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path

from ganger_worker import Outcome, Task, reject, reply, run

ORDERS = Path("orders.csv")
REPORTS = Path("reports")


def report(task: Task) -> Outcome:
    try:
        day = date.fromisoformat(json.loads(task.text)["day"])
    except (KeyError, TypeError, ValueError) as error:
        return reject(f"no day: {type(error).__name__}: {error}")
    task.log("info", "reading the orders", day=day)
    orders = orders_of(day)
    if not orders:
        return reject(f"there are no orders of {day}")
    totals: dict[str, Decimal] = defaultdict(Decimal)
    for number, order in enumerate(orders, start=1):
        try:
            totals[order["region"]] += Decimal(order["amount"])
        except InvalidOperation:
            task.log("warn", "an order without an amount is left out", region=order["region"])
        task.progress(f"{number} of {len(orders)} orders")
    write(day, totals)
    total = sum(totals.values(), Decimal())
    task.log("info", "the report is written", regions=len(totals))
    return reply({"day": str(day), "orders": len(orders), "total": str(total)})


def orders_of(day: date) -> list[dict[str, str]]:
    with ORDERS.open(newline="") as file:
        return [order for order in csv.DictReader(file) if order["day"] == str(day)]


def write(day: date, totals: dict[str, Decimal]) -> None:
    REPORTS.mkdir(exist_ok=True)
    unfinished = REPORTS / f".{day}.csv"
    with unfinished.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["region", "total"])
        rows.writerows(sorted(totals.items()))
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(REPORTS / f"{day}.csv")


run(report)
