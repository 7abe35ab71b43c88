// Numbers as people read them. GB is 10^9 bytes, GiB is 2^30; the unit is always shown.
import { numerals, type Language } from './i18n/i18n';
import type { Estimate } from './wire';

export type Unit = 'GB' | 'GiB';
export const units: readonly Unit[] = ['GB', 'GiB'];

const bytesIn: Record<Unit, number> = { GB: 1e9, GiB: 2 ** 30 };

export interface Format {
  readonly unit: Unit;
  /** 12.3 GB: as many digits as one reads at a glance. */
  bytes(bytes: number, unit?: Unit): string;
  /** 328 kB, in thousands or, for GiB, in 2^10: what a token takes. */
  little(bytes: number): string;
  /** Whether two decimals show more than nothing. */
  shows(bytes: number): boolean;
  /** 0.05: always two decimals, for columns. The unit stands in the heading. */
  column(bytes: number): string;
  /** 11.8 – 12.9 GB */
  interval(estimate: Estimate): string;
  integer(value: number): string;
  number(value: number): string;
  percent(fraction: number): string;
  /** Thousandths as a percentage: 12 is 1.2 %. */
  permille(value: number): string;
  /** The same, with its sign: +1.2 %. */
  signedPermille(value: number): string;
  /** Three digits, in billions or, below a tenth of one, in millions. */
  large(value: number): { value: string; scale: 'billions' | 'millions' };
  /** Three digits: 12.3, 1,230, 0.0123. */
  significant(value: number): string;
  /** How many times as fast: 2.1, 0.86. */
  times(value: number): string;
  /** 1.23 s, or 12.3 ms. */
  seconds(value: number): string;
  /** In the chosen unit, for axes. */
  inUnit(bytes: number): number;
  fromUnit(value: number): number;
}

function digitsFor(value: number): 0 | 1 | 2 {
  const size = Math.abs(value);
  if (size >= 99.95) return 0;
  return size >= 9.995 ? 1 : 2;
}

const formats = new Map<string, Format>();

export function formatIn(language: Language, unit: Unit): Format {
  const key = `${language} ${unit}`;
  if (!formats.has(key)) formats.set(key, newFormat(language, unit));
  return formats.get(key)!;
}

function newFormat(language: Language, unit: Unit): Format {
  const shown = (specifier: string) => numerals[language].format(specifier);
  const withDigits = [0, 1, 2].map((digits) => shown(`,.${digits}f`));
  const fixed = (value: number, digits: 0 | 1 | 2) => withDigits[digits]!(value);
  const percents = [shown(',.0%'), shown(',.1~%')];
  const integers = shown(',.0f');
  const numbers = shown(',.4~f');
  const significant = shown(',.3~r');
  const twoDigits = shown(',.2~r');
  const tenths = shown(',.1~%');
  const signedTenths = [shown('+,.1%'), shown(',.1%')];
  const inUnit = (bytes: number, as: Unit = unit) => bytes / bytesIn[as];
  const glance = (bytes: number, as: Unit = unit) => fixed(inUnit(bytes, as), digitsFor(inUnit(bytes, as)));
  const least = () => `<\u202f${fixed(0.01, 2)}`;
  const shows = (bytes: number, as: Unit = unit) => bytes <= 0 || inUnit(bytes, as) >= 0.005;
  return {
    unit,
    inUnit,
    fromUnit: (value) => value * bytesIn[unit],
    bytes: (bytes, as = unit) => `${shows(bytes, as) ? glance(bytes, as) : least()}\u00a0${as}`,
    little: (bytes) =>
      unit === 'GB' ? `${significant(bytes / 1e3)}\u00a0kB` : `${significant(bytes / 2 ** 10)}\u00a0KiB`,
    shows: (bytes) => shows(bytes),
    column: (bytes) => (shows(bytes) ? fixed(inUnit(bytes), 2) : least()),
    interval: ({ low, high }) => `${glance(low)}\u2009–\u2009${glance(high)}\u00a0${unit}`,
    integer: (value) => integers(value),
    number: (value) => numbers(value),
    percent: (fraction) => {
      const shown = percents[fraction < 0.0995 ? 1 : 0]!;
      return fraction > 0 && fraction < 0.0005 ? `<\u202f${shown(0.001)}` : shown(fraction);
    },
    permille: (value) => tenths(value / 1000),
    signedPermille: (value) => signedTenths[Math.round(value) === 0 ? 1 : 0]!(value / 1000),
    significant: (value) => significant(value),
    times: (value) => twoDigits(value),
    seconds: (value) => (value < 1 ? `${significant(value * 1000)}\u00a0ms` : `${significant(value)}\u00a0s`),
    large: (value) =>
      value < 1e8
        ? { value: significant(value / 1e6), scale: 'millions' }
        : { value: significant(value / 1e9), scale: 'billions' },
  };
}

/**
 * A number as typed: spaces, a decimal comma or point, and (where `grouped`) thousands between separators.
 * Anything else stays text, so that the planner says what is wrong with it.
 */
export function readNumber(text: string, grouped: boolean): number | string {
  const compact = text.replace(/[\s\u00a0\u202f]/g, '');
  const plain =
    grouped && /^\d{1,3}([.,]\d{3})+$/.test(compact) ? compact.replace(/[.,]/g, '') : compact.replace(',', '.');
  return /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(plain) ? Number(plain) : text;
}
