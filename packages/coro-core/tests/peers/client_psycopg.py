"""psycopg 2 or 3 in 200 emulated threads, a connection each. Arguments: which one, port, user, password, database.

The gate is an advisory lock of the server: the supervisor holds it alone, everybody else asks for a share of it and is
seen to wait.
"""

import importlib
import sys

import crowd

GATE = 1234

driver = importlib.import_module(sys.argv[1])


def connect():
    port, user, password, database = sys.argv[2:]
    return driver.connect(host="127.0.0.1", port=int(port), user=user, password=password, dbname=database)


def work(number):
    connection = connect()
    try:
        cursor = connection.cursor()
        rows = [[number, line, crowd.payload(number * 1000 + line, 2000)] for line in range(10)]
        cursor.executemany("INSERT INTO crowd VALUES (%s, %s, %s)", rows)
        connection.commit()
        cursor.execute("DELETE FROM crowd WHERE number = %s", (number,))
        connection.rollback()
        cursor.execute("SELECT * FROM crowd WHERE number = %s ORDER BY line", (number,))
        assert [[row[0], row[1], bytes(row[2])] for row in cursor.fetchall()] == rows
        connection.rollback()
        connection.autocommit = True
        cursor.execute("SELECT pg_advisory_lock_shared(%s)", (GATE,))
        cursor.execute("SELECT pg_advisory_unlock_shared(%s), %s", (GATE, f"number {number}"))
        assert list(cursor.fetchone()) == [True, f"number {number}"]
        try:
            cursor.execute("SELECT * FROM nowhere")
        except driver.DatabaseError as exc:
            assert (getattr(exc, "sqlstate", None) or exc.pgcode) == "42P01"  # undefined_table
        else:
            raise AssertionError("no error")
    finally:
        connection.close()


def program():
    keeper = connect()
    keeper.autocommit = True
    cursor = keeper.cursor()
    cursor.execute("CREATE TABLE crowd (number INT, line INT, data BYTEA, PRIMARY KEY (number, line))")
    cursor.execute("SELECT pg_advisory_lock(%s)", (GATE,))

    def waiting():
        cursor.execute("SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event = 'advisory'")
        return cursor.fetchone()[0]

    def supervise():
        crowd.until(lambda: waiting() == crowd.THREADS, "not all statements came to wait in the server")
        print(f"{waiting()} statements wait")
        crowd.ticks()
        cursor.execute("SELECT pg_advisory_unlock(%s)", (GATE,))

    crowd.run(work, supervise)
    cursor.execute("SELECT COUNT(*) FROM crowd")
    print(f"{cursor.fetchone()[0]} rows")
    keeper.close()


crowd.main(program)
