// A client of coro.rpc.fast_rpc for Node, in one file without packages: calls, failures, streams, casts, and the
// challenge with a shared secret. It shows that the description of the wire format is enough.
//
//   node client.js HOST PORT [SECRET]     calls the methods of test_client.py's server and prints what they answer
'use strict';
const net = require('net');
const crypto = require('crypto');

const PUSH = 1, REQUEST = 2, REPLY = 3, FAIL = 4, ITEM_DOWN = 8, CREDIT_DOWN = 10, PING = 11, PONG = 12,
  GOODBYE = 13;
const MORE = 1, DOWN = 2, EXCEPTION = 4;
const CHUNK = 262144, MAX_PACKET = 1 << 24, WINDOW = 1 << 20;

class Client {
  constructor(socket) {
    this.socket = socket;
    this.received = Buffer.alloc(0);
    this.greeted = false;
    this.calls = new Map();        // id -> {resolve, reject, onItem}
    this.parts = new Map();        // kind:id -> chunks of a packet that is not complete
    this.lastCall = 0n;
    this.lastPush = 0n;
    socket.on('data', (data) => this.feed(data));
    socket.on('error', (error) => this.end(error));
    socket.on('close', () => this.end(new Error('the connection has ended')));
  }

  static connect(host, port, secret = null) {
    return new Promise((resolve, reject) => {
      const socket = net.connect({ host, port, noDelay: true }, () => {
        const client = new Client(socket);
        const preamble = Buffer.alloc(16);
        preamble.write('coro-ps', 0, 'latin1');
        preamble[7] = 1;
        preamble.writeUInt32BE(MAX_PACKET, 8);
        preamble.writeUInt32BE(WINDOW, 12);
        socket.write(preamble);
        client.shakeHands(secret).then(() => resolve(client), reject);
      });
      socket.once('error', reject);
    });
  }

  async shakeHands(secret) {
    const hello = Buffer.from(JSON.stringify({
      rpc: 1, codecs: ['json'], name: 'client.js', build: 'node ' + process.version,
      nonce: crypto.randomBytes(32).toString('hex'), user: null, secret: secret !== null,
    }));
    const answer = await this.request(hello);
    const said = JSON.parse(answer);
    if (said.codec !== 'json') throw new Error('expected a server that has JSON');
    if ((said.auth === 'secret') !== (secret !== null)) throw new Error('a secret on one side only');
    if (secret === null) return;
    const proof = (side) => crypto.createHmac('sha256', secret)
      .update(`coro-rpc ${side}\0`).update(hello).update('\n').update(answer).digest();
    const reply = JSON.parse(await this.request(Buffer.from(JSON.stringify({ proof: proof('client').toString('hex') }))));
    if (!crypto.timingSafeEqual(Buffer.from(reply.proof, 'hex'), proof('server'))) {
      throw new Error('the server does not know the secret');
    }
  }

  async call(method, ...args) {
    return this.value(await this.request(this.encode(method, args, 0)), 0);
  }

  // onItem is called with each item; resolves with what the method returned.
  async stream(method, args, onItem) {
    return this.value(await this.request(this.encode(method, args, DOWN), onItem), 0);
  }

  cast(method, ...args) {
    this.send(PUSH, ++this.lastPush, this.encode(method, args, 0));
  }

  encode(method, args, flags, milliseconds = 60000) {
    const name = Buffer.from(method);
    const head = Buffer.alloc(8);
    head[0] = flags;
    head.writeUInt16BE(name.length, 2);
    head.writeUInt32BE(milliseconds, 4);
    // A value begins with the number of buffers beside it; JSON has none.
    return Buffer.concat([head, name, Buffer.from([0, 0]), Buffer.from(JSON.stringify(args))]);
  }

  value(payload, at) {
    return JSON.parse(payload.subarray(at + 2));
  }

  request(payload, onItem = null) {
    return new Promise((resolve, reject) => {
      const id = ++this.lastCall;
      this.calls.set(id, { resolve, reject, onItem, used: 0 });
      this.send(REQUEST, id, payload);
    });
  }

  send(kind, id, payload = Buffer.alloc(0)) {
    let at = 0;
    do {
      const piece = payload.subarray(at, at + CHUNK);
      at += piece.length;
      const header = Buffer.alloc(16);
      header.writeUInt32BE(piece.length, 0);
      header[4] = kind;
      header[5] = at < payload.length ? MORE : 0;
      header.writeBigUInt64BE(id, 8);
      this.socket.write(Buffer.concat([header, piece]));
    } while (at < payload.length);
  }

  feed(data) {
    this.received = Buffer.concat([this.received, data]);
    if (!this.greeted) {
      if (this.received.length < 16) return;
      if (this.received.toString('latin1', 0, 7) !== 'coro-ps' || this.received[7] !== 1) {
        return this.socket.destroy(new Error('expected version 1 of the packet stream'));
      }
      this.greeted = true;
      this.received = this.received.subarray(16);
    }
    while (this.received.length >= 16) {
      const length = this.received.readUInt32BE(0);
      if (length > CHUNK) return this.socket.destroy(new Error('a frame is too large'));
      if (this.received.length < 16 + length) return;
      const kind = this.received[4];
      const more = this.received[5] & MORE;
      const id = this.received.readBigUInt64BE(8);
      const key = `${kind}:${id}`;
      const chunks = this.parts.get(key) || [];
      chunks.push(this.received.subarray(16, 16 + length));
      this.received = this.received.subarray(16 + length);
      if (more) {
        this.parts.set(key, chunks);
      } else {
        this.parts.delete(key);
        this.dispatch(kind, id, Buffer.concat(chunks));
      }
    }
  }

  dispatch(kind, id, payload) {
    const call = this.calls.get(id);
    if (kind === PING) {
      this.send(PONG, id, payload);
    } else if (kind === ITEM_DOWN && call && call.onItem) {
      call.onItem(this.value(payload, 0));
      call.used += payload.length + 16;
      if (call.used * 2 >= WINDOW) {
        const credit = Buffer.alloc(4);
        credit.writeUInt32BE(call.used, 0);
        call.used = 0;
        this.send(CREDIT_DOWN, id, credit);
      }
    } else if (kind === REPLY && call) {
      this.calls.delete(id);
      call.resolve(payload);
    } else if (kind === FAIL && call) {
      this.calls.delete(id);
      call.reject(payload[0] === EXCEPTION
        ? Object.assign(new Error(this.value(payload, 1)[1]), { code: EXCEPTION, type: this.value(payload, 1)[0] })
        : Object.assign(new Error(payload.toString('utf8', 1)), { code: payload[0] }));
    } else if (kind === GOODBYE && payload.readUInt16BE(0) !== 0) {
      this.end(new Error(payload.toString('utf8', 2)));
    }
  }

  end(error) {
    for (const call of this.calls.values()) call.reject(error);
    this.calls.clear();
  }

}

async function main([host, port, secret]) {
  const client = await Client.connect(host, Number(port), secret || null);
  const show = (...what) => console.log(JSON.stringify(what));
  show('add', await client.call('add', 1, 2));
  show('together', ...await Promise.all([3, 2, 1].map((n) => client.call('echo', n))));
  show('large', (await client.call('echo', 'x'.repeat(1000000))).length);
  const items = [];
  show('stream', await client.stream('count', [5], (item) => items.push(item)), items);
  let n = 0;
  await client.stream('count', [100000], () => { n += 1; });
  show('credit', n);
  await client.call('fail').catch((error) => show('failure', error.code, error.type, error.message));
  await client.call('nothing').catch((error) => show('unknown', error.code));
  client.cast('note', 'from Node');
  show('noted', await client.call('noted'));
  client.socket.end();
}

if (require.main === module) {
  main(process.argv.slice(2)).catch((error) => { console.error(error.message); process.exit(1); });
}
module.exports = { Client };
