// The overview: what needs attention, rates, and counts by state.

import { bar, sparkline } from "../charts.js";
import { h } from "../dom.js";
import { count, now, rate } from "../format.js";
import { badge, heading, section } from "../parts.js";
import { MESSAGE_STATES, WORK_STATES, toneOf, wordsOf } from "../states.js";
import { attention } from "./attention.js";
import { eventTable } from "./events.js";

/** Samples for the rates: five minutes. */
const SAMPLES_MAX = 75;
/** The longest gap between two samples. */
const GAP_MAX_MS = 60_000;
/** Latest events that are shown. */
const LATEST = 8;

/** Age of the answer about packs: they change seldom, and may have many generations. */
const PACKS_FRESH_MS = 20_000;

/** The last answer about packs. */
let packsSeen = { at: -Infinity, answer: null };

/** Samples of the counts, oldest first. */
const samples = [];

export async function overview({ get, ready }) {
  const [stats, lanes, shards, packs, latest, state] = await Promise.all([
    get("/api/v1/stats"),
    get("/api/v1/lanes?troubled=true"),
    get("/api/v1/shards"),
    packsOf(get),
    get(`/api/v1/events?limit=${LATEST}`),
    ready,
  ]);
  note(stats);
  return [
    heading("Overview"),
    needs(attention({ readiness: state, stats, lanes, shards, packs })),
    rates(),
    h(
      "div",
      { class: "columns" },
      states("Work items", stats.work_items, WORK_STATES, (word) => `#/events?state=${word}`),
      states("Messages", stats.messages, MESSAGE_STATES, (word) => `#/messages?state=${word}`),
    ),
    section(
      "Latest events",
      eventTable(
        latest.items,
        "No event was delivered yet. Providers deliver to /in/NAMESPACE/ROUTE of the intake listener; “Packs” shows the active packs.",
      ),
    ),
  ];
}

function needs(items) {
  if (items.length === 0) {
    return h(
      "section",
      { class: "panel calm", "data-key": "needs" },
      h("h2", null, "Nothing needs attention"),
      h("p", null, "The host takes deliveries, runs their flows, and sends messages that are due."),
    );
  }
  const row = ({ tone, word, text, href, todo }) =>
    h(
      "li",
      { "data-key": `${word} ${href ?? text}` },
      badge(word, tone),
      h("div", null, href ? h("a", { href }, text) : h("span", null, text), h("p", { class: "todo" }, todo)),
    );
  return h(
    "section",
    { class: "panel", "data-key": "needs" },
    h("h2", null, "Needs attention"),
    h("ul", { class: "needs" }, items.map(row)),
  );
}

async function packsOf(get) {
  if (Math.abs(now() - packsSeen.at) > PACKS_FRESH_MS) packsSeen = { at: now(), answer: await get("/api/v1/packs") };
  return packsSeen.answer;
}

/** Adds a sample. */
function note({ work_items: work, messages }) {
  const at = now();
  const last = samples.at(-1);
  // After another host or a changed clock, earlier samples do not compare.
  if (last && (at <= last.at || at - last.at > GAP_MAX_MS)) samples.length = 0;
  samples.push({
    at,
    admitted: Object.values(work).reduce((sum, rows) => sum + rows, 0),
    ended: work.done + work.dead,
    sent: messages.published + messages.handed_off,
  });
  if (samples.length > SAMPLES_MAX) samples.shift();
}

function rates() {
  const tile = (name, key, about) => {
    const course = samples.slice(1).map((sample, index) => {
      const before = samples[index];
      return Math.max(sample[key] - before[key], 0) / ((sample.at - before.at) / 1_000);
    });
    const recent = course.slice(-3);
    const value = recent.length ? recent.reduce((sum, one) => sum + one, 0) / recent.length : null;
    return h(
      "div",
      { class: "tile", "data-key": key },
      h("h3", null, name),
      h("p", { class: "figure" }, value === null ? "…" : rate(value), h("span", null, " / s")),
      sparkline(course, `${name} a second, over the last minutes`),
      h("p", { class: "about" }, about),
    );
  };
  return h(
    "section",
    { class: "tiles", "aria-label": "Rates", "data-key": "rates" },
    tile("Admitted", "admitted", "new work items"),
    tile("Ended", "ended", "work items done or dead"),
    tile("Sent", "sent", "messages published or handed off"),
  );
}

function states(title, counts, words, href) {
  const whole = words.reduce((sum, word) => sum + counts[word], 0);
  const parts = words.map((word) => ({ tone: toneOf(word), value: counts[word], name: word }));
  const row = (word) =>
    h(
      "tr",
      { "data-key": word },
      h("th", { scope: "row" }, badge(word, counts[word] ? toneOf(word) : "quiet")),
      h(
        "td",
        { class: "number" },
        counts[word]
          ? h("a", { href: href(word), "aria-label": `${count(counts[word])} ${wordsOf(word)}` }, count(counts[word]))
          : h("span", { class: "none" }, "0"),
      ),
    );
  return section(
    title,
    bar(parts, `${title} by state, ${count(whole)} in all`),
    h("table", { class: "states", "aria-label": title }, h("tbody", null, words.map(row))),
  );
}
