// The accuracy table: every public measured run that the planner can express, in the run's own metric.
// Settings beyond what a run's table says were read in its source: releases in fms-acceleration's requirements.txt and
// requirements_liger.txt, double quantization in its framework_plugin_bnb.py; that of fsdp_qlora and its adapters in its
// train.py; the 16-bit loss of universal-llm-trainer
// in its src/models. A run's `published` holds what the table itself says in their place.
//
//   node tests/tables/accuracy.mjs            prints the table (VRAMPLAN_BIN: the native `vramplan`)
//   node tests/tables/accuracy.mjs --rows     and each run with its error
//   node tests/tables/accuracy.mjs --published     with the settings of the published tables alone
//   node tests/tables/accuracy.mjs --write    and puts the table into README.md
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';

const RUNS = new URL('./measured_runs.jsonl', import.meta.url);
const README = new URL('../../README.md', import.meta.url);
const BEGIN = '<!-- accuracy: written by tests/tables/accuracy.mjs -->';
const END = '<!-- end of accuracy -->';

export function readRuns() {
  return readFileSync(RUNS, 'utf8').trim().split('\n').map(JSON.parse);
}

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
  const input = runs.map((run) => JSON.stringify(run.request)).join('\n') + '\n';
  let output;
  try {
    output = execFileSync(binary, ['plan', '--lines'], { input, maxBuffer: 1 << 30, encoding: 'utf8' });
  } catch (error) {
    if (error.status !== 1) throw error; // 1: some requests have problems
    output = error.stdout;
  }
  const reports = output.trim().split('\n').map(JSON.parse);
  return runs.map((run, i) => ({ run, report: reports[i] }));
}

export function errorsOf(pairs) {
  return pairs
    .filter(({ report }) => report.problems.length === 0)
    .map(({ run, report }) => {
      const { low, expected, high } = report.memory.per_gpu[run.metric];
      return {
        id: run.id,
        group: `${run.group}, ${run.metric}`,
        error: expected / run.peak_bytes - 1,
        inside: low <= run.peak_bytes && run.peak_bytes <= high,
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
      };
    });
}

const percent = (x) => `${(100 * x).toFixed(1)} %`;

export function table(errors) {
  const lines = [
    '| framework/method, metric | runs | median | p90 | worst | inside interval |',
    '|---|---:|---:|---:|---:|---:|',
  ];
  for (const s of summarize(errors)) {
    lines.push(
      `| ${s.group} | ${s.rows} | ${percent(s.median)} | ${percent(s.p90)} | ${percent(s.worst)} | ${percent(s.inside)} |`,
    );
  }
  return lines.join('\n');
}

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

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const binary = process.env.VRAMPLAN_BIN ?? new URL('../../build/release/core/cli/vramplan', import.meta.url).pathname;
  const runs = process.argv.includes('--published') ? readRuns().map(asPublished) : readRuns();
  const pairs = planRuns(runs, binary);
  const errors = errorsOf(pairs);
  if (process.argv.includes('--rows')) {
    for (const e of errors) {
      console.log(
        [e.id, e.group, percent(e.error), (e.expected / 1e9).toFixed(2), (e.measured / 1e9).toFixed(2), e.peak].join(
          '\t',
        ),
      );
    }
    const refused = pairs.filter(({ report }) => report.problems.length > 0);
    const reasons = new Map();
    for (const { report } of refused) {
      const { code, pointer, arguments: args } = report.problems[0];
      const key = `${code} ${pointer} ${args.value ?? ''}`;
      reasons.set(key, (reasons.get(key) ?? 0) + 1);
    }
    for (const [reason, count] of reasons) console.log(`not expressed: ${count} x ${reason}`);
  }
  console.log(table(errors));
  if (process.argv.includes('--write')) writeReadme(table(errors));
}
