// What needs attention, worst first.

import { count, plural, relative } from "../format.js";
import { circuitTone, wordsOf } from "../states.js";

/** Items of one kind that are named; the others are counted. */
const NAMED_MAX = 5;
/** A lag of a shard that needs no attention, in changes. */
const LAG_USUAL = 10_000;

/**
 * The items that need attention: `{ tone, word, text, href, todo }`, worst first. The arguments are the answers about
 * readiness, statistics, lanes, shards and packs.
 */
export function attention({ readiness, stats, lanes, shards, packs }) {
  return [
    ...notReady(readiness),
    ...shards.items.flatMap(ofShard),
    ...packsWithoutActive(packs.items),
    ...ofMessages(stats.messages),
    ...ofWork(stats.work_items),
    ...limited(lanes.items.filter((lane) => lane.circuit !== "closed").map(ofCircuit), "circuits"),
    ...limited(lanes.gates.map(ofGate), "gates"),
  ].sort((one, other) => ORDER.indexOf(one.tone) - ORDER.indexOf(other.tone));
}

const ORDER = ["bad", "doubt", "warn", "info"];

function notReady({ ready, reasons }) {
  if (ready) return [];
  const todo = "docs/operations.md, “Health and readiness”, says what to do about each reason.";
  return reasons.map((reason) => ({ tone: "bad", word: "not ready", text: reason, href: null, todo }));
}

function ofShard(shard) {
  const item = (tone, word, text, todo) => ({
    tone,
    word,
    text: `Shard ${shard.shard}: ${text}`,
    href: "#/shards",
    todo,
  });
  const found = [];
  if (!shard.owner)
    found.push(
      item(
        "bad",
        "no owner",
        "no host owns it, and none of its messages is sent.",
        "A running host takes it within the time of a lease.",
      ),
    );
  if (shard.trouble)
    found.push(
      item(
        "bad",
        "panicked",
        `its actor panicked: ${shard.trouble.reason}`,
        "This is a bug in the host: see its log.",
      ),
    );
  if (shard.withdrawn.length)
    found.push(
      item(
        "warn",
        "withdrawn",
        `${plural(shard.withdrawn.length, "host", "hosts")} cannot open it.`,
        "Look at that host's disk.",
      ),
    );
  if (shard.here?.held === "clock_gated") {
    found.push(
      item(
        "bad",
        "clock gated",
        "the time is uncertain, so nothing is sent.",
        "Check the time synchronization of this machine, or of the database server.",
      ),
    );
  } else if (shard.here?.held) {
    found.push(item("warn", wordsOf(shard.here.held), "none of its messages is sent.", "See its shortages."));
  }
  if (shard.here?.lag > LAG_USUAL)
    found.push(
      item(
        "warn",
        "behind",
        `${count(shard.here.lag)} changes are not applied yet.`,
        "It catches up by itself unless the disk is too slow.",
      ),
    );
  return found;
}

function packsWithoutActive(generations) {
  const names = [...new Set(generations.map((generation) => generation.pack))];
  const isClosed = (name) =>
    !generations.some((generation) => generation.pack === name && generation.stage === "active");
  const item = (name) => ({
    tone: "warn",
    word: "closed",
    text: `Pack ${name} has no active generation: deliveries to its routes are answered 404.`,
    href: "#/packs",
    todo: "Activate one.",
  });
  return limited(names.filter(isClosed).map(item), "packs");
}

function ofMessages({ uncertain, dead, retry_wait: retrying }) {
  const found = [];
  const item = (tone, state, value, text, todo) => {
    if (value > 0) found.push({ tone, word: wordsOf(state), text, href: `#/messages?state=${state}`, todo });
  };
  item(
    "doubt",
    "uncertain",
    uncertain,
    `${plural(uncertain, "message has", "messages have")} an attempt with an unknown outcome.`,
    "Ask the receiver, then resolve each one.",
  );
  item(
    "bad",
    "dead",
    dead,
    `${plural(dead, "message was", "messages were")} given up.`,
    "Fix the cause, then redrive them.",
  );
  item(
    "warn",
    "retry_wait",
    retrying,
    `${plural(retrying, "message waits", "messages wait")} for another attempt.`,
    "See whether the destination is down; the host retries by itself.",
  );
  return found;
}

function ofWork({ dead, delayed }) {
  const found = [];
  if (dead > 0)
    found.push({
      tone: "bad",
      word: "dead",
      text: `${plural(dead, "work item is", "work items are")} dead.`,
      href: "#/events?state=dead",
      todo: "Read the failure, fix the cause, then replay.",
    });
  if (delayed > 0)
    found.push({
      tone: "warn",
      word: "delayed",
      text: `${plural(delayed, "work item", "work items")} failed and will run again.`,
      href: "#/events?state=delayed",
      todo: "Read the failure before they are dead.",
    });
  return found;
}

function ofCircuit(lane) {
  const until = lane.circuit_until ? ` It is probed ${relative(lane.circuit_until)}.` : "";
  return {
    tone: circuitTone(lane.circuit),
    word: `circuit ${wordsOf(lane.circuit)}`,
    text: `${lane.lane} fails, and is probed or not called at all.${until}`,
    href: lanePlace(lane),
    todo: "Check the destination; the host retries by itself.",
  };
}

function ofGate(gate) {
  const whose = gate.namespace ? `${gate.namespace}/${gate.destination}` : gate.destination;
  const reason = gate.reason ? `: ${gate.reason}` : "";
  return {
    tone: gate.gate === "closed" ? "bad" : "warn",
    word: gate.gate,
    text: `${whose}, since ${relative(gate.changed_at)}${reason}`,
    href: lanePlace(gate),
    todo: "Resume it when messages may be sent again.",
  };
}

function lanePlace({ namespace, destination }) {
  return `#/lanes?${new URLSearchParams({ ...(namespace ? { namespace } : {}), destination })}`;
}

/** The first of many items, and a count of the others. */
function limited(items, kind) {
  if (items.length <= NAMED_MAX) return items;
  const rest = { ...items[NAMED_MAX], text: `${count(items.length - NAMED_MAX)} more ${kind}.` };
  return [...items.slice(0, NAMED_MAX), rest];
}
