"""PyMySQL in 200 emulated threads, a connection each. Arguments: port, user, password, database.

The gate is a named lock of the server: the supervisor holds it, everybody else asks for it and is seen to wait.
"""

import sys

import crowd
import pymysql


def connect():
    port, user, password, database = sys.argv[1:]
    return pymysql.connect(
        host="127.0.0.1", port=int(port), user=user, password=password, database=database, connect_timeout=60
    )


def work(number):
    connection = connect()
    with connection, connection.cursor() as cursor:
        rows = [(number, line, crowd.payload(number * 1000 + line, 2000)) for line in range(10)]
        cursor.executemany("INSERT INTO crowd VALUES (%s, %s, %s)", rows)
        connection.commit()
        cursor.execute("DELETE FROM crowd WHERE number = %s", (number,))
        connection.rollback()
        cursor.execute("SELECT * FROM crowd WHERE number = %s ORDER BY line", (number,))
        assert list(cursor.fetchall()) == rows
        cursor.execute("SELECT GET_LOCK('gate', 60), %s", (number,))
        assert cursor.fetchone() == (1, number)
        cursor.execute("SELECT RELEASE_LOCK('gate')")
        assert cursor.fetchone() == (1,)
        try:
            cursor.execute("SELECT * FROM nowhere")
        except pymysql.err.ProgrammingError as exc:
            assert exc.args[0] == pymysql.constants.ER.NO_SUCH_TABLE
        else:
            raise AssertionError("no error")


def program():
    with connect() as keeper, keeper.cursor() as cursor:
        cursor.execute("CREATE TABLE crowd (number INT, line INT, data BLOB, PRIMARY KEY (number, line))")
        cursor.execute("SELECT GET_LOCK('gate', 0)")
        assert cursor.fetchone() == (1,)

        def waiting():
            cursor.execute("SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock'")
            return cursor.fetchone()[0]

        def supervise():
            crowd.until(lambda: waiting() == crowd.THREADS, "not all statements came to wait in the server")
            print(f"{waiting()} statements wait")
            crowd.ticks()
            cursor.execute("SELECT RELEASE_LOCK('gate')")

        crowd.run(work, supervise)
        cursor.execute("SELECT COUNT(*) FROM crowd")
        print(f"{cursor.fetchone()[0]} rows")


crowd.main(program)
