"""Places orders from stdin, one a line, each with its messages in one transaction:
{"id": "o-1", "customer": "ann", "article": "tea", "quantity": 2, "total": 900}

It says `placed` when that is committed. Whoever has not heard it places the order once more under its
id, which changes nothing where it is there already.
"""

import json
import os
import sys

from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError

url = make_url(os.environ.get("DATABASE_URL", "postgresql://localhost/shop"))
engine = create_engine(url.set(drivername="postgresql+psycopg"))

ORDER = text(
    "INSERT INTO orders (id, customer, article, quantity, total)"
    " VALUES (:id, :customer, :article, :quantity, :total) ON CONFLICT (id) DO NOTHING"
)
# A row for each queue.
MESSAGES = text(
    "INSERT INTO consumer_messages (queue, message_id, content_type, body)"
    " SELECT queue, :id, 'application/json', :body FROM unnest(CAST(:queues AS text[])) AS queue"
)
CHARGE = text("UPDATE customers SET credit = credit - :total WHERE name = :customer")


def place(order):
    message = {"id": order["id"], "body": json.dumps(order), "queues": ["stock", "invoices", "points"]}
    with engine.begin() as db:  # commits at the end, rolls back at an exception
        if db.execute(ORDER, order).rowcount == 1:
            db.execute(MESSAGES, message)
            db.execute(CHARGE, order)  # refused if it is not covered, and the messages with it


for line in sys.stdin:
    order = json.loads(line)
    try:
        place(order)
        print("placed", order["id"], flush=True)
    except IntegrityError as error:
        print("refused", order["id"], error.orig.diag.constraint_name, flush=True)
