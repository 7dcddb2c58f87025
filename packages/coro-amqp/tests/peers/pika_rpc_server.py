"""The server of RabbitMQ's RPC tutorial, by pika: port queue count. Doubles so many numbers."""

import sys

import pika

port, queue, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
channel = connection.channel()
channel.basic_qos(prefetch_count=1)
done = 0


def answer(channel, method, properties, body):
    global done
    reply = pika.BasicProperties(correlation_id=properties.correlation_id)
    channel.basic_publish("", properties.reply_to, str(2 * int(body)).encode(), reply)
    channel.basic_ack(method.delivery_tag)
    done += 1


channel.basic_consume(queue, answer)
while done < count:
    connection.process_data_events(None)
connection.close()
