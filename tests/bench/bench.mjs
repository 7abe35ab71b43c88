// The same benchmark natively and through WebAssembly, one after the other in one run, and the ratio of their times.
//
//   node tests/bench/bench.mjs [SECONDS]      after `web/serve --build-only` and a release build (tests/run makes both)
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));
const seconds = process.argv[2] ?? '1';
const native = process.env.VRAMPLAN_BENCH ?? join(root, 'build/release/tests/bench');
const wasm = join(root, 'build/wasm/wasm/bench.cjs');

/** Seconds a call by name, as bench.cpp measures them. */
function measure(command, ...args) {
  return JSON.parse(execFileSync(command, [...args, seconds, '--json'], { encoding: 'utf8' }));
}

execFileSync('cmake', ['--build', join(root, 'build/wasm'), '--target', 'bench_wasm'], {
  stdio: ['ignore', 'ignore', 'inherit'],
});
const us = (x) => `${(1e6 * x).toFixed(2)} us`;
const ours = measure(native);
const theirs = measure(process.execPath, wasm);
for (const [name, time] of Object.entries(ours)) {
  console.log(`${name}: native ${us(time)}, Wasm ${us(theirs[name])}, Wasm/native ${(theirs[name] / time).toFixed(2)}`);
}
