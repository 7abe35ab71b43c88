// The jobs that a visitor comes with, in both languages, on three screens, with the mouse or with the keyboard alone.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { complaintsOf, newPage, open, settled, startBrowser, startServer } from './browser.mjs';

let browser;
let server;
before(async () => {
  [browser, server] = await Promise.all([startBrowser(), startServer()]);
});
after(async () => {
  await browser?.close();
  server?.close();
});

const screens = [
  { width: 1440, height: 1000 },
  { width: 768, height: 1024 },
  { width: 360, height: 800 },
];

const texts = {
  nl: {
    fits: /^Past (ruim|krap|misschien)$/,
    not: 'Past niet',
    number: 'Aantal GPU\u0027s',
    config: 'Inhoud van config.json',
    size: 'Alleen de grootte',
    billions: 'Grootte in miljard parameters',
    search: 'Stel een GPU voor',
    crash: 'Foutmelding of tabel',
    missing: /ontbrak 1,61\u00a0GB/,
    others: 'Stop die eerst',
    link: 'Link kopiëren',
    keep: 'Bewaar om te vergelijken',
    undo: 'Ongedaan maken',
    unread: /beschadigd/,
    most: 'Hoogstens zoveel GPU\u0027s',
  },
  en: {
    fits: /^(Fits|Might fit)/,
    not: 'Does not fit',
    number: 'Number of GPUs',
    config: 'Contents of config.json',
    size: 'Size only',
    billions: 'Size in billions of parameters',
    search: 'Suggest a GPU',
    crash: 'Error message or table',
    missing: /1\.61\u00a0GB of that was missing/,
    others: 'Stop those first',
    link: 'Copy link',
    keep: 'Keep to compare',
    undo: 'Undo',
    unread: /damaged/,
    most: 'At most this many GPUs',
  },
};

const crash =
  'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB of ' +
  'which 512.00 MiB is free. Including non-PyTorch memory, this process has 23.00 GiB memory in use. Of the allocated ' +
  'memory 21.00 GiB is allocated by PyTorch, and 1.25 GiB is reserved by PyTorch but unallocated.';

const config = {
  model_type: 'llama',
  hidden_size: 2048,
  intermediate_size: 8192,
  num_hidden_layers: 16,
  num_attention_heads: 32,
  num_key_value_heads: 8,
  vocab_size: 128256,
  tie_word_embeddings: true,
};

async function verdict(page) {
  await settled(page);
  return (await page.locator('.verdict h2').textContent()).trim();
}

/** Types in the search box, and takes the first model, by keyboard alone. */
async function findModel(page, typed) {
  await page.locator('#model-input').focus();
  await page.keyboard.type(typed);
  await page.keyboard.press('Enter');
  await settled(page);
}

/** Goes to an element with Tab, as one without a mouse does. */
async function tabTo(page, isThere, argument) {
  for (let presses = 0; presses < 250; presses++) {
    if (await page.evaluate(isThere, argument)) return;
    await page.keyboard.press('Tab');
  }
  assert.fail('not reached by Tab');
}

for (const [language, words] of Object.entries(texts)) {
  for (const viewport of screens) {
    const where = `${language}, ${viewport.width}`;
    const job = (name, work, hash = '') =>
      test(`${name} (${where})`, async () => {
        const page = await newPage(browser, { viewport });
        await open(page, `${server.url}#language=${language}${hash}`);
        await work(page);
        assert.deepEqual(await complaintsOf(page), []);
        const [content, screen] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
        assert.ok(content <= screen, `${content} wide on a screen of ${screen}`);
        await page.context().close();
      });

    job('can I fine-tune an 8B on my 4090?', async (page) => {
      await findModel(page, 'llama 8b');
      await page.locator('#field-hardware-gpu').selectOption('rtx-4090');
      assert.match(await verdict(page), words.fits);
      assert.match(await page.locator('.verdict-text').textContent(), /Llama.*8B.*RTX 4090/);
      // The answer is in sight, whatever the screen.
      const bar = page.locator(viewport.width < 1080 ? '.verdict-bar' : '.verdict');
      const box = await bar.boundingBox();
      assert.ok(box.y >= 0 && box.y < viewport.height, 'the verdict is in view');
    });

    job('what do I need for a 70B full fine-tune?', async (page) => {
      await findModel(page, 'llama 3.3 70b');
      await page.getByRole('radio', { name: /^Full fine-tuning/ }).check();
      assert.equal(await verdict(page), words.not);
      await page.getByRole('radio', { name: words.search }).check();
      await settled(page);
      await page.locator('.offer button').first().click();
      assert.match(await verdict(page), words.fits);
      await page.getByRole('button', { name: words.undo }).click();
      await settled(page);
      assert.equal(await page.getByRole('radio', { name: words.search }).isChecked(), true);
    });

    job('my config.json', async (page) => {
      await page.getByRole('radio', { name: 'config.json' }).check();
      await settled(page);
      await page.getByLabel(words.config, { exact: true }).fill(JSON.stringify(config));
      assert.match(await verdict(page), words.fits);
      assert.match(await page.locator('.facts').first().textContent(), /1[,.]24/);
      await page.getByRole('radio', { name: words.size }).check();
      await settled(page);
      await page.getByLabel(words.billions, { exact: true }).fill('7');
      assert.match(await verdict(page), words.fits);
    });

    job('my run crashed with this text', async (page) => {
      await page.getByLabel(words.crash).fill(crash);
      const outcome = page.locator('.diagnosis');
      await outcome.waitFor();
      assert.match(await outcome.textContent(), words.missing);
      assert.ok((await outcome.textContent()).includes(words.others));
      await page.getByLabel(words.crash).fill('hello');
      await outcome.waitFor({ state: 'detached' });
    });

    job('which server, and what if we grow to 30B?', async (page) => {
      await page.getByRole('radio', { name: /^LoRA/ }).check();
      await settled(page);
      await page.getByRole('button', { name: words.keep }).click();
      await findModel(page, 'qwen3 30b');
      await settled(page);
      const rows = page.locator('.compare tbody tr');
      assert.ok((await rows.count()) > 8);
      assert.ok((await page.locator('.compare tr.differs').count()) >= 2);
      assert.ok((await page.locator('#ladder .offer').count()) >= 2);
      const offers = page.locator('.offer-groups .offer');
      const before = await offers.count();
      await page.getByLabel(words.most).selectOption('1');
      await settled(page);
      assert.ok((await offers.count()) <= before);
      for (const name of await offers.locator('h4').allTextContents()) assert.match(name, /^1 ×/);
    });

    job('send this to my colleague', async (page) => {
      await findModel(page, 'deepseek v3');
      await settled(page);
      await page.getByRole('button', { name: words.keep }).click();
      await page.getByRole('button', { name: words.link }).click();
      const link = await page.locator('.shared input').inputValue();
      const shown = [await verdict(page), await page.locator('.verdict-text').textContent()];
      const other = await newPage(browser, { viewport });
      await open(other, link);
      assert.deepEqual([await verdict(other), await other.locator('.verdict-text').textContent()], shown);
      assert.equal(await other.locator('.compare thead th').count(), 2);
      await other.context().close();
    });
  }

  test(`every step by keyboard alone (${language})`, async () => {
    const page = await newPage(browser);
    await open(page, `${server.url}#language=${language}`);
    await tabTo(page, () => document.activeElement.id === 'model-input');
    await page.keyboard.type('qwen3 30b');
    await page.keyboard.press('Enter');
    await settled(page);
    assert.match(await page.locator('.verdict-text').textContent(), /Qwen3 30B/i);
    await tabTo(page, () => document.activeElement.name === 'method');
    await page.keyboard.press('ArrowUp');
    await settled(page);
    assert.equal(await page.evaluate(() => document.querySelector('input[name=method]:checked').value), 'lora');
    await tabTo(page, () => document.activeElement.id === 'field-hardware-count');
    await page.keyboard.type('8');
    await settled(page); // a new answer empties the readings
    await tabTo(page, () => document.activeElement.closest?.('.memory-bar'));
    await page.keyboard.press('ArrowRight');
    assert.notEqual((await page.locator('#memory-bar-reading').textContent()).trim(), '');
    await tabTo(page, () => document.activeElement.closest?.('.curve'));
    await page.keyboard.press('End');
    await settled(page);
    assert.notEqual((await page.locator('#curve-micro_batch-reading').textContent()).trim(), '');
    assert.deepEqual(await complaintsOf(page), []);
    await page.context().close();
  });

  test(`a damaged link opens with what could be read, and says what could not (${language})`, async () => {
    const page = await newPage(browser);
    await open(
      page,
      `${server.url}#v=1&language=${language}&method=lora&lora.rnak=8&recompute=sometimes&gpu=h100-sxm-80gb`,
    );
    assert.equal(await page.evaluate(() => document.querySelector('input[name=method]:checked').value), 'lora');
    assert.match(await page.locator('.notice').textContent(), words.unread);
    assert.deepEqual(await page.locator('.notice code').allTextContents(), ['lora.rnak=8', 'recompute=sometimes']);
    await page.context().close();
  });
}

test('back and forward go through the choices', async () => {
  const page = await newPage(browser);
  await open(page, server.url);
  const shows = (method) =>
    page.waitForFunction((value) => document.querySelector('input[name=method]:checked').value === value, method);
  await page.getByRole('radio', { name: /^LoRA/ }).check();
  await settled(page);
  await page.getByRole('radio', { name: /^Full fine-tuning/ }).check();
  await settled(page);
  await page.goBack();
  await shows('lora');
  await page.goBack();
  await shows('qlora');
  await page.goForward();
  await shows('lora');
  await page.context().close();
});

test('a change is applied and undone', async () => {
  const page = await newPage(browser);
  await open(page, `${server.url}#method=lora`);
  const before = await page.locator('.number-value').allTextContents();
  await page.locator('.change button').first().click();
  await settled(page);
  assert.notDeepEqual(await page.locator('.number-value').allTextContents(), before);
  await page.getByRole('button', { name: 'Ongedaan maken' }).click();
  await settled(page);
  assert.deepEqual(await page.locator('.number-value').allTextContents(), before);
  await page.context().close();
});

test('the answer is saved as JSON and CSV, and the page as one file that opens with what was filled in', async () => {
  const page = await newPage(browser);
  await open(page, `${server.url}#method=lora`);
  await page.locator('.save summary').click();
  const saved = async (name) => {
    const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name }).click()]);
    const chunks = [];
    for await (const chunk of await download.createReadStream()) chunks.push(chunk);
    return Buffer.concat(chunks).toString('utf8');
  };
  assert.equal(JSON.parse(await saved('Antwoord als JSON')).request.training.method, 'lora');
  const csv = (await saved('Tabel als CSV')).split('\r\n');
  assert.equal(csv[0].split(',').length, 9);
  assert.ok(csv.some((line) => line.startsWith('component,frozen_weights,static,')));
  const offline = await saved(/zonder internet/);
  assert.match(offline, /id="saved-state" name="saved-state" content="[^"]*method=lora/);
  await page.context().close();
});
