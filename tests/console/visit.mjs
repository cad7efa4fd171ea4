// Visits the console in headless Chromium and reports what is wrong, one finding a line; prints "visited N pages" at the
// end. Every page: no violation of the content security policy, no error in the console, no serious finding of axe, the
// same content without scripts, reachable by keyboard. Then an operator's way through the console by keyboard alone.
//
//   node visit.mjs PLAN.json
//
// The plan: { base, key, pages: [{ name, path }], agent, screenshots?: folder, widths?: [1280, 420] }
import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { chromium } from 'playwright-core';

const plan = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const findings = [];
let current = '';
const report = (text) => findings.push(`${current}: ${text}`);

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: [
    '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync',
  ],
});

/// A context whose pages report violations and errors, and load nothing from elsewhere.
async function newContext(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  await context.route('**', (route) => {
    if (route.request().url().startsWith(plan.base)) return route.continue();
    report(`requests ${route.request().url()}`);
    return route.abort();
  });
  context.on('console', (message) => {
    if (message.type() === 'error') report(`console: ${message.text()}`);
  });
  context.on('weberror', (error) => report(`script: ${error.error()}`));
  return context;
}

async function logIn(page) {
  await page.goto(`${plan.base}/console/login`);
  await page.fill('#key', plan.key);
  await page.press('#key', 'Enter');
  await page.waitForURL(`${plan.base}/console`);
}

/// Presses Tab until the link or button with this name has the focus.
async function tabTo(page, name) {
  for (let presses = 0; presses < 120; presses += 1) {
    await page.keyboard.press('Tab');
    const focused = await page.evaluate(() => {
      const element = document.activeElement;
      const label = element.labels?.[0]?.innerText ?? element.innerText ?? element.value ?? '';
      const style = getComputedStyle(element);
      return { label: label.trim(), isVisible: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0 };
    });
    if (focused.label === name || (name instanceof RegExp && name.test(focused.label))) {
      if (!focused.isVisible) report(`the focus of "${name}" is not visible`);
      return;
    }
  }
  throw new Error(`the keyboard does not reach "${name}"`);
}

async function checkPage(page, { name, path }) {
  current = name;
  const response = await page.goto(plan.base + path);
  if (response.status() !== 200) report(`status ${response.status()}`);
  if ((await page.locator('h1').count()) !== 1) report('not exactly one h1');
  const wide = await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth + 1);
  if (wide) report('the page scrolls sideways');
  const isolated = await page.evaluate(`${axe}; axe.run(document, { resultTypes: ['violations'] })`);
  for (const violation of isolated.violations.filter(({ impact }) => ['serious', 'critical'].includes(impact))) {
    report(`axe: ${violation.id}: ${violation.help}: ${violation.nodes.map((node) => node.target).slice(0, 3).join(', ')}`);
  }
}

/// The headings and the number of rows, which do not change from second to second.
const outline = (page) =>
  page.evaluate(() => [...document.querySelectorAll('h1, h2, th')].map((node) => node.textContent.trim()).join('|'));

try {
  const context = await newContext();
  const page = await context.newPage();
  current = 'login';
  await logIn(page);
  const plain = await newContext({ javaScriptEnabled: false });
  const plainPage = await plain.newPage();
  await logIn(plainPage);
  for (const visited of plan.pages) {
    await checkPage(page, visited);
    await plainPage.goto(plan.base + visited.path);
    const [scripted, unscripted] = [await outline(page), await outline(plainPage)];
    if (scripted !== unscripted) report(`differs without scripts: "${scripted}" and "${unscripted}"`);
  }
  for (const width of [420]) {
    await page.setViewportSize({ width, height: 900 });
    for (const visited of plan.pages) await checkPage(page, { name: `${visited.name} at ${width}px`, path: visited.path });
    await page.setViewportSize({ width: 1280, height: 900 });
  }
  if (plan.screenshots) {
    mkdirSync(plan.screenshots, { recursive: true });
    for (const colorScheme of ['light', 'dark']) {
      for (const width of plan.widths ?? [1280, 420]) {
        const viewed = await newContext({ colorScheme, viewport: { width, height: 900 } });
        const view = await viewed.newPage();
        await logIn(view);
        for (const { name, path } of plan.pages) {
          await view.goto(plan.base + path);
          await view.screenshot({ path: `${plan.screenshots}/${name}-${colorScheme}-${width}.png`, fullPage: width > 600 });
        }
        await viewed.close();
      }
    }
  }

  // By keyboard alone: log in, find the agent, call it, log out.
  const keyboard = await (await newContext()).newPage();
  current = 'by keyboard';
  await keyboard.goto(`${plan.base}/console`);
  await tabTo(keyboard, 'API key');
  await keyboard.keyboard.type(plan.key);
  await keyboard.keyboard.press('Enter');
  await keyboard.waitForURL(`${plan.base}/console`);
  await tabTo(keyboard, 'Skip to the content');
  await tabTo(keyboard, 'Agents');
  await keyboard.keyboard.press('Enter');
  await keyboard.waitForURL(/console\/agents$/);
  await tabTo(keyboard, plan.agent);
  await keyboard.keyboard.press('Enter');
  await keyboard.waitForURL(new RegExp(`console/agents/${plan.agent}$`));
  await tabTo(keyboard, /^Try/);
  await keyboard.keyboard.press('Enter');
  await keyboard.waitForURL(/\/try$/);
  await tabTo(keyboard, /^text/);
  await keyboard.keyboard.type('typed by hand');
  await tabTo(keyboard, 'Call');
  await keyboard.keyboard.press('Enter');
  await keyboard.waitForFunction(() => document.body.innerText.includes('Complete after'));
  if (!(await keyboard.innerText('pre')).includes('typed by hand')) report('the answer is not shown');
  await tabTo(keyboard, 'Log out');
  await keyboard.keyboard.press('Enter');
  await keyboard.waitForURL(/console\/login/);
} catch (error) {
  report(error.stack ?? error);
}
await browser.close();
for (const finding of findings) console.log(finding);
console.log(`visited ${plan.pages.length} pages, ${findings.length} findings`);
process.exit(findings.length === 0 ? 0 : 1);
