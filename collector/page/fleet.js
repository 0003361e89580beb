// What the page knows: the sessions, what they ask, and the commands that were
// sent. It is folded from events, which may come twice and, over two
// subscriptions, in any order; it never keeps the events themselves.

import { isObject, list, str, ulid, when } from './text.js';

const maxSessions = 2000;
const maxClosed = 500; // requests that are over
const maxCommands = 1000;
const retries = 4; // in a window
const soon = 500; // ms in which a target that is not back yet is asked again
export const defaultWindow = 10_000; // AEP-0004 §3

const keyOf = (source, name) => JSON.stringify([source, name]);
const idOf = (source, id) => JSON.stringify([source, id]);

// isCommand says whether an event is one (AEP-0004 §2).
export const isCommand = (type) => /^control\.(attention\.respond|cancel|pause|resume)$|^x\.[^.]+\.control\./.test(type);

export class Fleet {
  constructor(wire) {
    this.wire = wire;
    this.sessions = new Map(); // by source and name
    this.named = new Map(); // name → sessions
    this.requests = new Map(); // by source and id, in the order of asking
    this.commands = new Map(); // by id
    this.effects = new Map(); // id of what was asked about → its request
    this.roster = new Map(); // name → entries
    this.rosterKnown = false;
    this.control = false; // this connection may command
    this.watches = true;
    this.changed = () => {};
    this.source = `aep://browser/agent/aep-wrap-page/tab/${wire.instance}`;
    setInterval(() => this.tick(), 250);
  }

  // --- events ---------------------------------------------------------------

  take(ev) {
    if (typeof ev.id !== 'string' || typeof ev.source !== 'string') return null;
    if (typeof ev.session !== 'string' || ev.session === '') return null;
    const data = isObject(ev.data) ? ev.data : {};
    if (typeof ev.seq !== 'number') {
      if (isCommand(ev.type)) this.command(ev, data);
      else if (ev.type === 'attention.routed') this.routed(ev, data);
      this.changed();
      return null;
    }
    const s = this.session(ev);
    const t = when(ev.time);
    if (t > s.last) s.last = t;
    if (t && t < s.first) s.first = t;
    if (!s.at || later(ev, s.at)) {
      s.at = { epoch: ev.epoch ?? 0, seq: ev.seq };
      s.lastType = ev.type;
      s.lastSubject = str(ev.subject);
    }
    fold[ev.type]?.call(this, s, ev, data);
    if (ev.type.startsWith('tool.')) this.effect(ev);
    if (typeof ev.cause === 'string') this.outcome(s, ev, data);
    this.changed();
    return s;
  }

  session(ev) {
    const key = keyOf(ev.source, ev.session);
    let s = this.sessions.get(key);
    if (!s) {
      s = {
        key, source: ev.source, name: ev.session, agent: str(ev.agent), host: hostOf(ev.source), cwd: '', label: '', model: '', parent: '',
        first: Infinity, last: 0, lastType: '', lastSubject: '', at: null,
        runs: new Map(), run: '', failed: false, paused: false, ended: '', endedAt: null, startedAt: null, pending: new Set(), order: this.sessions.size,
      };
      this.sessions.set(key, s);
      const same = this.named.get(s.name) ?? [];
      same.push(s);
      this.named.set(s.name, same);
      if (this.sessions.size > maxSessions) this.forget(s);
    }
    return s;
  }

  // forget drops the session that is likeliest to be missed by nobody.
  forget(but) {
    let oldest = null;
    const rank = (s) => (s.ended ? 0 : 1e15) + s.last;
    for (const s of this.sessions.values()) {
      if (s !== but && s !== this.kept && s.pending.size === 0 && (!oldest || rank(s) < rank(oldest))) oldest = s;
    }
    if (!oldest) return;
    this.sessions.delete(oldest.key);
    const rest = this.named.get(oldest.name).filter((s) => s !== oldest);
    if (rest.length) this.named.set(oldest.name, rest);
    else this.named.delete(oldest.name);
  }

  request(s, ev, data) {
    const key = idOf(ev.source, ev.id);
    if (this.requests.has(key)) return; // told again; what was shown stays
    const r = {
      key, id: ev.id, s, ev, at: when(ev.time), expires: when(data.expires_at),
      status: 'open', answer: null, by: '', via: '', resolution: '', responds: [], routed: [], subjectEv: null, effect: '', live: false,
    };
    this.requests.set(key, r);
    s.pending.add(r);
    this.effects.set(idOf(ev.source, ev.id), r);
    if (typeof ev.cause === 'string') this.effects.set(idOf(ev.source, ev.cause), r);
    this.prune();
  }

  prune() {
    if (this.requests.size < maxClosed * 2) return;
    for (const [key, r] of this.requests) {
      if (this.requests.size < maxClosed) break;
      if (r.status !== 'open') {
        this.requests.delete(key);
        this.effects.delete(idOf(r.s.source, r.id));
        this.effects.delete(idOf(r.s.source, r.ev.cause));
      }
    }
  }

  about(ev) { return this.requests.get(idOf(ev.source, str(ev.subject))); }

  close(r, status) {
    if (r.status === 'resolved' || r.status === 'timeout' || r.status === 'gone') return;
    r.status = status;
    if (status !== 'answered') r.s.pending.delete(r);
  }

  over(s) {
    for (const r of s.pending) this.close(r, 'gone');
    s.pending.clear();
    s.runs.clear();
    s.paused = false;
  }

  // effect notes what became of the tool that a request was about.
  effect(ev) {
    const r = this.effects.get(idOf(ev.source, str(ev.cause)));
    if (r && /^tool\.(completed|failed|denied)$/.test(ev.type)) r.effect = ev.type.slice(5);
    this.seen(ev);
  }

  // seen takes the event that a request is about. What is shown may get fuller,
  // never other: the digest of its arguments stays.
  seen(ev) {
    const r = this.effects.get(idOf(ev.source, ev.id));
    if (!r || ev.id !== r.ev.cause || ev.type !== 'tool.requested') return;
    const had = r.subjectEv;
    if (!had || level(ev) > level(had) && ev.data?.args_digest === had.data?.args_digest) {
      r.subjectEv = ev;
      this.changed();
    }
  }

  routed(ev, data) {
    for (const s of this.named.get(ev.session) ?? []) {
      const r = this.requests.get(idOf(s.source, str(ev.subject)));
      if (r && r.routed.length < 5) r.routed.push(str(data.to) || str(data.via));
    }
  }

  // --- what others, and we, commanded ------------------------------------------

  command(ev, data) {
    let c = this.commands.get(ev.id);
    if (!c) {
      c = { id: ev.id, type: ev.type, session: ev.session, subject: str(ev.subject), agent: str(ev.agent), source: ev.source, data, at: when(ev.time), mine: false, status: 'sent', reason: '', detail: '', outcome: '', good: false, ack: '' };
      this.keep(c);
    }
    if (c.source !== ev.source) return;
    c.seen = true;
    this.attach(c);
  }

  keep(c) {
    this.commands.set(c.id, c);
    if (this.commands.size > maxCommands) this.commands.delete(this.commands.keys().next().value);
  }

  attach(c) {
    if (c.type !== 'control.attention.respond') return;
    for (const s of this.named.get(c.session) ?? []) {
      const r = this.requests.get(idOf(s.source, c.subject));
      if (r && !r.responds.includes(c) && r.responds.length < 50) r.responds.push(c);
    }
  }

  ack(s, ev, accepted, data) {
    const c = this.commands.get(str(ev.cause));
    if (!c || c.session !== s.name || c.target && c.target !== s.source || c.ack) return;
    c.ack = ev.id;
    if (accepted && /^control\.(pause|resume)$/.test(c.type)) s.turning = [c.id, ev.id];
    c.status = accepted ? 'accepted' : 'rejected';
    c.reason = str(data.reason);
    c.detail = str(data.detail);
    this.acks.set(c.ack, c);
    if (this.acks.size > maxCommands) this.acks.delete(this.acks.keys().next().value);
  }

  acks = new Map();

  // outcome: what cites a command, or its ack, is what came of it.
  outcome(s, ev, data) {
    const c = this.commands.get(ev.cause) ?? this.acks.get(ev.cause);
    if (!c || c.session !== s.name || c.target && c.target !== s.source || /^control\./.test(ev.type) || c.outcome && !c.partial) return;
    const say = (text, good, partial = false) => { c.outcome = text; c.good = good; c.partial = partial; };
    switch (ev.type) {
      case 'run.cancelled': say('the run was cancelled', true, c.data.scope === 'session'); break;
      case 'run.finished': say('the run had finished by itself', false); break;
      case 'run.failed': say('the run failed', false); break;
      case 'session.ended': case 'x.aep-wrap.session.exited': say('the session ended', true); break;
      case 'progress.status': if (str(data.phase)) say(data.phase, true); break;
      case 'attention.answered': case 'attention.resolved': say('answered', true); break;
      case 'error.raised': say(`it went wrong: ${str(data.error?.message) || str(data.code) || 'no reason told'}`, false); break;
      default:
        if (ev.type.endsWith('.instruction.delivered')) say('the agent was told', true);
        else if (ev.type.endsWith('.instruction.dropped')) say(`not delivered${str(data.reason) ? `: ${data.reason}` : ''}`, false);
        else say(ev.type, true, true);
    }
    if (c.status === 'sent' || c.status === 'timeout') c.status = 'accepted'; // the ack was lost on the way
  }

  // --- commanding ------------------------------------------------------------

  // claim is the live route to a session: none, one, or more than one, which no
  // collector can tell apart.
  claims(name) { return this.roster.get(name) ?? []; }

  // accepts says whether a session takes a command: its one claimant declares
  // it, and we may send.
  accepts(s, type) {
    const claims = this.claims(s.name);
    return this.control && claims.length === 1 && this.current(s) && list(claims[0].control?.accepts).includes(type);
  }

  // current says whether a session is the one that a command by its name
  // reaches: of several of one name, the claimant's agent, and of those the one
  // that was heard of last.
  current(s) {
    if (s.ended) return false;
    const open = (this.named.get(s.name) ?? []).filter((o) => !o.ended);
    if (open.length < 2) return true;
    const agent = this.claims(s.name)[0]?.agent;
    const same = open.filter((o) => o.agent === agent);
    return (same.length ? same : open).reduce((a, b) => (b.last > a.last ? b : a)) === s;
  }

  instructType(s) {
    const claims = this.claims(s.name);
    if (claims.length !== 1) return '';
    const found = list(claims[0].control?.accepts).find((t) => /^x\.[^.]+\.control\.instruct$/.test(t));
    return found && this.accepts(s, found) ? found : '';
  }

  // order sends a command: built once, and sent as it is until it is answered
  // or its window is over.
  order(s, type, data, { subject, cause, run, text } = {}) {
    const now = this.wire.now();
    const ev = { aep: '0.1', id: ulid(now), type };
    if (subject) ev.subject = subject;
    ev.time = new Date(now).toISOString();
    ev.source = this.source;
    ev.agent = 'aep-wrap-page';
    ev.session = s.name;
    if (run) ev.run = run;
    if (cause) ev.cause = cause;
    if (text) ev.capture = 'full'; // as it was typed: it went through no redaction
    ev.data = data;
    const window = Number(this.claims(s.name)[0]?.control?.ack_window_ms);
    const c = {
      id: ev.id, type, session: s.name, target: s.source, subject: subject ?? '', agent: ev.agent, source: ev.source, data, at: now, mine: true,
      line: JSON.stringify(ev), status: 'sent', reason: '', detail: '', outcome: '', good: false, ack: '',
      window: window > 0 ? Math.min(window, 120_000) : defaultWindow,
    };
    this.keep(c);
    this.attach(c);
    this.repeat(c);
    return c;
  }

  // repeat sends a command, again or for the first time: with the same id.
  repeat(c) {
    c.status = 'sent';
    c.began = performance.now();
    c.tried = 0;
    this.transmit(c);
    this.changed();
  }

  transmit(c) {
    if (!this.wire.ready) return;
    if (this.wire.write(c.line)) c.tried = performance.now();
  }

  tick() {
    const now = performance.now();
    for (const c of this.commands.values()) {
      if (!c.mine || c.status !== 'sent') continue;
      if (now - c.began >= c.window) {
        c.status = 'timeout';
        this.changed();
      } else if (now - c.tried >= (c.away ? Math.min(soon, c.window / retries) : c.window / retries)) {
        this.transmit(c);
      }
    }
  }

  // refused takes a relay's error frame (AEP-0004 §4.2). On a new connection, to
  // have no way to the session says nothing of what became of the command on the
  // old one, and the target may only not be back yet.
  refused(f) {
    const c = this.commands.get(str(f.cause));
    if (!c || !c.mine || c.ack) return;
    if (c.moved && f.code === 'no-route') {
      c.away = true;
      return;
    }
    c.status = 'refused';
    c.reason = str(f.code);
    c.detail = str(f.detail);
    this.changed();
  }

  setRoster(entries) {
    this.roster = new Map();
    this.rosterKnown = true;
    for (const e of list(entries)) {
      if (!isObject(e) || typeof e.session !== 'string') continue;
      const same = this.roster.get(e.session) ?? [];
      same.push(e);
      this.roster.set(e.session, same);
    }
    this.changed();
  }

  reconnected() {
    for (const c of this.commands.values()) {
      if (!c.mine || c.status !== 'sent') continue;
      c.moved ||= c.tried > 0;
      c.away = false;
      this.transmit(c);
    }
  }

  // --- as it is shown --------------------------------------------------------

  open() {
    const out = [];
    for (const r of this.requests.values()) if (r.status === 'open') out.push(r);
    return out;
  }

  // what a session is doing, in a word.
  state(s) {
    if (s.ended) return 'ended';
    for (const r of s.pending) if (r.status === 'open') return 'waiting';
    if (s.paused) return 'paused';
    if (s.runs.size > 0) return 'working';
    return s.failed ? 'failed' : 'idle';
  }

  // positions are behind the last event that is known of each session, and of
  // each claimed one of which none is.
  positions() {
    const out = [];
    const most = 4000;
    for (const s of this.sessions.values()) if (s.at && out.length < most) out.push({ session: s.name, ...s.at });
    for (const name of this.roster.keys()) if (!this.named.has(name) && out.length < most) out.push({ session: name, epoch: 0, seq: 0 });
    return out;
  }

  // turns are the commands, and their acks, by which sessions were paused or
  // resumed last: whether they were, an event tells that cites one of them.
  turns() {
    const out = [];
    for (const s of this.sessions.values()) if (s.turning && !s.ended && out.length < 1000) out.push(...s.turning);
    return out;
  }
}

// fold is what event types mean for a session's state.
const fold = {
  'session.started'(s, ev, data) {
    s.agent = str(ev.agent) || s.agent;
    s.cwd = str(data.cwd) || s.cwd;
    s.label = str(data.label) || s.label;
    s.model = str(data['gen_ai.request.model']) || s.model;
    s.parent = isObject(data.parent) ? str(data.parent.session) : s.parent;
    if (!s.startedAt || later(ev, s.startedAt)) s.startedAt = ev;
    if (s.endedAt && later(ev, s.endedAt)) { // the vendor took it up again
      s.ended = '';
      s.endedAt = null;
    }
  },
  'session.ended'(s, ev, data) { ends.call(this, s, ev, str(data.reason) || 'normal'); },
  'x.aep-wrap.session.exited'(s, ev) { ends.call(this, s, ev, 'exited'); },
  'run.started'(s, ev) { runs(s, ev, true); },
  'run.finished'(s, ev) { runs(s, ev, false); },
  'run.failed'(s, ev) { runs(s, ev, false, true); },
  'run.cancelled'(s, ev) { runs(s, ev, false); },
  'progress.status'(s, ev, data) {
    if (s.phaseAt && !later(ev, s.phaseAt)) return;
    if (data.phase === 'paused' || data.phase === 'resumed') {
      s.paused = data.phase === 'paused';
      s.phaseAt = ev;
    }
  },
  'attention.requested'(s, ev, data) { this.request(s, ev, data); },
  'attention.answered'(s, ev, data) {
    const r = this.about(ev);
    if (!r) return;
    if (!r.answer || level(ev) >= r.answerLevel) {
      r.answer = isObject(data.answer) ? data.answer : {};
      r.answerLevel = level(ev);
      r.by = str(data.by);
      r.via = str(data.via);
      r.answerCause = str(ev.cause);
    }
    this.close(r, 'answered');
  },
  'attention.resolved'(s, ev, data) {
    const r = this.about(ev);
    if (!r) return;
    r.resolution = str(data.resolution);
    this.close(r, 'resolved');
  },
  'attention.timeout'(s, ev) {
    const r = this.about(ev);
    if (r) this.close(r, 'timeout');
  },
  'control.accepted'(s, ev, data) { this.ack(s, ev, true, data); },
  'control.rejected'(s, ev, data) { this.ack(s, ev, false, data); },
};

function ends(s, ev, why) {
  if (s.startedAt && later(s.startedAt, ev)) return;
  s.ended = why;
  s.endedAt = ev;
  this.over(s);
}

function runs(s, ev, open, failed = false) {
  const id = str(ev.run);
  if (s.overRuns?.has(id)) return; // a run ends once
  if (open) {
    s.runs.set(id, ev);
    s.run = id;
    s.failed = false;
    return;
  }
  s.runs.delete(id);
  s.failed = failed;
  s.overRuns ??= new Set();
  s.overRuns.add(id);
  if (s.overRuns.size > 64) s.overRuns.delete(s.overRuns.values().next().value);
}

// later orders two events of one session.
export function later(a, b) {
  const d = (a.epoch ?? 0) - (b.epoch ?? 0);
  return d !== 0 ? d > 0 : a.seq > b.seq;
}

const levels = ['none', 'metadata', 'redacted', 'full'];
export const level = (ev) => levels.indexOf(ev.capture ?? 'metadata');

export function hostOf(source) {
  const m = /^aep:\/\/([^/]+)/.exec(source);
  if (!m) return '';
  try { return decodeURIComponent(m[1]); } catch { return m[1]; }
}
