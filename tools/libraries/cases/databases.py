"""Drivers of databases, and what is built on them."""

from __future__ import annotations

from typing import Any

from tools.libraries.work import Work, case, library

_USER, _PASSWORD, _DATABASE = "test", "secret", "test"


def _postgresql(work: Work) -> dict[str, Any]:
    return {"host": "127.0.0.1", "port": work.ports["postgresql"], "user": _USER, "password": _PASSWORD}


def _dsn(work: Work, scheme: str) -> str:
    return f"{scheme}://{_USER}:{_PASSWORD}@127.0.0.1:{work.ports['postgresql']}/postgres"


def _sums(work: Work, connect: Any) -> list[Any]:
    """Each thread waits in the server, then computes there."""

    def one(number: int) -> Any:
        connection = connect()
        cursor = connection.cursor()
        cursor.execute("SELECT pg_sleep(%s)", (work.pause,))
        cursor.execute("SELECT sum(i) FROM generate_series(1, %s) AS t(i)", (number + 1,))
        value = int(cursor.fetchone()[0])
        connection.close()
        return value

    return work.at_once(one)


@case("psycopg2", "psycopg2-binary", compiled=True, servers=["postgresql"])
def psycopg2(work: Work) -> Any:
    module = library("psycopg2")
    return _sums(work, lambda: module.connect(dbname="postgres", **_postgresql(work)))


@case("psycopg (3)", "psycopg-binary", compiled=True, servers=["postgresql"])
def psycopg(work: Work) -> Any:
    module = library("psycopg")
    return _sums(work, lambda: module.connect(dbname="postgres", **_postgresql(work)))


@case("pg8000", servers=["postgresql"])
def pg8000(work: Work) -> Any:
    module = library("pg8000.dbapi")
    return _sums(work, lambda: module.connect(database="postgres", **_postgresql(work)))


@case("SQLAlchemy", compiled=True, servers=["postgresql"])
def sqlalchemy(work: Work) -> Any:
    module = library("sqlalchemy")
    engine = module.create_engine(_dsn(work, "postgresql+psycopg2"), pool_size=20, max_overflow=0, pool_timeout=60)
    with engine.begin() as connection:
        connection.execute(module.text(f"CREATE TABLE {work.unique} (n int)"))

    def one(number: int) -> None:
        with engine.begin() as connection:
            connection.execute(module.text("SELECT pg_sleep(0.02)"))
            connection.execute(module.text(f"INSERT INTO {work.unique} VALUES (:n)"), {"n": number})

    work.at_once(one)
    with engine.begin() as connection:
        rows = connection.execute(module.text(f"SELECT n FROM {work.unique} ORDER BY n")).scalars().all()
    engine.dispose()
    return list(rows)


@case("peewee", quick=True)
def peewee(work: Work) -> Any:
    module = library("peewee")
    database = module.SqliteDatabase(str(work.folder / "peewee.db"), timeout=60)

    class Entry(module.Model):  # type: ignore[misc, name-defined]
        number = module.IntegerField()

        class Meta:
            pass

    Entry.bind(database)
    database.create_tables([Entry])
    database.close()

    def one(number: int) -> None:
        with database.connection_context(), database.atomic("IMMEDIATE"):
            Entry.create(number=number)

    work.at_once(one)
    with database.connection_context():
        return sorted(entry.number for entry in Entry.select())


def _django(work: Work, database: dict[str, Any]) -> Any:
    settings = library("django.conf").settings
    settings.configure(
        DATABASES={"default": database}, ROOT_URLCONF=__name__, SECRET_KEY="x", ALLOWED_HOSTS=["*"], USE_TZ=False
    )
    library("django").setup()
    db = library("django.db")
    client = library("django.test").Client
    table = work.unique

    def view(request: Any, number: int) -> Any:
        with db.transaction.atomic(), db.connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {table} VALUES (%s)", [number])
        return library("django.http").HttpResponse(str(number * number))

    globals()["urlpatterns"] = [library("django.urls").path("<int:number>", view)]
    with db.connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {table} (n integer)")

    def one(number: int) -> str:
        answer = client().get(f"/{number}")
        db.connection.close()
        return f"{answer.status_code} {answer.content.decode()}"

    answers = work.at_once(one)
    with db.connection.cursor() as cursor:
        cursor.execute(f"SELECT n FROM {table} ORDER BY n")
        rows = [row[0] for row in cursor.fetchall()]
    db.connection.close()
    return [answers, rows]


@case("Django with SQLite", "Django")
def django_sqlite(work: Work) -> Any:
    options = {"timeout": 60, "transaction_mode": "IMMEDIATE"}
    name = str(work.folder / "django.db")
    return _django(work, {"ENGINE": "django.db.backends.sqlite3", "NAME": name, "OPTIONS": options})


@case("Django with PostgreSQL", "Django", compiled=True, servers=["postgresql"])
def django_postgresql(work: Work) -> Any:
    where = {key.upper(): value for key, value in _postgresql(work).items()}
    return _django(work, {"ENGINE": "django.db.backends.postgresql", "NAME": "postgres", **where})


def _mariadb(work: Work, module: Any) -> list[Any]:
    def one(number: int) -> Any:
        connection = module.connect(
            host="127.0.0.1", port=work.ports["mariadb"], user=_USER, password=_PASSWORD, database=_DATABASE
        )
        cursor = connection.cursor()
        cursor.execute("SELECT SLEEP(%s)", (work.pause,))
        cursor.execute("SELECT %s * 2", (number,))
        value = int(cursor.fetchone()[0])
        connection.close()
        return value

    return work.at_once(one)


@case("PyMySQL", servers=["mariadb"])
def pymysql(work: Work) -> Any:
    return _mariadb(work, library("pymysql"))


@case("redis", servers=["redis"], quick=True)
def redis(work: Work) -> Any:
    client = library("redis").Redis(port=work.ports["redis"], max_connections=300)

    def one(number: int) -> Any:
        library("threading").Timer(work.pause, lambda: client.rpush(f"{work.unique}{number}", number)).start()
        _, value = client.blpop(f"{work.unique}{number}", timeout=60)
        client.incrby(work.unique, number)
        return int(value)

    values = work.at_once(one)
    total = int(client.get(work.unique))
    client.close()
    return [values, total]


@case("diskcache")
def diskcache(work: Work) -> Any:
    cache = library("diskcache").Cache(str(work.folder / "cache"), timeout=60)
    work.at_once(lambda number: cache.set(number, number * number))
    found = [cache[number] for number in range(100)]
    cache.close()
    return found
