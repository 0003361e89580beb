// What a tool is about to do, as blocks that a person can read: a command, a
// change of a file line by line, and whatever else its input holds.

import { isObject } from './text.js';

const commands = ['command', 'cmd', 'script', 'code'];
const wholes = ['content', 'contents', 'file_text', 'new_source', 'text'];
const olds = ['old_string', 'old_str', 'oldText', 'oldString'];
const news = ['new_string', 'new_str', 'newText', 'newString'];

const plain = (text) => String(text).split('\n').map((t) => ({ text: t }));
const first = (o, names) => names.find((n) => typeof o[n] === 'string');

// changesOf gives {label, lines: [{text, sign}], diff} for an input.
export function changesOf(args) {
  const out = [];
  const rest = { ...args };
  const take = (name) => {
    const v = rest[name];
    delete rest[name];
    return v;
  };
  for (const c of commands) {
    if (typeof rest[c] === 'string') out.push({ label: c, lines: plain(take(c)) });
    else if (Array.isArray(rest[c]) && rest[c].every((w) => typeof w === 'string')) out.push({ label: `${c}, word by word`, lines: take(c).map((w) => ({ text: JSON.stringify(w) })) });
  }
  for (const name of ['patch', 'diff', 'input', 'changes']) {
    if (typeof rest[name] === 'string' && /^(\*\*\* Begin Patch|diff --git |--- |@@ )/m.test(rest[name])) out.push({ label: name, diff: true, lines: patch(take(name)) });
  }
  const changes = [rest, ...(Array.isArray(rest.edits) && rest.edits.every(isObject) ? rest.edits : [])];
  let n = 0;
  for (const c of changes) {
    const o = first(c, olds);
    const w = first(c, news);
    if (!o && !w) continue;
    n++;
    out.push({ label: changes.length > 2 ? `change ${n}` : 'change', diff: true, lines: between(c[o] ?? '', c[w] ?? '') });
    if (c === rest) {
      delete rest[o];
      delete rest[w];
    } else delete rest.edits;
  }
  if (n === 0) {
    const w = first(rest, wholes);
    if (w && rest[w].includes('\n')) out.push({ label: w, diff: true, lines: plain(take(w)).map((l) => ({ ...l, sign: '+' })) });
  }
  const others = Object.entries(rest);
  if (others.length) {
    const lines = [];
    for (const [k, v] of others) {
      const text = `${k}: ${typeof v === 'string' ? v : JSON.stringify(v, null, 1)}`;
      lines.push(...plain(text));
    }
    // Where, before what.
    const where = others.some(([k]) => /path|file|url|cwd|dir/i.test(k));
    out[where ? 'unshift' : 'push']({ label: out.length ? 'with' : 'input', lines, minor: out.length > 0 });
  }
  return out;
}

function patch(text) {
  return text.split('\n').map((l) => {
    const sign = /^(\+\+\+|---|\*\*\*)/.test(l) ? '' : l[0] === '+' || l[0] === '-' ? l[0] : '';
    return sign ? { text: l.slice(1), sign } : { text: l };
  });
}

// between is what changes, with the lines that stay at both ends as they are.
function between(before, after) {
  const a = before === '' ? [] : before.split('\n');
  const b = after === '' ? [] : after.split('\n');
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  return [
    ...a.slice(0, head).map((text) => ({ text })),
    ...a.slice(head, a.length - tail).map((text) => ({ text, sign: '-' })),
    ...b.slice(head, b.length - tail).map((text) => ({ text, sign: '+' })),
    ...a.slice(a.length - tail).map((text) => ({ text })),
  ];
}
