// Arrows point one way: a stage includes its own files and those of stages before it; each layer knows the one below.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { posix } from 'node:path';
import { cpp, filesBelow, includes } from './sources.mjs';

// From left to right; the planner chains them all. (parameters are a table over the model that the architecture checks.)
const stages = (
  'units result estimate closest diagnosis element_type component model catalogue request parameters architecture device sharding framework ' +
  'states ops graph_set layout step accuracy memory fit links calibration speed search placement curves suggestion ladder fit_matrix evidence launch after_training growth report changes planner'
).split(' ');
// The names of all enumerators in one table, which any stage may read.
const shared = ['enum_names'];
// Sources that belong to a stage of another name.
const partOf = { frameworks: 'framework', hardware: 'catalogue' };

/** The stage of a file of the core: the name, or the folder, right below include/vramplan or src. */
function stageOf(path) {
  const name = path.match(/^core\/(?:include\/vramplan|src)\/(\w+)/)?.[1];
  return partOf[name] ?? name;
}

/** The path that a quoted include means, seen from the file that holds it. */
function target(path, name, exists) {
  if (name.startsWith('vramplan/')) return `core/include/${name}`;
  const beside = posix.join(posix.dirname(path), name);
  return exists(beside) ? beside : posix.join('core/src', name);
}

function arrowsToTheRight({ path, text }, exists = () => false) {
  const isShared = shared.includes(stageOf(path));
  const own = stages.indexOf(stageOf(path));
  if (own < 0 && !isShared) return [`${path} belongs to no stage`];
  return includes(text)
    .filter(({ quoted }) => quoted)
    .filter(({ name }) => {
      const stage = stageOf(target(path, name, exists));
      const other = stages.indexOf(stage);
      return !shared.includes(stage) && (other < 0 || (!isShared && other > own));
    })
    .map(({ name }) => `${path} includes ${name}`);
}

const nlohmann = ({ path, text }) =>
  path.startsWith('core/json/') ? [] : includes(text).filter(({ name }) => name.startsWith('nlohmann'));

const beyondTheDoor = ({ text }) =>
  includes(text).filter(({ name }) => !/^(api\.hpp|emscripten\/.*|string|string_view)$/.test(name));

function imports(text) {
  const found = text.matchAll(/\b(?:import|export)\b[^'"`;]*?['"]([^'"\n]+)['"]/g);
  return [...found].map(([, name]) => name);
}

const importsWasm = ({ path, text }) =>
  path === 'web/src/engine.ts' ? [] : imports(text).filter((name) => /vramplan-core|vramplan\.(mjs|wasm)/.test(name));

const importsEngine = ({ text }) => imports(text).filter((name) => /(^|\/)(engine|planner)(\.[jt]s)?$/.test(name));

const core = [...filesBelow('core/include', cpp), ...filesBelow('core/src', cpp)];
const paths = new Set(core.map(({ path }) => path));
const web = filesBelow('web/src', /\.ts$/);

const rules = [
  {
    name: 'a stage of the core includes only stages to its left',
    files: core,
    violations: (file) => arrowsToTheRight(file, (path) => paths.has(path)),
    bad: [
      { path: 'core/src/memory.cpp', text: '#include "vramplan/fit.hpp"' },
      { path: 'core/src/ops/mlp.cpp', text: '#include "vramplan/step.hpp"' },
      { path: 'core/include/vramplan/units.hpp', text: '#include "api.hpp"' },
      { path: 'core/src/surprise.cpp', text: '' },
    ],
    good: { path: 'core/src/planner.cpp', text: '#include "vramplan/report.hpp"\n#include "ops/mlp.hpp"' },
  },
  {
    name: 'only core/json sees nlohmann_json',
    files: ['core', 'wasm'].flatMap((folder) => filesBelow(folder, cpp)),
    violations: nlohmann,
    bad: [{ path: 'core/cli/main.cpp', text: '#include <nlohmann/json.hpp>' }],
    good: { path: 'core/json/reader.cpp', text: '#include <nlohmann/json.hpp>' },
  },
  {
    name: 'wasm knows the door and nothing behind it',
    files: filesBelow('wasm', cpp),
    violations: beyondTheDoor,
    bad: [{ path: 'wasm/bindings.cpp', text: '#include "vramplan/planner.hpp"' }],
    good: { path: 'wasm/bindings.cpp', text: '#include "api.hpp"\n#include <emscripten/bind.h>' },
  },
  {
    name: 'only engine.ts imports the Wasm module',
    files: web,
    violations: importsWasm,
    bad: [
      { path: 'web/src/main.ts', text: "import create from 'vramplan-core';" },
      { path: 'web/src/form.ts', text: "const core = await import('vramplan-core');" },
    ],
    good: { path: 'web/src/engine.ts', text: "import create from 'vramplan-core';" },
  },
  {
    name: 'views never import the engine',
    files: web.filter(({ path }) => path.startsWith('web/src/view/')),
    violations: importsEngine,
    bad: [
      { path: 'web/src/view/bar.ts', text: "import { plan } from '../engine';" },
      { path: 'web/src/view/bar.ts', text: "import { startPlanner } from '../planner';" },
    ],
    good: { path: 'web/src/view/bar.ts', text: "import type { Report } from '../wire';" },
  },
];

for (const { name, files, violations, bad, good } of rules) {
  test(name, () => assert.deepEqual(files.flatMap(violations), []));
  test(`the rule sees: ${name}`, () => {
    for (const file of bad) assert.notEqual(violations(file).length, 0, file.text);
    assert.deepEqual(violations(good), []);
  });
}
