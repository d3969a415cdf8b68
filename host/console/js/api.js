// Requests to the host: JSON over fetch, with the bearer token and a time limit.

import { noteClock } from "./format.js";
import { dropToken, token } from "./session.js";

/** Time limits of requests; those that run packs may take longer. */
const TIMEOUT_MS = 15_000;
const LONG_TIMEOUT_MS = 310_000;

/** An error with the message of the host; `status` is 0 if there was no answer. */
export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** GETs a path; `signal` aborts the request. */
export function get(path, signal) {
  return ask("GET", path, undefined, signal, TIMEOUT_MS);
}

/** POSTs to a path. */
export function post(path, body) {
  return ask("POST", path, body, undefined, LONG_TIMEOUT_MS);
}

/** `/readyz`, whose answer has the same form with either status. */
export function readiness(signal) {
  return ask("GET", "/readyz", undefined, signal, TIMEOUT_MS, (answer) => typeof answer.ready === "boolean");
}

/** A path with the parameters that have a value. */
export function withQuery(path, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length === 0 ? path : `${path}?${new URLSearchParams(given)}`;
}

/** The most rows of a page. */
export const PAGE_ROWS = 50;

async function ask(method, path, body, signal, timeout, isAnswer = () => false) {
  const limit = AbortSignal.timeout(timeout);
  const response = await fetch(path, {
    method,
    headers: headers(body),
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: signal ? AbortSignal.any([signal, limit]) : limit,
    cache: "no-store",
    credentials: "omit",
    redirect: "error",
  }).catch((error) => {
    if (signal?.aborted) throw error;
    throw new ApiError(
      0,
      "unreachable",
      error.name === "TimeoutError" ? "The host took too long to answer." : "The host does not answer.",
    );
  });
  noteClock(response.headers.get("date"));
  const answer = await read(response, signal);
  if (response.ok || (answer && isAnswer(answer))) return answer;
  if (response.status === 401) dropToken();
  const detail = answer?.error;
  throw new ApiError(
    response.status,
    detail?.code ?? "unknown",
    detail?.message ?? `The host answered ${response.status}.`,
  );
}

function headers(body) {
  const given = token();
  return {
    ...(given === null ? {} : { authorization: `Bearer ${given}` }),
    ...(body === undefined ? {} : { "content-type": "application/json" }),
  };
}

async function read(response, signal) {
  try {
    return await response.json();
  } catch (error) {
    if (signal?.aborted) throw error;
    return null;
  }
}
