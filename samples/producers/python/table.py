"""Puts a message into a table queue, in the transaction of a row of its own."""

import json
import os
import sqlite3
import uuid

correlation_id = str(uuid.uuid4())
headers = {"tenant": "blue", "traceparent": os.environ["TRACEPARENT"]}
db = sqlite3.connect(os.environ.get("DATABASE", "ganger.db"), timeout=10, isolation_level=None)
db.execute("PRAGMA synchronous = FULL")  # or a power cut may take back what was sent
db.execute("BEGIN IMMEDIATE")
with db:  # commits at the end, rolls back at an exception
    db.execute("INSERT INTO orders (id, state) VALUES (17, 'new')")
    db.execute(
        "INSERT INTO consumer_messages"
        " (queue, body, headers, correlation_id, reply_to, message_id, content_type)"
        " VALUES ('orders', ?, ?, ?, 'orders.replies', ?, 'application/json')",
        ('{"order": 17}', json.dumps(headers), correlation_id, str(uuid.uuid4())),
    )
print(correlation_id)
