// Words by key. {name} in a text is replaced by the argument of that name. A text with plurals has the keys
// `<key>.one` and `<key>.other`, chosen by the argument `count`. A key without a text shows itself.
import { formatLocale, type FormatLocaleDefinition, type FormatLocaleObject } from 'd3-format';
import englishNumerals from 'd3-format/locale/en-GB';
import dutchNumerals from 'd3-format/locale/nl-NL';

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

/** Not Intl, whose first formatter takes 50 to 100 ms to make. */
export const numerals: Record<Language, FormatLocaleObject> = {
  nl: formatLocale(dutchNumerals as FormatLocaleDefinition),
  en: formatLocale(englishNumerals as FormatLocaleDefinition),
};

const texts: Record<Language, Record<string, string>> = { nl, en };

const made = new Map<Language, Words>();

export function wordsIn(language: Language): Words {
  if (!made.has(language)) made.set(language, newWords(language));
  return made.get(language)!;
}

function newWords(language: Language): Words {
  const own = texts[language];
  // Dutch and English have the same rule (CLDR).
  const pluralKey = (key: string, { count }: Arguments) => `${key}.${Number(count) === 1 ? 'one' : 'other'}`;
  const show = numerals[language].format(',.3~f');
  const shown = (value: string | number) => (typeof value === 'number' ? show(value) : value);
  return {
    language,
    has: (key) => Object.hasOwn(own, key),
    t(key, args = {}) {
      const text = own[key] ?? own[pluralKey(key, args)] ?? key;
      if (!text.includes('{')) return text;
      return text.replace(/\{(\w+)\}/g, (whole, name: string) => (name in args ? shown(args[name]!) : whole));
    },
  };
}
