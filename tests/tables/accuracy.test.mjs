// The accuracy table in README.md is the one that the planner earns today, and its intervals hold.
import assert from 'node:assert/strict';
import test from 'node:test';
import { errorsOf, planRuns, readmeTable, readRuns, summarize, table } from './accuracy.mjs';

const errors = errorsOf(planRuns(readRuns(), process.env.VRAMPLAN_BIN));

test('README.md shows the table of this build (node tests/tables/accuracy.mjs --write)', () => {
  assert.equal(readmeTable(), table(errors));
});

test('most of the public runs can be expressed', () => {
  assert.ok(errors.length >= 164, `${errors.length} runs`);
});

test('nine in ten measured runs lie inside the interval, in every group of ten runs or more', () => {
  for (const group of summarize(errors.filter((e) => e.group.endsWith('allocated')))) {
    if (group.rows >= 10) assert.ok(group.inside >= 0.9, `${group.group}: ${group.inside}`);
  }
});
