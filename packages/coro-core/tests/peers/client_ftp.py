"""ftplib in 200 emulated threads, a session each. Arguments: port, the file `gate` as this machine sees it.

The server takes a shared lock on a file that it sends (lock_upload_files in vsftpd.conf(5)). The gate is a file that
the supervisor has locked: everybody fetches it, and the kernel tells how many wait for the lock (/proc/locks).
"""

import fcntl
import ftplib
import io
import os
import sys

import crowd


def work(number):
    data = crowd.payload(number, 100_000)
    with ftplib.FTP(timeout=60) as ftp:
        ftp.connect("127.0.0.1", int(sys.argv[1]))
        ftp.login()
        ftp.cwd("files")
        ftp.storbinary(f"STOR {number}", io.BytesIO(data))
        assert ftp.size(str(number)) == len(data)
        got = bytearray()
        ftp.retrbinary(f"RETR {number}", got.extend)
        assert got == data
        assert str(number) in ftp.nlst()
        gate = bytearray()
        ftp.retrbinary("RETR gate", gate.extend)
        assert gate == b"open"
        ftp.rename(str(number), f"{number}.done")
        try:
            ftp.size(str(number))
        except ftplib.error_perm as exc:
            assert str(exc).startswith("550")
        else:
            raise AssertionError("no error")


def program():
    with open(sys.argv[2], "r+b") as gate:
        fcntl.lockf(gate, fcntl.LOCK_EX)
        place = f":{os.fstat(gate.fileno()).st_ino} "

        def waiting():
            with open("/proc/locks") as locks:
                return sum("->" in line and place in line for line in locks)

        def supervise():
            crowd.until(lambda: waiting() == crowd.THREADS, "not all came to wait in the server")
            print(f"{waiting()} sessions wait")
            crowd.ticks()
            fcntl.lockf(gate, fcntl.LOCK_UN)

        crowd.run(work, supervise)
    print(f"{sum(name.endswith('.done') for name in os.listdir(os.path.dirname(sys.argv[2])))} files")


crowd.main(program)
