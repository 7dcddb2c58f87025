"""A mail server of one asyncio loop. Arguments: port, how many messages come together, and the folder for the mails is
`mails` in the current one.

Each message is written to a file named for its sender. The answer to a message comes when so many messages are there;
the file `waiting` says how many are.
"""

import asyncio
import os
import sys

from aiosmtpd.smtp import SMTP

PORT, TOGETHER = map(int, sys.argv[1:])


class Handler:
    def __init__(self):
        self.waiting = 0
        self.complete = asyncio.Event()

    async def handle_DATA(self, server, session, envelope):
        with open(os.path.join("mails", envelope.mail_from), "wb") as file:
            file.write(envelope.content)
        self.waiting += 1
        # So that nobody reads half of it.
        with open("mails/waiting.new", "w") as file:
            file.write(str(self.waiting))
        os.rename("mails/waiting.new", "mails/waiting")
        if self.waiting == TOGETHER:
            while not os.path.exists("mails/open"):
                await asyncio.sleep(0.01)
            self.complete.set()
        await asyncio.wait_for(self.complete.wait(), 60)
        return "250 Message accepted"


async def main():
    os.makedirs("mails", exist_ok=True)
    handler = Handler()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: SMTP(handler, hostname="localhost", loop=loop), "127.0.0.1", PORT, backlog=TOGETHER
    )
    await server.serve_forever()


asyncio.run(main())
