// The queue of a pack: its head, and why each item is not running.

import { h } from "../dom.js";
import { count, generation } from "../format.js";
import { badge, emptyState, heading, idLink, link, table, time } from "../parts.js";

/** Items of the table: later ones change before their turn comes. */
const ROWS = 50;

export async function queue({ id, get }) {
  const { items } = await get("/api/v1/packs");
  const packs = [...new Set(items.map((generation) => generation.pack))].sort();
  const about = "In the order of claims. Only heads of lanes are shown; work items behind them are counted.";
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
      ? "No work item waits behind another one in its lane."
      : `${count(shown.blocked)} work items wait in lanes behind these, or behind dead heads.`;
  return [
    heading("Queue", { about }),
    h("nav", { class: "tabs", "aria-label": "Packs" }, packs.map(tab)),
    table(
      "Queue",
      columns(pack),
      shown.items,
      (item) => item.id,
      "The queue is empty: new events of this pack are claimed as they arrive.",
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

function columns(pack) {
  return [
    ["Work item", (item) => idLink(item.id), "fit"],
    ["Standing", (item) => badge(item.standing), "fit"],
    ["Why", (item) => item.why, "wide"],
    ["Since / until", (item) => time(item.at), "fit"],
    ["Event", (item) => idLink(item.event_id), "fit"],
    ["Class", (item) => item.queue_class, "fit"],
    ["Generation", (item) => generation({ pack, generation: item.generation }), "fit"],
    ["Attempt", (item) => item.attempt, "number"],
    ["Failures", (item) => item.failures, "number"],
  ];
}
