// Text as agents sent it, put on the page as text: never as markup, and with
// nothing in it that hides, reorders or erases what a person reads.

// hidden is what has no shape of its own, or changes the shape of other text:
// controls (ANSI sequences begin with one), bidirectional marks, zero-width
// and filler characters, tags, odd spaces, and halves of characters.
const hidden = /\u001b\[[0-?]{0,64}[ -/]{0,8}[@-~]|\u001b\][^\u0007\u001b\n]{0,80}(?:\u0007|\u001b\\)|[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00a0\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb]|(?<!\p{Emoji}|\u200d)\ufe0f|[\u{e0000}-\u{e0fff}]|\p{Cs}/gu;

const names = {
  0x00: 'NUL', 0x07: 'BEL', 0x08: 'BACKSPACE', 0x0d: 'CR', 0x1b: 'ESC', 0x7f: 'DEL', 0xa0: 'NBSP', 0xad: 'SOFT HYPHEN', 0x61c: 'ALM',
  0x200b: 'ZERO WIDTH SPACE', 0x200c: 'ZWNJ', 0x200d: 'ZWJ', 0x200e: 'LRM', 0x200f: 'RLM', 0x2028: 'LINE SEP', 0x2029: 'PARA SEP',
  0x202a: 'LRE', 0x202b: 'RLE', 0x202c: 'PDF', 0x202d: 'LRO', 0x202e: 'RLO', 0x2060: 'WORD JOINER', 0x2066: 'LRI', 0x2067: 'RLI', 0x2068: 'FSI', 0x2069: 'PDI', 0xfeff: 'BOM',
};

function nameOf(s) {
  if (s.length > 1 && s.codePointAt(0) === 0x1b) return `ESC${s.slice(1).replace(/[\u0000-\u001f]/g, '')}`;
  const c = s.codePointAt(0);
  return names[c] ?? `U+${c.toString(16).toUpperCase().padStart(4, '0')}`;
}

// visible is v as plain text, for where there can be no element: a title, a
// row's label.
export function visible(v) {
  return String(v).replace(hidden, (s) => `\u27e8${nameOf(s)}\u27e9`);
}

// fill puts text into an element, what is hidden as marks of their own. It
// says how many there were.
export function fill(e, v) {
  const s = String(v);
  const parts = [];
  let at = 0;
  let n = 0;
  for (const m of s.matchAll(hidden)) {
    if (m.index > at) parts.push(s.slice(at, m.index));
    const mark = el('span', 'mark', nameOf(m[0]));
    mark.title = 'a character that would not be seen, or would change how the rest is';
    parts.push(mark);
    at = m.index + m[0].length;
    n++;
  }
  parts.push(s.slice(at));
  e.replaceChildren(...parts);
  return n;
}

// mixed says whether a word mixes alphabets that look alike.
export function mixed(s) {
  if (!/[\p{Script=Cyrillic}\p{Script=Greek}]/u.test(s)) return false;
  for (const [word] of s.matchAll(/[\p{L}\p{M}\p{N}._-]+/gu)) {
    if (/\p{Script=Latin}/u.test(word) && /[\p{Script=Cyrillic}\p{Script=Greek}]/u.test(word)) return true;
  }
  return false;
}

export function el(tag, className, text) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
}

export function button(className, text, act) {
  const b = el('button', className, text);
  b.type = 'button';
  b.addEventListener('click', act);
  return b;
}

// put sets an element's text where it is another: screen readers and selections
// are left alone otherwise.
export function put(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

export const $ = (id) => document.getElementById(id);

// isObject: JSON of strangers may have anything anywhere.
export const isObject = (v) => typeof v === 'object' && v !== null && !Array.isArray(v);
export const str = (v) => (typeof v === 'string' ? v : '');
export const list = (v) => (Array.isArray(v) ? v : []);

// when reads a time as the protocol writes it; 0 for all else, of which
// Date.parse would make something.
export const when = (v) => (/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[-+]\d\d:\d\d)$/i.test(str(v)) && Date.parse(v) || 0);

export function clip(text, n) {
  return text.length > n ? `${text.slice(0, n)}\u2026` : text;
}

export function ago(ms, now) {
  const s = Math.max(0, Math.round((now - ms) / 1000));
  if (s < 5) return 'now';
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

export function span(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3600000) return `${Math.floor(ms / 60000)} min ${Math.round(ms % 60000 / 1000)} s`;
  return `${Math.floor(ms / 3600000)} h ${Math.floor(ms % 3600000 / 60000)} min`;
}

export function clock(ms) {
  const s = Math.max(0, Math.ceil(ms / 1000));
  const p = (n) => String(n).padStart(2, '0');
  return s >= 3600 ? `${Math.floor(s / 3600)}:${p(Math.floor(s / 60) % 60)}:${p(s % 60)}` : `${Math.floor(s / 60)}:${p(s % 60)}`;
}

// say tells a screen reader, one thing after the other.
const told = [];
let telling = 0;
export function say(text) {
  if (told.length > 5) told.length = 5; // of a flood the first are enough
  told.push(clip(visible(text), 240));
  if (!telling) tell();
}
function tell() {
  const next = told.shift();
  telling = next === undefined ? 0 : setTimeout(tell, 900);
  if (next !== undefined) $('say').textContent = next;
}

// ulid makes an id as the protocol recommends them.
export function ulid(now) {
  const digits = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
  let time = '';
  for (let i = 0, t = now; i < 10; i++, t = Math.floor(t / 32)) time = digits[t % 32] + time;
  return time + Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => digits[b & 31]).join('');
}
