// What a vendor sets on its own copy: name, logo, colours, contact, cards and systems, hidden parts, language. It stands in
// the page's block `<script type="application/json" id="vendor">`, or in the file that the block's data-src names. What is
// wrong is told with its line, and then nothing of it is used.
import { languages, type Language } from './i18n/i18n';
import { brokenLine, lineOf } from './json-lines';
import type { Notice } from './wire';

export interface VendorProblem {
  line: number;
  notice: Notice; // worded as those of a request, or as `problem.vendor_*`
}

export interface Vendor {
  text: string; // as it was given
  name: string;
  logo: string; // a data: address, or a file beside the page
  contact: { label: string; link: string } | null;
  language: Language | null;
  hidden: readonly string[];
  hardware: string; // JSON of {replace, gpus, systems} for the planner; empty: none
  problems: VendorProblem[];
  addHardwareProblems(notices: Notice[]): void;
}

/** Parts of the page that a vendor may leave out. */
export const sections = [
  'table',
  'placement',
  'timeline',
  'speed',
  'curves',
  'matrix',
  'growth',
  'launch',
  'after',
  'accuracy',
  'changes',
  'layouts',
  'hardware',
  'diagnose',
  'compare',
] as const;

const none = (text: string): Vendor => ({
  text,
  name: '',
  logo: '',
  contact: null,
  language: null,
  hidden: [],
  hardware: '',
  problems: [],
  addHardwareProblems() {},
});

export const noVendor = none('');

type Fields = Record<string, unknown>;

const isText = (value: unknown) => typeof value === 'string' && value.trim() !== '';
const isColour = (value: unknown) => typeof value === 'string' && /^#[0-9a-f]{6}$/i.test(value);
const isLink = (value: unknown) => typeof value === 'string' && /^(https:|mailto:)/.test(value);
const isLogo = (value: unknown) => typeof value === 'string' && /^(data:image\/|(?![a-z]+:)[^/])/i.test(value);
const isOne = (values: readonly string[]) => (value: unknown) => values.includes(value as string);

/** What stands at each place, and what it must be (problem.vendor_<rule>). */
const rules: readonly [pointer: string, rule: string, check: (value: unknown) => boolean][] = [
  ['/name', 'text', isText],
  ['/logo', 'logo', isLogo],
  ['/language', 'language', isOne(languages)],
  ['/colours/accent', 'colour', isColour],
  ['/colours/accent_dark', 'colour', isColour],
  ['/contact/label', 'text', isText],
  ['/contact/link', 'link', isLink],
];
const groups: Record<string, readonly string[]> = {
  '': ['name', 'logo', 'language', 'colours', 'contact', 'hidden', 'replace', 'gpus', 'systems'],
  '/colours': ['accent', 'accent_dark'],
  '/contact': ['label', 'link'],
};

const isObject = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const at = (document: Fields, pointer: string): unknown =>
  pointer
    .split('/')
    .slice(1)
    .reduce<unknown>((value, name) => (isObject(value) ? value[name] : undefined), document);

function problemsOf(document: Fields): Notice[] {
  const found: Notice[] = [];
  const report = (code: string, pointer: string, args: Notice['arguments'] = {}) =>
    found.push({ code, pointer, arguments: args });
  for (const [pointer, names] of Object.entries(groups)) {
    const group = pointer === '' ? document : at(document, pointer);
    if (group === undefined) continue;
    if (!isObject(group)) report('wrong_type', pointer, { expected: 'object' });
    else
      for (const name of Object.keys(group))
        if (!names.includes(name)) report('unknown_field', `${pointer}/${name}`, { name });
  }
  for (const [pointer, rule, check] of rules) {
    const value = at(document, pointer);
    if (value !== undefined && !check(value)) report(`vendor_${rule}`, pointer);
  }
  const hidden = document['hidden'] ?? [];
  if (!Array.isArray(hidden)) report('wrong_type', '/hidden', { expected: 'array' });
  else
    hidden.forEach((name, index) => {
      if (!isOne(sections)(name)) report('vendor_section', `/hidden/${index}`, { allowed: sections.join(', ') });
    });
  if (isObject(document['contact']) && document['contact']['link'] === undefined) report('missing_field', '/contact');
  return found;
}

/** Colours by way of a sheet of its own: the policy allows no style in the text of the page. */
function paint(colours: { accent?: string; accent_dark?: string }): void {
  const sheet = new CSSStyleSheet();
  const set = (colour: string) => `:root { --accent: ${colour}; --accent-strong: ${colour}; --focus: ${colour} }`;
  if (colours.accent) sheet.insertRule(`@media (prefers-color-scheme: light) { ${set(colours.accent)} }`);
  if (colours.accent_dark) sheet.insertRule(`@media (prefers-color-scheme: dark) { ${set(colours.accent_dark)} }`);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
}

function broken(text: string, problems: VendorProblem[]): Vendor {
  return { ...none(text), problems };
}

/** Reads and checks; a vendor without problems is also painted. */
export function readVendor(text: string): Vendor {
  if (text.trim() === '') return none(text);
  let document: unknown;
  try {
    document = JSON.parse(text);
  } catch {
    const notice = { code: 'vendor_json', pointer: '', arguments: {} };
    return broken(text, [{ line: brokenLine(text), notice }]);
  }
  if (!isObject(document))
    return broken(text, [{ line: 1, notice: { code: 'wrong_type', pointer: '', arguments: { expected: 'object' } } }]);
  const located = (notices: Notice[]) => notices.map((notice) => ({ line: lineOf(text, notice.pointer), notice }));
  const problems = located(problemsOf(document));
  if (problems.length > 0) return broken(text, problems);
  const { replace, gpus, systems, colours, contact } = document as Fields & {
    colours?: Parameters<typeof paint>[0];
    contact?: Vendor['contact'];
  };
  if (colours) paint(colours);
  const vendor: Vendor = {
    ...none(text),
    name: (document['name'] as string | undefined) ?? '',
    logo: (document['logo'] as string | undefined) ?? '',
    language: (document['language'] as Language | undefined) ?? null,
    hidden: (document['hidden'] as string[] | undefined) ?? [],
    contact: contact ?? null,
    hardware: gpus || systems ? JSON.stringify({ replace: replace ?? false, gpus, systems }) : '',
    addHardwareProblems: (notices) => vendor.problems.push(...located(notices)),
  };
  return vendor;
}

export async function findVendor(): Promise<Vendor> {
  const block = document.getElementById('vendor');
  const file = block?.dataset['src'];
  if (!file) return readVendor(block?.textContent ?? '');
  try {
    const response = await fetch(file);
    if (response.ok) return readVendor(await response.text());
  } catch {
    // Told below: a file that cannot be read.
  }
  return broken('', [{ line: 1, notice: { code: 'vendor_file', pointer: '', arguments: { file } } }]);
}
