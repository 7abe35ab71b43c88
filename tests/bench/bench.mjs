// The same calls natively and through WebAssembly, one after the other in one run, and the ratio of their times.
//
//   node tests/bench/bench.mjs [SECONDS]      VRAMPLAN_BENCH: the native bench; VRAMPLAN_WASM_DIR: the module
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));
const seconds = Number(process.argv[2] ?? 1);
const bench = process.env.VRAMPLAN_BENCH ?? join(root, 'build/release/tests/bench');
const folder = process.env.VRAMPLAN_WASM_DIR ?? join(root, 'build/wasm/wasm');

/** Seconds a call by name, as bench.cpp measures them. */
function native() {
  const { stdout, error, status } = spawnSync(bench, [String(seconds), '--json'], { encoding: 'utf8' });
  if (error || status !== 0) throw error ?? new Error(`${bench}: status ${status}`);
  return JSON.parse(stdout);
}

async function load() {
  const { default: createVramplan } = await import(pathToFileURL(join(folder, 'vramplan.mjs')));
  const wasmBinary = readFileSync(join(folder, 'vramplan.wasm'));
  return createVramplan({ wasmBinary, locateFile: (name) => name });
}

function processorSeconds() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

/** The mean of as many calls as fill the time, after as much again for the compiler to finish its work. */
function secondsPerCall(call) {
  let mean = 0;
  for (let round = 0; round < 2; round++) {
    const start = processorSeconds();
    let calls = 0;
    while (calls === 0 || processorSeconds() - start < seconds) {
      call();
      calls++;
    }
    mean = (processorSeconds() - start) / calls;
  }
  return mean;
}

const ms = (x) => `${(1000 * x).toFixed(2)} ms`;
const module = await load();
for (const [name, nativeSeconds] of Object.entries(native())) {
  const [verb, request] = name.split(' ');
  if (verb !== 'plan') continue;
  const text = readFileSync(join(root, 'tests/golden/requests', `${request}.json`), 'utf8');
  const wasmSeconds = secondsPerCall(() => module.plan(text));
  const ratio = (nativeSeconds / wasmSeconds).toFixed(2);
  console.log(`${request}: native ${ms(nativeSeconds)}, Wasm ${ms(wasmSeconds)}, native/Wasm ${ratio}`);
}
