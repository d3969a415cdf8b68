// Delay Shards: their owners, progress and troubles.

import { checkpointShard } from "../actions/shards.js";
import { h } from "../dom.js";
import { bytes, count } from "../format.js";
import { badge, heading, notice, section, table, time } from "../parts.js";

export async function shards({ get }) {
  const { items } = await get("/api/v1/shards");
  const troubled = items.filter((shard) => shard.trouble || shard.withdrawn.length > 0);
  return [
    heading("Shards", { about: "A shard holds a part of the messages until they are due. One host owns it at a time." }),
    troubled.length ? section("In trouble", ...troubled.flatMap(troubles)) : null,
    section(
      "Shards",
      table(
        "Shards",
        columns(),
        items,
        (shard) => String(shard.shard),
        "The store has no shards yet: the first host creates them.",
      ),
    ),
  ];
}

/** The troubles of a shard, in sentences. */
function troubles(shard) {
  const said = shard.withdrawn.map((left) =>
    notice(
      "warn",
      `Shard ${shard.shard}: host ${left.runtime} cannot open it, and does not try before `,
      time(left.until),
      `: ${left.reason}`,
    ),
  );
  if (shard.trouble) {
    const { panics, reason, state, at } = shard.trouble;
    const after =
      {
        opened: "It was restarted.",
        waiting: "It is restarted ",
        left: "The shard is left to another host.",
        down: "It stays down until the host is restarted.",
      }[state] ?? "";
    said.push(
      notice(
        "bad",
        `Shard ${shard.shard}: its actor panicked, ${panics} times in a row: ${reason}. ${after}`,
        at ? time(at) : null,
      ),
    );
  }
  return said;
}

/** What holds a shard, or what it is short of; `published` if nothing does. */
export function shardState(shard) {
  if (shard.trouble && shard.trouble.state !== "opened") return badge("panicked", "bad");
  if (!shard.owner) return badge("no owner", "bad");
  if (!shard.here) return badge("elsewhere", "quiet");
  if (shard.here.held) return badge(shard.here.held);
  return badge("publishing", "good");
}

function columns() {
  const here = (cell) => (shard) => (shard.here ? cell(shard.here) : null);
  const pressing = ({ pressing }) =>
    pressing.length
      ? pressing.map(({ resource, level }) => badge(`${resource} ${level}`, level === "exhausted" ? "bad" : "warn"))
      : null;
  return [
    ["Shard", (shard) => shard.shard, "number"],
    ["State", shardState, "fit"],
    [
      "Owner",
      (shard) =>
        shard.owner
          ? h("span", { class: "clip id", title: shard.owner }, shard.here ? "this host" : shard.owner)
          : null,
      "fit",
    ],
    ["Waiting", here(({ pending }) => count(pending)), "number"],
    ["In flight", here(({ in_flight }) => count(in_flight)), "number"],
    ["Lanes", here(({ lanes }) => count(lanes)), "number"],
    ["Lag", here(({ lag }) => count(lag)), "number"],
    ["Short of", here(pressing), "fit"],
    ["Lease until", (shard) => (shard.owner ? time(shard.lease_until) : null), "fit"],
    [
      "Checkpoint",
      (shard) =>
        shard.checkpoint
          ? [time(shard.checkpoint.created_at), h("span", { class: "aside" }, bytes(shard.checkpoint.bytes))]
          : null,
      "fit",
    ],
    ["Actions", (shard) => (shard.here ? h("div", { class: "row-actions" }, checkpointShard(shard)) : null), "fit"],
  ];
}
