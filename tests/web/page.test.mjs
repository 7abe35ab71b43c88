// The page in a browser: hosted under the strict header, as one file, saved after use, by keyboard, with bad input.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import {
  answerOf,
  complaintsOf,
  fileUrl,
  fill,
  newPage,
  offlinePage,
  open,
  settled,
  startBrowser,
  startServer,
} from './browser.mjs';

let browser;
let server;
let folder;

before(async () => {
  [browser, server] = await Promise.all([startBrowser(), startServer()]);
  folder = mkdtempSync(join(tmpdir(), 'vramplan-'));
});
after(async () => {
  await browser?.close();
  server?.close();
  rmSync(folder, { recursive: true, force: true });
});

const addresses = { hosted: () => server.url, 'one file': () => fileUrl(offlinePage) };

async function onPage(url, work, options) {
  const page = await newPage(browser, options);
  try {
    await open(page, url);
    await work(page);
    assert.deepEqual(await complaintsOf(page), []);
  } finally {
    await page.context().close();
  }
}

const digits = (value) => (value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2);
const inGB = (bytes) =>
  `${new Intl.NumberFormat('nl-NL', { minimumFractionDigits: digits(bytes / 1e9), maximumFractionDigits: digits(bytes / 1e9) }).format(bytes / 1e9)}\u00a0GB`;

const theDefault = {
  model: 'meta-llama/Llama-3.1-8B',
  training: { method: 'qlora' },
  hardware: { gpu: 'rtx-4090', count: 1 },
  layout: { dp: 1, zero: 0 },
};

/** The three numbers as the native planner gives them; null where there is none to ask. */
function expected(change = {}) {
  if (!process.env.VRAMPLAN_BIN) return null;
  const request = { ...theDefault, ...change, training: { ...theDefault.training, ...change.training } };
  const report = JSON.parse(
    execFileSync(process.env.VRAMPLAN_BIN, ['plan'], {
      input: JSON.stringify(request),
      encoding: 'utf8',
      maxBuffer: 1 << 26,
    }),
  );
  const { allocated, reserved, device } = report.memory.per_gpu;
  return [allocated, reserved, device].map((estimate) => inGB(estimate.expected));
}

function assertNumbers(answer, change) {
  const numbers = expected(change);
  if (numbers) assert.deepEqual(answer.numbers, numbers);
}

function assertComplete(answer) {
  assert.equal(answer.numbers.length, 3);
  for (const text of answer.numbers) assert.match(text, /^\d[\d.,]*\u00a0GB$/);
  assert.ok(answer.components.length >= 5, 'components');
  assert.match(answer.verdict, /^(Past|Fits|Does)/);
  assert.equal(answer.stale, false);
}

for (const [name, address] of Object.entries(addresses)) {
  test(`${name}: a complete answer at load, and the right one after a change`, () =>
    onPage(address(), async (page) => {
      const first = await answerOf(page);
      assertComplete(first);
      assertNumbers(first);
      assert.ok((await page.locator('.offer').count()) > 0, 'suggestions');
      assert.ok((await page.locator('.probe').count()) > 10, 'timeline');
      assert.equal(await page.locator('#not-running').isVisible(), false);

      await fill(page, 'Sequentielengte (tokens)', '8.192');
      const second = await answerOf(page);
      assertComplete(second);
      assertNumbers(second, { training: { sequence_length: 8192 } });
      assert.notDeepEqual(second.numbers, first.numbers);
    }));
}

test('work that takes its time is told and can be stopped, and what was there before stays, greyed', async () => {
  const page = await newPage(browser);
  // The engine gets no whole plan to make until the test says so.
  await page.addInitScript(() => {
    const send = Worker.prototype.postMessage;
    Worker.prototype.postMessage = function (call) {
      if (call.name !== 'plan' || !globalThis.holdPlans) send.call(this, call);
    };
  });
  await open(page, server.url);
  const before = await page.locator('.offer').count();
  await page.evaluate(() => (globalThis.holdPlans = true));
  await page.getByLabel('Micro-batch per GPU', { exact: true }).fill('2');
  await page.locator('.progress').waitFor();
  assertNumbers(await answerOf(page), { training: { micro_batch: 2 } }); // the answer waits for nothing
  await page.locator('.progress button').click();
  assert.match(await page.locator('.progress').textContent(), /^\s*Gestopt: de grijze onderdelen/);
  assert.equal(await page.locator('.part.stale .offer').count(), before);
  assert.equal(await page.locator('.part.stale .components').count(), 0);
  await page.evaluate(() => (globalThis.holdPlans = false));
  await page.locator('.progress button').click();
  await settled(page);
  assert.equal(await page.locator('.progress').count(), 0);
  assert.equal(await page.locator('.part.stale').count(), 0);
  assert.deepEqual(await complaintsOf(page), []);
  await page.context().close();
});

for (const [name, address] of Object.entries(addresses)) {
  test(`${name}: the page answers where no worker starts`, async () => {
    const page = await newPage(browser);
    await page.addInitScript(() => {
      globalThis.Worker = class {
        constructor() {
          throw new Error('no workers here');
        }
      };
    });
    await open(page, address());
    await fill(page, 'Sequentielengte (tokens)', '8.192');
    assertNumbers(await answerOf(page), { training: { sequence_length: 8192 } });
    assert.deepEqual(await complaintsOf(page), []);
    await page.context().close();
  });
}

/** What the workers are asked, in `asked`; calls named in `held` wait until `release()`. */
const watchWorkers = (page) =>
  page.addInitScript(() => {
    const send = Worker.prototype.postMessage;
    const waiting = [];
    Object.assign(globalThis, { asked: [], held: [], release: () => waiting.splice(0).forEach((go) => go()) });
    Worker.prototype.postMessage = function (call) {
      globalThis.asked.push(call.name);
      if (globalThis.held.includes(call.name)) waiting.push(() => send.call(this, call));
      else send.call(this, call);
    };
  });

/** Types a micro-batch; the first number as the next frame shows it, and whether a worker was asked for it. */
const typeBatch = (page, batch) =>
  page.evaluate(async (batch) => {
    globalThis.asked = [];
    const field = document.getElementById('field-training-micro_batch');
    field.value = batch;
    field.dispatchEvent(new Event('input', { bubbles: true }));
    await new Promise(requestAnimationFrame);
    return {
      number: document.querySelector('.number-value').textContent.trim(),
      isOfWorker: globalThis.asked.includes('glance'),
    };
  }, String(batch));

for (const [name, address] of Object.entries(addresses)) {
  test(`${name}: once there is a visitor, the next frame shows the answer; a slow answer is left to a worker`, async () => {
    const page = await newPage(browser);
    await watchWorkers(page);
    await open(page, address());
    await page.mouse.move(10, 10);
    for (let turn = 0; (await typeBatch(page, 2 + (turn % 2))).isOfWorker; turn++) {
      assert.ok(turn < 50, 'the engine within the page does not start');
      await settled(page);
    }
    const numbers = [];
    for (const batch of [4, 8]) {
      const { number, isOfWorker } = await typeBatch(page, batch);
      assert.equal(isOfWorker, false);
      numbers.push(number);
      await settled(page);
      const answer = await answerOf(page);
      assertNumbers(answer, { training: { micro_batch: batch } });
      assert.equal(number, answer.numbers[0]);
    }
    assert.notEqual(numbers[0], numbers[1]);

    // Every look at the clock is a tenth of a second after the one before.
    await page.evaluate(() => {
      let late = 0;
      const now = performance.now.bind(performance);
      performance.now = () => now() + (late += 100);
    });
    const ofWorkers = [];
    for (const batch of [1, 2, 4]) {
      ofWorkers.push((await typeBatch(page, batch)).isOfWorker);
      await settled(page);
      assertNumbers(await answerOf(page), { training: { micro_batch: batch } });
    }
    assert.deepEqual(ofWorkers, [false, true, true]);
    await page.evaluate(() => delete performance.now);
    for (const batch of [2, 4]) {
      ofWorkers.push((await typeBatch(page, batch)).isOfWorker);
      await settled(page);
    }
    assert.deepEqual(ofWorkers.slice(3), [true, false]);
    assert.deepEqual(await complaintsOf(page), []);
    await page.context().close();
  });
}

test('a plan that is kept before its answer is there is kept when it comes', async () => {
  const page = await newPage(browser);
  await watchWorkers(page);
  await open(page, server.url);
  await page.evaluate(() => (globalThis.held = ['glance']));
  await page.getByLabel('Micro-batch per GPU', { exact: true }).fill('8');
  await page.getByRole('button', { name: 'Bewaar om te vergelijken' }).click();
  await page.waitForTimeout(200);
  assert.equal(await page.locator('.compare tbody').count(), 0);
  await page.evaluate(() => {
    globalThis.held = [];
    globalThis.release();
  });
  await page.locator('.compare tbody').waitFor();
  await settled(page);
  const kept = await page.locator('.compare tbody').textContent();
  const [inUse, , onCard] = (await answerOf(page)).numbers;
  for (const number of [inUse, onCard]) assert.equal(kept.split(number).length, 3, `${number} twice in ${kept}`);
  assertNumbers(await answerOf(page), { training: { micro_batch: 8 } });
  await page.context().close();
});

/** Scrolls past everything: a chart takes its width when it comes into sight. */
const seeAll = (page) =>
  page.evaluate(async () => {
    for (const part of document.querySelectorAll('.part')) {
      part.scrollIntoView();
      for (let frames = 0; frames < 3; frames++) await new Promise(requestAnimationFrame);
    }
  });

test('saved after use, the page opens with what was filled in and answers it', async () => {
  const saved = join(folder, 'saved.html');
  let used;
  const text = await (async () => {
    let html;
    await onPage(fileUrl(offlinePage), async (page) => {
      await page.getByRole('radio', { name: /^LoRA/ }).check();
      await fill(page, 'Micro-batch per GPU', '4');
      used = await answerOf(page);
      await settled(page);
      await seeAll(page);
      html = await page.evaluate(() => `<!doctype html>${document.documentElement.outerHTML}`);
    });
    return html;
  })();
  writeFileSync(saved, text);
  await onPage(fileUrl(saved), async (page) => {
    assert.equal(await page.getByLabel('Micro-batch per GPU', { exact: true }).inputValue(), '4');
    assert.equal(await page.getByRole('radio', { name: /^LoRA/ }).isChecked(), true);
    assert.deepEqual(await answerOf(page), used);
    assertNumbers(used, { training: { method: 'lora', micro_batch: 4 } });
    assert.equal(await page.locator('.verdict').count(), 1, 'nothing is drawn twice');
    await settled(page);
    await seeAll(page);
    const again = await page.evaluate(() => document.documentElement.outerHTML.length);
    assert.ok(again - text.length < 200, `${again - text.length} characters: the page grows when saved again`);
  });
});

test('a copy that cannot run says so', async () => {
  const dead = join(folder, 'dead.html');
  await onPage(server.url, async (page) => {
    writeFileSync(
      dead,
      await page.evaluate(() => document.documentElement.outerHTML.replace(/<script.*?<\/script>/gs, '')),
    );
  });
  const page = await newPage(browser);
  await page.goto(fileUrl(dead));
  await page.locator('#not-running').waitFor({ state: 'visible', timeout: 10_000 });
  await page.context().close();
});

test('model and method can be chosen with the keyboard alone', () =>
  onPage(server.url, async (page) => {
    const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.getAttribute('name'));
    for (let presses = 0; (await focused()) !== 'model-input'; presses++) {
      assert.ok(presses < 20, 'the search box is reached by Tab');
      await page.keyboard.press('Tab');
    }
    await page.keyboard.type('qwen2.5 7b');
    const box = page.getByRole('combobox', { name: 'Model' });
    assert.equal(await box.getAttribute('aria-expanded'), 'true');
    const active = await box.getAttribute('aria-activedescendant');
    const choice = await page.locator(`#${active} .option-name`).textContent();
    await page.keyboard.press('Enter');
    await settled(page);
    assert.equal(await box.inputValue(), choice);
    assert.equal(await box.getAttribute('aria-expanded'), 'false');
    assert.ok((await page.locator('.verdict-text').textContent()).includes(choice));

    await page.keyboard.press('ArrowDown');
    assert.equal(await box.getAttribute('aria-expanded'), 'true');
    await page.keyboard.press('Escape');
    assert.equal(await box.inputValue(), choice);

    await page.keyboard.press('Tab');
    assert.equal(await focused(), 'method');
    await page.keyboard.press('ArrowUp');
    await settled(page);
    const method = await page.evaluate(() => document.querySelector('input[name="method"]:checked').value);
    assert.notEqual(method, 'qlora');
    assertNumbers(await answerOf(page), { model: 'Qwen/Qwen2.5-7B', training: { method } });
  }));

const badInput = {
  nl: {
    label: 'Sequentielengte (tokens)',
    words: 'Vul hier een heel getal in.',
    range: /Kies een waarde van 1 tot en met/,
    stale: 'Antwoord op de vorige invoer',
  },
  en: {
    label: 'Sequence length (tokens)',
    words: 'Enter a whole number here.',
    range: /Choose a value from 1 to/,
    stale: 'Answer to the previous input',
  },
};
for (const [language, text] of Object.entries(badInput)) {
  test(`bad input has a sentence at its field, and the last answer stays (${language})`, () =>
    onPage(`${server.url}#language=${language}`, async (page) => {
      const good = await answerOf(page);
      const field = page.getByLabel(text.label, { exact: true });
      await fill(page, text.label, 'veel');
      assert.equal(await field.getAttribute('aria-invalid'), 'true');
      const described = (await field.getAttribute('aria-describedby')).split(' ');
      assert.equal((await page.locator(`#${described[0]}`).textContent()).trim(), text.words);
      const bad = await answerOf(page);
      assert.deepEqual({ ...bad, stale: false }, good);
      assert.equal(bad.stale, true);
      assert.equal(await page.locator('.stale-label').textContent(), text.stale);

      await fill(page, text.label, '0');
      assert.match(await page.locator('.field-problem').first().textContent(), text.range);
      await page.locator('.problems a').first().click();
      assert.equal(await field.evaluate((element) => element === document.activeElement), true);

      await fill(page, text.label, '2048');
      assert.deepEqual(await answerOf(page), good);
      assert.equal(await field.getAttribute('aria-invalid'), 'false');
    }));
}

test('a link with input that has no answer opens with that of the first example, greyed', () =>
  onPage(`${server.url}#v=1&language=en&micro_batch=many`, async (page) => {
    assert.equal((await answerOf(page)).stale, true);
    assert.equal(await page.evaluate(() => document.documentElement.lang), 'en');
  }));

test('an unknown model, a broken config.json and a wrong size each have a sentence', () =>
  onPage(server.url, async (page) => {
    const box = page.getByRole('combobox', { name: 'Model' });
    await box.fill('geen-enkel-model');
    await page.keyboard.press('Enter');
    await settled(page);
    assert.match(await page.locator('#field-model-problem').textContent(), /onbekend/);
    await page.getByRole('radio', { name: 'config.json' }).check();
    await fill(page, 'Inhoud van config.json', '{ "model_type": ');
    assert.match(await page.locator('#field-model-config-problem').textContent(), /geldige JSON/);
    await page.getByRole('radio', { name: 'Alleen de grootte' }).check();
    await fill(page, 'Grootte in miljard parameters', 'reusachtig');
    assert.match(await page.locator('#field-model-parameters-problem').textContent(), /heel getal/);
    await fill(page, 'Grootte in miljard parameters', '7,5');
    assertComplete(await answerOf(page));
  }));

test('the link restores everything, and another link in the same tab too', () =>
  onPage(server.url, async (page) => {
    await page.getByRole('button', { name: 'English' }).click();
    await page.getByRole('radio', { name: /^Full fine-tuning/ }).check();
    await fill(page, 'Number of GPUs', '8');
    await page.getByLabel('GPU', { exact: true }).selectOption({
      label: await page.locator('#field-hardware-gpu option', { hasText: 'H100' }).first().textContent(),
    });
    await page.getByRole('button', { name: 'GiB' }).click();
    await settled(page);
    const answer = await answerOf(page);
    const link = page.url();
    await onPage(link, async (other) => {
      assert.deepEqual(await answerOf(other), answer);
      assert.equal(await other.evaluate(() => document.documentElement.lang), 'en');
      await other.evaluate(() => (location.hash = 'v=1&language=nl&method=lora'));
      await other.waitForFunction(() => document.documentElement.lang === 'nl');
      assert.equal(await other.getByRole('radio', { name: /^LoRA/ }).isChecked(), true);
    });
  }));

test('a suggestion can be applied', () =>
  onPage(`${server.url}#hardwareBy=search`, async (page) => {
    assert.match((await answerOf(page)).verdict, /per GPU nodig/);
    const button = page.getByRole('button', { name: /^Kies deze/ }).first();
    await button.click();
    await settled(page);
    assert.match((await answerOf(page)).verdict, /^Past (ruim|krap)/);
  }));

test('a change does what it promises', () =>
  onPage(server.url, async (page) => {
    const changes = page.locator('.change');
    const promised = (await changes.first().locator('.offer-figures').textContent()).match(/daarna (\S+\sGB)/)[1];
    await changes.first().getByRole('button').click();
    await settled(page);
    assert.equal((await answerOf(page)).numbers[2], promised);
  }));

test('no text on the page is a key without words', async () => {
  for (const language of ['nl', 'en']) {
    await onPage(`${server.url}#language=${language}`, async (page) => {
      for (const summary of await page.locator('details > summary').all())
        if (await summary.isVisible()) await summary.click();
      for (const expander of await page.locator('.expander').all()) await expander.click();
      const keys = (await page.locator('body').innerText()).match(
        /\b(component|formula|event|phase|field|hint|value|problem|warning|verdict|group|symbol|number|chart|certainty|status|system|suggestion|change|fit|reason|type|details)\.[a-z_.]+/g,
      );
      assert.equal(keys, null);
    });
  }
});

const printed = {
  'beside another plan': 'v=1&method=lora&plan=v%3D1%26method%3Dfull',
  'on many GPUs':
    'v=1&method=full&framework=megatron&model=meta-llama/Llama-3.1-405B&gpu=h100-sxm-80gb&count=1024&zero=own' +
    '&layout.dp=16&layout.zero=1&layout.tp=8&layout.sp=true&layout.pp=8',
};
for (const [name, inputs] of Object.entries(printed)) {
  test(`printed, the answer and what it rests on take two sheets of A4 (${name})`, () =>
    onPage(`${server.url}#${inputs}`, async (page) => {
      const pdf = (await page.pdf({ preferCSSPageSize: true })).toString('latin1');
      const sheets = pdf.match(/\/Type\s*\/Page\b(?!s)/g).length;
      assert.ok(sheets <= 2, `${sheets} sheets`);
    }));
}

// Words of every English sentence that no Dutch one has, and that the house's list of borrowed terms has not.
const englishOnly =
  /\b(the|and|with|for|your|you|this|that|from|which|are|not|than|when|where|more|most|each|only|also|weights|memory|gradients|layers|sequence|states|needs?|fits?|shows?|choose|unknown|usable|estimate|length|without|between|keeps?|saves?|costs?|takes?|holds?|every|many|other|others|same|than|used|uses|into|while|after|before|because|free|larger|smaller|faster|slower)\b/i;

test('not one English word on the Dutch page', () =>
  onPage(`${server.url}#v=1&language=nl&method=lora&count=8&zero=own&layout.dp=8&layout.zero=3`, async (page) => {
    for (const summary of await page.locator('details > summary').all())
      if (await summary.isVisible()) await summary.click();
    for (const expander of await page.locator('.expander').all()) await expander.click();
    await settled(page);
    const lines = await page.evaluate(() => {
      // Names of products, sources and fields of other software stay as they are.
      const named =
        '[lang=en], a[target], code, option, .systems li, .measured-run, .left-out dd, .formula, .visually-hidden[lang]';
      for (const element of document.querySelectorAll(named)) element.remove();
      return document.body.innerText.split('\n');
    });
    const found = lines.filter((line) => englishOnly.test(line.replaceAll(/\b(Micro-batch|Full fine-tuning)\b/g, '')));
    assert.deepEqual(found, []);
  }));

for (const hash of ['#language=nl', '#language=en&model=meta-llama%2FLlama-3.3-70B-Instruct']) {
  test(`a phone shows whole tables (${hash})`, () =>
    onPage(
      `${server.url}${hash}`,
      async (page) => {
        for (const id of ['speed', 'layouts', 'matrix']) {
          const table = page.locator(`#${id} .scroll`);
          await table.scrollIntoViewIfNeeded();
          const [content, room] = await table.evaluate((element) => [element.scrollWidth, element.clientWidth]);
          assert.ok(content <= room, `${id}: ${content} wide in ${room}`);
        }
        const row = await page.locator('#layouts tbody tr').first().innerText();
        assert.match(row, /micro-batch 2, met checkpointing|micro-batch 1, with checkpointing/);
        assert.match(await page.locator('#layouts > p').first().textContent(), /snelste die passen|None of them fits/);
      },
      { viewport: { width: 360, height: 800 } },
    ));
}

test('a phone needs no horizontal scrolling, and always shows the verdict', () =>
  onPage(
    server.url,
    async (page) => {
      await page.locator('.more > summary').click();
      for (const expander of await page.locator('.expander').all()) await expander.click();
      const [content, screen] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.ok(content <= screen, `${content} wide on a screen of ${screen}`);
      const bar = page.locator('.verdict-bar');
      const { y, height } = await bar.boundingBox();
      assert.ok(y >= 0 && y + height <= 800, 'on the first screen');
      assert.match(await bar.textContent(), /Past ruim\s*11,2\u00a0GB van 25,3\u00a0GB/);
    },
    { viewport: { width: 360, height: 800 } },
  ));
