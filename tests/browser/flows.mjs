// The dashboard in a browser: each flow is what a person does there. Called as `node flows.mjs FLOW URL [FILE]`, where
// the URL is a login that is valid once. A flow that fails says where, and exits with 1.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const [flow, login, file] = process.argv.slice(2);
/** URL of the daemon, without an end. */
const root = login.slice(0, login.indexOf("/ui/"));
/** Time for which a change is waited for: on a busy machine some pages are looked at every 50 s only. */
const WITHIN = 90_000;

/** Paths of the pages of all sections, with a page of each kind below them. */
const PAGES = [
  "/ui", "/ui/pools/work", "/ui/audit", "/ui/daemons", "/ui/dead", "/ui/dead/main", "/ui/jobs", "/ui/queues/work", "/ui/events",
  "/ui/config", "/ui/alerts", "/ui/search?q=work", "/ui/search?q=nothing",
  "/ui/schedules", "/ui/schedules/nightly", "/ui/new-schedule", "/ui/occurrences", "/ui/upcoming", "/ui/reports",
];

/** Parts that some of them must have. */
const PARTS = { "/ui/schedules": ".dots", "/ui/schedules/nightly": "svg.year" };

const browser = await chromium.launch({
  executablePath: process.env.GANGER_TEST_CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});
const problems = [];

/** Forgets problems that a flow has made on purpose. Others stay. */
function forget(expected) {
  const others = problems.filter((problem) => !expected.test(problem));
  assert.ok(others.length < problems.length, `none of ${expected} in ${problems.join("; ")}`);
  problems.splice(0, problems.length, ...others);
}

/** A browser that is logged in, as a reader with these options. */
async function reader(options = {}) {
  const context = await browser.newContext({ locale: "en-GB", timezoneId: "UTC", ...options });
  context.setDefaultTimeout(WITHIN);
  return context;
}

async function open(context, path) {
  const page = await context.newPage();
  page.on("pageerror", (error) => problems.push(`${page.url()}: ${error.message}`));
  page.on("console", (message) => {
    if (message.type() === "error") problems.push(`${page.url()}: ${message.text()}`);
  });
  await page.goto(root + path);
  return page;
}

/** Logs in, and returns the cookies for other readers. */
async function loggedIn() {
  const context = await reader();
  const page = await context.newPage();
  await page.goto(login);
  await page.waitForURL("**/ui");
  return context.storageState();
}

const flows = {
  /** All pages, in both themes, at the width of a phone and of a desk: no error, no sideways scrolling, nothing that
   *  axe finds, and no more to load than 100 KB as it is sent. */
  async pages(state) {
    for (const [width, colorScheme] of [[320, "light"], [320, "dark"], [1280, "dark"], [1280, "light"]]) {
      const context = await reader({ storageState: state, colorScheme, viewport: { width, height: 800 } });
      for (const path of PAGES) {
        const page = await open(context, path);
        const at = `${path} at ${width}, ${colorScheme}`;
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(wide <= 0, `${at} is ${wide} too wide`);
        assert.ok(await page.locator(PARTS[path] ?? "main").count() > 0, `${at} has no ${PARTS[path]}`);
        const loaded = await page.evaluate(() =>
          ["navigation", "resource"].flatMap((kind) => performance.getEntriesByType(kind)).map((entry) => {
            return { sent: entry.encodedBodySize, plain: entry.decodedBodySize };
          }));
        const sent = loaded.reduce((sum, entry) => sum + entry.sent, 0);
        assert.ok(sent <= 100_000, `${at} loads ${sent} bytes`);
        assert.ok(loaded[0].sent < loaded[0].plain, `${at} is not compressed`);
        await page.evaluate(axe);
        const found = await page.evaluate(() => axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"] }));
        const told = found.violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(" ")}`);
        assert.deepEqual(told, [], at);
        await page.close();
      }
      await context.close();
    }
  },

  /** An operator pauses a pool; another one, who looks at the same page, sees it without a reload. */
  async operator(state) {
    const context = await reader({ storageState: state });
    const [one, other] = [await open(context, "/ui/pools/work"), await open(context, "/ui/pools/work")];
    await other.getByText("running:").or(other.locator("#summary .state", { hasText: "running" })).first().waitFor();
    await one.getByRole("button", { name: "Pause" }).click();
    await one.getByRole("status").filter({ hasText: "pool `work`" }).waitFor();
    await one.waitForURL("**/ui/pools/work");
    await other.locator("#summary .state", { hasText: "paused" }).waitFor();
    // By the keyboard alone.
    const resume = other.getByRole("button", { name: "Resume" });
    await resume.focus();
    await other.keyboard.press("Enter");
    await one.locator("#summary .state", { hasText: "running" }).waitFor();
    // The message is shown once.
    await one.reload();
    assert.equal(await one.locator(".done").count(), 0);
  },

  /** Below the path of a proxy every address leads to what is below it, and forms and live pages work. */
  async below_a_path(state) {
    const base = `${new URL(root).pathname}/`;
    assert.ok(base.length > 1, base);
    const context = await reader({ storageState: state });
    const elsewhere = [];
    context.on("request", (request) => {
      const { protocol, pathname } = new URL(request.url());
      if (protocol !== "data:" && !`${pathname}/`.startsWith(base)) elsewhere.push(request.url());
    });
    for (const path of PAGES) {
      const page = await open(context, path);
      const addresses = await page.evaluate(() =>
        [...document.querySelectorAll("[href], [src], [action], [formaction]")].flatMap((element) =>
          ["href", "src", "action", "formaction"].map((name) => element.getAttribute(name)).filter(Boolean)));
      elsewhere.push(...addresses.filter((address) => address.startsWith("/") && !address.startsWith(base)));
      assert.ok(addresses.some((address) => address.startsWith(base)), path);
      await page.close();
    }
    await flows.operator(state);
    await (await open(context, "")).waitForURL("**/ui");
    assert.deepEqual(elsewhere, []);
  },

  /** Without a script pages can be read, and forms work. */
  async without_script(state) {
    const context = await reader({ storageState: state, javaScriptEnabled: false });
    const page = await open(context, "/ui/pools/work");
    await page.getByText("Scale…").click();
    await page.getByLabel("Workers").fill("3");
    await page.getByRole("button", { name: "Scale", exact: true }).click();
    await page.getByText("target set to 3 workers").waitFor();
    await page.waitForURL("**/ui/pools/work");
    await page.getByLabel("Search").waitFor();
  },

  /** A token logs in, with a script as well; a wrong one is refused. */
  async token() {
    const context = await reader();
    const page = await open(context, "/ui/queues/work");
    await page.waitForURL("**/ui/login**");
    await page.getByLabel("Token").fill("wrong");
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByRole("alert").filter({ hasText: "unknown" }).waitFor();
    await page.getByLabel("Token").fill("that-of-the-browser");
    await page.keyboard.press("Enter");
    await page.waitForURL("**/ui/queues/work");
    forget(/Failed to load resource: .* status of 401 /);
  },

  /** A form is sent once, however often one clicks until its answer is there. */
  async twice(state) {
    const context = await reader({ storageState: state });
    const page = await open(context, "/ui/queues/work");
    const link = await context.newCDPSession(page);
    await link.send("Network.enable");
    const slow = { offline: false, latency: 400, downloadThroughput: -1, uploadThroughput: -1 };
    await link.send("Network.emulateNetworkConditions", slow);
    let posts = 0;
    page.on("request", (request) => posts += request.method() === "POST" ? 1 : 0);
    await page.getByLabel("Body", { exact: true }).fill("once");
    await page.evaluate(() => {
      let clicks = 0;
      const clicking = setInterval(() => {
        document.querySelector("#send button").click();
        if (++clicks === 150) clearInterval(clicking);
      }, 10);
    });
    await page.getByRole("status").filter({ hasText: "the message was sent" }).waitFor();
    const rows = page.locator("#waiting tbody tr");
    await rows.first().waitFor();
    assert.equal(await rows.count(), 1);
    assert.equal(posts, 1);
  },

  /** A change between the making of a page and the beginning of its stream is shown. */
  async before_stream(state) {
    const context = await reader({ storageState: state });
    let begin;
    const isSent = new Promise((resolve) => begin = resolve);
    const page = await context.newPage();
    await page.route("**/ui/queues/**", async (route) => {
      if (route.request().resourceType() === "eventsource") await isSent;
      await route.continue();
    });
    await page.goto(`${root}/ui/queues/work`);
    await page.locator("#waiting").getByText("No message can be claimed").waitFor();
    const other = await open(context, "/ui/queues/work");
    await other.getByLabel("Body", { exact: true }).fill("meanwhile");
    await other.getByRole("button", { name: "Send", exact: true }).click();
    await other.locator("#waiting tbody tr").first().waitFor();
    begin();
    await page.locator("#waiting tbody tr").filter({ hasText: "meanwhile" }).waitFor();
  },

  /** A page of what is gone says so, and shows what it was. */
  async gone(state) {
    const context = await reader({ storageState: state });
    const page = await open(context, "/ui/pools/work");
    await page.locator("#summary .state").waitFor();
    writeFileSync(file, "open");
    await page.getByRole("status").filter({ hasText: "shows what was before: there is no pool `work`" }).waitFor();
    assert.ok(await page.locator("#summary .state").isVisible());
  },

  /** Keys lead to pages; letters that are typed into a field do not. */
  async keys(state) {
    const context = await reader({ storageState: state });
    const page = await open(context, "/ui");
    await page.keyboard.press("g");
    await page.keyboard.press("a");
    await page.waitForURL("**/ui/audit");
    await page.keyboard.press("/");
    await page.keyboard.type("gn?");
    assert.equal(await page.getByLabel("Search").inputValue(), "gn?");
    await page.keyboard.press("Escape");
    await page.locator("h1").click();
    await page.keyboard.press("?");
    await page.getByRole("dialog").getByText("These keys").waitFor();
    const other = await open(context, "/ui/new-schedule");
    await other.locator("h1").click();
    await other.keyboard.press("?");
    await other.getByRole("dialog").getByText("These keys").waitFor();
  },

  /** A definition that was edited by hand stays, and the page says that the fields no longer change it. */
  async by_hand(state) {
    const context = await reader({ storageState: state });
    const page = await open(context, "/ui/new-schedule");
    await page.getByLabel("Name", { exact: true }).fill("hourly");
    await page.getByLabel(/^or every/).fill("1h");
    const definition = page.locator("#create textarea");
    await page.locator("#times time").first().waitFor();
    const made = await definition.inputValue();
    assert.ok(made.includes("1h"), made);
    await definition.fill(`${made} `);
    await page.getByLabel(/^or every/).fill("2h");
    const told = page.getByRole("status").filter({ hasText: "edited by hand" });
    await told.waitFor();
    assert.equal(await definition.inputValue(), `${made} `);
    await definition.fill(made);
    await page.getByLabel(/^or every/).fill("3h");
    await told.waitFor({ state: "hidden" });
    await page.waitForFunction(() => document.querySelector("#create textarea").value.includes("3h"));
  },

  /** A search is completed at its last word. */
  async completion(state) {
    const context = await reader({ storageState: state });
    const page = await open(context, "/ui");
    for (const [typed, whole] of [["pool:w", "pool:work"], ["state:failed schedule:n", "state:failed schedule:nightly"], ["nigh", "nightly"]]) {
      await page.keyboard.press("/");
      await page.getByLabel("Search").fill(typed);
      await page.locator(`#completions option[value="${whole}"]`).waitFor({ state: "attached" });
      await page.getByLabel("Search").blur();
    }
    await page.getByLabel("Search").fill("<img src=x onerror=hacked=1>:");
    await page.waitForFunction(() => document.querySelectorAll("#completions option").length === 0);
  },

  /** Times are those of the reader's zone. */
  async zones(state) {
    const hours = [];
    for (const timezoneId of ["UTC", "Asia/Tokyo"]) {
      const context = await reader({ storageState: state, timezoneId });
      const page = await open(context, "/ui/audit");
      const time = page.locator("#changes time").first();
      await time.waitFor();
      const instant = await time.getAttribute("datetime");
      hours.push([instant, await time.textContent()]);
    }
    assert.equal(hours[0][0], hours[1][0]);
    const hour = (text) => Number(text.match(/(\d\d):\d\d:\d\d/)[1]);
    assert.equal((hour(hours[0][1]) + 9) % 24, hour(hours[1][1]), hours.join());
  },

  /** On paper a page has what it shows, and neither the navigation nor what is for clicking; the reports fit one. */
  async print(state) {
    const context = await reader({ storageState: state, colorScheme: "dark", viewport: { width: 794, height: 1123 } });
    for (const path of PAGES) {
      const page = await open(context, path);
      await page.emulateMedia({ media: "print" });
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `${path} is ${wide} too wide`);
      assert.equal(await page.locator(".top nav:visible, .tabs a:not([aria-current]):visible, button:visible, select:visible, .filters:visible, h2:has(+ .actions):visible").count(), 0, path);
      assert.ok(await page.locator("h1").isVisible(), path);
      if (path === "/ui/reports") {
        const paper = (await page.pdf({ format: "A4" })).toString("latin1");
        assert.equal(paper.match(/\/Type \/Page\b/g).length, 1);
      }
      await page.close();
    }
  },

  /** Over a slow link pages are usable, and what changes is still shown. */
  async slow_link(state) {
    const context = await reader({ storageState: state });
    const page = await context.newPage();
    const link = await context.newCDPSession(page);
    await link.send("Network.enable");
    const slow = { offline: false, latency: 400, downloadThroughput: 20_000, uploadThroughput: 20_000 };
    await link.send("Network.emulateNetworkConditions", slow);
    await page.goto(`${root}/ui/pools/work`);
    const other = await open(context, "/ui/pools/work");
    await other.getByRole("button", { name: "Pause" }).click();
    await page.locator("#summary .state", { hasText: "paused" }).waitFor();
    await page.getByRole("button", { name: "Resume" }).click();
    await page.getByRole("status").filter({ hasText: "intake resumed" }).waitFor();
    await other.locator("#summary .state", { hasText: "running" }).waitFor();
  },

  /** What an operator is about to do is not moved or closed by what changes meanwhile; a selection stays. */
  async in_use(state) {
    const context = await reader({ storageState: state });
    const page = await open(context, "/ui/pools/work");
    await page.getByText("Scale…").click();
    await page.getByLabel("Workers").fill("7");
    writeFileSync(file, "typed");
    // The pool is paused by another then.
    await page.locator("#summary .state", { hasText: "paused" }).waitFor();
    assert.equal(await page.getByLabel("Workers").inputValue(), "7");
    await page.getByRole("button", { name: "Show what has changed" }).click();
    await page.getByRole("button", { name: "Resume" }).waitFor();
  },

  /** Two operators act on one dead letter, whose body is hostile: who comes later is told, and nothing in it runs. */
  async dead_letter(state) {
    const context = await reader({ storageState: state });
    const [one, other] = [await open(context, "/ui/dead/main"), await open(context, "/ui/dead/main")];
    await one.getByRole("button", { name: "Retry the ticked" }).click();
    await one.getByRole("status").filter({ hasText: "Nothing is ticked" }).waitFor();
    for (const page of [one, other]) {
      await page.locator("tbody").getByRole("link").first().click();
      await page.waitForURL("**/ui/dead/main/*");
      await page.getByText("<img src=x onerror=").first().waitFor();
      assert.equal(await page.evaluate(() => globalThis.hacked), undefined);
      assert.equal(await page.locator("main img, main script").count(), 0);
    }
    await other.getByText("Drop…", { exact: true }).click();
    await other.getByRole("button", { name: /^Drop/ }).click();
    await other.waitForURL((url) => url.pathname === "/ui/dead/main");
    await one.getByRole("button", { name: /^Retry/ }).first().click();
    await one.getByText("0 of 1").waitFor();
    // The refusal is an answer with that status.
    forget(/\/v1\/dead\/main\/retry: Failed to load resource: .* status of 404 /);
  },

  /** A hostile message that is sent to a paused pool is seen waiting, by another reader too, and nothing in it runs. It
   *  is cancelled, and is a dead letter then. */
  async waiting(state) {
    const context = await reader({ storageState: state });
    const [page, other] = [await open(context, "/ui/queues/work"), await open(context, "/ui/queues/work")];
    const none = page.locator("#waiting").getByText("No message can be claimed");
    await none.waitFor();
    await page.getByLabel("Body", { exact: true }).fill("<img src=x onerror=globalThis.hacked=1>");
    await page.getByLabel(/^Headers/).fill("constructor: <b>red</b>");
    await page.getByRole("button", { name: "Send", exact: true }).click();
    for (const reader of [page, other]) {
      const row = reader.locator("#waiting tbody tr").filter({ hasText: "<img src=x onerror" });
      await row.locator("summary").first().click();
      await row.getByRole("rowheader", { name: "constructor" }).waitFor();
      assert.equal(await reader.evaluate(() => globalThis.hacked), undefined);
      assert.equal(await reader.locator("#waiting img, #waiting b").count(), 0);
    }
    await page.locator("#waiting").getByText("Cancel…").click();
    await page.getByText("becomes a dead letter of pool work").waitFor();
    await page.getByRole("button", { name: "Cancel", exact: true }).click();
    await page.getByText("1 waiting are cancelled").waitFor();
    await none.waitFor();
    await page.goto(`${root}/ui/dead/main?reason=cancelled`);
    await page.locator("tbody tr").filter({ hasText: "<img src=x" }).waitFor();
  },

  /** All that match are sent back at a rate: the progress is followed live, and cancelled, also without a script. */
  async job(state) {
    for (const javaScriptEnabled of [true, false]) {
      const context = await reader({ storageState: state, javaScriptEnabled });
      const page = await open(context, "/ui/dead/main");
      await page.getByRole("link", { name: /^Retry all/ }).click();
      await page.waitForURL("**/retry**");
      // However slow the machine is.
      await page.goto(`${page.url().replace(/\?.*/, "")}?count=all`);
      await page.getByLabel("At most").fill("4");
      await page.getByRole("button", { name: /^Retry \d+ dead letters/ }).click();
      await page.waitForURL("**/ui/jobs/*");
      await page.locator("#progress .state", { hasText: /running|queued/ }).waitFor();
      if (javaScriptEnabled) {
        const progress = page.getByRole("progressbar", { name: "Progress" });
        const value = () => progress.evaluate((element) => element.value);
        const first = await value();
        await page.waitForFunction((first) => document.querySelector("progress").value > first + 3, first);
      }
      await page.getByRole("button", { name: "Cancel" }).click();
      await page.getByText("job cancelled after").waitFor();
      await page.locator("#progress .state", { hasText: "cancelled" }).waitFor();
      assert.equal(await page.getByRole("button", { name: "Cancel" }).count(), 0);
    }
  },

  /** An alert is silenced for a time and with a reason, and told again. */
  async silence(state) {
    const context = await reader({ storageState: state });
    const page = await open(context, "/ui");
    const problem = page.locator("#problems li").filter({ hasText: "pool `work`" }).first();
    await problem.getByText("Silence…").click();
    await problem.getByLabel("For").selectOption("4 hours");
    await problem.getByLabel("Reason").fill("a known fault");
    await problem.getByRole("button", { name: "Silence" }).click();
    await problem.getByText("a known fault").waitFor();
    await page.goto(`${root}/ui/alerts`);
    await page.getByRole("button", { name: "End the silence" }).click();
    await page.getByText("Silence…").first().waitFor();
  },

  /** What a run writes is read while it goes on, and then how it ended. */
  async run(state) {
    const context = await reader({ storageState: state });
    const page = await open(context, "/ui/occurrences");
    await page.locator("tbody th").getByRole("link").first().click();
    await page.waitForURL("**/ui/occurrences/*");
    await page.locator("#log").getByText("one").waitFor();
    assert.equal(await page.locator("#log").getByText("two").count(), 0);
    writeFileSync(file, "read");
    await page.locator("#log").getByText("two").waitFor();
    await page.locator("#summary .state", { hasText: "completed" }).waitFor();
  },

  /** A daemon that is gone is told of; the one after it is found. */
  async restart(state) {
    const context = await reader({ storageState: state });
    const page = await open(context, "/ui");
    await page.locator("#pools table").waitFor();
    writeFileSync(file, "open");
    await page.getByRole("status").filter({ hasText: "Connection to the daemon lost" }).waitFor();
    writeFileSync(file, "lost");
    // Its sessions ended with it.
    await page.waitForURL("**/ui/login**");
    forget(/\/ui: Failed to load resource: (net::ERR_|.* status of 401 )/);
  },
};

try {
  const state = await loggedIn();
  await flows[flow](state);
  assert.deepEqual(problems, []);
} catch (error) {
  console.error(error);
  process.exitCode = 1;
} finally {
  await browser.close();
}
