// The page shows what the collector streams: the sessions, and one session's
// events. Whatever an agent sent is put on the page as text, never as markup.

const maxEvents = 2000; // kept for each session
const maxSessions = 300;
const maxShown = 1000; // rows on the page

const $ = (id) => document.getElementById(id);
const sessions = new Map(); // by source and name
let chosen = null;
let picking = true; // nobody chose yet: what happened last is shown
let shown = 0; // how many of the chosen session's events are on the page
let dirty = true;

// --- the token: it comes once in the fragment, which no server sees -------

function token() {
  const given = new URLSearchParams(location.hash.slice(1)).get('token');
  if (given) {
    sessionStorage.setItem('aep-token', given);
    history.replaceState(null, '', location.pathname);
  }
  return sessionStorage.getItem('aep-token') ?? '';
}

$('ask').addEventListener('submit', (e) => {
  e.preventDefault();
  sessionStorage.setItem('aep-token', $('token').value.trim());
  $('token').value = '';
  $('ask').hidden = true;
  follow();
});

// --- the stream ------------------------------------------------------------

function link(state, text) {
  $('link').dataset.link = state;
  $('link-text').textContent = text;
}

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// follow reads the stream for ever. EventSource cannot send a token in a
// header; fetch can.
async function follow() {
  for (let wait = 500; ; wait = Math.min(wait * 2, 15000)) {
    let resp;
    try {
      const t = token();
      resp = await fetch('/stream?from=all', { headers: t ? { authorization: `Bearer ${t}` } : {}, cache: 'no-store' });
      if (resp.status === 401) {
        link('off', 'token wanted');
        $('ask').hidden = false;
        $('token').focus();
        return;
      }
      if (!resp.ok) throw new Error(`the collector answers ${resp.status}`);
      link('on', 'live');
      setTimeout(() => { picking = false; }, 2000);
      for await (const data of messages(resp.body)) {
        wait = 500;
        take(data);
      }
    } catch (e) {
      console.warn('stream:', e.message);
    }
    link('off', `not connected, next try in ${Math.ceil(wait / 1000)} s`);
    await sleep(wait);
  }
}

// messages gives the data of each message of an event stream. The collector
// ends its lines with LF and writes one data line.
async function* messages(body) {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let rest = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + decoder.decode(value, { stream: true })).split('\n');
      rest = lines.pop();
      for (const line of lines) if (line.startsWith('data: ')) yield line.slice(6);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function take(data) {
  let ev;
  try { ev = JSON.parse(data); } catch { return; }
  if (typeof ev !== 'object' || ev === null || typeof ev.session !== 'string') return;
  const key = JSON.stringify([ownsSession(ev) ? ev.source : '', ev.session]);
  let s = sessions.get(key) ?? (ownsSession(ev) ? null : [...sessions.values()].find((o) => o.name === ev.session));
  if (!s) {
    s = { key, name: ev.session, agent: ev.agent, events: [], ids: new Set(), start: Date.parse(ev.time), last: 0, state: 'idle', asked: new Map(), run: 0, dropped: 0 };
    sessions.set(key, s);
    if (sessions.size > maxSessions) forget();
  }
  const id = JSON.stringify([ev.source, ev.id]);
  if (s.ids.has(id)) return;
  s.ids.add(id);
  place(s, ev);
  if (s.events.length > maxEvents) {
    const gone = s.events.shift();
    s.ids.delete(JSON.stringify([gone.source, gone.id]));
    s.dropped++;
    if (s === chosen) shown = -1;
  }
  s.last = Math.max(s.last, Date.parse(ev.time) || 0);
  s.start = Math.min(s.start, Date.parse(ev.time) || s.start);
  note(s, ev);
  if (picking && s !== chosen && s.last >= (chosen?.last ?? 0)) {
    chosen = s;
    shown = -1;
  }
  chosen ??= s;
  dirty = true;
}

// ownsSession is false of what others say about a session: commands and routing.
const ownsSession = (ev) => ev.seq !== undefined;

function forget() {
  let oldest = null;
  for (const s of sessions.values()) if (s !== chosen && (!oldest || s.last < oldest.last)) oldest = s;
  if (oldest) sessions.delete(oldest.key);
}

// place keeps the events in order of (epoch, seq); what has no position stays
// where it came.
function place(s, ev) {
  let i = s.events.length;
  if (ev.seq !== undefined) {
    while (i > 0 && later(s.events[i - 1], ev)) i--;
  }
  if (i < s.events.length && s === chosen) shown = -1;
  s.events.splice(i, 0, ev);
}

function later(a, b) {
  if (a.seq === undefined) return false;
  return (a.epoch ?? 0) - (b.epoch ?? 0) > 0 || (a.epoch ?? 0) === (b.epoch ?? 0) && a.seq > b.seq;
}

// note follows what the session is doing.
function note(s, ev) {
  switch (ev.type) {
    case 'session.started': s.agent = ev.agent; s.ended = false; break;
    case 'session.ended': s.ended = true; break;
    case 'run.started': s.run++; s.failed = false; break;
    case 'run.finished': case 'run.cancelled': s.run = 0; break;
    case 'run.failed': s.run = 0; s.failed = true; break;
    case 'attention.requested': s.asked.set(ev.id, ev); break;
    case 'attention.resolved': case 'attention.timeout': s.asked.delete(ev.subject); break;
  }
  s.state = s.ended ? 'ended' : s.asked.size > 0 ? 'waiting' : s.run > 0 ? 'working' : s.failed ? 'failed' : 'idle';
}

// --- showing -----------------------------------------------------------------

// visible makes what would hide, reorder or erase text readable.
function visible(v) {
  return String(v).replace(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu,
    (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

function el(tag, className, text) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
}

function ago(ms) {
  const s = Math.max(0, Math.round((Date.now() - ms) / 1000));
  if (s < 60) return `${s} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ago`;
  return new Date(ms).toLocaleDateString();
}

function offset(s, ev) {
  const t = Math.max(0, (Date.parse(ev.time) - s.start) / 1000);
  if (!Number.isFinite(t)) return '';
  const sec = (t % 60).toFixed(1).padStart(4, '0');
  const min = Math.floor(t / 60) % 60;
  const h = Math.floor(t / 3600);
  return h ? `${h}:${String(min).padStart(2, '0')}:${sec}` : `${min}:${sec}`;
}

const kinds = {
  bad: /^(error\.|run\.failed|tool\.(failed|denied)|control\.rejected)/,
  wait: /^attention\.requested/,
  good: /^(run\.finished|tool\.completed|attention\.(answered|resolved)|control\.accepted)/,
  warn: /^(run\.cancelled|attention\.timeout|control\.)/,
};

function kind(ev) {
  if (['error', 'critical'].includes(ev.severity)) return 'bad';
  for (const [name, re] of Object.entries(kinds)) if (re.test(ev.type)) return name;
  return ev.severity === 'debug' ? 'quiet' : '';
}

// say is one line about an event: its subject, and the facts that its data
// holds as plain values.
function say(ev) {
  const d = typeof ev.data === 'object' && ev.data !== null ? ev.data : {};
  const notes = [];
  if (typeof d.answer === 'object' && typeof d.answer?.option === 'string') notes.push(d.answer.option);
  for (const k of ['kind', 'agent_type', 'by', 'rule', 'via', 'resolution', 'status', 'reason', 'trigger', 'phase', 'message', 'text', 'title']) {
    if (typeof d[k] === 'string' && d[k] !== ev.subject) notes.push(d[k]);
  }
  if (typeof d.prompt === 'string') notes.push(d.prompt);
  if (typeof d.error === 'object' && d.error !== null) for (const k of ['class', 'type', 'message']) if (typeof d.error[k] === 'string') notes.push(d.error[k]);
  if (typeof d.duration_ms === 'number') notes.push(d.duration_ms < 1000 ? `${d.duration_ms} ms` : `${(d.duration_ms / 1000).toFixed(1)} s`);
  return [ev.seq === undefined || ev.type.startsWith('attention.') && ev.type !== 'attention.requested' ? '' : ev.subject ?? d.tool?.name ?? '', notes.join(' · ')];
}

function clip(text) {
  return text.length > 400 ? `${text.slice(0, 400)}…` : text;
}

function row(s, ev) {
  const li = el('li', kind(ev));
  const details = el('details');
  const summary = el('summary');
  const [subject, notes] = say(ev);
  const what = el('span', 'what');
  if (subject) what.append(el('span', '', visible(clip(String(subject)))));
  if (notes) what.append(el('span', 'note', `${subject ? '  ' : ''}${visible(clip(notes))}`));
  const type = el('span', 'type mono', visible(ev.type));
  type.title = visible(ev.type);
  summary.append(el('span', 'time mono', offset(s, ev)), type, what);
  details.append(summary);
  details.addEventListener('toggle', () => {
    if (details.open && details.childElementCount === 1) details.append(el('pre', '', visible(JSON.stringify(ev, null, 2))));
  });
  li.append(details);
  return li;
}

const words = { idle: 'idle', working: 'working', waiting: 'waits for you', ended: 'ended', failed: 'failed' };

function showSessions() {
  const list = [...sessions.values()].sort((a, b) => (b.state === 'waiting') - (a.state === 'waiting') || b.last - a.last);
  $('none').hidden = list.length > 0;
  const had = document.activeElement?.dataset?.key;
  $('sessions').replaceChildren(...list.map((s) => {
    const b = el('button');
    b.type = 'button';
    b.dataset.key = s.key;
    b.setAttribute('aria-current', String(s === chosen));
    b.append(el('span', 'name', visible(s.agent)), el('span', `state ${s.state}`, words[s.state]),
      el('span', 'id mono', visible(s.name)), el('span', 'when', s.last ? ago(s.last) : ''));
    b.addEventListener('click', () => { picking = false; chosen = s; shown = -1; dirty = true; });
    const li = el('li');
    li.append(b);
    return li;
  }));
  if (had) for (const b of $('sessions').querySelectorAll('button')) if (b.dataset.key === had) b.focus();
}

function atEnd() {
  const o = $('events');
  return o.scrollHeight - o.scrollTop - o.clientHeight < 60;
}

function showEvents() {
  const s = chosen;
  if (!s) return;
  const list = $('events');
  const stay = shown >= 0 && !atEnd();
  $('title').textContent = `${visible(s.agent)} · ${visible(s.name)}`;
  $('facts').textContent = `${s.events.length + s.dropped} events · began ${new Date(s.start).toLocaleString()} · ${words[s.state]}`;
  let first = shown;
  if (shown < 0) {
    list.replaceChildren();
    first = Math.max(0, s.events.length - maxShown);
    if (first + s.dropped > 0) list.append(el('li', 'gap', `${first + s.dropped} earlier events are not shown: aep-wrap timeline has them`));
  }
  list.append(...s.events.slice(first).map((ev) => row(s, ev)));
  while (list.childElementCount > maxShown + 200) list.firstElementChild.remove();
  shown = s.events.length;
  if (!stay) list.scrollTop = list.scrollHeight;
  $('newest').hidden = !stay;
}

$('newest').addEventListener('click', () => { $('events').scrollTop = $('events').scrollHeight; $('newest').hidden = true; });
$('events').addEventListener('scroll', () => { if (atEnd()) $('newest').hidden = true; });

function show() {
  if (dirty) {
    dirty = false;
    showSessions();
    showEvents();
  }
}

setInterval(show, 150);
setInterval(() => { if (!document.hidden) showSessions(); }, 10000);
addEventListener('hashchange', () => { if (location.hash) { token(); location.reload(); } });
follow();
