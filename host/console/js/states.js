// States, in words and tones. A tone never speaks alone: the word stands beside it.

/** How each word of the API is taken: `good`, `busy`, `info`, `warn`, `bad`, `doubt` or `quiet`. */
const TONES = {
  // Work items, and how they stand in a queue.
  ready: "info",
  delayed: "warn",
  blocked: "quiet",
  processing: "busy",
  done: "good",
  dead: "bad",
  stale: "warn",
  due: "info",
  leased: "busy",
  // Messages.
  scheduled: "info",
  publishing: "busy",
  retry_wait: "warn",
  uncertain: "doubt",
  published: "good",
  handed_off: "good",
  cancelled: "quiet",
  expired: "quiet",
  // Gates, circuits, what holds a lane.
  open: "good",
  paused: "warn",
  closed: "bad",
  half_open: "warn",
  ramping: "warn",
  lane_closed: "bad",
  lane_paused: "warn",
  ordering_head: "quiet",
  clock_gated: "bad",
  recovering: "warn",
  capability: "bad",
  circuit_open: "bad",
  retry_backoff: "warn",
  throttled: "warn",
  lane_full: "warn",
  capacity: "warn",
  fairness: "quiet",
  tight: "warn",
  exhausted: "bad",
  // Generations.
  active: "good",
  staged: "info",
  draining: "warn",
  retired: "quiet",
  // Verifications.
  same: "good",
  differs: "bad",
  unknown: "quiet",
};

/** The states of work items and of messages, in the order in which things move. */
export const WORK_STATES = ["ready", "delayed", "blocked", "processing", "done", "dead"];
export const MESSAGE_STATES = [
  "scheduled",
  "publishing",
  "retry_wait",
  "uncertain",
  "published",
  "handed_off",
  "cancelled",
  "expired",
  "dead",
];

/** The tone of a word; a word that is not known is quiet. */
export function toneOf(word) {
  return Object.hasOwn(TONES, word) ? TONES[word] : "quiet";
}

/** A circuit says the opposite of a gate: a closed one is well. */
export function circuitTone(circuit) {
  return { closed: "good", open: "bad" }[circuit] ?? "warn";
}

/** A word of the API as words. */
export function wordsOf(word) {
  return word.replaceAll("_", " ");
}
