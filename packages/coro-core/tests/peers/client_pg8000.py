"""pg8000 in 200 emulated threads, a connection each. Arguments: port, user, password, database.

The gate is an advisory lock of the server: the supervisor holds it alone, everybody else asks for a share of it and is
seen to wait.
"""

import sys

import crowd
import pg8000.dbapi

GATE = 1234


def connect():
    port, user, password, database = sys.argv[1:]
    return pg8000.dbapi.connect(user, host="127.0.0.1", port=int(port), password=password, database=database)


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
        assert [list(row) for row in cursor.fetchall()] == rows
        connection.rollback()
        connection.autocommit = True
        cursor.execute("SELECT pg_advisory_lock_shared(%s)", (GATE,))
        cursor.execute("SELECT pg_advisory_unlock_shared(%s), %s", (GATE, f"number {number}"))
        assert list(cursor.fetchone()) == [True, f"number {number}"]
        try:
            cursor.execute("SELECT * FROM nowhere")
        except pg8000.dbapi.DatabaseError as exc:
            assert exc.args[0]["C"] == "42P01"  # undefined_table
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
