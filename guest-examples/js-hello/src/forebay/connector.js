// What a connector in JavaScript is written with: plain values in, plain values out.
//
// - Each call runs in a fresh copy of the module as it was when it was built: a variable forgets, and a call that throws
//   harms no other. What the module does at its top level was done once, on the machine that built it.
// - Nothing of a system is there: no fetch, no timers, no files. `Date.now()` and `Math.random()` are what they were when
//   the module was built; import "forebay:connector/clock@0.1.0" or "forebay:connector/random@0.1.0" instead, and declare it
//   in pack.toml.
// - An exception fails the event with its message and the place where it was thrown. Throw `reject`, `retry` or
//   `invalidInput` where you can say more. Texts are for people and are stored: no payload and no secret belongs in them.
import { panicked } from "forebay:connector/diagnostics@0.1.0";

const decoder = new TextDecoder("utf-8", { fatal: true });
const encoder = new TextEncoder();

/** Why a call did not succeed. */
class Failure extends Error {
  constructor(payload) {
    super(payload.tag);
    this.payload = payload;
  }
}

/** Try again, when the host sees fit, or no sooner than after `delayMs`: `throw retry("busy", 5_000)`. */
export const retry = (reason, delayMs) =>
  new Failure({ tag: "retry", val: { delay: millis(delayMs), reason: String(reason) } });

/** Never try this again: the connector wants no part of it. */
export const reject = (reason) => new Failure({ tag: "reject", val: String(reason) });

/** Never try this again: no sense could be made of it. */
export const invalidInput = (reason) => new Failure({ tag: "invalid-input", val: String(reason) });

/** The body of an event as text. */
export function text(event) {
  try {
    return decoder.decode(event.body);
  } catch {
    throw invalidInput("the body is not UTF-8");
  }
}

/** The body of an event, read as JSON. */
export function json(event) {
  const body = text(event);
  try {
    return JSON.parse(body);
  } catch {
    // The engine's own text may quote the body.
    throw invalidInput("the body is not JSON");
  }
}

/** The first kept header of this name (in lower case), as text. */
export function header(event, name) {
  const found = event.headers.find((header) => header.name === name);
  return found && new TextDecoder().decode(found.value);
}

/** The event is of no interest, for this reason. */
export const ignore = (reason) => ({ tag: "ignore", val: String(reason) });

/** The event is to be run: `run` gets `state`, written to JSON and read back, once `reads` were read. */
export const proceed = (state, reads = []) => ({
  tag: "run",
  val: { state: encoder.encode(JSON.stringify(state ?? null)), reads },
});

/**
 * A message for a destination. `body` is sent as JSON, unless it is text or bytes and `contentType` says what they are.
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

/** Makes a connector of `prepare` and `run`, and of `encodeRead`, `decodeRead` and `apply` where they are of use. */
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

/** An exception ends in a bare trap: its message and place are told to the host first. */
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
