"""Procrastinate with a task that does nothing."""

import os

from procrastinate import App, PsycopgConnector

app = App(connector=PsycopgConnector(conninfo=os.environ["DATABASE"]))


@app.task(name="nothing")
async def nothing(body):
    pass
