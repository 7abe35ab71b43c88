// node tests/web/speed.mjs [ROUNDS]: how long a visitor waits, on this machine: from navigation to the first number, and from
// a change of each control to the painted answer, at full speed and with a processor four times as slow.
import { newPage, open, startBrowser, startServer } from './browser.mjs';

const rounds = Number(process.argv[2] ?? 5);
const server = await startServer();

const quantile = (values, q) =>
  [...values].sort((a, b) => a - b)[Math.min(values.length - 1, Math.floor(q * values.length))];
const shown = (values) => `median ${quantile(values, 0.5).toFixed(1)} ms, 95th ${quantile(values, 0.95).toFixed(1)} ms`;

/** A fresh browser each time: nothing is compiled or cached. */
async function firstNumbers() {
  const times = [];
  for (let round = 0; round < rounds; round++) {
    const browser = await startBrowser();
    const page = await newPage(browser);
    await page.addInitScript(() => {
      new MutationObserver((_, observer) => {
        if (!document.querySelector('.number-value')) return;
        observer.disconnect();
        requestAnimationFrame(() => setTimeout(() => (globalThis.firstNumber = performance.now())));
      }).observe(document, { childList: true, subtree: true });
    });
    await page.goto(server.url);
    await page.waitForFunction(() => globalThis.firstNumber);
    times.push(await page.evaluate(() => globalThis.firstNumber));
    await browser.close();
  }
  return times;
}

/** Each control of the form to each of its values, or a few numbers; the time until a frame with the answer is drawn. */
const changeEverything = async () => {
  const painted = () =>
    new Promise((resolve) => {
      requestAnimationFrame(() => {
        const { port1, port2 } = new MessageChannel();
        port1.onmessage = () => resolve(performance.now());
        port2.postMessage(0);
      });
    });
  const times = [];
  const settle = () => new Promise((resolve) => setTimeout(resolve, 120));
  const measure = async (act) => {
    await settle();
    const start = performance.now();
    act();
    times.push((await painted()) - start);
  };
  for (const details of document.querySelectorAll('details')) details.open = true;
  for (const radio of document.querySelectorAll('.steps input[type=radio]')) {
    if (radio.name !== 'method' && radio.name !== 'spread') continue;
    await measure(() => radio.click());
  }
  document.querySelector('input[name=method][value=qlora]').click();
  for (const id of [...document.querySelectorAll('.steps select, .steps input[type=text]')].map(
    (element) => element.id,
  )) {
    const element = document.getElementById(id);
    if (!element || id === 'model-input') continue;
    const before = element.value;
    const [event, values] =
      element.localName === 'select'
        ? ['change', [...element.options].slice(0, 4).map((option) => option.value)]
        : ['input', ['2', '4']];
    for (const value of [...values, before]) {
      const now = document.getElementById(id);
      if (now)
        await measure(() => {
          now.value = value;
          now.dispatchEvent(new Event(event, { bubbles: true }));
        });
    }
  }
  return times;
};

console.log(`navigation to first number: ${shown(await firstNumbers())}`);
for (const rate of [1, 4]) {
  const browser = await startBrowser();
  const page = await newPage(browser);
  await open(page, server.url);
  const session = await page.context().newCDPSession(page);
  await session.send('Emulation.setCPUThrottlingRate', { rate });
  const times = await page.evaluate(changeEverything);
  console.log(
    `input to painted answer, ${times.length} changes, processor ${rate === 1 ? 'as it is' : 'four times slower'}: ${shown(times)}`,
  );
  await browser.close();
}
server.close();
