// Creating elements, and updating the page from newly created ones.
//
// All text from outside passes through this file, as text nodes or attribute values only: the console parses no HTML.
// The page's policy (trusted types) makes the browser enforce that.

const SVG = new Set(["svg", "path", "polyline", "rect", "line", "circle"]);
const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

/** Listeners, set as properties so that an update can copy them. */
const HANDLERS = ["onclick", "onsubmit", "onchange", "oninput", "onkeydown"];

/**
 * Creates an element. Functions among `properties` become listeners, `true` becomes an attribute without a value, and
 * null, undefined and false are left out. Children are nodes, texts, numbers, or lists of those.
 */
export function h(name, properties, ...children) {
  const element = SVG.has(name) ? document.createElementNS(SVG_NAMESPACE, name) : document.createElement(name);
  for (const [key, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element[key] = value;
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/**
 * Updates `from`, which is on the page, to equal `to`, which is new, and changes only differences: focus, selection,
 * scroll position and opened details stay.
 */
export function morph(from, to) {
  if (from.nodeName !== to.nodeName || keyOf(from) !== keyOf(to)) {
    from.replaceWith(to);
    return;
  }
  if (from.nodeType === Node.TEXT_NODE) {
    if (from.data !== to.data) from.data = to.data;
    return;
  }
  if (from.nodeType !== Node.ELEMENT_NODE) return;
  // The field that the user is typing in stays as it is.
  const isTheirs = from === document.activeElement && from.matches("input, textarea, select");
  if (!isTheirs) morphAttributes(from, to);
  for (const handler of HANDLERS) if (from[handler] !== to[handler]) from[handler] = to[handler];
  if (!isTheirs) morphChildren(from, to);
}

function morphAttributes(from, to) {
  for (const { name, value } of [...to.attributes]) {
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
  for (const { name } of [...from.attributes]) {
    // The user opens and closes details.
    const isOpened = name === "open" && from.nodeName === "DETAILS";
    if (!to.hasAttribute(name) && !isOpened) from.removeAttribute(name);
  }
}

function morphChildren(from, to) {
  const keyed = new Map([...from.childNodes].filter(keyOf).map((child) => [keyOf(child), child]));
  let current = from.firstChild;
  for (const wanted of [...to.childNodes]) {
    const found = keyOf(wanted) ? keyed.get(keyOf(wanted)) : current;
    if (!found || (found === current && keyOf(found) !== keyOf(wanted))) {
      from.insertBefore(wanted, current);
      continue;
    }
    if (found === current) current = current.nextSibling;
    else from.insertBefore(found, current);
    morph(found, wanted);
  }
  while (current) {
    const next = current.nextSibling;
    current.remove();
    current = next;
  }
}

/** The key of a row: with it, a row keeps its element when others are inserted before it. */
function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null;
}
