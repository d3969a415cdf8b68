// Events, newest first, with the states of their work items.

import { PAGE_ROWS, withQuery } from "../api.js";
import { h } from "../dom.js";
import { bytes } from "../format.js";
import { badge, filters, heading, idLink, pager, table, time } from "../parts.js";
import { WORK_STATES } from "../states.js";

const FILTERS = [
  { name: "state", label: "State", words: WORK_STATES },
  { name: "namespace", label: "Namespace" },
  { name: "pack", label: "Pack" },
  { name: "route", label: "Route" },
];

export async function events({ path, query, get }) {
  const wanted = Object.fromEntries(
    [...FILTERS.map(({ name }) => name), "after"].map((name) => [name, query.get(name)]),
  );
  const page = await get(withQuery("/api/v1/events", { ...wanted, limit: PAGE_ROWS }));
  return [
    heading("Events", { about: "Deliveries, newest first, with the states of their work items." }),
    filters(path, query, FILTERS),
    eventTable(page.items, emptyText(query, page.next)),
    pager(path, query, page.next),
  ];
}

/** A table of events. */
export function eventTable(rows, empty) {
  const columns = [
    ["Event", (event) => idLink(event.id), "fit"],
    [
      "State",
      (event) => [badge(event.state), event.replayed_at ? h("span", { class: "aside" }, "replayed") : null],
      "fit",
    ],
    ["Route", (event) => `${event.namespace}/${event.route}`, "fit"],
    [
      "Source",
      (event) =>
        event.source_key === null ? null : h("span", { class: "clip", title: event.source_key }, event.source_key),
      "wide",
    ],
    ["Delivery", (event) => h("span", { class: "clip", title: event.delivery_key }, event.delivery_key), "wide"],
    ["Attempt", (event) => event.attempt, "number"],
    ["Size", (event) => bytes(event.body_bytes), "number"],
    ["Received", (event) => time(event.received_at), "fit"],
  ];
  return table("Events", columns, rows, (event) => event.id, empty);
}

function emptyText(query, next) {
  if (next) return "No event of this page fits. Older ones may: continue with “Older”.";
  if ([...query.keys()].length > 0) return "No event fits these filters.";
  return "No event was delivered yet. Providers deliver to /in/NAMESPACE/ROUTE of the intake listener; “Packs” shows the active packs.";
}
