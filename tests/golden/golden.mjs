// Golden reports: what the planner answers to the requests in requests/, cut down to the numbers that matter, one fact
// a line, so that a changed formula shows as a diff of numbers.
//
//   node tests/golden/golden.mjs --write      answers every request afresh (VRAMPLAN_BIN: the native `vramplan`)
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename } from 'node:path';
import { fileURLToPath } from 'node:url';

const REQUESTS = new URL('./requests/', import.meta.url);
const REPORTS = new URL('./reports/', import.meta.url);
const DEFAULT_BINARY = fileURLToPath(new URL('../../build/release/core/cli/vramplan', import.meta.url));

// Timelines follow from the same formulas: two are enough to see that one changed, and of their blocks the ends.
const WITH_TIMELINE = ['lora-bf16_amp-llama-3.1-8b', 'full-bf16-qwen2.5-0.5b-tied-eager'];
// The rest of the list follows from the same figures.
const LISTED_SYSTEMS = 8;

export const binary = process.env.VRAMPLAN_BIN ?? DEFAULT_BINARY;

/** [{name, text}], in the order of their names. */
export function readRequests() {
  const files = readdirSync(REQUESTS).filter((file) => file.endsWith('.json'));
  return files.sort().map((file) => ({
    name: basename(file, '.json'),
    text: readFileSync(new URL(file, REQUESTS), 'utf8'),
  }));
}

/** What the native planner prints, as {text, status}. */
export function run(verb, input = '') {
  const { stdout, status, error } = spawnSync(binary, [verb], { input, encoding: 'utf8', maxBuffer: 1 << 28 });
  if (error) throw error;
  return { text: stdout, status };
}

const sum = (terms) => terms.map(({ symbol, value }) => `${symbol} = ${value}`).join(', ');
const row = ({ group, bytes, notation, terms, certainty }) =>
  `${bytes} = ${notation}${terms.length > 0 ? ` with ${sum(terms)}` : ''} (${group}, ${certainty})`;
const rows = (components) => Object.fromEntries(components.map((component) => [component.id, row(component)]));
const range = ({ low, expected, high }) => `${low} .. ${expected} .. ${high}`;
const place = ({ event, block }) => (block === null ? event : `${event} ${block}`);
const notice = ({ code, pointer, arguments: args }) =>
  `${code} at ${pointer || 'the request'}${Object.keys(args).length > 0 ? ` ${JSON.stringify(args)}` : ''}`;

function memory({ per_gpu: perGpu, peak, components, beyond_allocated: beyond }) {
  return {
    peak: place(peak),
    allocated: range(perGpu.allocated),
    reserved: range(perGpu.reserved),
    device: range(perGpu.device),
    components: rows(components),
    beyond_allocated: rows(beyond),
  };
}

const moment = ({ live_bytes: bytes, by_component: parts }) =>
  [bytes, ...Object.entries(parts).map(([id, part]) => `${id} ${part}`)].join(' ');

function timeline({ timeline: events, model }) {
  const shown = events.filter(({ block }) => [null, 0, 1, model.layers - 1].includes(block));
  return Object.fromEntries(shown.map((event) => [place(event), moment(event)]));
}

function countBy(items, key) {
  const counts = {};
  for (const item of items) counts[item[key]] = (counts[item[key]] ?? 0) + 1;
  return counts;
}

const rate = (tokensPerSecond) => (tokensPerSecond === null ? 'no rate' : `${tokensPerSecond.toPrecision(6)} tokens/s`);

function suggestions({ systems, ladder, not_fitting: refused, changes }) {
  const system = ({ gpu, count, verdict, device, tokens_per_second: speed, systems: offers }) =>
    `${count} x ${gpu} ${verdict} ${range(device)} ${rate(speed)}; ${offers.length} offers`;
  const change = ({ id, from, to, saved_bytes: saved, device, verdict, tokens_per_second: speed }) =>
    `${id} from ${from} to ${to} saves ${saved}: ${range(device)} ${verdict} ${rate(speed)}`;
  return {
    fitting: systems.length,
    first: systems.slice(0, LISTED_SYSTEMS).map(system),
    ladder: ladder.map((step) => `${step.role}: ${system(step)}`),
    not_fitting: countBy(refused, 'reason'),
    changes: changes.map(change),
  };
}

function growth(rows) {
  const place = (model) => model && `${model.gpus} x ${model.model}: ${range(model.device)} ${model.verdict}`;
  return rows.map(({ method, largest, next }) => `${method}: ${place(largest)}; next ${place(next)}`);
}

function layouts({ tried, best }) {
  const found = ({ request: { training, layout }, device, verdict, tokens_per_second: speed }) => {
    const ranks = Object.entries(layout).filter(([, value]) => typeof value === 'number' && value !== 1);
    const kinds = ranks.map(([kind, value]) => `${kind} ${value}`).join(' ');
    return `${kinds}; ${training.micro_batch} ${training.recompute}: ${range(device)} ${verdict} ${rate(speed)}`;
  };
  return { tried, best: best.map(found) };
}

/** The part of a report that is kept. */
function project(report, name) {
  if (report.problems.length > 0) return { problems: report.problems.map(notice) };
  const kept = {
    warnings: report.warnings.map(notice),
    training: report.request.training,
    layout: JSON.stringify(report.request.layout),
    model: report.model,
    memory: memory(report.memory),
    host_memory: report.host_memory.per_node_bytes,
    fit: report.fit && `${report.fit.verdict}, headroom ${report.fit.headroom_bytes} of ${report.fit.usable_bytes}`,
    layouts: layouts(report.layouts),
    suggestions: suggestions(report.suggestions),
    growth: growth(report.growth),
    after_training: report.after_training,
  };
  if (WITH_TIMELINE.includes(name)) {
    kept.timeline = timeline(report);
  }
  return kept;
}

/** The text of the golden file of a report. */
export function cutDown(report, name) {
  return `${JSON.stringify(project(report, name), null, 2)}\n`;
}

export function readReport(name) {
  return readFileSync(new URL(`${name}.json`, REPORTS), 'utf8');
}

export function reportNames() {
  return readdirSync(REPORTS).map((file) => basename(file, '.json'));
}

function write() {
  rmSync(REPORTS, { recursive: true, force: true });
  mkdirSync(REPORTS);
  for (const { name, text } of readRequests()) {
    writeFileSync(new URL(`${name}.json`, REPORTS), cutDown(JSON.parse(run('plan', text).text), name));
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (process.argv[2] !== '--write') {
    console.error('usage: node tests/golden/golden.mjs --write');
    process.exit(2);
  }
  write();
}
