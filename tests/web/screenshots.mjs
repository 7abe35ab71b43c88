// node tests/web/screenshots.mjs FOLDER [hash]: pictures of the page at 1440 and 390 pixels, Dutch and English, light and dark.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';

import { newPage, open, startBrowser, startServer } from './browser.mjs';

const [folder, input = ''] = process.argv.slice(2);
if (!folder) {
  console.error('usage: node tests/web/screenshots.mjs FOLDER [inputs as in a link]');
  process.exit(2);
}
mkdirSync(folder, { recursive: true });

/** What is out of sight is not laid out: its height is known when it was seen. */
async function wholeHeight(page) {
  for (const part of await page.locator('.part').all()) await part.evaluate((element) => element.scrollIntoView());
  await page.evaluate(() => scrollTo(0, 0));
  return page.evaluate(() => document.documentElement.scrollHeight);
}

const sizes = { desktop: { width: 1440, height: 1000 }, phone: { width: 390, height: 844 } };
const server = await startServer();
const browser = await startBrowser();
for (const [size, viewport] of Object.entries(sizes)) {
  for (const language of ['nl', 'en']) {
    for (const colorScheme of ['light', 'dark']) {
      const page = await newPage(browser, { viewport, colorScheme });
      await open(page, `${server.url}#language=${language}${input && `&${input}`}`);
      const name = join(folder, `${size}-${language}-${colorScheme}`);
      await page.screenshot({ path: `${name}.png` });
      await page.setViewportSize({ width: viewport.width, height: await wholeHeight(page) });
      await page.waitForTimeout(300);
      await page.screenshot({ path: `${name}-whole.png` });
      await page.context().close();
    }
  }
}
await browser.close();
server.close();
