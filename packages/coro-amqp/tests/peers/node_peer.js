// amqplib: port read|write queue. Reads three messages and prints them as JSON, or writes three.
const amqp = require('amqplib');
const [port, way, queue] = process.argv.slice(2);
const HEADERS = {text: 'grün', number: 7, long: 2 ** 40, yes: true, list: [1, 'two'], nested: {a: {b: 1}}};
const large = Buffer.alloc(256 * 1200, Buffer.from(Array.from({length: 256}, (_, i) => i)));
const BODIES = [Buffer.alloc(0), Buffer.from('one'), large];
const NAMES = {
  contentType: 'content-type', contentEncoding: 'content-encoding', headers: 'headers', deliveryMode: 'delivery-mode',
  priority: 'priority', correlationId: 'correlation-id', replyTo: 'reply-to', expiration: 'expiration',
  messageId: 'message-id', timestamp: 'timestamp', type: 'type', appId: 'app-id',
};

async function main() {
  const connection = await amqp.connect(`amqp://guest:guest@127.0.0.1:${port}`);
  const channel = await connection.createConfirmChannel();
  if (way === 'write') {
    for (const body of BODIES) {
      channel.publish('', queue, body, {
        headers: HEADERS, contentType: 'application/json', contentEncoding: 'utf-8', persistent: true, priority: 3,
        correlationId: 'c-1', replyTo: 'answers', expiration: '60000', messageId: 'm-1', timestamp: 1700000000,
        type: 'event', appId: 'tests',
      });
    }
    await channel.waitForConfirms();
  } else {
    let read = 0;
    await new Promise((resolve) => channel.consume(queue, (message) => {
      const properties = {};
      for (const [name, ours] of Object.entries(NAMES)) {
        if (message.properties[name] !== undefined) properties[ours] = message.properties[name];
      }
      console.log(JSON.stringify({body: message.content.toString('hex'), properties}));
      channel.ack(message);
      if (++read === BODIES.length) resolve();
    }));
  }
  await channel.close();
  await connection.close();
}

main().catch((error) => { console.error(error); process.exit(1); });
