// The accuracy table: every public measured run that the planner can express, in the run's own metric.
// Settings beyond what a run's table says were read in its source: releases in fms-acceleration's requirements.txt and
// requirements_liger.txt, double quantization in its framework_plugin_bnb.py; that of fsdp_qlora and its adapters in its
// train.py; accumulation and double quantization in PEFT's guides, which do not name their cards of 24 and 40 GB; FP8
// parameters and 16-bit gradients in Megatron-Bridge's recipes (training/mixed_precision.py); the 16-bit loss of
// universal-llm-trainer in its src/models. A run's `published` holds what the table itself says in their place.
//
//   node tests/tables/accuracy.mjs            prints the table (VRAMPLAN_BIN: the native `vramplan`)
//   node tests/tables/accuracy.mjs --rows     and each run with its error
//   node tests/tables/accuracy.mjs --published     with the settings of the published tables alone
//   node tests/tables/accuracy.mjs --write    puts the table into README.md, and table and runs into
//                                             core/data/measured_runs.json, from which the page answers
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { answer, readRows } from './ask.mjs';

const README = new URL('../../README.md', import.meta.url);
const DATA = new URL('../../core/data/measured_runs.json', import.meta.url);
const BEGIN = '<!-- accuracy: written by tests/tables/accuracy.mjs -->';
const END = '<!-- end of accuracy -->';

export const readRuns = () => readRows('measured_runs.jsonl');

/** The run as somebody would ask who has read the published table only. */
export function asPublished(run) {
  const training = { ...run.request.training };
  for (const [field, value] of Object.entries(run.published ?? {})) {
    if (value === null) delete training[field];
    else training[field] = value;
  }
  return { ...run, request: { ...run.request, training } };
}

// Plans every run. Answers {run, report} pairs; a report with problems is one that the planner cannot express yet.
export function planRuns(runs, binary) {
  const reports = answer(
    runs.map(({ request }) => request),
    binary,
  );
  return runs.map((run, i) => ({ run, report: reports[i] }));
}

const isPlanned = ({ report }) => report.problems.length === 0;

export function errorsOf(pairs) {
  return pairs.filter(isPlanned).map(({ run, report }) => {
    const { low, expected, high } = report.memory.per_gpu[run.metric];
    return {
      id: run.id,
      group: `${run.group}, ${run.metric}`,
      error: expected / run.peak_bytes - 1,
      inside: low <= run.peak_bytes && run.peak_bytes <= high,
      width: high / low - 1,
      expected,
      measured: run.peak_bytes,
      peak: report.memory.peak.event,
    };
  });
}

// The value below which a share of the sorted values lies (nearest rank).
function quantile(sorted, share) {
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(share * sorted.length) - 1))];
}

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

export function summarize(errors) {
  const groups = new Map();
  for (const e of errors) {
    for (const name of [e.group, 'all']) groups.set(name, [...(groups.get(name) ?? []), e]);
  }
  return [...groups.entries()]
    .sort(([a], [b]) => (a === 'all') - (b === 'all') || a.localeCompare(b, 'en'))
    .map(([group, rows]) => {
      const sizes = rows.map((r) => Math.abs(r.error)).sort((a, b) => a - b);
      return {
        group,
        rows: rows.length,
        median: quantile(sizes, 0.5),
        p90: quantile(sizes, 0.9),
        worst: sizes.at(-1),
        inside: rows.filter((r) => r.inside).length / rows.length,
        width: mean(rows.map((r) => r.width)),
      };
    });
}

const permille = (x) => Math.round(1000 * x);
const percent = (x) => `${(permille(x) / 10).toFixed(1)} %`;

export function table(errors) {
  const lines = [
    '| framework/method, metric | runs | median | p90 | worst | inside interval | width of interval |',
    '|---|---:|---:|---:|---:|---:|---:|',
  ];
  for (const { group, rows, ...figures } of summarize(errors)) {
    const cells = ['median', 'p90', 'worst', 'inside', 'width'].map((name) => percent(figures[name]));
    lines.push(`| ${[group, rows, ...cells].join(' | ')} |`);
  }
  return lines.join('\n');
}

// ---- core/data/measured_runs.json

/** A request without what it would have anyway, so that the page stays small. */
function withoutDefaults(request, options) {
  const defaults = new Map(options.map((option) => [option.pointer, option.default]));
  for (const degree of ['dp', 'tp', 'pp', 'vpp', 'cp', 'ep']) defaults.set(`/layout/${degree}`, 1);
  defaults.set('/hardware/per_node', Math.min(request.hardware?.count ?? 1, 8));
  // Absent is not false: the framework decides.
  for (const field of ['logits_upcast', 'fp32_gradients']) defaults.set(`/training/${field}`, null);
  const fallback = (pointer) => (defaults.has(pointer) ? defaults.get(pointer) : false);
  const isDefault = (value, pointer) => JSON.stringify(value) === JSON.stringify(fallback(pointer));
  const strip = (value, pointer) => {
    if (typeof value !== 'object' || Array.isArray(value)) return isDefault(value, pointer) ? undefined : value;
    const kept = Object.entries(value).map(([name, inner]) => [name, strip(inner, `${pointer}/${name}`)]);
    const left = kept.filter(([, inner]) => inner !== undefined);
    return left.length > 0 ? Object.fromEntries(left) : undefined;
  };
  return strip(request, '');
}

function groupData({ group, rows, median, p90, worst, inside, width }) {
  const [, framework, method, metric] = group.match(/^(\w+)\/(\w+), (\w+)$/);
  return {
    framework,
    method,
    metric,
    runs: rows,
    median_permille: permille(median),
    p90_permille: permille(p90),
    worst_permille: permille(worst),
    inside_permille: permille(inside),
    width_permille: permille(width),
  };
}

const runData =
  (options) =>
  ({ run, report }) => ({
    id: run.id,
    source: run.source.replace(/ line (\d+)$/, ':$1'),
    date: run.date ?? '',
    metric: run.metric,
    measured_bytes: run.peak_bytes,
    planned_bytes: report.memory.per_gpu[run.metric].expected,
    parameters: report.model.parameters,
    request: withoutDefaults(run.request, options),
  });

/** Groups by framework and method of the request (a preference run is called after its objective, and has none). */
const hasGroup = ({ run: { group, request } }) => group === `${request.training.framework}/${request.training.method}`;
/** A model cut to a few layers is nobody's neighbour. */
const isWhole = ({ run }) => typeof run.request.model === 'string';

export function data(pairs, { options }) {
  const planned = pairs.filter(isPlanned);
  const groups = summarize(errorsOf(planned.filter(hasGroup))).filter(({ group }) => group !== 'all');
  const lines = (values) => values.map((value) => JSON.stringify(value)).join(',\n');
  const runs = planned.filter(isWhole).map(runData(options));
  return `{"groups": [\n${lines(groups.map(groupData))}\n], "runs": [\n${lines(runs)}\n]}\n`;
}

export const catalogueOf = (binary) => JSON.parse(execFileSync(binary, ['catalogue'], { maxBuffer: 1 << 30 }));
export const writtenData = () => readFileSync(DATA, 'utf8');

// ---- README.md

export function readmeTable() {
  const text = readFileSync(README, 'utf8');
  return text.slice(text.indexOf(BEGIN) + BEGIN.length, text.indexOf(END)).trim();
}

function writeReadme(markdown) {
  const text = readFileSync(README, 'utf8');
  const [before, after] = [text.indexOf(BEGIN), text.indexOf(END)];
  if (before < 0 || after < 0) throw new Error(`README.md lacks ${BEGIN}`);
  writeFileSync(README, `${text.slice(0, before + BEGIN.length)}\n\n${markdown}\n\n${text.slice(after)}`);
}

function printRows(pairs, errors) {
  for (const e of errors) {
    const figures = [(e.expected / 1e9).toFixed(2), (e.measured / 1e9).toFixed(2), e.peak];
    console.log([e.id, e.group, percent(e.error), ...figures].join('\t'));
  }
  const reasons = new Map();
  for (const { report } of pairs.filter((pair) => !isPlanned(pair))) {
    const { code, pointer, arguments: args } = report.problems[0];
    const key = `${code} ${pointer} ${args.value ?? ''}`;
    reasons.set(key, (reasons.get(key) ?? 0) + 1);
  }
  for (const [reason, count] of reasons) console.log(`not expressed: ${count} x ${reason}`);
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const binary = process.env.VRAMPLAN_BIN ?? new URL('../../build/release/core/cli/vramplan', import.meta.url).pathname;
  const runs = process.argv.includes('--published') ? readRuns().map(asPublished) : readRuns();
  const pairs = planRuns(runs, binary);
  const errors = errorsOf(pairs);
  if (process.argv.includes('--rows')) printRows(pairs, errors);
  console.log(table(errors));
  if (process.argv.includes('--write')) {
    writeReadme(table(errors));
    writeFileSync(DATA, data(pairs, catalogueOf(binary)));
  }
}
