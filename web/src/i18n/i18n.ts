// Words by key. {name} in a text is replaced by the argument of that name. A text with plurals has the keys
// `<key>.one` and `<key>.other`, chosen by the argument `count`. A key without a text shows itself.
import en from './en.json';
import nl from './nl.json';

export type Language = 'nl' | 'en';
export const languages: readonly Language[] = ['nl', 'en'];

export type Arguments = Record<string, string | number>;

export interface Words {
  readonly language: Language;
  /** The text of a key, or the key itself. */
  t(key: string, args?: Arguments): string;
  has(key: string): boolean;
}

const texts: Record<Language, Record<string, string>> = { nl, en };

function pluralKey(language: Language, key: string, args: Arguments): string {
  const count = Number(args.count);
  return `${key}.${new Intl.PluralRules(language).select(count) === 'one' ? 'one' : 'other'}`;
}

export function wordsIn(language: Language): Words {
  const own = texts[language];
  const numbers = new Intl.NumberFormat(language, { maximumFractionDigits: 3 });
  const show = (value: string | number) => (typeof value === 'number' ? numbers.format(value) : value);
  return {
    language,
    has: (key) => Object.hasOwn(own, key),
    t(key, args = {}) {
      const text = own[key] ?? own[pluralKey(language, key, args)] ?? key;
      return text.replace(/\{(\w+)\}/g, (whole, name: string) => (name in args ? show(args[name]!) : whole));
    },
  };
}
