// The views of addresses. An address is kept after `#`, so that it can be bookmarked and reloaded.

import { event } from "./views/event.js";
import { events } from "./views/events.js";
import { lanes } from "./views/lanes.js";
import { message } from "./views/message.js";
import { messages } from "./views/messages.js";
import { overview } from "./views/overview.js";
import { packs } from "./views/packs.js";
import { queue } from "./views/queue.js";
import { shards } from "./views/shards.js";
import { workItem } from "./views/work-item.js";

/** The navigation, in its order. */
export const PLACES = [
  { path: "/", name: "Overview" },
  { path: "/events", name: "Events" },
  { path: "/queue", name: "Queue" },
  { path: "/messages", name: "Messages" },
  { path: "/lanes", name: "Lanes" },
  { path: "/shards", name: "Shards" },
  { path: "/packs", name: "Packs" },
];

/** `:id` stands for a part of the path; `place` is the entry of the navigation. */
const ROUTES = [
  { pattern: "/", view: overview, place: "/", title: "Overview" },
  { pattern: "/events", view: events, place: "/events", title: "Events" },
  { pattern: "/events/:id", view: event, place: "/events", title: "Event" },
  { pattern: "/work-items/:id", view: workItem, place: "/events", title: "Work item" },
  { pattern: "/queue", view: queue, place: "/queue", title: "Queue" },
  { pattern: "/queue/:id", view: queue, place: "/queue", title: "Queue" },
  { pattern: "/messages", view: messages, place: "/messages", title: "Messages" },
  { pattern: "/messages/:id", view: message, place: "/messages", title: "Message" },
  { pattern: "/lanes", view: lanes, place: "/lanes", title: "Lanes" },
  { pattern: "/shards", view: shards, place: "/shards", title: "Shards" },
  { pattern: "/packs", view: packs, place: "/packs", title: "Packs" },
];

/** The route of the present address, with its id and query; null if no view has it. */
export function currentRoute() {
  const address = location.hash.slice(1) || "/";
  const [path, query = ""] = splitOnce(address, "?");
  for (const route of ROUTES) {
    const id = match(route.pattern, path);
    if (id !== null) return { ...route, path, id, query: new URLSearchParams(query) };
  }
  return null;
}

/** The part in place of `:id`, or an empty text without one; null if the path does not match. */
function match(pattern, path) {
  const wanted = pattern.split("/");
  const given = path.split("/");
  if (wanted.length !== given.length) return null;
  let id = "";
  for (const [index, part] of wanted.entries()) {
    if (part === ":id" && given[index]) id = decode(given[index]);
    else if (part !== given[index]) return null;
  }
  return id;
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function splitOnce(text, separator) {
  const at = text.indexOf(separator);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}
