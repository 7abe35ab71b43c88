// Launch configurations are those that the frameworks' own parsers accepted. After a change that is meant:
// `python tests/oracle/launch.py`, which feeds them to the parsers and writes what these accept.
import assert from 'node:assert/strict';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { basename } from 'node:path';
import { test } from 'node:test';
import { readRequests, run } from './golden.mjs';

const ACCEPTED = new URL('launch/', import.meta.url);
// torchtitan's registry could not be imported twice in one process: this one waits for its parser.
const UNSEEN = ['torchtitan-pipeline-context-llama-3.1-70b'];

/** As tests/oracle/launch.py writes it. */
function golden({ launch, launch_left_out: leftOut }) {
  const texts = launch.map(({ id, filename, format, text }) => `=== ${id} ${filename} (${format})\n${text}`);
  const omissions = leftOut.map(({ id, reason, pointer }) => `=== without ${id}: ${reason} at ${pointer}\n`);
  return [...texts, ...omissions].join('');
}

const reports = readRequests()
  .map(({ name, text }) => ({ name, report: JSON.parse(run('plan', text).text) }))
  .filter(({ name, report }) => report.problems.length === 0 && !UNSEEN.includes(name));

for (const { name, report } of reports) {
  const file = new URL(`${name}.txt`, ACCEPTED);
  test(`${name} is started as a parser accepted it`, () => {
    assert.ok(existsSync(file), 'no parser has seen it');
    assert.equal(golden(report), readFileSync(file, 'utf8'));
  });
}

test('every accepted text has its request', () => {
  const names = readdirSync(ACCEPTED).map((file) => basename(file, '.txt'));
  assert.deepEqual(
    names.sort(),
    reports.map(({ name }) => name),
  );
});

test('every generator is left out or not: none is forgotten', () => {
  const ids = (report) => new Set([...report.launch, ...report.launch_left_out].map(({ id }) => id));
  for (const { name, report } of reports) assert.equal(ids(report).size, 6, name);
});

test('several nodes are started by Slurm, one without it', () => {
  const texts = (count, perNode) => {
    const request = {
      model: 'meta-llama/Llama-3.1-8B',
      training: { method: 'qlora' },
      hardware: { gpu: 'h100-sxm-80gb', count, per_node: perNode },
    };
    return JSON.parse(run('plan', JSON.stringify(request)).text).launch;
  };
  const script = (list) => list.find(({ id, format }) => id === 'trl' && format === 'shell');
  const two = script(texts(16, 8));
  assert.equal(two.filename, 'trl.sbatch');
  assert.match(two.text, /--nodes=2\n.*\n#SBATCH --gpus-per-node=8\n/);
  assert.match(two.text, /--machine_rank "\$SLURM_NODEID"/);
  const one = script(texts(8, 8));
  assert.equal(one.filename, 'trl.sh');
  assert.doesNotMatch(one.text, /SBATCH|srun/);
  const config = texts(16, 8).find(({ filename }) => filename === 'accelerate.yaml').text;
  assert.match(config, /num_machines: 2\nnum_processes: 16\n/);
});
