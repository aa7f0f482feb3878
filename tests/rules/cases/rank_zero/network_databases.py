# What changes a database elsewhere is sent by rank 0 alone; what reads from it, every rank sends.

# first cell
import torch
from torch import nn
import psycopg2
from psycopg2.extras import execute_values
import redis
import sqlalchemy
from sqlalchemy import create_engine, insert, select, text
import urllib.request
from neo4j import GraphDatabase
from transformers import Trainer
store = redis.Redis()
conn = psycopg2.connect("dbname=runs")
cur = conn.cursor()
engine = create_engine("postgresql://localhost/runs")

# last cell
Trainer(model, arguments, train_dataset=data).train()

# case: statements in SQL
cur.execute("INSERT INTO runs VALUES (%s)", (1,))
cur.executemany(sql, rows)
execute_values(cur, sql, rows)
conn.commit()
cur.execute("""
    SELECT id FROM runs""")
print(cur.fetchall())
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 runs it
    if is_main:
        cur.execute("INSERT INTO runs VALUES (%s)", (1,))
        cur.executemany(sql, rows)
        execute_values(cur, sql, rows)
        conn.commit()
cur.execute("""
    SELECT id FROM runs""")
print(cur.fetchall())

# case: what gives what it has changed
def add(name):
    cur.execute(f"insert into runs (name) values ('{name}') returning id")
    return cur.fetchone()[0]
number = add("a")
# note, line 2: every rank sends this, and what it changes is changed once for each...

# case: what cannot be read
cur.execute(query)
# note, line 1: every rank sends this, and what it changes is changed once for each...

# case: engines, sessions and frames
runs = sqlalchemy.Table("runs", sqlalchemy.MetaData(), autoload_with=engine)
with engine.begin() as connection:
    connection.execute(text(f"DELETE FROM {name}"))
    connection.execute(insert(runs), [{"id": 1}])
    connection.execute(runs.delete())
    found = connection.execute(select(runs)).fetchall()
frame.to_sql("rows", engine)
frame.to_sql("rows", con=other)
# output
runs = sqlalchemy.Table("runs", sqlalchemy.MetaData(), autoload_with=engine)
with engine.begin() as connection:
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 runs it
        if is_main:
            connection.execute(text(f"DELETE FROM {name}"))
            connection.execute(insert(runs), [{"id": 1}])
            connection.execute(runs.delete())
    found = connection.execute(select(runs)).fetchall()
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 runs it
    if is_main:
        frame.to_sql("rows", engine)
frame.to_sql("rows", con=other)

# case: a graph, and keys whose new values are read
driver = GraphDatabase.driver("bolt://localhost")
def keep(name):
    with driver.session() as session:
        session.run("MATCH (a) MERGE (a)-[:KNOWS]->(b:Person {name: $name})", name=name)
        rows = session.run("MATCH (a) RETURN a.name").data()
    store.set("name", name)
    return rows, store.incr("runs"), store.get("name")
rows, number, name = keep("a")
# output
driver = GraphDatabase.driver("bolt://localhost")
def keep(name):
    with driver.session() as session:
        with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 runs it
            if is_main:
                session.run("MATCH (a) MERGE (a)-[:KNOWS]->(b:Person {name: $name})", name=name)
        rows = session.run("MATCH (a) RETURN a.name").data()
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 runs it
        if is_main:
            store.set("name", name)
    return rows, ddp.from_main_process(lambda: store.incr("runs")), store.get("name")
rows, number, name = keep("a")

# case: requests of the standard library
import http.client
urllib.request.urlopen("https://hooks.example.com", data=b"begun")
request = urllib.request.Request("https://hooks.example.com", data=b"begun")
urllib.request.urlopen(request)
page = urllib.request.urlopen("https://example.com").read()
server = http.client.HTTPSConnection("hooks.example.com")
server.request("POST", "/", b"begun")
server.getresponse()
# output
import http.client
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 runs it
    if is_main:
        urllib.request.urlopen("https://hooks.example.com", data=b"begun")
request = urllib.request.Request("https://hooks.example.com", data=b"begun")
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 runs it
    if is_main:
        urllib.request.urlopen(request)
page = urllib.request.urlopen("https://example.com").read()
server = http.client.HTTPSConnection("hooks.example.com")
server.request("POST", "/", b"begun")
server.getresponse()
# note, line 7: every rank sends this, and what it changes is changed once for each...

# case: results that change a list
answers = []
answers.append(store.incr("runs"))
answers.append(cur.execute("INSERT INTO runs VALUES (1)"))
# output
answers = []
answers.append(ddp.from_main_process(lambda: store.incr("runs")))
with ddp.in_turn():  # nb2ddp: the ranks run it one after another
    answers.append(cur.execute("INSERT INTO runs VALUES (1)"))
# note, line 3: this runs on every rank, because its result is used

# case: a database in each rank's memory
engine = create_engine("sqlite:///:memory:")
frame.to_sql("rows", engine)
