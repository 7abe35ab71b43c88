// The page as it starts, as text: build.mjs puts it into the file, so that the first answer can be read before any script has
// run. main.ts draws over it.
import { nothing } from 'lit-html';

import { initialState, requestOf } from './form';
import { formatIn } from './format';
import { wordsIn } from './i18n/i18n';
import { readVendor } from './vendor';
import type { Actions, Context } from './view/context';
import { page } from './view/page';
import type { Catalogue, PlanRequest, Report } from './wire';

const desktop: Record<string, number> = { 'memory-bar': 744 }; // pixels, at 1440

export const firstRequest = (catalogue: Catalogue): PlanRequest => requestOf(initialState, catalogue) as PlanRequest;

export function firstPage(catalogue: Catalogue, report: Report): string {
  const context: Context = {
    words: wordsIn(initialState.language),
    format: formatIn(initialState.language, initialState.unit),
    catalogue,
    state: initialState,
    report,
    problems: [],
    waiting: null,
    progress: 'quiet',
    isFresh: () => true,
    unread: [],
    plans: [],
    canUndo: false,
    link: '',
    diagnosis: null,
    vendor: readVendor(''),
    actions: {} as Actions, // nothing can be pressed yet
    width: (name) => desktop[name] ?? 640,
  };
  return textOf(page(context, null));
}

const escapes: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
const escaped = (value: unknown) => String(value).replace(/[&<>"]/g, (character) => escapes[character]!);

interface Template {
  strings: readonly string[];
  values: readonly unknown[];
}

const isTemplate = (value: unknown): value is Template =>
  value !== null && typeof value === 'object' && 'strings' in value;
const isDirective = (value: unknown): value is Template =>
  value !== null && typeof value === 'object' && '_$litDirective$' in value;

const ofAttribute = /\s([.?@]?)([-\w:]+)=("?)$/; // at the end of the text before its value

/** What lit would draw. Attributes that are properties or listeners say nothing in text. */
function textOf(value: unknown): string {
  if (value === null || value === undefined || value === nothing) return '';
  if (Array.isArray(value)) return value.map(textOf).join('');
  if (!isTemplate(value)) return escaped(value);
  let text = value.strings[0]!;
  value.values.forEach((given, index) => {
    const part = isDirective(given) ? given.values[0] : given; // `live`
    const rest = value.strings[index + 1]!;
    const attribute = ofAttribute.exec(text);
    if (!attribute) {
      const inside = text.lastIndexOf('<') > text.lastIndexOf('>'); // further into a quoted value
      text += (inside ? escaped(part === nothing ? '' : part) : textOf(part)) + rest;
      return;
    }
    const [whole, kind, name, quote] = attribute;
    if (quote && !rest.startsWith('"')) {
      text += escaped(part === nothing ? '' : part) + rest; // a value of several pieces
      return;
    }
    const before = text.slice(0, -whole.length);
    const after = quote ? rest.slice(1) : rest;
    const silent = kind === '.' || kind === '@' || part === nothing || (kind === '?' && !part);
    text = before + (silent ? '' : kind === '?' ? ` ${name}` : ` ${name}="${escaped(part)}"`) + after;
  });
  return text.replace(/\s+/g, ' ');
}
