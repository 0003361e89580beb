// The page: it watches the collector's sessions, shows what agents ask, and
// sends what a person answers. Whatever an agent sent is put on it as text,
// never as markup.

import { $, ago, button, clip, el, fill, isObject, list, put, say, str, visible } from './text.js';
import { Fleet } from './fleet.js';
import { Inbox, standing } from './requests.js';
import { Timeline } from './timeline.js';
import { Wire } from './wire.js';

const maxShown = 300; // sessions in the list
const kept = 'aep-token';

// --- the token: it comes once, in the fragment, which no server sees --------

// arrive takes a token, or the code of a link, out of the address bar, and
// gives the rest of the fragment: which session or request to show.
function arrive() {
  const params = new URLSearchParams(location.hash.slice(1));
  const token = params.get('token') ?? '';
  const code = params.get('code') ?? '';
  if (params.has('token') || params.has('code')) {
    if (token) sessionStorage.setItem(kept, token);
    params.delete('token');
    params.delete('code');
    const rest = params.toString();
    history.replaceState(null, '', location.pathname + (rest ? `#${rest}` : ''));
  }
  return { token, code, params };
}

// enter exchanges the code of a link for a token of this device's own, once.
async function enter(code) {
  try {
    const resp = await fetch('/link/exchange', { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ code }), cache: 'no-store', credentials: 'omit' });
    const body = await resp.json().catch(() => ({}));
    if (resp.ok && typeof body.token === 'string') {
      sessionStorage.setItem(kept, body.token);
      return '';
    }
    return str(body.detail) || `The link is not taken (${resp.status}).`;
  } catch {
    return 'The collector cannot be reached. The link still works, once.';
  }
}

// --- the connection ----------------------------------------------------------

const wire = new Wire({
  event: hear,
  frame(f) {
    switch (f.type) {
      case 'roster':
        if (f.id === asked) {
          asked = '';
          fleet.setRoster(f.entries);
        }
        break;
      case 'subscribed':
        if (f.id === 'state') past();
        break;
      case 'error':
        if (f.cause) fleet.refused(f);
        else if (f.id) refused(f);
        break;
    }
  },
  link,
  open,
  idle() { idle(); },
  unauthorized(given) { ask(given ? 'The collector does not take this token: it has ended, or a new one was made.' : ''); },
});

// ask wants a token of whoever sits here.
function ask(why) {
  $('ask').hidden = false;
  $('app').inert = true;
  put($('ask-error'), visible(clip(why, 300)));
  $('token').focus();
}

function hear(ev, raw) {
  const s = fleet.take(ev);
  if (typeof ev.session === 'string') timeline.take(ev, raw);
  if (s && (ev.type === 'session.started' || ev.type === 'session.ended' || ev.type === 'attention.requested' || !fleet.rosterKnown || !fleet.roster.has(ev.session))) askRoster(s);
}

const fleet = new Fleet(wire);
const inbox = new Inbox(fleet, (s) => show({ session: s }));
const timeline = new Timeline();
fleet.changed = wake;
timeline.onwake = wake;

$('ask').addEventListener('submit', (e) => {
  e.preventDefault();
  sessionStorage.setItem(kept, $('token').value.trim());
  $('token').value = '';
  $('ask').hidden = true;
  $('app').inert = false;
  wire.start(sessionStorage.getItem(kept) ?? '');
});

function link(state, text) {
  $('link').dataset.link = state;
  put($('link-text'), visible(clip(text, 160)));
  if (state !== 'on') {
    asked = '';
    inbox.loud = false;
  }
}

let generation = 0; // of subscriptions
let working = false; // the second subscription is made
let replayed = 0; // when the past of the first was taken in

// What changes a session's state comes first, as it was sent; what agents do
// meanwhile, of all of them, at metadata; what one session did, in full, when
// it is looked at.
const stateTypes = ['session.*', 'run.*', 'attention.*', 'control.*', 'x.aep-wrap.*'];
const workTypes = ['agent.*', 'progress.*', 'tool.*', 'delegation.*', 'resource.*', 'error.*', 'state.*', 'assessment.*', 'message.*', 'x.*'];

function open(hello) {
  const caps = isObject(hello.capabilities) ? hello.capabilities : {};
  fleet.control = isObject(caps.control);
  fleet.roster = new Map();
  fleet.rosterKnown = false;
  rosters = isObject(caps.roster);
  $('only').hidden = fleet.control;
  working = false;
  replayed = Infinity;
  wire.send({ type: 'subscribe', id: 'state', filter: { type: stateTypes } });
  askRoster();
  if (timeline.s) look(timeline.s);
  for (const r of fleet.open()) want(r);
  fleet.reconnected();
  wake();
}

// past takes in what is past, while what comes meanwhile waits behind it.
async function past() {
  const held = wire.hold();
  try {
    await wire.past({ type: stateTypes }, hear);
  } catch (e) {
    console.warn('the past:', e.message);
    if (wire.held === held) wire.send({ type: 'subscribe', id: 'state-all', filter: { type: stateTypes }, from: 'all' });
  }
  replayed = performance.now();
  wire.release(held);
  idle();
}

// idle is told when all that came was taken in.
let settling = 0;
function idle() {
  if (working || !wire.ready || replayed === Infinity) return;
  clearTimeout(settling);
  settling = setTimeout(work, 200);
}

function work() {
  if (working || !wire.ready || replayed === Infinity) return;
  working = true;
  // What came before the last event that is known changes nothing that is shown,
  // but for a pause.
  wire.send({ type: 'subscribe', id: 'work', filter: { type: workTypes }, capture: 'metadata', from: fleet.positions() });
  const turns = fleet.turns();
  if (turns.length) once({ type: 'progress.status', cause: turns });
  inbox.loud = true;
  wake(); // what the address names may have been settled
  const n = fleet.open().length;
  if (n) say(`${n} ${n === 1 ? 'request waits' : 'requests wait'} for an answer`);
}

// look has the timeline of a session filled: with what is past, then with what
// comes.
let looking = new AbortController();
async function look(s) {
  if (!wire.ready) return;
  looking.abort();
  looking = new AbortController();
  const { signal } = looking;
  if (generation) wire.send({ type: 'unsubscribe', id: `one-${generation}` });
  const id = `one-${++generation}`;
  if (!timeline.whole) {
    try {
      await wire.past({ session: s.name }, (ev, raw) => { if (!signal.aborted) hear(ev, raw); }, signal);
      if (!signal.aborted) timeline.whole = true;
    } catch (e) {
      if (!signal.aborted) console.warn('the past:', e.message);
    }
  }
  if (signal.aborted || !wire.ready) return;
  const last = timeline.whole && timeline.last();
  wire.send({ type: 'subscribe', id, filter: { session: s.name }, from: last ? [last] : 'all' });
}

// want asks for the events that requests are about: an approval shows them.
let wanted = new Set();
let wanting = 0;
function want(r) {
  if (r.subjectEv && (r.subjectEv.data?.args || r.subjectEv.data?.args_redacted)) return;
  if (typeof r.ev.cause !== 'string') return;
  wanted.add(r.ev.cause);
  if (wanting) return;
  wanting = setTimeout(() => {
    wanting = 0;
    const ids = [...wanted].slice(0, 200);
    wanted = new Set([...wanted].slice(200));
    if (!wire.ready || !ids.length) return;
    once({ id: ids });
  }, 60);
}

// once asks for what is held of some events.
function once(filter) {
  wire.past(filter, hear).catch((e) => console.warn('the past:', e.message));
}
inbox.want = want;

function refused(f) {
  if (f.id === 'state') {
    put($('link-text'), `the collector refuses to be watched: ${visible(clip(str(f.detail) || str(f.code), 160))}`);
    $('link').dataset.link = 'off';
  } else if (f.id === 'work') {
    // More positions than it replays: what comes from now on is enough.
    wire.send({ type: 'subscribe', id: 'work-live', filter: { type: workTypes }, capture: 'metadata' });
  }
}

// --- the roster ----------------------------------------------------------------

let rosters = false;
let asked = '';
let askedAt = 0;
let askSoon = 0;
let rosterN = 0;
const missed = new Map(); // sessions that had no entry, and when they were asked about

function askRoster(s) {
  if (!rosters) return;
  if (s) {
    // One that nobody claims is not asked about at each of its events.
    if (performance.now() - (missed.get(s.key) ?? -1e9) < 3000) return;
    missed.set(s.key, performance.now());
    if (missed.size > 5000) missed.clear();
  }
  if (askSoon) return;
  askSoon = setTimeout(() => {
    askSoon = 0;
    if (!wire.ready || asked && performance.now() - askedAt < 5000) return;
    asked = `roster-${++rosterN}`;
    askedAt = performance.now();
    wire.send({ type: 'roster', id: asked });
  }, 120);
}
setInterval(() => { if (!document.hidden && wire.ready) askRoster(); }, 5000);

// --- where we are ---------------------------------------------------------------

let view = 'inbox'; // inbox, fleet (on a phone), session
let chosen = null;
let target = null; // of the address, not known yet

// show goes to a view; by itself it is not a step that Back takes.
function show(to, step = true, focus = true) {
  target = null;
  const before = `${view} ${chosen?.key}`;
  if (to.session) {
    view = 'session';
    if (chosen !== to.session) {
      chosen = to.session;
      fleet.kept = chosen;
      timeline.clear(chosen);
      $('did').replaceChildren();
      look(chosen);
    }
  } else view = to.view;
  if (step && before !== `${view} ${chosen?.key}`) {
    const hash = view === 'session' ? `#${new URLSearchParams({ session: chosen.name, source: chosen.source })}` : view === 'fleet' ? '#agents' : '';
    history.pushState(null, '', location.pathname + hash);
  }
  document.body.dataset.view = view;
  $('inbox').hidden = view === 'session';
  $('session').hidden = view !== 'session';
  $('main').scrollTop = 0;
  dirty = true;
  paint();
  if (focus) {
    const e = view === 'session' ? $('title') : view === 'inbox' ? $('inbox-title') : $('fleet');
    if (e === $('fleet')) $('fleet').querySelector('button')?.focus({ preventScroll: true });
    else e.focus({ preventScroll: true });
  }
  if (view === 'session') timeline.render(true);
}

// route shows what the address says, as soon as it is known.
function route(params) {
  if (params.has('session') || params.has('request')) target = { session: params.get('session'), source: params.get('source'), request: params.get('request') };
  else show({ view: params.has('agents') ? 'fleet' : 'inbox' }, false, false);
  seek();
}

function seek() {
  if (!target) return;
  if (target.request) {
    for (const c of inbox.cards.values()) {
      if (c.r.id !== target.request || target.session && c.r.s.name !== target.session) continue;
      show({ view: 'inbox' }, false, false);
      c.focus();
      return;
    }
    if (!working) return; // it may still come; one that is settled does not
  }
  const s = (fleet.named.get(target.session) ?? []).find((s) => !target.source || s.source === target.source);
  if (s) show({ session: s }, false, false);
}

addEventListener('popstate', () => {
  const { token, code, params } = arrive();
  if (token || code) begin({ code, params }); // another address was opened in this tab
  else route(params);
});
$('to-inbox').addEventListener('click', () => show({ view: 'inbox' }));
$('tab-inbox').addEventListener('click', () => show({ view: 'inbox' }));
$('tab-fleet').addEventListener('click', () => show({ view: 'fleet' }));
$('back').addEventListener('click', () => show({ view: 'fleet' }));
$('skip').addEventListener('click', (e) => {
  e.preventDefault();
  (view === 'session' ? $('title') : $('inbox-title')).focus();
});
$('clear').addEventListener('click', () => {
  inbox.clear();
  dirty = true;
  paint();
  $('inbox-title').focus();
});

// --- the fleet --------------------------------------------------------------------

const words = { idle: 'idle', working: 'working', waiting: 'waits for you', ended: 'ended', failed: 'failed', paused: 'paused' };
const groups = [
  ['Waits for you', (st) => st === 'waiting'],
  ['At work', (st) => st === 'working' || st === 'paused'],
  ['Quiet', (st) => st === 'idle' || st === 'failed'],
  ['Ended', (st) => st === 'ended'],
];
const entries = new Map(); // key → {node, …}
const sections = groups.map(([name]) => {
  const box = el('section');
  const h = el('h2', 'group', name);
  const ul = el('ul');
  box.append(h, ul);
  box.hidden = true;
  $('sessions').append(box);
  return { box, h, ul, name };
});
const more = el('p', 'note');
$('sessions').append(more);

function entry(s) {
  let e = entries.get(s.key);
  if (e) return e;
  const li = el('li');
  const b = button('entry', '', () => show({ session: s }));
  e = { li, b, name: el('span', 'name'), state: el('span', 'state'), id: el('span', 'id'), when: el('span', 'when'), last: el('span', 'last') };
  b.append(e.name, e.state, e.id, e.when, e.last);
  li.append(b);
  entries.set(s.key, e);
  return e;
}

function showFleet(now) {
  const find = $('search').value.trim().toLowerCase();
  const all = [...fleet.sessions.values()];
  $('search').hidden = all.length < 8 && !find;
  $('none').hidden = all.length > 0 || !working;
  const rows = groups.map(() => []);
  for (const s of all) {
    if (find && !`${s.agent} ${s.name} ${s.label} ${s.cwd} ${s.host}`.toLowerCase().includes(find)) continue;
    const st = fleet.state(s);
    rows[groups.findIndex(([, is]) => is(st))].push(s);
  }
  let room = maxShown;
  let left = 0;
  const used = new Set();
  rows.forEach((found, g) => {
    // The newest first, and never by what happened last: a list that is used
    // does not jump.
    found.sort((a, b) => b.first - a.first || b.order - a.order);
    const { box, h, ul, name } = sections[g];
    box.hidden = found.length === 0;
    put(h, `${name} \u00b7 ${found.length}`);
    const shown = found.slice(0, Math.max(0, room));
    left += found.length - shown.length;
    room -= shown.length;
    let at = 0;
    for (const s of shown) {
      const e = entry(s);
      used.add(s.key);
      paintEntry(e, s, now);
      const there = ul.children[at++];
      if (there !== e.li) {
        const held = e.li.contains(document.activeElement);
        ul.insertBefore(e.li, there ?? null);
        if (held) e.b.focus({ preventScroll: true });
      }
    }
    while (ul.children.length > at) ul.lastElementChild.remove();
  });
  for (const [key, e] of entries) {
    if (used.has(key)) continue;
    e.li.remove();
    entries.delete(key);
  }
  put(more, left ? `and ${left} more: type to find them` : '');
}

function paintEntry(e, s, now) {
  const st = fleet.state(s);
  const live = fleet.claims(s.name).length > 0;
  put(e.name, visible(clip(s.label ? `${s.agent} \u00b7 ${s.label}` : s.agent, 80)));
  put(e.state, st === 'waiting' ? 'waiting' : words[st]);
  e.state.className = `state ${st}${fleet.rosterKnown && !live ? ' away' : ''}`;
  put(e.id, visible(clip(s.name, 80)));
  put(e.when, s.last ? ago(s.last, now) : '');
  put(e.last, `${visible(clip(s.lastType, 60))}${s.lastSubject && !s.lastType.startsWith('attention.') ? ` ${visible(clip(s.lastSubject, 60))}` : ''}${!s.ended && fleet.rosterKnown && !live ? ' \u00b7 not connected' : ''}`);
  const current = String(view === 'session' && s === chosen);
  if (e.b.getAttribute('aria-current') !== current) e.b.setAttribute('aria-current', current);
}

$('search').addEventListener('input', () => { dirty = true; wake(); });

// --- a session ----------------------------------------------------------------------

function showSession(now) {
  const s = chosen;
  const st = fleet.state(s);
  fill($('title'), clip(s.label ? `${s.agent} \u00b7 ${s.label}` : s.agent, 160));
  put($('state'), words[st]);
  $('state').className = `state ${st}`;
  const facts = [['session', s.name], ['host', s.host], ['directory', s.cwd], ['model', s.model], ['began', Number.isFinite(s.first) ? new Date(s.first).toLocaleString() : ''],
    ['ended', s.ended ? `${s.ended}, ${new Date(s.last).toLocaleTimeString()}` : ''], ['last', s.ended ? '' : `${s.lastType}, ${ago(s.last, now) === 'now' ? 'now' : `${ago(s.last, now)} ago`}`]].filter(([, v]) => v);
  const text = facts.map((f) => f.join()).join('|');
  if ($('facts').dataset.text !== text) {
    $('facts').dataset.text = text;
    $('facts').replaceChildren(...facts.map(([k, v]) => {
      const dd = el('dd');
      fill(dd, clip(v, 200));
      const pair = el('div', ['model', 'began', 'last'].includes(k) ? 'minor' : '');
      pair.append(el('dt', '', k), dd);
      return pair;
    }));
  }
  const claims = fleet.claims(s.name);
  const can = (type) => fleet.accepts(s, type);
  const pauses = can('control.pause');
  const resumes = can('control.resume');
  const held = document.activeElement;
  // A button that takes another's place is not pressed by the same press.
  $('pause').hidden = !pauses || s.paused && resumes;
  $('resume').hidden = !resumes || !s.paused && pauses;
  $('cancel-run').hidden = !can('control.cancel') || s.runs.size === 0;
  $('cancel-session').hidden = !can('control.cancel');
  $('instruct').hidden = !fleet.instructType(s);
  if (held?.hidden && $('controls').contains(held)) (held === $('pause') && !$('resume').hidden ? $('resume') : held === $('resume') && !$('pause').hidden ? $('pause') : $('title')).focus({ preventScroll: true });
  const why = s.ended ? '' : !fleet.control ? 'This page may watch, and not command: its token does not allow control.'
    : !fleet.rosterKnown ? '' : claims.length === 0 ? 'The agent is not connected: nobody would hear a command.'
      : claims.length > 1 ? `${claims.length} connections claim this session: a command could reach the wrong one, so none is sent.`
        : list(claims[0].control?.accepts).length === 0 ? 'The agent takes no commands.' : '';
  put($('uncontrolled'), why);
  $('uncontrolled').hidden = !why;
  did(s);
  $('here').hidden = inbox.render($('here'), (r, c) => r.s === s && !(c.over && now - c.since > 60_000)) === 0;
  timeline.render();
}

// did shows the last commands that were sent from here to this session.
function did(s) {
  const mine = [];
  for (const c of fleet.commands.values()) if (c.mine && c.session === s.name && c.type !== 'control.attention.respond') mine.push(c);
  const last = mine.slice(-3);
  const lines = last.map((c) => {
    const [text, tone] = standing(c);
    const verb = c.type === 'control.cancel' ? c.data.scope === 'session' ? 'End the session' : 'Cancel the run' : c.type.endsWith('.instruct') ? 'Tell the agent' : c.type.endsWith('pause') ? 'Pause' : 'Resume';
    return [`${verb}: ${text}`, tone, c];
  });
  const key = lines.map((l) => `${l[2].id}${l[0]}`).join('|');
  if ($('did').dataset.key === key) return;
  $('did').dataset.key = key;
  $('did').replaceChildren(...lines.map(([text, tone, c]) => {
    const li = el('li', 'status', text);
    li.dataset.tone = tone;
    if (c.status === 'timeout') li.append(' ', button('link', 'Try again', () => fleet.repeat(c)));
    return li;
  }));
}

$('pause').addEventListener('click', () => fleet.order(chosen, 'control.pause', {}));
$('resume').addEventListener('click', () => fleet.order(chosen, 'control.resume', {}));
$('instruct').addEventListener('submit', (e) => {
  e.preventDefault();
  const type = fleet.instructType(chosen);
  const text = $('instruction').value.trim();
  if (!type || !text) return;
  fleet.order(chosen, type, { text }, { text: true });
  $('instruction').value = '';
});

let confirmed = null;
function confirm(title, text, yes, act) {
  confirmed = act;
  $('sure-title').textContent = title;
  fill($('sure-text'), text);
  $('sure-yes').textContent = yes;
  $('reason').value = '';
  $('sure').returnValue = '';
  $('sure').showModal();
}
$('sure').addEventListener('close', () => {
  const act = confirmed;
  confirmed = null;
  if ($('sure').returnValue === 'yes') act?.($('reason').value.trim());
});
$('cancel-run').addEventListener('click', () => {
  const s = chosen;
  const run = [...s.runs.keys()].at(-1) || undefined;
  confirm('Cancel what it is doing?', `${s.agent} gives up the run it is in. The session goes on.`, 'Cancel the run', (reason) => {
    fleet.order(s, 'control.cancel', reason ? { scope: 'run', reason } : { scope: 'run' }, { run, text: !!reason });
  });
});
$('cancel-session').addEventListener('click', () => {
  const s = chosen;
  confirm('End this session?', `${s.agent} is ended, with every process that it started.`, 'End the session', (reason) => {
    fleet.order(s, 'control.cancel', reason ? { scope: 'session', reason } : { scope: 'session' }, { text: !!reason });
  });
});

// --- painting ------------------------------------------------------------------------

let dirty = true;
let waiting = 0;

// wake has the page painted soon, and not at every event.
function wake() {
  dirty = true;
  if (waiting) return;
  waiting = setTimeout(() => {
    waiting = 0;
    if (document.hidden) paint();
    else requestAnimationFrame(paint);
  }, document.hidden ? 500 : 80);
}

function paint() {
  if (!dirty) return;
  dirty = false;
  const now = wire.now();
  if (target) seek();
  showFleet(now);
  const n = fleet.open().length;
  for (const b of [$('waiting'), $('waiting-tab')]) {
    put(b, String(n));
    b.hidden = n === 0;
    b.setAttribute('aria-label', `${n} waiting`);
  }
  const title = n ? `(${n}) aep-wrap` : 'aep-wrap';
  if (document.title !== title) document.title = title;
  for (const [e, on] of [[$('to-inbox'), view !== 'session'], [$('tab-inbox'), view === 'inbox'], [$('tab-fleet'), view !== 'inbox']]) {
    if (e.getAttribute('aria-current') !== String(on)) e.setAttribute('aria-current', String(on));
  }
  if (view === 'session') showSession(now);
  else {
    const shown = inbox.render($('cards'), () => true);
    $('calm').hidden = shown > 0 || !working || !wire.ready; // nothing is claimed that is not known
    $('clear').hidden = inbox.settled.length === 0;
    put($('inbox-count'), n ? `${n} ${n === 1 ? 'waits' : 'wait'} for an answer` : '');
  }
}

setInterval(() => inbox.tick(), 500);
setInterval(() => { if (!document.hidden) wake(); }, 5000);
document.addEventListener('visibilitychange', wake);

// --- colours ---------------------------------------------------------------------------

const themes = [['', '\u25d0', 'as the system has them'], ['light', '\u2600', 'light'], ['dark', '\u263e', 'dark']];
function theme(n) {
  const [name, sign, words] = themes[n];
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  $('theme').textContent = sign;
  $('theme').setAttribute('aria-label', `Colours: ${words}`);
  $('theme').title = `Colours: ${words}`;
  sessionStorage.setItem('aep-theme', String(n));
}
$('theme').addEventListener('click', () => theme((Number(sessionStorage.getItem('aep-theme')) + 1) % themes.length || 0));
theme(Number(sessionStorage.getItem('aep-theme')) % themes.length || 0);

async function begin({ code, params }) {
  route(params);
  const why = code ? await enter(code) : '';
  const token = sessionStorage.getItem(kept) ?? '';
  if (why && !token) {
    link('off', 'token wanted');
    ask(why);
  } else wire.start(token);
  if (why) say(why);
}
begin(arrive());
