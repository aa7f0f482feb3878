# What every rank sends to a database or a server is said once: connections, sessions and locks are each rank's own.

# first cell
import torch
import psycopg2
import redis
import sqlite3
from sqlalchemy import create_engine
from transformers import Trainer
store = redis.Redis()
conn = psycopg2.connect("dbname=runs")
engine = create_engine("postgresql://localhost/runs")

# last cell
Trainer(model, arguments, train_dataset=data).train()

# case: statements, and the first that is sent for good
cur = conn.cursor()
cur.execute("CREATE TEMP TABLE pick (id int)")
cur.execute("SELECT id FROM runs")
rows = cur.fetchall()
rows.append(1)
cur.executemany("INSERT INTO runs VALUES (%s)", rows)
conn.commit()
# note, line 6: every rank sends this, so a server or a database does it once for each of them

# case: a table, and a key
frame.to_sql("runs", engine)
store.set("best", 1)
# note, line 1: every rank sends this, so a server or a database does it once for each of them

# case: what only reads
rows = conn.cursor().fetchall()
seen = set(store.smembers("seen"))
seen.update(rows)
