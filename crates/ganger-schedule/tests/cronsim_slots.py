"""Slots by cronsim, the oracle of ganger-schedule: reads a question in a line, writes the answer in one.

A question: an expression, a zone, a second since 1970, a number, separated by tabs; the number is that of slots
after the second, or before it if it is negative. The answer: their seconds, or `refused`.
"""

import sys
from datetime import datetime, timezone
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

for line in sys.stdin:
    expression, zone, second, number = line.rstrip("\n").split("\t")
    number = int(number)
    zone = timezone.utc if zone == "UTC" else ZoneInfo(zone)
    at = datetime.fromtimestamp(int(second), timezone.utc).astimezone(zone)
    try:
        slots = CronSim(expression, at, reverse=number < 0)
        found = [next(slots) for _ in range(abs(number))]
    except (CronSimError, StopIteration):
        print("refused", flush=True)
        continue
    print(*(int(slot.astimezone(timezone.utc).timestamp()) for slot in found), flush=True)
