// The queue of a pack: who is next, and why not.

import { h } from "../dom.js";
import { count } from "../format.js";
import { badge, emptyState, heading, idLink, link, table, time } from "../parts.js";

/** As many as are worth reading: what stands behind them changes before its turn comes. */
const ROWS = 50;

export async function queue({ id, get }) {
  const { items } = await get("/api/v1/packs");
  const packs = [...new Set(items.map((generation) => generation.pack))].sort();
  const about =
    "In the order in which claims take them. Only the head of a lane is shown; what waits behind it is counted.";
  if (packs.length === 0)
    return [
      heading("Queue", { about }),
      emptyState("No pack is installed: “forebay pack install FILE --activate” brings one."),
    ];
  const pack = id || packs[0];
  const shown = await get(`/api/v1/packs/${encodeURIComponent(pack)}/queue?limit=${ROWS}`);
  const tab = (name) =>
    h("a", { href: `#/queue/${encodeURIComponent(name)}`, "aria-current": name === pack ? "page" : null }, name);
  const blocked =
    shown.blocked === 0
      ? "Nobody waits in a lane behind others."
      : `${count(shown.blocked)} wait in lanes behind these, or behind dead heads.`;
  return [
    heading("Queue", { about }),
    h("nav", { class: "tabs", "aria-label": "Packs" }, packs.map(tab)),
    table(
      "Queue",
      columns(),
      shown.next,
      (item) => item.id,
      "Nothing waits. New events of this pack are claimed as they come.",
    ),
    h(
      "p",
      { class: "about" },
      blocked,
      " ",
      shown.blocked > 0 ? link("Dead heads", "/events", { pack, state: "dead" }) : null,
    ),
  ];
}

function columns() {
  return [
    ["Work item", (item) => idLink(item.id), "fit"],
    ["Standing", (item) => badge(item.standing), "fit"],
    ["Why", (item) => item.why, "wide"],
    ["Since / until", (item) => time(item.at), "fit"],
    ["Event", (item) => idLink(item.event_id), "fit"],
    ["Class", (item) => item.queue_class, "fit"],
    ["Generation", (item) => item.generation, "number"],
    ["Attempt", (item) => item.attempt, "number"],
    ["Failures", (item) => item.failures, "number"],
  ];
}
