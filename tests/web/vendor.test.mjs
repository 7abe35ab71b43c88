// A vendor's copy: its settings in the page, what is said when they are wrong, and the planner within a foreign page.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';

import { complaintsOf, newPage, offlinePage, open, root, settled, site, startBrowser } from './browser.mjs';

let browser;
let server;
let shop;
let folder;

const settings = {
  name: 'Voorbeeld BV',
  colours: { accent: '#7a1f5c', accent_dark: '#f0a8d8' },
  contact: { label: 'Vraag een offerte', link: 'mailto:verkoop@example.org' },
  language: 'en',
  hidden: ['accuracy', 'matrix'],
  gpus: [
    {
      id: 'own-card',
      name: 'Own card 96',
      vendor: 'Voorbeeld',
      architecture: 'Hopper',
      form_factor: 'pcie',
      memory_gb: 96,
      usable_mib: 97887,
      usable_basis: 'driver_total',
      memory_bandwidth_gb_per_s: 4000,
      precisions: ['bf16', 'fp16'],
      pcie_generation: 5,
      pcie_lanes: 16,
      max_per_server: 8,
    },
  ],
};

// A page of another site, with rules that would ruin whatever they reach.
const hostile = `* { color: red !important; font-size: 40px !important; display: inline !important }
  iframe { height: 10px !important; border: 9px solid red !important; visibility: hidden !important }
  body { width: 800px }`;
const shopPages = {
  '/element': (planner) => `<script src="${planner}element.js" defer></script>
    <vram-planner lang="en" plan="v=1&method=lora"></vram-planner>`,
  // The recipe of the README, for sites that allow no script of others.
  '/frame': (
    planner,
  ) => `<div><iframe id="planner" src="${planner}index.html#v=1&language=en&method=lora" title="VRAM-planner"
      style="width: 100% !important; border: 0 !important; visibility: visible !important"></iframe></div><script>
      const frame = document.getElementById('planner');
      addEventListener('message', ({ source, data }) => {
        if (source === frame.contentWindow && data['vram-planner'])
          frame.style.setProperty('height', data['vram-planner'].height + 'px', 'important');
      });
    </script>`,
};

async function openShop() {
  const shop = createServer((request, response) => {
    const body = shopPages[request.url]?.(server.url);
    response.writeHead(body ? 200 : 404, { 'Content-Type': 'text/html; charset=utf-8' });
    response.end(`<!doctype html><html lang="nl"><title>Winkel</title><link rel="icon" href="data:,">
      <style>${hostile}</style><h1>Winkel</h1>${body}`);
  });
  await new Promise((resolve) => shop.listen(0, '127.0.0.1', resolve));
  const close = () => {
    shop.close();
    shop.closeAllConnections();
  };
  return { url: `http://localhost:${shop.address().port}`, close };
}

const withBlock = (page, block) =>
  page.replace(/(<script type="application\/json" id="vendor")[^>]*>[^<]*/, `$1${block}`);

before(async () => {
  browser = await startBrowser();
  folder = mkdtempSync(join(tmpdir(), 'vramplan-vendor-'));
  cpSync(site, folder, { recursive: true });
  const page = readFileSync(join(site, 'index.html'), 'utf8');
  const save = (name, text) => writeFileSync(join(folder, name), text);
  save('vendor.json', JSON.stringify(settings, null, 2));
  save('file.html', withBlock(page, ' data-src="vendor.json">'));
  save('inline.html', withBlock(page, `>${JSON.stringify(settings)}`));
  save('wrong.json', JSON.stringify({ ...settings, colours: { accent: 'red' }, hidden: ['everything'] }, null, 2));
  save('wrong.html', withBlock(page, ' data-src="wrong.json">'));
  save('broken.json', '{\n  "name": "Voorbeeld BV",\n  "language": en\n}\n');
  save('broken.html', withBlock(page, ' data-src="broken.json">'));
  save('rows.json', JSON.stringify({ gpus: [{ ...settings.gpus[0], memory_gb: 'veel' }] }, null, 2));
  save('rows.html', withBlock(page, ' data-src="rows.json">'));
  const { serve } = await import(pathToFileURL(join(root, 'web', 'server.mjs')).href);
  server = await serve(folder);
  shop = await openShop();
});
after(async () => {
  await browser?.close();
  server?.close();
  shop?.close();
  rmSync(folder, { recursive: true, force: true });
});

for (const name of ['file', 'inline']) {
  test(`settings from a ${name === 'file' ? 'file' : 'block in the page'} are used`, async () => {
    const page = await newPage(browser);
    await open(page, `${server.url}${name}.html`);
    assert.match(await page.locator('.brand').textContent(), /Voorbeeld BV/);
    assert.equal(await page.evaluate(() => document.documentElement.lang), 'en');
    assert.equal(
      await page.evaluate(() => getComputedStyle(document.documentElement).getPropertyValue('--accent')),
      '#7a1f5c',
    );
    assert.equal(await page.locator('#accuracy').count(), 0);
    assert.equal(await page.locator('#matrix').count(), 0);
    await page.locator('#field-hardware-gpu').selectOption('own-card');
    await settled(page);
    assert.match(await page.locator('.verdict-text').textContent(), /Own card 96/);
    await page.evaluate(() => (globalThis.open = (url) => (globalThis.opened = url)));
    await page.getByRole('button', { name: 'Vraag een offerte' }).click();
    const opened = await page.evaluate(() => globalThis.opened);
    assert.match(decodeURIComponent(opened), /^mailto:verkoop@example.org\?subject=.*&body=.*Own card 96.*#v=1/s);
    assert.deepEqual(await complaintsOf(page), []);
    await page.context().close();
  });
}

test('settings that are wrong are told with their lines, and none of them is used', async () => {
  const page = await newPage(browser);
  await open(page, `${server.url}wrong.html`);
  const told = (await page.locator('.vendor-problems li').allTextContents()).map((text) => text.trim());
  const lines = readFileSync(join(folder, 'wrong.json'), 'utf8').split('\n');
  const lineOf = (text) => lines.findIndex((line) => line.includes(text)) + 1;
  assert.equal(told.length, 2);
  assert.match(told[0], new RegExp(`^Regel ${lineOf('"accent"')}: Een kleur`));
  assert.match(told[1], new RegExp(`^Regel ${lineOf('"everything"')}: Kies uit`));
  assert.doesNotMatch(await page.locator('.brand').textContent(), /Voorbeeld/);
  await page.context().close();
});

test('a file that is not JSON is told with the line where it stops', async () => {
  const page = await newPage(browser);
  await open(page, `${server.url}broken.html`);
  assert.match(await page.locator('.vendor-problems li').textContent(), /^\s*Regel 3: Dit is geen geldige JSON/);
  await page.context().close();
});

test('a row that the planner cannot read is told with its line', async () => {
  const page = await newPage(browser);
  await open(page, `${server.url}rows.html`);
  assert.match(await page.locator('.vendor-problems li').textContent(), /^\s*Regel 9: Vul hier een heel getal in/);
  await page.context().close();
});

for (const [path, outer] of Object.entries({ '/element': 'vram-planner', '/frame': '#planner' })) {
  test(`within a foreign page with hostile styles the planner keeps its looks and its height (${path})`, async () => {
    const page = await newPage(browser);
    await page.goto(`${shop.url}${path}`);
    await page.waitForFunction((selector) => document.querySelector(selector).clientHeight > 2000, outer);
    const frame = page.frames().find((one) => one.url().startsWith(server.url));
    await settled(frame);
    assert.equal(await frame.evaluate(() => document.documentElement.lang), 'en');
    assert.equal(await frame.evaluate(() => document.querySelector('input[name=method]:checked').value), 'lora');
    const inside = await frame.evaluate(() => Math.ceil(document.body.getBoundingClientRect().height));
    await page.waitForFunction(
      ([selector, height]) => document.querySelector(selector).clientHeight === height,
      [outer, inside],
    );
    const colour = await frame.evaluate(() => getComputedStyle(document.querySelector('.verdict-text')).color);
    assert.notEqual(colour, 'rgb(255, 0, 0)');
    assert.deepEqual(await complaintsOf(page), []);
    await page.context().close();
  });
}

test('the single file takes a block too', async () => {
  const path = join(folder, 'single.html');
  writeFileSync(path, withBlock(readFileSync(offlinePage, 'utf8'), `>${JSON.stringify(settings)}`));
  const page = await newPage(browser);
  await open(page, pathToFileURL(path).href);
  assert.match(await page.locator('.brand').textContent(), /Voorbeeld BV/);
  assert.deepEqual(await complaintsOf(page), []);
  await page.context().close();
});
