"""The same with pika, as the opposite end: python publish_pika.py [URL]"""

import sys

import pika  # type: ignore

URL = sys.argv[1] if len(sys.argv) > 1 else "amqp://guest:guest@127.0.0.1/"

connection = pika.BlockingConnection(pika.URLParameters(URL))
channel = connection.channel()
for number in range(3):
    channel.basic_publish("ething", "notification", f"from pika {number}".encode())
connection.close()
