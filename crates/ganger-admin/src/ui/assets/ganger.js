// What the pages do besides being read: times by the reader's clock, parts that follow what they show, keys. Without
// this script they can be read, and their forms work.

const held = new Map();

// Where the navigation is too wide, the place of this page is in sight.
document.querySelector(".top [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });

// Times, by the zone of the reader. The server writes them in UTC.
const clock = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
  timeZoneName: "short",
});
const timeOfDay = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
function localTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.valueOf())) continue;
    const utc = time.dataset.utc ?? time.title;
    time.dataset.utc = utc;
    time.title = `${clock.format(at)} · ${utc}`;
    if (time.classList.contains("clock")) time.textContent = timeOfDay.format(at);
    else if (!time.classList.contains("ago")) time.textContent = clock.format(at);
  }
}

function isEdited(field) {
  if (field.options) {
    const usual = [...field.options].findIndex((option) => option.defaultSelected);
    return field.selectedIndex !== Math.max(usual, 0);
  }
  return field.type === "checkbox" ? field.checked !== field.defaultChecked : field.value !== field.defaultValue;
}

// A part is left alone while somebody is about to do something in it.
function isInUse(part) {
  const focus = document.activeElement;
  const selection = getSelection();
  return (part.contains(focus) && focus !== document.body)
    || [...pending].some((form) => part.contains(form))
    || part.querySelector("details.ask[open], textarea:focus") !== null
    || [...part.querySelectorAll("input, textarea, select")].some(isEdited)
    || (selection && !selection.isCollapsed && part.contains(selection.anchorNode));
}

function put(part, html) {
  const boxes = [...part.querySelectorAll("pre, .wide")].map((box) => [box.scrollTop, box.scrollLeft,
    box.scrollTop + box.clientHeight >= box.scrollHeight - 4]);
  const template = document.createElement("template");
  template.innerHTML = html;
  part.replaceChildren(template.content);
  localTimes(part);
  [...part.querySelectorAll("pre, .wide")].forEach((box, at) => {
    const [top, left, isAtEnd] = boxes[at] ?? [0, 0, box.classList.contains("log")];
    // A log goes on scrolling for who reads its end.
    box.scrollTop = isAtEnd && box.classList.contains("log") ? box.scrollHeight : top;
    box.scrollLeft = left;
  });
}

// Rows of a list that is being read wait until the reader asks for them.
function hold(part, html) {
  held.set(part.id, html);
  if (part.querySelector(".held")) return;
  const button = document.createElement("button");
  button.className = "held";
  button.textContent = "Show what has changed";
  button.addEventListener("click", () => {
    const newest = held.get(part.id);
    held.delete(part.id);
    put(part, newest);
  });
  part.prepend(button);
}

// Each part as the page had it when it was made, and then as the daemon has sent it last: after a connection was lost all
// parts come again.
const sent = new Map();
for (const part of document.querySelectorAll("[data-part][id]")) sent.set(part.id, part.innerHTML);
function patch({ id, html: newest }) {
  const part = document.getElementById(id);
  if (!part) return;
  const template = document.createElement("template");
  template.innerHTML = newest;
  const html = template.innerHTML;
  if (sent.get(id) === html) return;
  const isList = part.dataset.held !== undefined;
  sent.set(id, html);
  // A text keeps the line break at its beginning only as it was written.
  if (isInUse(part) || (isList && scrollY > 40)) hold(part, newest); else put(part, newest);
}

const state = document.getElementById("state");
function say(text) {
  // A page for readers who are not logged in has no place for it.
  if (!state) return;
  state.textContent = text;
  state.hidden = text === "";
}

function isTyping() {
  return [...document.querySelectorAll("form[method=post] :is(input:not([type=hidden]), textarea, select)")]
    .some((field) => isEdited(field) || field === document.activeElement);
}

// Whether the reader is still logged in; undefined if the daemon can't be reached.
async function isLoggedIn() {
  try {
    const options = { method: "HEAD", redirect: "manual", signal: AbortSignal.timeout(5000) };
    const answer = await fetch(new URL("../../v1/trends", import.meta.url), options);
    return answer.type !== "opaqueredirect" && answer.status !== 401;
  } catch {
    return undefined;
  }
}

const LOGGED_OUT = "Your session has ended. Log in in another tab, then go on here: what you have typed is kept.";

let isLost = false;
// Something is told that may end: a problem of the page, or why a form no longer changes another.
let isTold = false;
let stream;
function follow() {
  stream?.close();
  // Browsers have few connections for a host: a page that nobody sees needs none.
  if (document.hidden) return;
  const own = stream = new EventSource(location.href);
  own.addEventListener("daemon", (event) => {
    if (event.data !== document.documentElement.dataset.daemon) {
      // Another daemon has taken over: its page may be another. What somebody is typing stays.
      if (isTyping()) say("The daemon was restarted: reload the page once you are done here.");
      else location.reload();
      return;
    }
    if (isLost || isTold) say("");
    isLost = isTold = false;
  });
  own.addEventListener("part", (event) => patch(JSON.parse(event.data)));
  own.addEventListener("problem", (event) => {
    const problem = JSON.parse(event.data);
    isTold = problem !== "";
    say(problem && `This page can't be made anew, and shows what was before: ${problem}`);
  });
  own.addEventListener("error", async () => {
    // A stream ends now and then, and is asked for anew.
    const loggedIn = await isLoggedIn();
    if (loggedIn === undefined && !isLost) {
      isLost = true;
      const since = new Date().toLocaleTimeString();
      say(`Connection to the daemon lost at ${since}; trying again. What is shown is from then.`);
    }
    if (loggedIn === false) {
      isLost = true;
      if (!isTyping()) location.reload();
      else say(LOGGED_OUT);
    }
    if (loggedIn && own === stream && !document.hidden && own.readyState === EventSource.CLOSED && !isLost) {
      isLost = true;
      const since = new Date().toLocaleTimeString();
      say(`The daemon follows no more pages: this one is from ${since}. Close others, or reload it.`);
    }
    if (own === stream && own.readyState === EventSource.CLOSED) setTimeout(follow, 3000);
  });
}
document.addEventListener("visibilitychange", () => {
  if (stream) follow();
});

// A form is sent once, however often one clicks until its answer is shown, and only if the daemon is there and the session
// has not ended: its text would be gone.
const ANSWERED_WITHIN = 10_000;
const pending = new Set();
addEventListener("pageshow", () => pending.clear());
document.addEventListener("submit", async (event) => {
  const { target: form, submitter } = event;
  if (form.method !== "post" || form.closest(".who, .login")) return;
  if (form.querySelector("[data-ticked]") && !form.querySelector("tbody input:checked")) {
    event.preventDefault();
    isTold = true;
    return say("Nothing is ticked: tick what is meant.");
  }
  if (form.dataset.checked) {
    delete form.dataset.checked;
    return;
  }
  event.preventDefault();
  if (pending.has(form)) return;
  pending.add(form);
  const loggedIn = await isLoggedIn();
  if (loggedIn) {
    setTimeout(() => pending.delete(form), ANSWERED_WITHIN);
    form.dataset.checked = "yes";
    form.requestSubmit(submitter);
  } else {
    pending.delete(form);
    say(loggedIn === false ? LOGGED_OUT : "The daemon can't be reached: nothing was sent.");
  }
});

// Boxes of a form: one ticks all, and a sentence says how many are ticked.
addEventListener("change", ({ target }) => {
  if (target.type !== "checkbox" || !target.form) return;
  const boxes = [...target.form.querySelectorAll("tbody input[type=checkbox]")];
  if (target.dataset.all !== undefined) for (const box of boxes) box.checked = target.checked;
  const count = boxes.filter((box) => box.checked).length;
  for (const place of target.form.querySelectorAll("[data-ticked]")) place.textContent = ` (${count})`;
});

// Keys: / searches, g and a letter leads to a page, ? tells them.
let isLeading = false;
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const { target, key } = event;
  if (target instanceof Element && target.closest("input, textarea, select, dialog")) return;
  if (isLeading) {
    isLeading = false;
    const link = [...document.querySelectorAll("nav a[data-key]")].find((link) => link.dataset.key === key);
    if (link) { event.preventDefault(); link.click(); }
    return;
  }
  if (key === "g") isLeading = true;
  if (key === "/" && search) { event.preventDefault(); search.focus(); }
  if (key === "?") document.getElementById("keys")?.showModal();
});

// A form that shows what it would make, as one types. A text that was edited by hand stays.
for (const form of document.querySelectorAll("form[data-preview]")) {
  let due, newest = 0;
  form.addEventListener("input", () => {
    clearTimeout(due);
    due = setTimeout(async () => {
      const own = ++newest;
      const answer = await fetch(`${form.action}?${new URLSearchParams(new FormData(form))}`).catch(() => null);
      if (!answer?.ok) return;
      const shown = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (own !== newest) return;
      const parts = form.dataset.preview.split(" ").map((id) => document.getElementById(id));
      const isEditedByHand = parts.some((part) => [...part.querySelectorAll("textarea")].some(isEdited));
      if (isEditedByHand || isTold) say(isEditedByHand ? "The definition was edited by hand: the fields above it no longer change it." : "");
      isTold = isEditedByHand;
      if (isEditedByHand) return;
      for (const part of parts) put(part, shown.getElementById(part.id).innerHTML);
    }, 300);
  });
}

// A search is completed when one stops typing.
const search = document.querySelector(".search input");
let completion;
search?.addEventListener("input", () => {
  clearTimeout(completion);
  completion = setTimeout(async () => {
    const typed = search.value;
    const asked = `${search.form.action}/completions?${new URLSearchParams({ q: typed })}`;
    const answer = await fetch(asked).catch(() => null);
    if (!answer?.ok || answer.redirected || search.value !== typed) return;
    const options = (await answer.json()).map((whole) => new Option("", whole));
    search.list.replaceChildren(...options);
  }, 200);
});

localTimes(document);
for (const log of document.querySelectorAll("pre.log.live")) log.scrollTop = log.scrollHeight;
if (document.querySelector("[data-part][id]")) follow();
