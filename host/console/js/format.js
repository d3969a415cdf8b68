// Times, sizes, counts and ids as people read them.

/** How far the host's clock is ahead of this machine's, in milliseconds: “ago” is said by the host's. */
let ahead = 0;

/** Takes note of the host's clock, which every answer tells in whole seconds. */
export function noteClock(date) {
  const host = Date.parse(date ?? "");
  if (Number.isNaN(host)) return;
  const seen = host - Date.now();
  // Less than what rounding and the way here account for is no difference.
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

/** How long ago a time is, or how far ahead. */
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

/** Bytes in the largest unit of which there is one. */
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

/** A count with its thousands apart. */
export function count(value) {
  return COUNT.format(value);
}

/** So many a second, with as many digits as say something. */
export function rate(perSecond) {
  if (perSecond === 0) return "0";
  if (perSecond < 0.1) return "< 0.1";
  return perSecond < 10 ? perSecond.toFixed(1) : count(Math.round(perSecond));
}

/** One of something, or many. */
export function plural(value, one, many) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** The beginning and the end of an id: the beginning is a time, which neighbours share. */
export function short(id) {
  const [prefix, digits] = id.split("_");
  return digits && digits.length > 12 ? `${prefix}_${digits.slice(0, 4)}…${digits.slice(-6)}` : id;
}

/** A text as JSON with line breaks; none, if it is no JSON object or list. */
export function prettyJson(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === "object" && value !== null ? JSON.stringify(value, null, 2) : null;
  } catch {
    return null;
  }
}
