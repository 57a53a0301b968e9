"""Transactions in an SQLite database, each told of when it has been committed.

Usage: database.py write FILE ROUND adds a row after the other until somebody ends it, and prints the number of
each as soon as SQLite says that it is stored; database.py check FILE prints what the check of the whole database
says, and for each round how many rows there are and the highest number.
"""

import sqlite3
import sys


def write(connection, number):
    connection.execute("create table if not exists t(round, i, text)")
    for i in range(1_000_000):
        connection.execute("insert into t values(?, ?, hex(randomblob(300)))", (number, i))
        if i % 3 == 0:
            connection.execute("update t set text = hex(randomblob(200)) where rowid = abs(random()) % (? + 1)", (i,))
        connection.commit()
        print(i, flush=True)


def check(connection):
    print(*connection.execute("pragma integrity_check").fetchone())
    for row in connection.execute("select round, count(*), max(i) from t group by round order by round"):
        print(*row)


connection = sqlite3.connect(sys.argv[2])
# Full would let a power failure bring the journal of the last transaction back, whose removal commits it.
connection.execute("pragma synchronous = extra")
if sys.argv[1] == "write":
    write(connection, int(sys.argv[3]))
else:
    check(connection)
