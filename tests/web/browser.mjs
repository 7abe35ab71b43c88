// What the tests of the page share: a browser, the built page, and a hosted copy under the strict header.
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

export const root = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
export const site = process.env.VRAMPLAN_SITE ?? join(root, 'web', 'dist', 'site');
export const offlinePage = join(site, '..', 'offline', 'vramplan.html');

const require = createRequire(join(root, 'web', 'package.json'));
const { chromium } = require('playwright-core');
export const axeSource = require('axe-core').source;

const flags = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

export const startBrowser = () =>
  chromium.launch({ executablePath: process.env.VRAMPLAN_CHROMIUM ?? '/usr/bin/chromium', args: flags });

export async function startServer() {
  const { serve } = await import(pathToFileURL(join(root, 'web', 'server.mjs')).href);
  return serve(site);
}

export const fileUrl = (path) => pathToFileURL(path).href;

/** A page that remembers everything that went wrong on it. */
export async function newPage(browser, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 1000 }, locale: 'nl-NL', ...options });
  const page = await context.newPage();
  page.complaints = [];
  page.on('console', (message) => page.complaints.push(`console: ${message.text()}`));
  page.on('pageerror', (error) => page.complaints.push(`error: ${error.message}`));
  await page.addInitScript(() => {
    globalThis.violations = [];
    document.addEventListener('securitypolicyviolation', (event) =>
      globalThis.violations.push(`${event.violatedDirective} ${event.blockedURI}`),
    );
  });
  return page;
}

/** Until the page shows all that there is to say about what was filled in. */
export const settled = (page) => page.waitForSelector('#page:not([data-waiting]) .verdict h2');

export async function open(page, url) {
  await page.goto(url);
  await settled(page);
}

/** Everything that was logged, thrown or blocked since the page was made. */
export async function complaintsOf(page) {
  return [...page.complaints, ...(await page.evaluate(() => globalThis.violations))];
}

/** What the page shows as its answer. */
export async function answerOf(page) {
  return page.evaluate(() => {
    const texts = (selector) => [...document.querySelectorAll(selector)].map((element) => element.textContent.trim());
    return {
      verdict: document.querySelector('.verdict h2').textContent.trim(),
      numbers: texts('.number-value'),
      components: texts('.components tbody .expander'),
      figures: texts('.components tbody tr:not(.detail-row) td.figure:nth-of-type(1)'),
      stale: document.querySelector('.answer-body').classList.contains('stale'),
    };
  });
}

/** Fills a field and waits until the answer has followed. */
export async function fill(page, label, text) {
  await page.getByLabel(label, { exact: true }).fill(text);
  await settled(page);
}
