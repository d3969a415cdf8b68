// One event: the delivery byte for byte, its work items and messages.

import { replayWorkItem, runEvent, skipWorkItem, verifyEvent } from "../actions/work.js";
import { h } from "../dom.js";
import { generation } from "../format.js";
import { badge, body, facts, heading, headers, idLink, link, section, table, time, wholeId } from "../parts.js";
import { messageTable } from "./messages.js";

export async function event({ id, get }) {
  const shown = await get(`/api/v1/events/${encodeURIComponent(id)}`);
  const last = shown.work_items.at(-1);
  const hasEnded = last && ["done", "dead"].includes(last.state);
  return [
    heading("Event", {
      state: last ? badge(last.state) : badge("no work item", "bad"),
      about: wholeId(shown.id),
      actions: [
        last && !hasEnded ? runEvent(shown) : null,
        shown.work_items.some((item) => item.state === "done") ? verifyEvent(shown) : null,
        hasEnded && !last.replayed_at ? replayWorkItem(last) : null,
        last?.state === "dead" ? skipWorkItem(last) : null,
      ],
    }),
    last
      ? null
      : h(
          "p",
          { class: "notice tone-bad" },
          "It has no work item, so it is not run: “forebay migrate” creates one.",
        ),
    section(
      "Delivery",
      facts([
        ["Received", time(shown.received_at)],
        [
          "Route",
          link(`${shown.namespace}/${shown.route}`, "/events", { namespace: shown.namespace, route: shown.route }),
        ],
        ["Pack", generation(shown)],
        ["Delivery key", h("code", null, shown.delivery_key)],
        ["Source key", shown.source_key === null ? null : h("code", null, shown.source_key)],
        ["Receipt", h("code", null, shown.receipt_id)],
        ["SHA-256", h("code", null, shown.payload_sha256)],
      ]),
    ),
    section("Work items", workItemTable(shown.work_items)),
    section("Messages", messageTable(shown.messages, "Its flows emitted none, or have not run yet.")),
    section("Headers", headers(shown.headers, "None were kept.")),
    section("Body", ...body(shown.body, shown.content_type)),
  ];
}

function workItemTable(items) {
  const columns = [
    ["Work item", (item) => idLink(item.id), "fit"],
    ["State", (item) => badge(item.state), "fit"],
    ["Type", (item) => (item.replay_of ? "replay" : item.work_type.replaceAll("_", " ")), "fit"],
    ["Generation", generation, "fit"],
    ["Attempt", (item) => item.attempt, "number"],
    ["Failures", (item) => item.failures, "number"],
    ["Failure or note", (item) => item.failure?.message ?? item.note, "wide"],
    ["Ended", (item) => time(item.finished_at), "fit"],
  ];
  return table("Work items", columns, items, (item) => item.id, "It has none.");
}
