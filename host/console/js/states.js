// States as words and tones. A tone is always shown with its word.

/** The tone of each word of the API: `good`, `busy`, `info`, `warn`, `bad`, `doubt` or `quiet`. */
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

/** The states of work items and of messages, in their order. */
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

/** The tone of a word; an unknown word is quiet. */
export function toneOf(word) {
  return Object.hasOwn(TONES, word) ? TONES[word] : "quiet";
}

/** The tone of a circuit: a closed one is good, unlike a closed gate. */
export function circuitTone(circuit) {
  return { closed: "good", open: "bad" }[circuit] ?? "warn";
}

/** A word of the API with spaces. */
export function wordsOf(word) {
  return word.replaceAll("_", " ");
}
