// The connection to the collector: a consumer's WebSocket (AEP-0003 §3.5), as
// long as the page is open, and, for what is past, the event stream, of which
// a browser reads many events at once. What comes in is taken in pieces of a
// few milliseconds, so that no flood of events stops the page.

const patience = 45_000; // of silence, until a connection counts as dead
const slice = 8; // milliseconds at a time
const least = 160; // events at a time
const most = 300_000; // messages that wait; beyond, it is better to begin anew

export class Wire {
  // on: event(ev, raw), frame(f), link(state, text), open(hello), unauthorized()
  constructor(on) {
    this.on = on;
    this.token = '';
    this.ws = null;
    this.ready = false; // hello was heard
    this.queue = [];
    this.head = 0;
    this.skew = 0; // the collector's clock minus ours
    this.instance = Array.from(crypto.getRandomValues(new Uint8Array(5)), (b) => b.toString(16).padStart(2, '0')).join('');
    const channel = new MessageChannel();
    const turns = [];
    channel.port1.onmessage = () => turns.shift()();
    this.turn = (f) => {
      turns.push(f);
      channel.port2.postMessage(0);
    };
    this.again = () => this.turn(() => this.work());
    this.working = false;
    this.held = null; // why what comes in waits
    this.loop = 0;
    this.skip = null; // ends a wait
    addEventListener('online', () => this.hurry());
    document.addEventListener('visibilitychange', () => { if (!document.hidden) this.hurry(); });
    setInterval(() => this.watch(), 5000);
  }

  // start connects, and connects again, until it is started anew or the token
  // is refused.
  async start(token) {
    this.token = token;
    const mine = ++this.loop;
    this.ws?.close();
    this.skip?.();
    for (let wait = 400; mine === this.loop; wait = Math.min(wait * 2, 15_000)) {
      this.on.link('wait', 'connecting');
      let why = '';
      try {
        if (!await this.admitted()) {
          if (mine !== this.loop) return;
          this.on.link('off', 'token wanted');
          this.on.unauthorized(this.token !== '');
          return;
        }
        if (mine !== this.loop) return;
        const began = Date.now();
        await this.connection();
        if (Date.now() - began > 5000) wait = 400;
      } catch (e) {
        console.warn('collector:', e.message);
        why = e instanceof TypeError ? '' : `: ${e.message}`;
      }
      if (mine !== this.loop) return;
      this.on.link('off', `not connected${why}`);
      await new Promise((done) => { this.skip = done; setTimeout(done, wait * (0.75 + Math.random() / 2)); });
      this.skip = null;
    }
  }

  hurry() {
    if (!this.ready) this.skip?.();
  }

  // admitted asks whether the token is good: a refused WebSocket does not say
  // why. The answer also tells the collector's time.
  async admitted() {
    const headers = this.token ? { authorization: `Bearer ${this.token}` } : {};
    const resp = await fetch('/events', { headers, cache: 'no-store', credentials: 'omit', signal: AbortSignal.timeout(10_000) });
    const date = Date.parse(resp.headers.get('date'));
    if (date && Math.abs(date - Date.now()) > 2000) this.skew = date - Date.now();
    if (resp.status === 401) return false;
    if (!resp.ok) throw new Error((await resp.json().catch(() => ({}))).detail ?? `it answers ${resp.status}`);
    return true;
  }

  now() { return Date.now() + this.skew; }

  // connection lasts until the socket is closed. The token goes as one of the
  // offered protocols: an address would end up in logs and histories.
  connection() {
    return new Promise((done) => {
      const url = new URL('/socket', location.href);
      url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
      url.hash = '';
      const offers = ['aep'];
      if (this.token) offers.push(`aep.bearer.${base64url(this.token)}`);
      const ws = new WebSocket(url, offers);
      this.ws = ws;
      this.heard = Date.now();
      ws.onopen = () => this.send({
        type: 'hello', versions: ['0.1'], role: 'consumer',
        identity: { agent: 'aep-wrap-page', instance: this.instance }, capabilities: {},
      });
      ws.onmessage = (m) => {
        this.heard = Date.now();
        if (typeof m.data !== 'string' || this.ws !== ws) return;
        this.queue.push(m.data);
        if (this.queue.length - this.head > most) ws.close();
        this.go();
      };
      ws.onclose = () => {
        if (this.ws === ws) {
          this.ready = false;
          this.held = null;
          this.ws = null;
          this.queue = [];
          this.head = 0;
        }
        done();
      };
    });
  }

  go() {
    if (this.working || this.held) return;
    this.working = true;
    this.again();
  }

  // hold has what comes in wait until release is called with what it gave.
  hold() {
    this.held = {};
    return this.held;
  }

  release(why) {
    if (this.held !== why || !why) return;
    this.held = null;
    this.go();
  }

  // past gives each event that is held and matches to take(event, line). It is
  // true when that was all.
  async past(filter, take, signal) {
    const query = new URLSearchParams({ filter: JSON.stringify(filter), from: 'all', live: '0' });
    const headers = { accept: 'text/event-stream' };
    if (this.token) headers.authorization = `Bearer ${this.token}`;
    const resp = await fetch(`/stream?${query}`, { headers, cache: 'no-store', credentials: 'omit', signal });
    if (!resp.ok) throw new Error(`the stream answers ${resp.status}`);
    const reader = resp.body.getReader();
    const decoder = new TextDecoder();
    let rest = '';
    let end = performance.now() + slice;
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + decoder.decode(value, { stream: true })).split('\n');
      rest = lines.pop();
      let n = 0;
      for (const line of lines) {
        if (!line.startsWith('data: ')) continue;
        const raw = line.slice(6);
        let ev;
        try { ev = JSON.parse(raw); } catch { continue; }
        if (typeof ev === 'object' && ev !== null && typeof ev.type === 'string') take(ev, raw);
        if (++n >= least && (n & 31) === 0 && performance.now() > end) {
          await new Promise((go) => this.turn(go));
          if (signal?.aborted) return;
          end = performance.now() + slice;
        }
      }
    }
  }

  watch() {
    if (!this.ws || this.ws.readyState !== WebSocket.OPEN) return;
    const silent = Date.now() - this.heard;
    if (silent > patience) this.ws.close();
    else if (silent > 15_000) this.send({ type: 'ping', t: Date.now() });
  }

  send(frame) { return this.write(JSON.stringify(frame)); }

  write(line) {
    if (this.ws?.readyState !== WebSocket.OPEN) return false;
    this.ws.send(line);
    return true;
  }

  work() {
    const end = performance.now() + slice;
    let n = 0;
    while (this.head < this.queue.length && !this.held) {
      const raw = this.queue[this.head++];
      try {
        this.take(raw);
      } catch (e) {
        console.error('an event was passed over:', e);
      }
      // On a busy machine time passes without work being done: some is.
      if (++n >= least && (n & 31) === 0 && performance.now() > end) break;
    }
    if (this.held) { // release goes on
      this.working = false;
      return;
    }
    if (this.head >= this.queue.length) {
      this.queue = [];
      this.head = 0;
      this.working = false;
      this.on.idle();
      return;
    }
    if (this.head > 8192) {
      this.queue = this.queue.slice(this.head);
      this.head = 0;
    }
    this.again();
  }

  take(raw) {
    let m;
    try { m = JSON.parse(raw); } catch { return; }
    if (typeof m !== 'object' || m === null || typeof m.type !== 'string') return;
    if (m.type.includes('.')) {
      this.on.event(m, raw);
      return;
    }
    switch (m.type) {
      case 'hello':
        this.ready = true;
        this.on.link('on', 'live');
        this.on.open(m);
        break;
      case 'ping':
        this.send('t' in m ? { type: 'pong', t: m.t } : { type: 'pong' });
        break;
      case 'pong':
        break;
      default:
        this.on.frame(m);
    }
  }
}

function base64url(s) {
  return btoa(String.fromCharCode(...new TextEncoder().encode(s))).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');
}
