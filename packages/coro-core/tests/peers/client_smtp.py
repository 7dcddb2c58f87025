"""smtplib in 200 emulated threads. Arguments: port, the folder into which the server writes the mails.

The gate is the server: it answers nobody before all 200 messages are there and the file `open`.
"""

import email.message
import email.policy
import os
import smtplib
import sys

import crowd


def work(number):
    message = email.message.EmailMessage()
    message["Subject"] = f"Number {number}"
    message["From"] = f"sender{number}@example.org"
    message["To"] = "somebody@example.org"
    message.set_content("\n".join(crowd.payload(number * 1000 + line, 30).hex() for line in range(100)))
    with smtplib.SMTP("127.0.0.1", int(sys.argv[1]), timeout=60) as client:
        assert client.send_message(message) == {}
        assert client.noop()[0] == 250
    with open(os.path.join(sys.argv[2], f"sender{number}@example.org"), "rb") as file:
        got = email.message_from_binary_file(file, policy=email.policy.default)
    assert got["Subject"] == f"Number {number}" and got.get_content() == message.get_content()


def program():
    def waiting():
        try:
            with open(os.path.join(sys.argv[2], "waiting")) as file:
                return int(file.read())
        except FileNotFoundError:
            return 0

    def supervise():
        crowd.until(lambda: waiting() == crowd.THREADS, "not all messages came to wait in the server")
        print(f"{waiting()} messages wait")
        crowd.ticks()
        open(os.path.join(sys.argv[2], "open"), "w").close()

    crowd.run(work, supervise)
    print(f"{sum(name.startswith('sender') for name in os.listdir(sys.argv[2]))} mails")


crowd.main(program)
