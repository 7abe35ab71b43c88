// CMakeLists.txt holds the only copy of the version. The change log names it too, as do reports recorded below tests.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { filesBelow, readSource, root } from './sources.mjs';

const version = readSource('CMakeLists.txt').text.match(/project\(vramplan VERSION (\d+\.\d+\.\d+)/)[1];

function copies(text) {
  return text.match(new RegExp(`(?<![\\d.])${version.replaceAll('.', '\\.')}(?![\\d.])`, 'g')) ?? [];
}

const files = [
  ...['core', 'wasm', 'web'].flatMap((folder) =>
    filesBelow(folder, /^(?!package-lock).*\.(\w?pp|ts|m?js|json|html|css|txt|cmake)$/),
  ),
  ...['CMakePresets.json', 'README.md'].filter((path) => existsSync(join(root, path))).map(readSource),
].filter(({ path }) => !path.startsWith('core/data/'));

test('the version stands in CMakeLists.txt alone', () => {
  for (const { path, text } of files) assert.deepEqual([...copies(text)], [], path);
});

test('the page has no version of its own', () => {
  const manifest = JSON.parse(readSource('web/package.json').text);
  assert.equal(manifest.version, '0.0.0');
  assert.equal(manifest.private, true);
});

test('the rule sees a copy', () => {
  assert.equal(copies(`"version": "${version}"`).length, 1);
  assert.equal(copies(`1${version} ${version}.4`).length, 0);
});
