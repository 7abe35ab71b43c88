// axe-core over the page as a visitor leaves it: both languages, light and dark, at rest, opened up, and with bad input.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { axeSource, fill, newPage, open, settled, startBrowser, startServer } from './browser.mjs';

let browser;
let server;
before(async () => {
  [browser, server] = await Promise.all([startBrowser(), startServer()]);
});
after(async () => {
  await browser?.close();
  server?.close();
});

async function violations(page) {
  await page.evaluate(axeSource);
  const result = await page.evaluate(() =>
    globalThis.axe.run(document, {
      runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
    }),
  );
  return result.violations.map(
    ({ id, nodes }) =>
      `${id}: ${nodes
        .slice(0, 3)
        .map((node) => node.html.slice(0, 160))
        .join(' | ')}`,
  );
}

const labels = { nl: 'Micro-batch per GPU', en: 'Micro-batch per GPU' };

async function openEverything(page) {
  for (const summary of await page.locator('details > summary').all())
    if (await summary.isVisible()) await summary.click();
  for (const expander of await page.locator('.expander').all()) await expander.click();
}

const crash =
  'Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 512.00 MiB is free. Including ' +
  'non-PyTorch memory, this process has 23.00 GiB memory in use. Of the allocated memory 21.00 GiB is allocated by ' +
  'PyTorch, and 1.25 GiB is reserved by PyTorch but unallocated.';

/** Plans beside each other, a crash explained, a change applied, a link that was damaged, a layout by hand. */
async function useEverything(page) {
  await page.locator('#diagnose-input').fill(crash);
  await page.locator('.diagnosis').waitFor();
  await settled(page); // a plan is kept once its answer is there
  await page.locator('.answer-tools .quiet').nth(1).click();
  await page.locator('.compare').waitFor();
  await page.locator('.change button').first().click();
  await settled(page);
}

for (const language of ['nl', 'en']) {
  for (const colorScheme of ['light', 'dark']) {
    test(`no violations: ${language}, ${colorScheme}`, async () => {
      const page = await newPage(browser, { colorScheme });
      await open(page, `${server.url}#language=${language}`);
      assert.deepEqual(await violations(page), []);
      await openEverything(page);
      await page.locator('#model-input').click();
      assert.deepEqual(await violations(page), [], 'opened up');
      await page.keyboard.press('Escape');
      await fill(page, labels[language], 'x');
      assert.deepEqual(await violations(page), [], 'with bad input');
      await page.context().close();
    });
  }
}

for (const colorScheme of ['light', 'dark']) {
  test(`no violations in use: ${colorScheme}`, async () => {
    const page = await newPage(browser, { colorScheme });
    await open(
      page,
      `${server.url}#v=1&language=nl&method=lora&count=8&zero=own&layout.dp=8&layout.zero=3&lora.rnak=8`,
    );
    await useEverything(page);
    await page.locator('.compare').waitFor();
    await page.locator('.diagnosis').waitFor();
    assert.deepEqual(await violations(page), []);
    await page.context().close();
  });
}

for (const verdict of ['gpu=rtx-3060-12gb&/training/method=full', 'hardwareBy=search']) {
  for (const colorScheme of ['light', 'dark']) {
    test(`no violations on a phone: ${verdict}, ${colorScheme}`, async () => {
      const page = await newPage(browser, { colorScheme, viewport: { width: 375, height: 740 } });
      await open(page, `${server.url}#${verdict}`);
      assert.deepEqual(await violations(page), []);
      await page.context().close();
    });
  }
}
