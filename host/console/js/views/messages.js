// Messages, newest first, with their states.

import { PAGE_ROWS, withQuery } from "../api.js";
import { bytes } from "../format.js";
import { badge, filters, heading, idLink, link, pager, table, time } from "../parts.js";
import { MESSAGE_STATES } from "../states.js";

const FILTERS = [
  { name: "state", label: "State", words: MESSAGE_STATES },
  { name: "namespace", label: "Namespace" },
  { name: "destination", label: "Destination" },
  { name: "event", label: "Event" },
];

export async function messages({ path, query, get }) {
  const wanted = Object.fromEntries(
    [...FILTERS.map(({ name }) => name), "after"].map((name) => [name, query.get(name)]),
  );
  const page = await get(withQuery("/api/v1/messages", { ...wanted, limit: PAGE_ROWS }));
  return [
    heading("Messages", { about: "Outgoing messages, newest first. A lane holds those of one namespace to one destination." }),
    filters(path, query, FILTERS),
    messageTable(page.items, emptyText(query, page.next)),
    pager(path, query, page.next),
  ];
}

/** A table of messages. */
export function messageTable(rows, empty) {
  const lane = (message) =>
    link(`${message.namespace}/${message.destination}`, "/messages", {
      namespace: message.namespace,
      destination: message.destination,
    });
  const columns = [
    ["Message", (message) => idLink(message.id), "fit"],
    ["State", (message) => badge(message.state), "fit"],
    ["Lane", lane, "wide"],
    ["Event", (message) => idLink(message.event_id), "fit"],
    ["Attempt", (message) => message.attempt, "number"],
    ["Size", (message) => bytes(message.bytes), "number"],
    ["Due", (message) => time(message.due_at), "fit"],
    ["Ended", (message) => time(message.finished_at), "fit"],
  ];
  return table("Messages", columns, rows, (message) => message.id, empty);
}

function emptyText(query, next) {
  if (next) return "No message of this page fits. Older ones may: continue with “Older”.";
  if ([...query.keys()].length > 0) return "No message fits these filters.";
  return "No message was emitted yet. Flows emit messages when they run for an event.";
}
