// The page as it starts, as text: build.mjs puts it into the file, so that the first answer can be read before any script has
// run. The marks in it are those that lit looks for when it takes the page over (@lit-labs/ssr-client), see main.ts.
import { digestForTemplateResult } from '@lit-labs/ssr-client';
import { nothing, type TemplateResult } from 'lit-html';

import { firstContext, initialRequest } from './first';
import { views } from './view/page';
import type { Actions } from './view/context';
import type { Catalogue, Report } from './wire';

export { initialRequest };

/** The text of each place. */
export function firstPlaces(catalogue: Catalogue, report: Report): [name: string, text: string][] {
  const context = firstContext(catalogue, report, {} as Actions);
  return Object.entries(views).map(([name, view]) => [name, childPart(view(context))]);
}

const escapes: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
const escaped = (value: unknown) => String(value).replace(/[&<>"]/g, (character) => escapes[character]!);

interface Directive {
  values: readonly unknown[];
}

const isTemplate = (value: unknown): value is TemplateResult =>
  typeof value === 'object' && value !== null && 'strings' in value;
const isDirective = (value: unknown): value is Directive =>
  typeof value === 'object' && value !== null && '_$litDirective$' in value;

/** What stands between tags, between its marks. */
function childPart(value: unknown): string {
  const digest = isTemplate(value) ? ` ${digestForTemplateResult(value)}` : '';
  return `<!--lit-part${digest}-->${content(value)}<!--/lit-part-->`;
}

function content(value: unknown): string {
  if (value === nothing) return '';
  if (isTemplate(value)) return new Writer(value).text();
  if (Array.isArray(value)) return value.map(childPart).join('');
  return escaped(value ?? '') || ' '; // lit writes later text into the node that stands here
}

const attributeBefore = /\s([.?@]?)([-\w:]+)=("?)$/; // at the end of the text before a value

/** One template. Elements and child parts are numbered as lit does: in the order of the text. */
class Writer {
  private out = '';
  private place: 'between' | 'tag' | 'quote' = 'between';
  private index = -1;
  private tagStart = 0;
  private tagIndex = 0;
  private tagIsBound = false;

  constructor(private readonly template: TemplateResult) {}

  text(): string {
    const { strings, values } = this.template;
    this.static(strings[0]!);
    values.forEach((value, at) => {
      const rest = strings[at + 1]!;
      if (this.place !== 'between') return this.attribute(isDirective(value) ? value.values[0] : value, rest);
      this.index++;
      this.out += childPart(value);
      this.static(rest);
    });
    return this.out;
  }

  private static(text: string): void {
    text.replace(/[ \n]+/g, ' ').replace(/<(?=[a-z])|["<>]|[^"<>]+/gi, (piece, at: number, whole: string) => {
      if (piece === '<' && this.place === 'between') {
        this.place = 'tag';
        this.tagStart = this.out.length;
        if (whole[at + 1] !== '/') this.tagIndex = ++this.index;
      }
      this.out += piece;
      if (piece === '"' && this.place !== 'between') this.place = this.place === 'tag' ? 'quote' : 'tag';
      if (piece === '>' && this.place === 'tag') this.endTag();
      return '';
    });
  }

  private endTag(): void {
    this.place = 'between';
    if (this.tagIsBound) {
      const mark = `<!--lit-node ${this.tagIndex}-->`;
      this.out = this.out.slice(0, this.tagStart) + mark + this.out.slice(this.tagStart);
    }
    this.tagIsBound = false;
  }

  /** Properties and listeners say nothing in text. */
  private attribute(value: unknown, rest: string): void {
    this.tagIsBound = true;
    const before = attributeBefore.exec(this.out);
    const several = !before || (before[3] === '"' && !rest.startsWith('"'));
    if (several) {
      this.out += escaped(value === nothing ? '' : value);
      return this.static(rest);
    }
    const [whole, kind, name, quote] = before;
    this.out = this.out.slice(0, -whole.length);
    this.place = 'tag';
    const silent = kind === '.' || kind === '@' || value === nothing || (kind === '?' && !value);
    if (!silent) this.out += kind === '?' ? ` ${name}` : ` ${name}="${escaped(value)}"`;
    this.static(quote ? rest.slice(1) : rest);
  }
}
