// A form that an agent asks to have filled in (AEP-0006): one control for each
// field, and what they hold as values.

import { button, clip, el, fill, isObject, list, put, str, visible } from './text.js';

const maxFields = 100;
const maxChoices = 500;
const asList = 12; // choices; more become a list box

let serial = 0;

export class Form {
  constructor(fields) {
    this.node = el('div', 'form');
    this.fields = fields.slice(0, maxFields).map((f) => new Field(f));
    this.node.append(...this.fields.map((f) => f.node));
    if (fields.length > maxFields) this.node.append(el('p', 'note warn', `${fields.length - maxFields} more fields are not on this page.`));
  }

  // read gives the values, or what is wrong with them: said beside each field,
  // the first of which gets the focus. free says that there is free text.
  read() {
    const values = {};
    let bad = null;
    let count = 0;
    let free = false;
    for (const f of this.fields) {
      const { value, error, text } = f.read();
      f.complain(error ?? '');
      if (error) {
        bad ??= f;
        count++;
      } else if (value !== undefined) {
        // A field's name is the agent's: it must not reach a prototype.
        Object.defineProperty(values, f.id, { value, enumerable: true, configurable: true, writable: true });
        free ||= !!text;
      }
    }
    if (bad) {
      bad.focus();
      return { error: count === 1 ? 'One field needs another look.' : `${count} fields need another look.` };
    }
    return { values, free };
  }
}

class Field {
  constructor(spec) {
    this.id = spec.id;
    this.spec = spec;
    const id = `f${++serial}`;
    this.name = id;
    this.required = spec.required === true;
    const choices = list(spec.choices).filter((c) => isObject(c) && typeof c.id === 'string').slice(0, maxChoices);
    this.error = el('p', 'error');
    this.error.id = `${id}-e`;
    this.error.hidden = true;
    const make = { number: number, boolean: yesNo, select: choices.length > asList ? listBox : choose }[str(spec.type)] ?? text;
    this.part = make(this, id, choices);
    this.node = this.part.node;
    this.node.append(this.error);
    for (const c of this.part.controls) c.setAttribute('aria-describedby', this.error.id);
  }

  label(tag, id) {
    const l = el(tag);
    fill(l, clip(str(this.spec.label) || this.spec.id, 2000));
    if (this.required) {
      l.append(el('span', 'must', ' required'));
    } else l.append(el('span', 'may', ' optional'));
    if (id) l.htmlFor = id;
    return l;
  }

  read() {
    const r = this.part.read();
    if (r.error) return r;
    const empty = r.value === undefined || r.value === '' || Array.isArray(r.value) && r.value.length === 0;
    if (empty) return this.required ? { error: 'This is required.' } : {};
    return r;
  }

  complain(text) {
    put(this.error, text);
    this.error.hidden = text === '';
    for (const c of this.part.controls) c.setAttribute('aria-invalid', String(text !== ''));
  }

  focus() { (this.part.controls.find((c) => c.checked) ?? this.part.controls[0])?.focus(); }
}

function single(f, id, input) {
  const node = el('div', 'field');
  input.id = id;
  if (f.required) input.required = true;
  node.append(f.label('label', id), input);
  return node;
}

function text(f, id) {
  const input = el('textarea');
  input.rows = 1;
  input.autocomplete = 'off';
  input.maxLength = 20_000;
  const node = single(f, id, input);
  return { node, controls: [input], read: () => (input.value.trim() === '' ? {} : { value: input.value, text: true }) };
}

function number(f, id) {
  const input = el('input');
  input.type = 'text'; // a number field hides what it cannot read
  input.inputMode = 'decimal';
  input.autocomplete = 'off';
  const node = single(f, id, input);
  const { min, max } = f.spec;
  const hint = [typeof min === 'number' ? `at least ${min}` : '', typeof max === 'number' ? `at most ${max}` : ''].filter(Boolean).join(', ');
  if (hint) node.append(el('p', 'hint', hint));
  return {
    node, controls: [input],
    read() {
      const v = input.value.trim();
      if (v === '') return {};
      const n = Number(v);
      if (!Number.isFinite(n) || !/^[-+]?[\d.]/.test(v)) return { error: 'A number is wanted.' };
      if (typeof min === 'number' && n < min) return { error: `At least ${min}.` };
      if (typeof max === 'number' && n > max) return { error: `At most ${max}.` };
      return { value: n };
    },
  };
}

function group(f) {
  const node = el('fieldset', 'field');
  const picks = el('div', 'picks');
  node.append(f.label('legend'), picks);
  return { node, picks };
}

function pick(node, type, name, label, hint) {
  const l = el('label', 'pick');
  const input = el('input');
  input.type = type;
  input.name = name;
  const t = el('span', 'pick-text');
  fill(t, label);
  if (hint) {
    const h = el('span', 'hint');
    fill(h, hint);
    t.append(h);
  }
  l.append(input, t);
  node.append(l);
  return input;
}

// unpick lets a choice that need not be made be taken back.
function unpick(f, node, radios) {
  if (f.required) return;
  const b = button('link small', 'No answer', () => {
    for (const r of radios) r.checked = false;
    node.dispatchEvent(new Event('change', { bubbles: true }));
  });
  node.append(b);
}

function yesNo(f, id) {
  const { node, picks } = group(f);
  node.classList.add('inline');
  const yes = pick(picks, 'radio', id, 'Yes');
  const no = pick(picks, 'radio', id, 'No');
  unpick(f, picks, [yes, no]);
  return { node, controls: [yes, no], read: () => (yes.checked ? { value: true } : no.checked ? { value: false } : {}) };
}

function choose(f, id, choices) {
  const { node, picks } = group(f);
  const multi = f.spec.multi === true;
  const type = multi ? 'checkbox' : 'radio';
  const inputs = choices.map((c) => pick(picks, type, id, clip(str(c.label) || c.id, 500), clip(str(c.description), 500)));
  let other = null;
  let words = null;
  if (f.spec.other === true) {
    other = pick(picks, type, id, 'Something else');
    words = el('textarea', 'other');
    words.rows = 1;
    words.maxLength = 20_000;
    words.setAttribute('aria-label', 'Something else, in your words');
    words.hidden = true;
    picks.append(words);
    words.addEventListener('input', () => { if (words.value) other.checked = true; });
  }
  const sync = () => { if (words) words.hidden = !other.checked; };
  node.addEventListener('change', (e) => {
    sync();
    if (other && e.target === other && other.checked) words.focus();
  });
  if (!multi) unpick(f, picks, other ? [...inputs, other] : inputs);
  return {
    node, controls: other ? [...inputs, other, words] : inputs,
    read() {
      const picked = choices.filter((_, i) => inputs[i].checked).map((c) => c.id);
      let free = false;
      if (other?.checked) {
        if (words.value.trim() === '') return { error: 'Say what else, or choose something above.' };
        free = true;
        picked.push(words.value.trim());
      }
      if (multi) return { value: picked, text: free };
      return picked.length ? { value: picked[0], text: free } : {};
    },
  };
}

function listBox(f, id, choices) {
  const select = el('select');
  select.multiple = f.spec.multi === true;
  if (select.multiple) select.size = 8;
  else select.append(new Option('\u2014', ''));
  choices.forEach((c, i) => {
    const o = el('option');
    o.textContent = visible(clip(str(c.label) || c.id, 200));
    o.value = String(i);
    select.append(o);
  });
  const node = single(f, id, select);
  let words = null;
  if (f.spec.other === true) {
    words = el('textarea', 'other');
    words.rows = 1;
    words.setAttribute('aria-label', 'Something else, in your words');
    words.placeholder = 'or something else';
    node.append(words);
  }
  return {
    node, controls: words ? [select, words] : [select],
    read() {
      const picked = [...select.selectedOptions].filter((o) => o.value !== '').map((o) => choices[Number(o.value)].id);
      const free = words?.value.trim() ?? '';
      if (free && !select.multiple && picked.length) return { error: 'One of the two: a choice, or something else.' };
      if (free) picked.push(free);
      if (select.multiple) return { value: picked, text: free !== '' };
      return picked.length ? { value: picked[0], text: free !== '' } : {};
    },
  };
}
