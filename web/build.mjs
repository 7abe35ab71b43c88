// Builds the page: web/src and the Wasm module in build/wasm/wasm (or $VRAMPLAN_WASM_DIR) become
//
//   dist/site/              index.html, early.js, app.js, engine.js, style.css, vramplan.html (a copy of the single file, for
//                           visitors to save) and the files of web/public
//   dist/offline/vramplan.html  the same texts in one file, with a policy that allows exactly them
//
// Both use classic scripts: module scripts and fetched files do not run from file://, or once a page was saved.
// engine.js runs in a worker, or as a script where none starts; it holds the module's bytes, gzipped and in base64 (text
// that holds packed bytes packs to their size again). The single file holds its text in a block of data.
//
// web/src/index.html holds four placeholders, each once, and the places (data-place) for the text of the page as it starts:
//   <!-- build:policy -->   in the head, before anything that loads
//   <!-- build:styles -->   in the head: src/styles.css
//   <!-- build:early -->    in the head, after the vendor's block: the script that runs before the page is read
//   <!-- build:scripts -->  at the end of the body, because inline scripts cannot be deferred
//
// node web/build.mjs               builds; prints the bytes of the single file as JSON
// node web/build.mjs --check-size  compares the file built last with web/size.json
// node web/build.mjs --write-size  records its size there
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { gzipSync } from 'node:zlib';

const web = dirname(fileURLToPath(import.meta.url));
const site = join(web, 'dist', 'site');
const offline = join(web, 'dist', 'offline', 'vramplan.html');
const recorded = join(web, 'size.json');
const wasmDir = process.env.VRAMPLAN_WASM_DIR ?? join(web, '..', 'build', 'wasm', 'wasm');

const hash = (text) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
const read = (...path) => readFileSync(join(...path), 'utf8').replaceAll('\r\n', '\n');

/** One text from a file of src, safe inside a script element. */
async function bundleScript(name, define = {}) {
  const { build } = await import('esbuild');
  const result = await build({
    entryPoints: [join(web, 'src', name)],
    alias: { 'vramplan-core': join(wasmDir, 'vramplan.mjs') },
    bundle: true,
    minify: true,
    format: 'iife',
    target: 'es2022',
    charset: 'ascii', // a saved copy may be written in another encoding
    define: { 'import.meta.url': '"engine.js"', ...define }, // there is none in a classic script
    legalComments: 'none',
    write: false,
  });
  // Hexadecimal escapes mean the same in strings, templates and regular expressions.
  return result.outputFiles[0].text.replaceAll('</script', '<\\x2fscript').replaceAll('<!--', '<\\x21--');
}

async function bundleEngine() {
  const wasm = gzipSync(readFileSync(join(wasmDir, 'vramplan.wasm')), { level: 9 }).toString('base64');
  return bundleScript('worker.ts', { VRAMPLAN_WASM: JSON.stringify(wasm) });
}

/** What the page knows before the planner has started, by the module that it carries: src/first.ts, and its picture. */
async function firstAnswer() {
  const { build } = await import('esbuild');
  const bundle = await build({
    entryPoints: [join(web, 'src', 'prerender.ts')],
    bundle: true,
    format: 'esm',
    platform: 'node',
    write: false,
  });
  const { firstPlaces, initialRequest } = await import(
    `data:text/javascript,${encodeURIComponent(bundle.outputFiles[0].text)}`
  );
  const { default: createVramplan } = await import(pathToFileURL(join(wasmDir, 'vramplan.mjs')).href);
  const wasmBinary = readFileSync(join(wasmDir, 'vramplan.wasm'));
  const core = await createVramplan({ wasmBinary, locateFile: (name) => name });
  const catalogue = JSON.parse(core.catalogue());
  const request = JSON.stringify(initialRequest(catalogue));
  const report = core.glance(request);
  check(JSON.parse(report).problems.length === 0, `the page starts with what has problems: ${report}`);
  return {
    known: JSON.stringify(JSON.stringify({ catalogue, request, report })),
    places: firstPlaces(catalogue, JSON.parse(report)),
  };
}

async function bundleStyle() {
  const { build } = await import('esbuild');
  const result = await build({
    entryPoints: [join(web, 'src', 'styles.css')],
    bundle: true,
    minify: true,
    charset: 'ascii',
    write: false,
  });
  return result.outputFiles[0].text;
}

/** The template with every placeholder filled; each must be there exactly once. */
function fill(template, parts) {
  for (const [name, text] of Object.entries(parts)) {
    const pieces = template.split(`<!-- build:${name} -->`);
    if (pieces.length !== 2) throw new Error(`src/index.html must hold <!-- build:${name} --> once`);
    template = pieces.join(text);
  }
  return template;
}

/** The template with the text of each place in it. */
function fillPlaces(template, places) {
  for (const [name, text] of places) {
    const pieces = template.split(new RegExp(`(?<=data-place="${name}"[^>]*>)(?=</)`));
    if (pieces.length !== 2) throw new Error(`src/index.html must hold an empty place "${name}" once`);
    template = pieces.join(text);
  }
  return template;
}

function offlinePage(template, { app, early, style, engine }) {
  const policy = [
    "default-src 'none'",
    `script-src ${hash(app)} ${hash(early)} ${hash(engine)} 'wasm-unsafe-eval'`,
    'worker-src blob:',
    `style-src ${hash(style)}`,
    'img-src data:',
    "base-uri 'none'",
    "form-action 'none'",
  ];
  return fill(template, {
    policy: `<meta http-equiv="Content-Security-Policy" content="${policy.join('; ')}">`,
    styles: `<style>${style}</style>`,
    early: `<script>${early}</script>`,
    scripts: `<script type="text/plain" id="engine">${engine}</script>\n<script>${app}</script>`,
  });
}

function check(condition, message) {
  if (!condition) throw new Error(message);
}

/** What both forms promise, read back from what was written. */
function checkOutputs() {
  const [app, engine, single] = [read(site, 'app.js'), read(site, 'engine.js'), read(offline)];
  for (const [name, text] of Object.entries({ 'app.js': app, 'engine.js': engine, 'vramplan.html': single })) {
    check(!/\beval\(|\bnew Function\(/.test(text), `${name} builds code from text, which the policy forbids`);
  }
  check(!/<\/style/i.test(read(site, 'style.css')), 'style.css closes its own element');
  check(single.includes(`id="engine">${engine}</script>`), 'the two pages hold different engines');
}

async function buildPage() {
  const [first, early, engine, style] = await Promise.all([
    firstAnswer(),
    bundleScript('early.ts'),
    bundleEngine(),
    bundleStyle(),
  ]);
  const app = await bundleScript('main.ts', { VRAMPLAN_FIRST: first.known });
  const template = fillPlaces(read(web, 'src', 'index.html'), first.places);

  rmSync(join(web, 'dist'), { recursive: true, force: true });
  mkdirSync(site, { recursive: true });
  mkdirSync(dirname(offline), { recursive: true });
  if (existsSync(join(web, 'public'))) cpSync(join(web, 'public'), site, { recursive: true });
  // The comment has Chromium compile it while it arrives, beside the page, instead of piece by piece when it runs.
  writeFileSync(join(site, 'app.js'), `//# allFunctionsCalledOnLoad\n${app}`);
  writeFileSync(join(site, 'early.js'), early);
  writeFileSync(join(site, 'engine.js'), engine);
  writeFileSync(join(site, 'style.css'), style);
  const page = fill(template, {
    policy: '', // a host sends it as a header, see server.mjs
    styles: '<link rel="stylesheet" href="style.css">',
    early: '<script src="early.js"></script>',
    scripts: '<script defer fetchpriority="low" src="app.js"></script>',
  });
  writeFileSync(join(site, 'index.html'), page);
  writeFileSync(offline, offlinePage(template, { app, early, engine, style }));
  cpSync(offline, join(site, 'vramplan.html')); // what the page offers to save
  checkOutputs();
}

function measure() {
  const bytes = readFileSync(offline);
  return { raw: bytes.length, gzip: gzipSync(bytes, { level: 9 }).length };
}

function checkSize() {
  const expected = existsSync(recorded) ? JSON.parse(read(recorded)) : {};
  const now = measure();
  for (const [name, bytes] of Object.entries(now)) {
    check(
      Math.abs(bytes - expected[name]) <= expected[name] / 100,
      `vramplan.html: ${bytes} bytes ${name}, recorded ${expected[name] ?? 'nowhere'}. ` +
        'If the change is meant, update with: node web/build.mjs --write-size',
    );
  }
  return now;
}

try {
  const mode = process.argv[2];
  if (!mode) await buildPage();
  if (mode === '--write-size') writeFileSync(recorded, `${JSON.stringify(measure(), null, 2)}\n`);
  console.log(JSON.stringify(mode === '--check-size' ? checkSize() : measure()));
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
