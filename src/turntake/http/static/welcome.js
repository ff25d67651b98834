// The live events, a card for each conversation. Whatever came from outside is written as text, never as markup.

const FRAGMENTS = ["Hi!", "I have a question", "about order 4711"];
const PAUSE_MS = 800;
const RECONNECT_MS = 2000;
const MOST_CARDS = 20;
const MOST_LINES = 60;

const byId = (id) => document.getElementById(id);
const cards = new Map();
let serverAhead = 0;

// --- small words

const seconds = (ms) => `${(Math.max(0, ms) / 1000).toFixed(1)} s`;
const messages = (count) => (count === 1 ? "1 message" : `${count} messages`);
const between = (from, to) => Date.parse(to) - Date.parse(from);
const dueIn = (event) => (event.dueAt ? `, due in ${seconds(between(event.at, event.dueAt))}` : "");
const because = (event) => (event.reason ? `: ${event.reason}` : "");

const ORDERS = {
  composing: "the person is typing",
  stopped: "the person stopped typing",
  flush: "flushed by order",
  hold: "put on hold",
  clear: "cleared by order",
};

const SENTENCES = {
  buffered: (e) => `${messages(e.messages)}${dueIn(e)}${because(e)}`,
  activity: (e) => `${ORDERS[e.order] ?? e.order}${dueIn(e)}`,
  due: (e) => (e.reason ? `by: ${e.reason}` : ""),
  claimed: (e) => `${messages(e.messages)} after ${seconds(between(e.bufferedAt, e.claimedAt))}${attempt(e)}`,
  answered: (e) => ((e.replies ?? []).length ? "" : "with nothing to say"),
  retrying: (e) => `the agent asked for ${seconds(e.retryAfterMs)}`,
  failed: (e) => `attempt ${e.attempt}, next in ${seconds(e.retryAfterMs)}`,
  interrupted: () => "by a new message",
  stopped: () => "by a stop word",
  "dead-lettered": (e) => e.reason ?? "",
};
const attempt = (event) => (event.attempt > 1 ? `, attempt ${event.attempt}` : "");

// --- cards

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function nameOf(key) {
  const raw = key.split(":")[3] ?? key;
  try {
    return decodeURIComponent(raw.replaceAll("~", "%"));
  } catch {
    return raw;
  }
}

function cardOf(key) {
  if (cards.has(key)) return cards.get(key);
  const card = { root: element("article", "conversation"), lines: element("ol"), from: 0, until: 0 };
  card.standing = element("span", "standing");
  card.progress = element("progress");
  card.progress.setAttribute("aria-hidden", "true");
  const title = element("div", "title");
  title.append(element("h3", "", nameOf(key)), element("span", "key-name", key), card.standing);
  const head = element("header");
  head.append(title, card.progress);
  card.root.append(head, card.lines);
  cards.set(key, card);
  return card;
}

function lineOf(kind, event) {
  const line = element("li", "is-new");
  line.addEventListener("animationend", () => line.classList.remove("is-new"));
  const when = element("time", "", new Date(event.at).toTimeString().slice(0, 8) + event.at.slice(19, 23));
  when.dateTime = event.at;
  const what = element("span", `what ${kind}`);
  what.append(element("b", "", kind), ` ${SENTENCES[kind]?.(event) ?? ""}`);
  for (const reply of event.replies ?? []) what.append(element("span", "reply", reply));
  if (kind === "failed" || kind === "dead-lettered") explain(what, kind, event.turnId);
  line.append(when, what);
  return line;
}

// Events carry no words of errors; the turn and its dead letter do.
async function explain(what, kind, turnId) {
  if (!turnId) return;
  const isDead = kind === "dead-lettered";
  const path = `${isDead ? "v1/dead-letters" : "v1/turns"}/${encodeURIComponent(turnId)}`;
  try {
    const response = await fetch(path, { headers: headers(), cache: "no-store" });
    if (!response.ok) return;
    const { error } = await response.json();
    if (error) what.append(element("span", "error", error));
    if (isDead) what.append(letterLink(path, turnId));
  } catch {
    // The server went away; the line stands without its reason.
  }
}

// A link cannot carry a key: where one is needed, the command does.
function letterLink(path, turnId) {
  const command = `turntake letters show ${turnId}`;
  if (key()) return element("code", "letter", command);
  const link = element("a", "letter", "the dead letter");
  link.href = path;
  link.title = command;
  return link;
}

function stand(card, text, from = 0, until = 0) {
  Object.assign(card, { text, from, until });
}

function follow(card, kind, event) {
  if (kind === "buffered" || kind === "activity") {
    stand(card, "due in", Date.parse(event.at), Date.parse(event.dueAt));
  } else if (kind === "claimed") {
    stand(card, "answering");
  } else if (kind === "failed" || kind === "retrying") {
    stand(card, "next attempt in", Date.parse(event.at), Date.parse(event.at) + event.retryAfterMs);
  } else if (kind !== "due") {
    stand(card, kind);
  }
}

function show(kind, event) {
  serverAhead = Date.parse(event.at) - Date.now();
  byId("empty").hidden = true;
  const card = cardOf(event.conversationKey);
  card.lines.append(lineOf(kind, event));
  if (card.lines.children.length > MOST_LINES) card.lines.firstChild.remove();
  follow(card, kind, event);
  place(card, kind === "buffered" && event.messages === 1);
  tick();
}

// A card moves up only when a new turn begins, so that nothing jumps while somebody reads.
function place(card, isBeginning) {
  const list = byId("conversations");
  if (!card.root.isConnected || (isBeginning && list.firstChild !== card.root)) list.prepend(card.root);
  if (cards.size <= MOST_CARDS) return;
  const [oldest, { root }] = [...cards].find(([, each]) => each.root === list.lastChild);
  root.remove();
  cards.delete(oldest);
}

function tick() {
  const now = Date.now() + serverAhead;
  for (const card of cards.values()) {
    const left = card.until - now;
    card.progress.hidden = left <= 0;
    card.progress.max = Math.max(1, card.until - card.from);
    card.progress.value = Math.max(0, left);
    card.standing.textContent = card.until ? (left > 0 ? `${card.text} ${seconds(left)}` : "due") : card.text;
  }
}

// --- the stream, read with fetch so that a key can travel in a header

const key = () => sessionStorage.getItem("turntake-key");
const headers = () => (key() ? { Authorization: `Bearer ${key()}` } : {});

function connected(is, text) {
  byId("connection").classList.toggle("is-live", is);
  byId("connection").textContent = text;
}

function read(frame) {
  const fields = Object.fromEntries(
    frame
      .split("\n")
      .filter((line) => line && !line.startsWith(":"))
      .map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]),
  );
  if (fields.data) show(fields.event, JSON.parse(fields.data));
}

async function watch() {
  const response = await fetch("v1/events", { headers: headers(), cache: "no-store" });
  if (response.status === 401) {
    byId("key-wrong").hidden = !key();
    sessionStorage.removeItem("turntake-key");
    byId("key-form").hidden = false;
    byId("key").focus();
    connected(false, "waiting for a key");
    return false;
  }
  if (!response.ok) throw new Error(response.statusText);
  connected(true, "watching");
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ; ) {
    const { value, done } = await reader.read();
    if (done) return true;
    const frames = (rest + value).split("\n\n");
    rest = frames.pop();
    frames.forEach(read);
  }
}

async function keepWatching() {
  try {
    if (!(await watch())) return;
  } catch {
    // The server went away or is not up yet; the next try will tell.
  }
  connected(false, "reconnecting…");
  setTimeout(keepWatching, RECONNECT_MS);
}

// --- buttons

function selectCommand() {
  const range = document.createRange();
  range.selectNodeContents(byId("command"));
  getSelection().removeAllRanges();
  getSelection().addRange(range);
}

async function copy() {
  try {
    await navigator.clipboard.writeText(byId("command").textContent);
    byId("said").textContent = "Copied.";
  } catch {
    selectCommand();
    byId("said").textContent = "Selected; copy it with your keyboard.";
  }
}

const random = () => crypto.getRandomValues(new Uint32Array(2)).join("-");
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function post(text) {
  const body = JSON.stringify({ conversation: "ana", id: random(), text });
  const response = await fetch("v1/messages", { method: "POST", headers: headers(), body });
  if (!response.ok) throw new Error((await response.json()).detail);
}

async function send() {
  byId("send").disabled = true;
  try {
    for (const text of FRAGMENTS) {
      byId("said").textContent = `“${text}”`;
      await post(text);
      await pause(PAUSE_MS);
    }
    byId("said").textContent = "Sent.";
  } catch (error) {
    byId("said").textContent = error.message;
  } finally {
    byId("send").disabled = false;
  }
}

byId("copy").addEventListener("click", copy);
byId("send").addEventListener("click", send);
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("turntake-key", byId("key").value);
  byId("key").value = "";
  byId("key-wrong").hidden = true;
  byId("key-form").hidden = true;
  keepWatching();
});
setInterval(tick, 100);
keepWatching();
