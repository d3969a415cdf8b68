// The library for connectors in JavaScript: plain values in, plain values out.
//
// - Each call runs in a fresh copy of the module as it was built: variables keep nothing between calls, and an exception
//   affects no other call. Code at the top level of the module runs once, at build time.
// - There is no system: no fetch, no timers, no files. `Date.now()` and `Math.random()` return values of the build;
//   import "forebay:connector/clock@0.1.0" or "forebay:connector/random@0.1.0" instead, and declare it in pack.toml.
// - An exception fails the event with its message and place. Throw `reject`, `retry` or `invalidInput` instead: they say
//   whether to retry, and why. Operators see the texts, and they are stored: put no payload and no secret into them.
import { panicked } from "forebay:connector/diagnostics@0.1.0";

const decoder = new TextDecoder("utf-8", { fatal: true });
const encoder = new TextEncoder();

/** The failure of a call. */
class Failure extends Error {
  constructor(payload) {
    super(payload.tag);
    this.payload = payload;
  }
}

/** Retry after the host's backoff, and after `delayMs` at the earliest: `throw retry("busy", 5_000)`. */
export const retry = (reason, delayMs) =>
  new Failure({ tag: "retry", val: { delay: millis(delayMs), reason: String(reason) } });

/** Reject the event; no retry. */
export const reject = (reason) => new Failure({ tag: "reject", val: String(reason) });

/** The event is malformed; no retry. */
export const invalidInput = (reason) => new Failure({ tag: "invalid-input", val: String(reason) });

/** The body of an event as text. */
export function text(event) {
  try {
    return decoder.decode(event.body);
  } catch {
    throw invalidInput("the body is not UTF-8");
  }
}

/** The body of an event as JSON. */
export function json(event) {
  const body = text(event);
  try {
    return JSON.parse(body);
  } catch {
    // The engine's text may quote the body.
    throw invalidInput("the body is not JSON");
  }
}

/** The first kept header of this name (in lower case) as text. */
export function header(event, name) {
  const found = event.headers.find((header) => header.name === name);
  return found && new TextDecoder().decode(found.value);
}

/** Ignores the event for this reason. */
export const ignore = (reason) => ({ tag: "ignore", val: String(reason) });

/** Runs the event after these reads: `run` gets `state`, written to JSON and read back. */
export const proceed = (state, reads = []) => ({
  tag: "run",
  val: { state: encoder.encode(JSON.stringify(state ?? null)), reads },
});

/**
 * A message to a destination. `body` is sent as JSON, or as it is (text or bytes) if `contentType` is given.
 * Options: contentType, headers ({ name: text }), orderingKey, idempotencyKey, afterMs, at and expireAt (Date or
 * milliseconds).
 */
export function message(destination, body, options = {}) {
  const { contentType, headers = {}, orderingKey, idempotencyKey, afterMs, at, expireAt } = options;
  const raw = contentType === undefined ? JSON.stringify(body) : body;
  let due = { tag: "now" };
  if (afterMs !== undefined) due = { tag: "after", val: millis(afterMs) };
  if (at !== undefined) due = { tag: "at", val: millis(at) };
  return {
    destination: String(destination),
    body: typeof raw === "string" ? encoder.encode(raw) : raw,
    contentType: contentType ?? "application/json",
    headers: Object.entries(headers).map(([name, value]) => ({ name, value: encoder.encode(String(value)) })),
    orderingKey: optional(orderingKey),
    idempotencyKey: optional(idempotencyKey),
    due,
    expireAt: millis(expireAt),
  };
}

/** A connector with `prepare` and `run`, and with `encodeRead`, `decodeRead` and `apply` if needed. */
export function connector({ prepare, run, encodeRead, decodeRead, apply }) {
  return {
    prepare: guarded((event) => prepare(event)),
    encodeRead: guarded((reader, keys) => needed(encodeRead, `reader \`${reader}\``)(reader, keys)),
    decodeRead: guarded((reader, keys, response) => needed(decodeRead, `reader \`${reader}\``)(reader, keys, response)),
    run: guarded((event, state, readings) => output(run(event, JSON.parse(decoder.decode(state)), readings))),
    apply: guarded((action) => output(needed(apply, `action \`${action.name}\``)(action))),
  };
}

function needed(given, what) {
  if (given === undefined) throw reject(`this connector has no ${what}`);
  return given;
}

function output(result) {
  const { note, messages = [], actions = [] } = result ?? {};
  return { note: optional(note), messages, actions };
}

/** Sends the message and place of an exception to the host before the trap, which has none. */
function guarded(call) {
  return (...given) => {
    try {
      return call(...given);
    } catch (error) {
      if (!(error instanceof Failure)) panicked(`${error}\n${error?.stack ?? ""}`);
      throw error;
    }
  };
}

const optional = (value) => (value === undefined || value === null ? undefined : String(value));

/** Milliseconds as the contract has them; a Date is its time. */
const millis = (value) => (value === undefined || value === null ? undefined : BigInt(Math.round(Number(value))));
