// The planner answers as it did. After a change that is meant: `node tests/golden/golden.mjs --write`, and the change
// log says which numbers moved, by how much and why.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cutDown, readReport, readRequests, reportNames, run } from './golden.mjs';

const requests = readRequests().map(({ name, text }) => ({ name, ...run('plan', text) }));

for (const { name, text } of requests) {
  test(`${name} is answered as before`, () => assert.equal(cutDown(JSON.parse(text), name), readReport(name)));
}

test('every report has its request', () => {
  assert.deepEqual(
    reportNames().sort(),
    requests.map(({ name }) => name),
  );
});

test('the exit status tells reports from problems', () => {
  for (const { name, status } of requests) assert.equal(status, name.startsWith('problem-') ? 1 : 0, name);
});

// The value at a JSON Pointer, undefined when there is none.
function at(value, pointer) {
  return pointer
    .split('/')
    .slice(1)
    .reduce((part, key) => part?.[key], value);
}

test('every value that can be planned occurs in a report', () => {
  const { options } = JSON.parse(run('catalogue').text);
  const understood = requests
    .map(({ text }) => JSON.parse(text))
    .filter(({ problems }) => problems.length === 0)
    .map(({ request }) => request);
  for (const { pointer, values = [] } of options) {
    const seen = new Set(understood.flatMap((request) => at(request, pointer) ?? []));
    const missing = values.filter((value) => !seen.has(value));
    assert.deepEqual(missing, [], `no golden request has ${pointer}`);
  }
});
