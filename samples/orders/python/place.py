"""Places orders from stdin, one a line, each with its message in one transaction:
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
# It becomes a message in each queue that is subscribed, in this transaction.
MESSAGE = text(
    "INSERT INTO published_messages (topic, message_id, content_type, body)"
    " VALUES ('order.placed', :id, 'application/json', :body)"
)
CHARGE = text("UPDATE customers SET credit = credit - :total WHERE name = :customer")


def place(order):
    message = {"id": order["id"], "body": json.dumps(order)}
    with engine.begin() as db:  # commits at the end, rolls back at an exception
        if db.execute(ORDER, order).rowcount == 1:
            db.execute(MESSAGE, message)
            db.execute(CHARGE, order)  # refused if it is not covered, and the message with it


for line in sys.stdin:
    order = json.loads(line)
    try:
        place(order)
        print("placed", order["id"], flush=True)
    except IntegrityError as error:
        print("refused", order["id"], error.orig.diag.constraint_name, flush=True)
