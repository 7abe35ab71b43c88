// node tests/bench/page.mjs [ROUNDS]: how long a visitor waits, on this machine: from navigation to the first number, from a
// change of each control to the painted answer (at full speed and with a processor four times as slow), and how far the
// page moves after it was loaded. Needs a built page; judges nothing.
import { newPage, open, settled, startBrowser, startServer } from '../web/browser.mjs';

const rounds = Number(process.argv[2] ?? 5);
const rates = (process.argv[3] ?? '1,4').split(',').map(Number);
const server = await startServer();

const quantile = (values, q) =>
  [...values].sort((a, b) => a - b)[Math.min(values.length - 1, Math.floor(q * values.length))];
const shown = (values) => `median ${quantile(values, 0.5).toFixed(1)} ms, 95th ${quantile(values, 0.95).toFixed(1)} ms`;

/** A fresh profile each time: nothing is compiled or cached. */
async function firstLoad(browser) {
  const page = await newPage(browser);
  await page.addInitScript(() => {
    globalThis.shift = 0;
    new PerformanceObserver((list) => {
      for (const { value, hadRecentInput } of list.getEntries()) if (!hadRecentInput) globalThis.shift += value;
    }).observe({ type: 'layout-shift', buffered: true });
    new MutationObserver((_, observer) => {
      if (!document.querySelector('.number-value')) return;
      observer.disconnect();
      requestAnimationFrame(() => setTimeout(() => (globalThis.firstNumber = performance.now())));
    }).observe(document, { childList: true, subtree: true });
  });
  await page.waitForTimeout(2000); // a window opens with a page of the browser's own, which takes both cores for a second
  await page.goto(server.url);
  await page.waitForTimeout(1500); // asking the page whether it is there would take part of its time
  await settled(page);
  const measured = await page.evaluate(() => [globalThis.firstNumber, globalThis.shift]);
  await page.context().close();
  return measured;
}

/** Each control of the form to each of its values, or a few numbers; the time until a frame with the answer is drawn. */
const changeEverything = async () => {
  const root = document.getElementById('page');
  const ready = (isReady) =>
    new Promise((resolve) => {
      if (isReady()) return resolve();
      const observer = new MutationObserver(() => {
        if (!isReady()) return;
        observer.disconnect();
        resolve();
      });
      observer.observe(root, { attributeFilter: ['data-waiting'] });
    });
  const painted = async () => {
    await ready(() => root.dataset.waiting !== 'answer');
    return new Promise((resolve) => {
      requestAnimationFrame(() => {
        const { port1, port2 } = new MessageChannel();
        port1.onmessage = () => resolve(performance.now());
        port2.postMessage(0);
      });
    });
  };
  const times = {};
  const measure = async (name, act) => {
    await ready(() => !root.dataset.waiting);
    await new Promise((resolve) => setTimeout(resolve, 60 + Math.random() * 16));
    const start = performance.now();
    act();
    (times[name] ??= []).push((await painted()) - start);
  };
  for (const details of document.querySelectorAll('.steps details')) details.open = true;
  for (const radio of document.querySelectorAll('.steps input[type=radio]')) {
    if (radio.name === 'method' || radio.name === 'spread') await measure(radio.name, () => radio.click());
  }
  await measure('method', () => document.querySelector('input[name=method][value=qlora]').click());
  const controls = document.querySelectorAll('.steps select, .steps input[type=text], .steps input[type=checkbox]');
  for (const id of [...controls].map((element) => element.id)) {
    const element = document.getElementById(id);
    if (!element || id === 'model-input') continue;
    if (element.type === 'checkbox') {
      for (let turn = 0; turn < 2; turn++) await measure(id, () => document.getElementById(id)?.click());
      continue;
    }
    const before = element.value;
    const [event, values] =
      element.localName === 'select'
        ? ['change', [...element.options].slice(0, 4).map((option) => option.value)]
        : ['input', ['2', '4']];
    for (const value of [...values, before]) {
      const now = document.getElementById(id);
      if (now)
        await measure(id, () => {
          now.value = value;
          now.dispatchEvent(new Event(event, { bubbles: true }));
        });
    }
  }
  return times;
};

const loads = [];
const visitor = await startBrowser();
await new Promise((resolve) => setTimeout(resolve, 3000)); // a visitor's browser has started long ago
for (let round = 0; round < rounds; round++) loads.push(await firstLoad(visitor));
await visitor.close();
console.log(`navigation to first number: ${shown(loads.map(([time]) => time))}`);
console.log(`layout shift until all is there: ${Math.max(...loads.map(([, shift]) => shift)).toFixed(4)} at most`);
for (const rate of rates) {
  const browser = await startBrowser();
  const page = await newPage(browser);
  await open(page, server.url);
  const session = await page.context().newCDPSession(page);
  await session.send('Emulation.setCPUThrottlingRate', { rate });
  const times = await page.evaluate(changeEverything);
  const all = Object.values(times).flat();
  console.log(`\nprocessor ${rate === 1 ? 'as it is' : 'four times slower'}: input to painted answer`);
  for (const [name, values] of Object.entries(times)) console.log(`  ${name.padEnd(44)} ${shown(values)}`);
  console.log(`  ${`all ${all.length} changes`.padEnd(44)} ${shown(all)}`);
  await browser.close();
}
server.close();
