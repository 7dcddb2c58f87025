"""The client of RabbitMQ's RPC tutorial, by pika: port queue. Asks 20 times, one by one, and prints the replies."""

import sys
import uuid

import pika

port, queue = int(sys.argv[1]), sys.argv[2]
connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
channel = connection.channel()
replies = channel.queue_declare("", exclusive=True).method.queue
found = {}
channel.basic_consume(replies, lambda ch, m, props, body: found.update({props.correlation_id: body}), auto_ack=True)
for number in range(20):
    identity = str(uuid.uuid4())
    properties = pika.BasicProperties(reply_to=replies, correlation_id=identity)
    channel.basic_publish("", queue, str(number).encode(), properties)
    while identity not in found:
        connection.process_data_events(None)
    print(found[identity].decode())
connection.close()
