// One session's events, in order or as what led to what. However many they
// are, the page holds only the rows that are seen.

import { $, button, clip, el, fill, isObject, put, span, str, visible, when } from './text.js';
import { level, later } from './fleet.js';

const narrow = matchMedia('(max-width: 48rem)');
const maxEvents = narrow.matches ? 20_000 : 120_000;
const maxBytes = narrow.matches ? 24 << 20 : 96 << 20; // of their text
const maxDepth = 8;
const over = 8; // rows that are drawn beyond what is seen

const tones = [
  ['bad', /^(error\.|run\.failed|tool\.(failed|denied)|control\.rejected)/],
  ['wait', /^attention\.requested/],
  ['good', /^(run\.finished|tool\.completed|attention\.(answered|resolved)|control\.accepted)/],
  ['warn', /^(run\.cancelled|attention\.timeout|control\.|x\.[^.]+\.control\.)/],
];

function toneOf(ev) {
  if (ev.severity === 'error' || ev.severity === 'critical') return 'bad';
  for (const [name, re] of tones) if (re.test(ev.type)) return name;
  return ev.severity === 'debug' ? 'quiet' : '';
}

const severities = ['debug', 'info', 'notice', 'warning', 'error', 'critical'];

// gist is one line about an event: its subject, and what its data holds as
// plain values.
function gist(ev) {
  const d = isObject(ev.data) ? ev.data : {};
  const list = [];
  const notes = { push: (text) => { if (list.length < 12) list.push(clip(text, 300)); } };
  if (isObject(d.answer) && typeof d.answer.option === 'string') notes.push(d.answer.option);
  for (const k of ['kind', 'agent_type', 'by', 'rule', 'via', 'resolution', 'status', 'reason', 'detail', 'scope', 'trigger', 'phase', 'message', 'text', 'title', 'summary']) {
    if (typeof d[k] === 'string' && d[k] !== ev.subject) notes.push(d[k]);
  }
  if (typeof d.prompt === 'string') notes.push(d.prompt);
  if (isObject(d.error)) for (const k of ['class', 'type', 'message']) if (typeof d.error[k] === 'string') notes.push(d.error[k]);
  const args = isObject(d.args) ? d.args : isObject(d.args_redacted) ? d.args_redacted : {};
  for (const k of ['command', 'file_path', 'path', 'url', 'query', 'pattern']) if (typeof args[k] === 'string') notes.push(args[k]);
  if (typeof d.duration_ms === 'number') notes.push(span(d.duration_ms));
  const about = typeof ev.seq !== 'number' ? str(ev.agent) : ev.type.startsWith('attention.') && ev.type !== 'attention.requested' ? '' : str(ev.subject) || str(d.tool?.name);
  return [clip(about, 120), clip(list.join(' \u00b7 ').replace(/\s+/g, ' '), 300)];
}

const time = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false });

export class Timeline {
  constructor() {
    this.list = $('events');
    this.rows = $('rows');
    this.pool = [];
    this.mode = 'time';
    this.query = '';
    this.floor = 0;
    this.clear(null);
    this.list.addEventListener('scroll', () => { this.seen = this.atEnd(); this.draw(); }, { passive: true });
    new ResizeObserver(() => {
      if (this.follow) this.toEnd();
      this.draw();
    }).observe(this.list);
    this.list.addEventListener('keydown', (e) => this.key(e));
    this.rows.addEventListener('click', (e) => {
      const row = e.target.closest('.row');
      if (!row) return;
      this.pick(this.view[row.index]);
      this.inspect(narrow.matches);
    });
    narrow.addEventListener('change', () => this.draw());
    $('newest').addEventListener('click', () => {
      this.toEnd();
      this.draw();
      this.list.focus();
    });
    for (const r of document.querySelectorAll('input[name=order]')) {
      r.addEventListener('change', () => { if (r.checked) this.order(r.value); });
    }
    $('find').addEventListener('input', () => { this.query = $('find').value.trim().toLowerCase(); this.stale = true; this.dirty = true; this.onwake(); });
    $('floor').addEventListener('change', () => { this.floor = Number($('floor').value); this.stale = true; this.dirty = true; this.onwake(); });
    this.pane = $('detail');
    this.pane.addEventListener('keydown', (e) => {
      if (e.key === 'Escape') {
        this.shut();
        e.stopPropagation();
      }
    });
    $('shut').addEventListener('click', () => this.shut());
    this.onwake = () => {};
  }

  clear(s) {
    this.s = s;
    this.all = [];
    this.by = new Map(); // id → event, of the session's own source
    this.foreign = new Map(); // of others
    this.orphans = new Map(); // id of a cause that has not come → those it caused
    this.bytes = 0;
    this.dropped = 0;
    this.view = [];
    this.stale = false;
    this.dirty = true;
    this.current = null;
    this.kin = new Set();
    this.fresh = 0;
    this.serial = 0;
    this.whole = false; // its past was taken in
    this.seen = true;
    this.list.scrollTop = 0;
    this.shut(false);
  }

  get rowHeight() { return narrow.matches ? 48 : 26; }
  get follow() { return this.seen; }

  last() {
    for (let i = this.all.length - 1; i >= 0; i--) if (this.all[i].seq !== undefined) return { session: this.s.name, epoch: this.all[i].epoch, seq: this.all[i].seq };
    return null;
  }

  // take puts an event in its place.
  take(ev, raw) {
    const { s } = this;
    if (!s || ev.session !== s.name) return;
    const own = typeof ev.seq === 'number';
    if (own && ev.source !== s.source) return;
    const book = own ? this.by : this.foreign;
    const had = book.get(ev.id);
    if (had) {
      if (level(ev) > had.level && had.type === ev.type) {
        this.bytes += raw.length - had.raw.length;
        this.describe(had, ev, raw);
        this.dirty = true;
      }
      return;
    }
    const rec = { n: ++this.serial, id: ev.id, type: ev.type, own, epoch: own ? ev.epoch ?? 0 : undefined, seq: own ? ev.seq : undefined, cause: str(ev.cause), depth: 0, kids: 0 };
    this.describe(rec, ev, raw);
    book.set(ev.id, rec);
    this.bytes += raw.length;
    let i = this.all.length;
    if (own) while (i > 0 && (this.all[i - 1].seq === undefined ? false : later(this.all[i - 1], rec))) i--;
    const last = i === this.all.length;
    if (last) this.all.push(rec);
    else this.all.splice(i, 0, rec);
    const parent = this.causeOf(rec);
    if (parent) {
      rec.depth = Math.min(parent.depth + 1, maxDepth);
      parent.kids++;
    } else if (rec.cause) this.orphans.set(rec.cause, (this.orphans.get(rec.cause) ?? 0) + 1);
    const waited = this.orphans.get(rec.id);
    if (waited) {
      rec.kids += waited;
      this.orphans.delete(rec.id);
      this.stale = true;
    }
    if (!this.seen) this.fresh++;
    if (last && this.mode === 'time' && !this.stale) {
      if (this.passes(rec)) this.view.push(rec);
    } else this.stale = true;
    if (this.all.length > maxEvents || this.bytes > maxBytes) this.drop();
    this.dirty = true;
  }

  describe(rec, ev, raw) {
    rec.level = level(ev);
    rec.raw = raw;
    rec.t = when(ev.time);
    rec.tone = toneOf(ev);
    rec.weight = Math.max(0, severities.indexOf(ev.severity ?? 'info'));
    [rec.about, rec.note] = gist(ev);
    rec.hay = '';
  }

  causeOf(rec) {
    if (!rec.cause || rec.cause === rec.id) return null;
    return this.by.get(rec.cause) ?? this.foreign.get(rec.cause) ?? null;
  }

  // drop forgets the oldest tenth.
  drop() {
    const n = Math.max(1, Math.floor(this.all.length / 10));
    for (const rec of this.all.splice(0, n)) {
      this.bytes -= rec.raw.length;
      (rec.own ? this.by : this.foreign).delete(rec.id);
      if (rec === this.current) this.pick(null);
    }
    this.dropped += n;
    if (this.orphans.size > maxEvents) this.orphans.clear();
    this.stale = true;
    if (!this.seen && this.mode === 'time') this.list.scrollTop -= n * this.rowHeight;
  }

  passes(rec) {
    if (rec.weight < this.floor) return false;
    if (!this.query) return true;
    rec.hay ||= `${rec.type} ${rec.about} ${rec.note} ${rec.id}`.toLowerCase();
    return rec.hay.includes(this.query);
  }

  // arrange makes the view anew: all of it, in order, or each event below the
  // one that caused it.
  arrange() {
    this.stale = false;
    for (const rec of this.all) {
      const p = this.causeOf(rec);
      rec.depth = p && p !== rec ? Math.min(p.depth + 1, maxDepth) : 0;
    }
    if (this.mode === 'time') {
      this.view = this.all.filter((r) => this.passes(r));
      return;
    }
    const below = new Map();
    const roots = [];
    for (const rec of this.all) {
      const p = this.causeOf(rec);
      if (!p) {
        roots.push(rec);
        continue;
      }
      const kids = below.get(p);
      if (kids) kids.push(rec);
      else below.set(p, [rec]);
    }
    const done = new Set();
    const out = [];
    const walk = (root) => {
      const stack = [[root, 0]];
      while (stack.length) {
        const [rec, depth] = stack.pop();
        if (done.has(rec)) continue;
        done.add(rec);
        rec.depth = Math.min(depth, maxDepth);
        if (this.passes(rec)) out.push(rec);
        const kids = below.get(rec) ?? [];
        for (let i = kids.length - 1; i >= 0; i--) stack.push([kids[i], depth + 1]);
      }
    };
    for (const r of roots) walk(r);
    if (done.size < this.all.length) for (const r of this.all) walk(r); // causes that go in circles
    this.view = out;
  }

  order(mode) {
    this.mode = mode;
    this.list.setAttribute('role', mode === 'time' ? 'listbox' : 'tree');
    this.stale = true;
    this.render(true);
    if (this.current) this.reveal();
  }

  // render is called when something may have changed; a view that is costly to
  // make is not made at every event.
  render(now = false) {
    if (!this.dirty && !now) return;
    if (this.stale) {
      const t = performance.now();
      if (!now && t - (this.arranged ?? 0) < (this.cost ?? 0) * 15) {
        this.onwake();
      } else {
        this.arrange();
        this.cost = performance.now() - t;
        this.arranged = t;
      }
    }
    this.dirty = this.stale;
    const stay = this.follow;
    const h = `${this.view.length * this.rowHeight}px`;
    if (this.rows.style.height !== h) this.rows.style.height = h;
    if (stay) this.toEnd();
    const total = this.all.length + this.dropped;
    put($('count'), this.view.length === this.all.length ? `${total.toLocaleString()} events` : `${this.view.length.toLocaleString()} of ${total.toLocaleString()} events`);
    const first = this.all[0];
    const gap = this.dropped > 0 ? `${this.dropped.toLocaleString()} earlier events are not on this page; aep-wrap timeline has them.`
      : first && first.type !== 'session.started' && total > 20 ? 'What came before is no longer held here; aep-wrap timeline has it.' : '';
    put($('gap'), gap);
    $('gap').hidden = !gap;
    $('nothing').hidden = this.view.length > 0;
    put($('nothing'), this.all.length ? 'No event matches.' : 'No event yet.');
    $('newest').hidden = this.follow;
    put($('newest'), this.fresh > 0 ? `${this.fresh.toLocaleString()} new \u2193` : 'Newest \u2193');
    this.draw();
  }

  atEnd() { return this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < this.rowHeight * 1.5; }

  toEnd() {
    this.list.scrollTop = this.list.scrollHeight;
    this.seen = true;
    this.fresh = 0;
    $('newest').hidden = true;
  }

  // draw shows the rows that are in sight.
  draw() {
    if (this.seen) this.fresh = 0;
    $('newest').hidden = this.seen;
    const h = this.rowHeight;
    const from = Math.max(0, Math.floor(this.list.scrollTop / h) - over);
    const to = Math.min(this.view.length, Math.ceil((this.list.scrollTop + this.list.clientHeight) / h) + over);
    while (this.pool.length < to - from) {
      const row = makeRow();
      this.pool.push(row);
      this.rows.append(row.e);
    }
    // A row keeps its element while it is in sight: the n-th of a pool of m is
    // for the events n, n+m, …
    const m = this.pool.length;
    for (let k = 0; k < m; k++) {
      const row = this.pool[k];
      let i = from + ((k - from) % m + m) % m;
      if (i >= to) {
        if (!row.e.hidden) row.e.hidden = true;
        continue;
      }
      this.fillRow(row, this.view[i], i, h);
    }
    const active = this.current && this.pool.find((r) => !r.e.hidden && r.rec === this.current);
    if (active) this.list.setAttribute('aria-activedescendant', active.e.id);
    else this.list.removeAttribute('aria-activedescendant');
  }

  fillRow(row, rec, i, h) {
    const { e } = row;
    if (e.hidden) e.hidden = false;
    const y = `translateY(${i * h}px)`;
    if (e.style.transform !== y) e.style.transform = y;
    e.index = i;
    const state = `${rec.n}|${rec.level}|${rec.depth}|${rec.kids}|${rec === this.current}|${this.kin.has(rec)}|${this.mode}|${i}`;
    if (row.rec === rec && row.state === state) return;
    row.state = state;
    row.rec = rec;
    e.className = `row ${rec.tone}${rec === this.current ? ' current' : ''}${this.kin.has(rec) ? ' kin' : ''}`;
    e.setAttribute('role', this.mode === 'time' ? 'option' : 'treeitem');
    e.setAttribute('aria-selected', String(rec === this.current));
    e.setAttribute('aria-posinset', String(i + 1));
    e.setAttribute('aria-setsize', String(this.view.length));
    if (this.mode === 'time') e.removeAttribute('aria-level');
    else e.setAttribute('aria-level', String(rec.depth + 1));
    put(row.time, rec.t ? time.format(rec.t) : '');
    row.type.style.paddingInlineStart = `${rec.depth * (narrow.matches ? 8 : 13)}px`;
    put(row.name, visible(clip(rec.type, 120)));
    put(row.about, visible(rec.about));
    put(row.note, visible(rec.note));
  }

  // pick makes an event the current one.
  pick(rec) {
    this.current = rec ?? null;
    this.kin = new Set();
    if (rec) {
      for (let p = this.causeOf(rec), n = 0; p && n < 100 && !this.kin.has(p); p = this.causeOf(p), n++) this.kin.add(p);
      for (const k of this.ledTo(rec, 1000)) this.kin.add(k);
      this.kin.delete(rec);
    }
    if (rec && !this.pane.hidden) this.detail();
    this.draw();
  }

  ledTo(rec, most) {
    const out = [];
    if (!rec.kids) return out;
    for (let i = this.all.indexOf(rec) + 1; i < this.all.length && out.length < most && out.length < rec.kids; i++) if (this.all[i].cause === rec.id) out.push(this.all[i]);
    return out;
  }

  reveal() {
    const i = this.view.indexOf(this.current);
    if (i < 0) return;
    const h = this.rowHeight;
    if (i * h < this.list.scrollTop) this.list.scrollTop = i * h;
    else if ((i + 1) * h > this.list.scrollTop + this.list.clientHeight) this.list.scrollTop = (i + 1) * h - this.list.clientHeight;
    this.seen = this.atEnd();
    this.draw();
  }

  key(e) {
    if (e.altKey || e.ctrlKey || e.metaKey || this.view.length === 0) return;
    const at = this.current ? this.view.indexOf(this.current) : -1;
    const page = Math.max(1, Math.floor(this.list.clientHeight / this.rowHeight) - 1);
    const last = this.view.length - 1;
    const go = (i) => {
      this.pick(this.view[Math.max(0, Math.min(last, i))]);
      this.reveal();
    };
    const moves = {
      ArrowDown: () => go(at < 0 ? Math.floor(this.list.scrollTop / this.rowHeight) : at + 1),
      ArrowUp: () => go(at < 0 ? last : at - 1),
      PageDown: () => go(at + page),
      PageUp: () => go(at - page),
      Home: () => go(0),
      End: () => go(last),
      ArrowLeft: () => this.jump(this.current && this.causeOf(this.current)),
      ArrowRight: () => this.jump(this.current && this.ledTo(this.current, 1)[0]),
      Enter: () => this.current && this.inspect(true),
      ' ': () => this.current && this.inspect(true),
      Escape: () => this.shut(),
    };
    if (!moves[e.key]) return;
    e.preventDefault();
    moves[e.key]();
  }

  jump(rec) {
    if (!rec) return;
    this.pick(rec);
    this.reveal();
  }

  inspect(focus) {
    this.pane.hidden = false;
    document.body.classList.add('inspecting');
    this.detail();
    if (this.current) this.reveal();
    if (focus) $('detail-title').focus();
  }

  shut(back = true) {
    if (this.pane?.hidden !== false) return;
    const held = this.pane.contains(document.activeElement);
    this.pane.hidden = true;
    document.body.classList.remove('inspecting');
    if (back && held) this.list.focus();
  }

  detail() {
    const rec = this.current;
    if (!rec) return;
    let ev = {};
    try { ev = JSON.parse(rec.raw); } catch { /* it was read once already */ }
    fill($('detail-title'), clip(rec.type, 200));
    const rows = [];
    const row = (name, value) => {
      if (value === undefined || value === '') return;
      const dd = el('dd');
      if (value instanceof Node) dd.append(value);
      else fill(dd, clip(String(value), 2000));
      rows.push(el('dt', '', name), dd);
    };
    const link = (to) => {
      const b = button('link', '', () => { this.jump(to); });
      fill(b, `${clip(to.type, 80)}${to.about ? ` ${clip(to.about, 60)}` : ''}`);
      return b;
    };
    row('time', rec.t ? new Date(rec.t).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' }) : '');
    row('subject', ev.subject);
    const cause = this.causeOf(rec);
    row('because of', cause ? link(cause) : rec.cause);
    const led = this.ledTo(rec, 12);
    if (led.length) {
      const ul = el('ul', 'led');
      for (const k of led) {
        const li = el('li');
        li.append(link(k));
        ul.append(li);
      }
      if (rec.kids > led.length) ul.append(el('li', 'note', `and ${rec.kids - led.length} more`));
      row('led to', ul);
    }
    row('run', ev.run);
    row('step', ev.step);
    row('severity', ev.severity);
    row('capture', ev.capture ?? 'metadata');
    row('position', rec.own ? `${rec.epoch ? `${rec.epoch} : ` : ''}${rec.seq}` : 'none: sent by another');
    if (!rec.own) row('from', `${str(ev.agent)} \u2014 ${str(ev.source)}`);
    row('id', rec.id);
    $('detail-facts').replaceChildren(...rows);
    const text = ev.data === undefined ? '' : JSON.stringify(ev.data, null, 2);
    const most = 200_000;
    fill($('detail-data'), text.length > most ? `${text.slice(0, most)}\u2026` : text);
    $('detail-data').hidden = text === '';
    put($('detail-more'), text.length > most ? `${(text.length - most).toLocaleString()} more characters are not on this page.` : '');
    this.pane.scrollTop = 0;
  }
}

let serial = 0;
function makeRow() {
  const e = el('div', 'row');
  e.id = `row-${++serial}`;
  e.setAttribute('role', 'option');
  const row = { e, time: el('span', 'time'), type: el('span', 'type'), name: el('span', 'name'), gist: el('span', 'gist'), about: el('span', 'about'), note: el('span', 'note'), state: '', rec: null };
  row.type.append(el('span', 'dot'), row.name);
  row.gist.append(row.about, ' ', row.note);
  e.append(row.time, row.type, row.gist);
  return row;
}
