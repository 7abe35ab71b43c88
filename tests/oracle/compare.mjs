// Compares the planner with the oracle rows: peak of a step, and bytes saved per block.
//
//   node tests/oracle/compare.mjs [text in the id ...]   prints each row with its errors, worst first, and a summary
import { readdirSync, readFileSync } from 'node:fs';
import { planRuns } from '../tables/accuracy.mjs';

const ROWS = new URL('./rows/', import.meta.url);

export function readRows(filters = []) {
  return readdirSync(ROWS)
    .filter((name) => name.endsWith('.jsonl'))
    .flatMap((name) => readFileSync(new URL(name, ROWS), 'utf8').trim().split('\n').map(JSON.parse))
    .filter((row) => filters.every((text) => row.id.includes(text)));
}

// The oracle has no cuBLAS workspace and no allocator.
const workspace = (report) =>
  report.memory.components.filter((c) => c.id === 'cublas_workspace').reduce((sum, c) => sum + c.bytes, 0);

export function compare(rows, binary) {
  return planRuns(rows, binary)
    .filter(({ report }) => report.problems.length === 0)
    .map(({ run, report }) => {
      const saved = report.memory.layers[0].kept_bytes;
      const measuredSaved = run.saved_bytes_per_block[0];
      return {
        id: run.id,
        peak: report.memory.per_gpu.allocated.expected - workspace(report),
        measured: run.peak.overall,
        error: (report.memory.per_gpu.allocated.expected - workspace(report)) / run.peak.overall - 1,
        where: `${report.memory.peak.event} / ${run.peak_where.phase} ${run.peak_where.module || run.peak_where.op}`,
        saved,
        measuredSaved,
        savedError: measuredSaved ? saved / measuredSaved - 1 : 0,
      };
    });
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const binary = process.env.VRAMPLAN_BIN ?? new URL('../../build/release/core/cli/vramplan', import.meta.url).pathname;
  const rows = readRows(process.argv.slice(2));
  const results = compare(rows, binary);
  const percent = (x) => `${(100 * x).toFixed(1)} %`.padStart(9);
  for (const r of results.sort((a, b) => Math.abs(b.error) - Math.abs(a.error))) {
    console.log(
      `${percent(r.error)} ${percent(r.savedError)}  ${r.id}  ${(r.peak / 1e9).toFixed(3)}/${(r.measured / 1e9).toFixed(3)} ` +
        `saved ${(r.saved / 1e6).toFixed(1)}/${(r.measuredSaved / 1e6).toFixed(1)}  ${r.where}`,
    );
  }
  const within = (share, key) => results.filter((r) => Math.abs(r[key]) <= share).length;
  console.log(
    `${rows.length} rows, ${results.length} expressed; peak within 2 %: ${within(0.02, 'error')}; ` +
      `saved within 1 %: ${within(0.01, 'savedError')}`,
  );
}
