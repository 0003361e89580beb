// The inbox: what agents ask, and the answers. A card is built once; what
// changes on it is changed in place, so that no input and no focus is lost.

import { ago, button, clip, clock, el, fill, isObject, list, mixed, put, say, span, str, visible } from './text.js';
import { changesOf } from './diff.js';
import { Form } from './form.js';

const folded = 24; // lines of a block that are shown at first
const foldedText = 2400; // and characters
const maxLines = 4000;
const maxLine = 20_000;
const stay = 12; // settled cards that stay where they were
const steady = 350; // milliseconds without a move before a press counts

const kinds = {
  permission: 'asks for permission', input: 'asks for input', auth: 'asks for credentials', review: 'asks for a review',
  form: 'asks', other: 'asks',
};

// role is what an option does, as far as its id, or its label, says.
export function role(o) {
  for (const words of [str(o.id), str(o.label)]) {
    const w = words.toLowerCase();
    if (/^(deny|reject|decline|refuse|disallow|no|cancel|abort|block|stop)\b/.test(w.replace(/_/g, ' '))) return 'refuse';
    if (/^(allow|approve|accept|yes|ok|proceed|permit|grant|continue)\b/.test(w.replace(/_/g, ' '))) return 'permit';
  }
  return '';
}

const farther = (o) => /always|forever|session|all\b|remember|don.?t ask|permanent|future/i.test(`${str(o.id).replace(/_/g, ' ')} ${str(o.label)}`);

export class Inbox {
  constructor(fleet, open) {
    this.fleet = fleet;
    this.openSession = open;
    this.cards = new Map();
    this.moved = 0;
    this.settled = [];
    this.loud = false; // what is there at the start is not announced one by one
    this.want = () => {}; // asks for the event that a request is about
  }

  // render shows in place the requests that which picks.
  render(place, which) {
    const now = this.fleet.wire.now();
    let at = 0;
    for (const r of this.fleet.open()) {
      if (this.cards.has(r.key)) continue;
      const c = new Card(this, r);
      this.cards.set(r.key, c);
      if (this.loud) say(`${r.s.agent} ${kinds[str(r.ev.data?.kind)] ?? 'asks'}: ${str(r.ev.data?.prompt)}`);
    }
    for (const [key, c] of this.cards) {
      c.update(now);
      if (c.over && !c.counted) {
        c.counted = true;
        this.settled.push(key);
        // A card that is there says so itself.
        if (this.loud && !c.node.isConnected) say(`${c.r.s.agent}: ${c.status.textContent}`);
      }
    }
    while (this.settled.length > stay) this.drop(this.settled.shift());
    let shown = 0;
    for (const c of this.cards.values()) {
      if (!which(c.r, c)) {
        if (c.node.parentNode === place) c.node.remove();
        continue;
      }
      shown++;
      const there = place.children[at++];
      if (there !== c.node) {
        if (there) this.moved = performance.now();
        place.insertBefore(c.node, there ?? null);
      }
    }
    while (place.children.length > at) {
      place.lastElementChild.remove();
      this.moved = performance.now();
    }
    return shown;
  }

  drop(key) {
    const c = this.cards.get(key);
    if (!c || c.node.contains(document.activeElement)) return;
    c.node.remove();
    this.cards.delete(key);
    this.moved = performance.now();
  }

  clear() {
    for (const key of this.settled) this.drop(key);
    this.settled = this.settled.filter((k) => this.cards.has(k));
  }

  // tick counts down.
  tick() {
    const now = this.fleet.wire.now();
    for (const c of this.cards.values()) if (!c.over && c.node.isConnected) c.count(now);
  }
}

let serial = 0;

class Card {
  constructor(inbox, r) {
    this.inbox = inbox;
    this.r = r;
    this.over = false;
    this.mode = '';
    this.version = -1;
    const data = isObject(r.ev.data) ? r.ev.data : {};
    this.data = data;
    const id = `r${++serial}`;
    const kind = str(data.kind);

    this.node = el('li', 'card');
    this.node.dataset.request = r.id;
    const box = el('article');
    box.setAttribute('aria-labelledby', `${id}-t`);
    this.title = el('h3', 'title');
    this.title.id = `${id}-t`;
    this.title.tabIndex = -1;

    const top = el('div', 'top');
    const who = el('span', 'who');
    who.append(el('span', 'agent', visible(clip(r.s.agent, 60))), ` ${kinds[kind] ?? 'asks'}`);
    this.timer = el('span', 'timer');
    this.timer.setAttribute('role', 'timer');
    this.timer.setAttribute('aria-live', 'off');
    top.append(who, this.timer);
    this.bar = el('div', 'bar');
    this.bar.setAttribute('aria-hidden', 'true');
    this.rest = el('div', 'rest');
    this.bar.append(this.rest);

    const prompt = str(data.prompt);
    const m = kind === 'permission' ? /^Permission requested: (.{1,100}?) — ([\s\S]+)$/.exec(prompt) : null;
    this.gist = m && m[1] === r.ev.subject ? m[2] : '';
    if (kind === 'permission' && str(r.ev.subject) && (this.gist || /^Permission requested: |requests permission/.test(prompt))) {
      fill(this.title, `Let it use ${clip(r.ev.subject, 120)}?`);
    } else if (prompt.length > 600) {
      fill(this.title, `${clip(prompt, 160)}`);
      this.gist = prompt;
    } else {
      fill(this.title, prompt || `${r.s.agent} asks`);
    }

    this.facts = el('dl', 'facts');
    this.what = el('div', 'what');
    this.covers = el('div', 'covers');
    this.act = el('div', 'act');
    this.status = el('p', 'status');
    this.status.setAttribute('role', 'status');
    this.again = button('link', 'Try again', () => this.retry());
    this.again.hidden = true;
    const foot = el('div', 'foot');
    foot.append(this.status, this.again);
    this.body = el('div', 'body');
    this.body.append(this.facts, this.what, this.covers, this.act);
    box.append(top, this.bar, this.title, this.body, foot);
    this.node.append(box);
    if (r.ev.cause) inbox.want(r);
    this.total = r.expires && r.at ? r.expires - r.at : 0;
  }

  update(now) {
    const { r } = this;
    const over = r.status !== 'open' && r.status !== 'answered';
    const held = this.node.contains(document.activeElement) && document.activeElement;
    const ends = over !== this.over;
    // A tool that is answered about at once is over, too; its outcome may follow.
    if (ends) {
      this.over = over;
      this.since = now;
      this.node.classList.toggle('over', over);
      if (this.about) fill(this.title, clip(`${str(r.ev.subject)} \u2014 ${this.about}`, 200));
      this.inbox.moved = performance.now();
    }
    const version = `${r.subjectEv ? r.subjectEv.capture ?? 'metadata' : ''}|${r.s.cwd}|${r.s.label}|${r.routed.length}`;
    if (version !== this.version) {
      this.version = version;
      this.describe();
    }
    if (!over) this.answers();
    this.tell();
    this.count(now);
    // What had the focus may be gone, hidden or closed by an answer: a browser
    // takes it away then, at once or with the next frame.
    if (held && (ends || document.activeElement !== held || held.matches(':disabled') || !held.checkVisibility())) this.title.focus({ preventScroll: true });
  }

  count(now) {
    const { r } = this;
    if (this.over) {
      put(this.timer, '');
      this.bar.hidden = true;
      return;
    }
    this.bar.hidden = !r.expires || !this.total;
    if (!r.expires) {
      put(this.timer, r.at ? `asked ${ago(r.at, now) === 'now' ? 'now' : `${ago(r.at, now)} ago`}` : '');
      return;
    }
    const left = r.expires - now;
    put(this.timer, left > 0 ? `${clock(left)} left` : 'its time is over');
    this.timer.classList.toggle('soon', left < 30_000);
    this.rest.style.transform = `scaleX(${Math.max(0, Math.min(1, left / this.total))})`;
    if (left < 15_000 && left > 0 && !this.warned && this.inbox.loud) {
      this.warned = true;
      say(`${r.s.agent}'s question ends in ${Math.ceil(left / 1000)} seconds`);
    }
  }

  // describe shows what is asked: who, where, and the very thing that an
  // approval lets happen, as far as its capture level allows.
  describe() {
    const { r, data } = this;
    const subject = isObject(r.subjectEv?.data) ? r.subjectEv.data : {};
    const rows = [];
    const fact = (name, value, act) => {
      const dt = el('dt', '', name);
      const dd = el('dd');
      if (act) {
        const b = button('link', '', act);
        fill(b, value);
        dd.append(b);
      } else fill(dd, value);
      const pair = el('div');
      pair.append(dt, dd);
      rows.push(pair);
    };
    fact('session', clip(r.s.label ? `${r.s.label} (${r.s.name})` : r.s.name, 90), () => this.inbox.openSession(r.s));
    fact('host', r.s.host || 'not told');
    fact('directory', r.s.cwd || str(subject.cwd) || 'not told');
    if (r.routed.length) fact('told to', r.routed.filter(Boolean).map((t) => clip(t, 40)).join(', '));
    this.facts.replaceChildren(...rows);

    const args = isObject(data.context) ? data.context : isObject(subject.args) ? subject.args : isObject(subject.args_redacted) ? subject.args_redacted : null;
    const form = data.kind === 'form'; // its fields say all that is asked
    const whole = isObject(data.context) || isObject(subject.args);
    const notes = [];
    const parts = [];
    this.hiddenLines = 0;
    if (args && !form) {
      for (const p of changesOf(args)) parts.push(this.block(p, notes));
      if (!whole) notes.push('Shown as its capture level allows: secrets and personal data were taken out on the agent\u2019s machine.');
    } else if (this.gist && !form) {
      parts.push(this.block({ label: data.kind === 'permission' ? str(r.ev.subject) : 'In full', lines: this.gist.split('\n').map((text) => ({ text })) }, notes));
      if (data.kind === 'permission') notes.push('This is the gist of the call, with secrets taken out; its other arguments are not told at this capture level.');
    } else if (data.kind === 'permission' || data.kind === 'review') {
      notes.push('What exactly it is about is not told at this capture level. The agent\u2019s own screen shows it, or give the agent --capture redacted.');
    }
    // What a settled card is called by.
    this.about = args && !form ? str(args.command) || str(args.cmd) || str(args.file_path) || str(args.path) || this.gist : this.gist;
    this.what.replaceChildren(...parts, ...notes.map((n) => el('p', 'note', n)));

    const digest = /^[0-9a-f]{32}$/.test(str(subject.args_digest)) ? subject.args_digest : '';
    const covers = [];
    if (data.kind === 'permission') {
      covers.push(`An approval covers this one call of ${visible(clip(str(r.ev.subject) || 'the tool', 80))}`
        + (digest ? `, and no other arguments: the answer names their digest (${digest.slice(0, 12)})` : ', by the id of this request'));
      const far = list(data.options).filter((o) => isObject(o) && role(o) !== 'refuse' && farther(o));
      if (far.length) covers.push(`but \u201c${visible(clip(str(far[0].label) || str(far[0].id), 80))}\u201d reaches farther: the agent then asks no more for what it takes for the same`);
    }
    this.covers.replaceChildren();
    if (covers.length) this.covers.append(el('p', 'note', `${covers.join('; ')}.`));
  }

  // block is a piece of text, line by line; what is folded is said.
  block(part, notes) {
    const box = el('figure', `block${part.diff ? ' diff' : ''}${part.minor ? ' minor' : ''}`);
    const cap = el('figcaption');
    fill(cap, part.label);
    const pre = el('pre');
    pre.tabIndex = 0;
    pre.setAttribute('aria-label', visible(clip(part.label, 80)));
    box.append(cap, pre);
    let marks = 0;
    let odd = false;
    let cut = 0;
    const show = (lines) => {
      for (const l of lines) {
        const e = el('span', `ln ${l.sign === '+' ? 'add' : l.sign === '-' ? 'del' : ''}`);
        const text = clip(l.text, maxLine);
        if (text.length < l.text.length) notes.push(`A line has ${l.text.length - maxLine} more characters, which are not on this page.`);
        const t = el('span', 't');
        marks += fill(t, text);
        if (part.diff) e.append(el('span', 'sign', l.sign ?? ' '));
        e.append(t);
        odd ||= mixed(text);
        pre.append(e);
      }
    };
    let n = 0;
    let chars = 0;
    while (n < part.lines.length && n < folded && (n === 0 || chars + part.lines[n].text.length <= foldedText)) chars += part.lines[n++].text.length;
    show(part.lines.slice(0, n));
    const rest = part.lines.length - n;
    if (rest > 0) {
      this.hiddenLines += rest;
      const more = button('more', `Show ${rest} more ${rest === 1 ? 'line' : 'lines'}`, () => {
        show(part.lines.slice(n, maxLines));
        this.hiddenLines -= rest;
        more.remove();
        pre.focus();
        if (part.lines.length > maxLines) box.append(el('p', 'note warn', `${part.lines.length - maxLines} more lines are not on this page.`));
        this.told();
      });
      box.append(more);
    }
    for (const l of part.lines) {
      const m = /\u2026\[truncated (\d+) bytes\]/.exec(l.text);
      if (m) cut += Number(m[1]);
    }
    if (marks) box.append(el('p', 'note warn', `${marks} ${marks === 1 ? 'character' : 'characters'} would not be seen, or would reorder the text: each is shown by its name.`));
    if (odd) box.append(el('p', 'note warn', 'A word mixes letters of different alphabets: look closely.'));
    if (cut) box.append(el('p', 'note warn', `Cut off where the agent runs: ${cut} bytes are missing here.`));
    return box;
  }

  told() {
    if (this.unseen) this.unseen.hidden = this.hiddenLines === 0;
  }

  // answers builds the controls, when who can answer changed.
  answers() {
    const { r, data } = this;
    const { fleet } = this.inbox;
    const claims = fleet.claims(r.s.name);
    let why = '';
    if (Array.isArray(data.respond_via) && !data.respond_via.includes('control')) why = 'It is answered in the agent\u2019s own screen: from here it can only be watched.';
    else if (!fleet.control) why = 'This page may watch, and not answer: its token does not allow control.';
    else if (!fleet.rosterKnown) why = 'Looking for the agent\u2026';
    else if (claims.length === 0) why = 'The agent is not connected: nobody would hear an answer.';
    else if (claims.length > 1) why = 'More than one connection claims this session: a command could reach the wrong one, so none is sent.';
    else if (!fleet.accepts(r.s, 'control.attention.respond')) why = 'The agent takes no answers from afar.';
    const mine = this.mine();
    const busy = r.status === 'answered' || mine && (mine.status === 'sent' || mine.status === 'accepted');
    const mode = why || 'open';
    if (mode !== this.mode) {
      this.mode = mode;
      if (why) this.act.replaceChildren(el('p', 'note', why));
      else if (this.controls) this.act.replaceChildren(this.controls);
      else {
        this.controls = this.build();
        this.act.replaceChildren(this.controls);
      }
    }
    if (this.controls && busy !== this.busy) {
      this.busy = busy;
      this.set.disabled = busy;
    }
    this.told();
  }

  build() {
    const { data } = this;
    const box = el('form', 'answers');
    box.noValidate = true;
    this.set = el('fieldset');
    this.set.append(el('legend', 'sr', 'Your answer'));
    box.append(this.set);
    const options = list(data.options).filter((o) => isObject(o) && typeof o.id === 'string').slice(0, 50);
    const fields = list(data.fields).filter((f) => isObject(f) && typeof f.id === 'string');
    const row = el('div', 'buttons');
    let submit = () => {};
    if (fields.length || data.kind === 'form') {
      this.form = new Form(fields);
      this.set.append(this.form.node);
      const send = el('button', 'permit', 'Send');
      submit = () => {
        const { values, error, free } = this.form.read();
        this.formError = error ?? '';
        this.hint = '';
        if (error) {
          this.tell();
          return;
        }
        this.send({ values }, free);
      };
      row.append(send);
      if (!options.length) options.push({ id: 'decline', label: 'Decline' });
    } else {
      const free = ['input', 'auth', 'other'].includes(data.kind) || !(data.kind in kinds) || options.length === 0;
      const refuses = options.some((o) => role(o) === 'refuse');
      if (free || refuses) {
        const what = free ? 'Answer' : 'Why not (the agent reads it)';
        this.text = data.kind === 'auth' ? el('input') : el('textarea');
        if (data.kind === 'auth') this.text.type = 'password';
        else this.text.rows = 1;
        this.text.autocomplete = 'off';
        this.text.spellcheck = false;
        this.text.maxLength = 20_000;
        if (free) {
          const id = `t${++serial}`;
          const label = el('label', '', what);
          label.htmlFor = id;
          this.text.id = id;
          const wrap = el('div', 'field');
          wrap.append(label, this.text);
          this.set.append(wrap);
        } else {
          // Beside the buttons that it goes with.
          this.text.placeholder = what;
          this.text.setAttribute('aria-label', what);
          this.text.className = 'why';
        }
      }
      if (free) {
        row.append(el('button', 'permit', 'Send'));
        submit = () => {
          const text = this.text.value;
          if (text.trim() === '') {
            this.text.focus();
            return;
          }
          this.send({ text }, true);
        };
      }
    }
    for (const o of options) {
      const kind = role(o);
      const b = button(kind, '', (e) => {
        if (!this.sure(e)) return;
        const text = kind === 'refuse' && this.text ? this.text.value.trim() : '';
        this.send(text ? { option: o.id, text } : { option: o.id }, text !== '');
      });
      fill(b, clip(str(o.label) || o.id, 120));
      b.dataset.option = o.id;
      row.append(b);
    }
    if (this.text?.className === 'why') row.append(this.text);
    this.unseen = el('p', 'note warn', 'Part of it is folded above: you have not seen all of it.');
    this.unseen.hidden = true;
    this.set.append(this.unseen, row);
    box.addEventListener('submit', (e) => {
      e.preventDefault();
      if (!this.set.disabled) submit();
    });
    return box;
  }

  // sure is false where the list moved under the pointer.
  sure(e) {
    if (e.detail > 0 && performance.now() - this.inbox.moved < steady) {
      this.hint = 'The list has just moved: press again.';
      this.tell();
      return false;
    }
    return true;
  }

  send(answer, free) {
    const { r } = this;
    const data = { answer };
    const digest = str(r.subjectEv?.data?.args_digest);
    if (digest) data.args_digest = digest;
    this.formError = '';
    this.hint = '';
    this.inbox.fleet.order(r.s, 'control.attention.respond', data, { subject: r.id, cause: r.id, text: free });
  }

  mine() { return this.r.responds.findLast((c) => c.mine); }

  retry() {
    const c = this.mine();
    if (c) this.inbox.fleet.repeat(c);
  }

  // tell says how it stands.
  tell() {
    const { r } = this;
    const mine = this.mine();
    const other = r.responds.findLast((c) => !c.mine);
    let text = '';
    let tone = '';
    if (r.status === 'open') {
      if (this.formError) [text, tone] = [this.formError, 'bad'];
      else if (mine) [text, tone] = standing(mine);
      else if (other && other.status !== 'rejected') text = `${visible(clip(other.agent, 40))} answers${other.status === 'accepted' ? ': accepted' : '\u2026'}`;
      else if (this.hint) text = this.hint;
    } else {
      [text, tone] = this.end(mine);
    }
    put(this.status, text);
    this.status.dataset.tone = tone;
    this.again.hidden = !(mine?.status === 'timeout' && r.status === 'open');
  }

  end(mine) {
    const { r } = this;
    const applied = r.answer ? this.worded(r.answer) : '';
    const ours = mine && (r.answerCause === mine.id || mine.ack && r.answerCause === mine.ack);
    const by = ours ? ' by you' : r.via === 'oob' ? ' in the agent\u2019s own screen' : r.by ? ` by ${visible(clip(r.by, 60))}` : '';
    const late = mine && !ours && (mine.status === 'rejected' || mine.status === 'refused') ? ` Your answer came too late${mine.detail ? ` (${visible(clip(mine.detail, 160))})` : ''}.` : '';
    // Some agents tell of a tool that was refused as of one that failed.
    const no = r.answer && role({ id: r.answer.option }) === 'refuse';
    const ran = { completed: no ? ' It ran all the same.' : ' It ran.', failed: no ? '' : ' It failed.', denied: ' It did not run.' }[r.effect] ?? '';
    const then = this.data.kind === 'form' ? '' : ran;
    switch (r.status) {
      case 'answered':
        return [`Answered${by}${applied ? `: ${applied}` : ''}. Not resolved yet.`, 'good'];
      case 'timeout':
        return [`Timed out: nobody answered in time, and the agent goes on in its own way.${late}`, 'warn'];
      case 'gone':
        return ['The session ended before an answer.', 'warn'];
    }
    if (r.answer) return [`Answered${by}${applied ? `: ${applied}` : ''}.${then}${late}`, 'good'];
    if (r.resolution === 'dismissed') return [`Settled in the agent\u2019s own screen.${then}${late}`, ''];
    if (r.resolution === 'auto') return [`Decided by the agent\u2019s own rules.${then}${late}`, ''];
    return [`Resolved.${then}${late}`, ''];
  }

  worded(a) {
    if (typeof a.option === 'string') {
      const o = list(this.data.options).find((o) => isObject(o) && o.id === a.option);
      const label = visible(clip(str(o?.label) || a.option, 80));
      return a.text ? `${label} (\u201c${visible(clip(String(a.text), 120))}\u201d)` : label;
    }
    if (isObject(a.values)) return Object.entries(a.values).slice(0, 8).map(([k, v]) => `${visible(clip(this.named(k), 40))} = ${visible(clip(this.valued(k, v), 60))}`).join(', ');
    return typeof a.text === 'string' ? visible(clip(a.text, 160)) : '';
  }

  named(k) { return str(list(this.data.fields).find((f) => isObject(f) && f.id === k)?.label) || k; }

  valued(k, v) {
    const choices = list(list(this.data.fields).find((f) => isObject(f) && f.id === k)?.choices).filter(isObject);
    const one = (x) => str(choices.find((c) => c.id === x)?.label) || (typeof x === 'object' ? JSON.stringify(x) : String(x));
    if (v === true) return 'yes';
    if (v === false) return 'no';
    return list(v).length ? v.map(one).join(' + ') : one(v);
  }

  focus() {
    this.title.focus({ preventScroll: true });
    this.node.scrollIntoView({ block: 'start' });
  }
}

// standing says how a command of ours stands, and whether that is good.
export function standing(c) {
  const why = `${c.reason}${c.detail ? `: ${visible(clip(c.detail, 300))}` : ''}`;
  switch (c.status) {
    case 'sent': return ['Sending\u2026', ''];
    case 'timeout': return [`No answer within ${span(c.window).replace('.0', '')} (timeout). It may have arrived all the same.`, 'warn'];
    case 'rejected': return [c.reason === 'invalid' ? `Not accepted, ${why}` : `Refused by the agent\u2019s wrapper, ${why}`, 'bad'];
    case 'refused': return [`Refused by the collector, ${why}`, 'bad'];
  }
  if (c.outcome) return [`Accepted; ${visible(clip(c.outcome, 200))}.`, c.good ? 'good' : 'bad'];
  return ['Accepted. Waiting for what comes of it\u2026', 'good'];
}

