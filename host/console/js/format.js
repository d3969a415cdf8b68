// Times, sizes, counts, names and ids as people read them.

/** Milliseconds by which the host's clock is ahead of this machine's; relative times use the host's. */
let ahead = 0;

/** Notes the host's clock, which every answer has in whole seconds. */
export function noteClock(date) {
  const host = Date.parse(date ?? "");
  if (Number.isNaN(host)) return;
  const seen = host - Date.now();
  // A difference within rounding and network delay is none.
  ahead = Math.abs(seen) < 2_000 ? 0 : seen;
}

/** Now, by the host's clock. */
export function now() {
  return Date.now() + ahead;
}

const UNITS = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["min", 60_000],
  ["s", 1_000],
];

/** A time span in its two largest units: `2 h 5 min`. */
export function span(milliseconds) {
  const whole = Math.abs(milliseconds);
  if (whole < 1_000) return `${Math.round(whole)} ms`;
  const at = UNITS.findIndex(([, length]) => whole >= length);
  const [unit, length] = UNITS[at];
  const count = Math.floor(whole / length);
  const next = UNITS[at + 1];
  const rest = next ? Math.floor((whole % length) / next[1]) : 0;
  return rest > 0 && count < 10 ? `${count} ${unit} ${rest} ${next[0]}` : `${count} ${unit}`;
}

/** The distance of a time from now: `5 s ago`, `in 2 h`. */
export function relative(time) {
  const difference = now() - Date.parse(time);
  if (Math.abs(difference) < 1_000) return "now";
  return difference > 0 ? `${span(difference)} ago` : `in ${span(difference)}`;
}

/** A time to the second, in UTC. */
export function absolute(time) {
  const text = new Date(time).toISOString();
  return `${text.slice(0, 10)} ${text.slice(11, 19)} UTC`;
}

const SIZES = ["B", "KiB", "MiB", "GiB", "TiB"];

/** A size in the largest unit that gives at least 1. */
export function bytes(count) {
  let size = count;
  let unit = 0;
  while (size >= 1_024 && unit < SIZES.length - 1) {
    size /= 1_024;
    unit += 1;
  }
  return `${unit === 0 || size >= 100 ? Math.round(size) : size.toFixed(1)} ${SIZES[unit]}`;
}

const COUNT = new Intl.NumberFormat("en", { useGrouping: true });

/** A count with thousands separators. */
export function count(value) {
  return COUNT.format(value);
}

/** A rate per second, with significant digits only. */
export function rate(perSecond) {
  if (perSecond === 0) return "0";
  if (perSecond < 0.1) return "< 0.1";
  return perSecond < 10 ? perSecond.toFixed(1) : count(Math.round(perSecond));
}

/** A generation as on the command line: `orders@3`. */
export function generation({ pack, generation }) {
  return `${pack}@${generation}`;
}

/** A count with its noun in the singular or the plural. */
export function plural(value, one, many) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** The beginning and the end of an id: ids of about the same time begin alike. */
export function short(id) {
  const [prefix, digits] = id.split("_");
  return digits && digits.length > 12 ? `${prefix}_${digits.slice(0, 4)}…${digits.slice(-6)}` : id;
}

/** A text as indented JSON; null unless it is a JSON object or list. */
export function prettyJson(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === "object" && value !== null ? JSON.stringify(value, null, 2) : null;
  } catch {
    return null;
  }
}
