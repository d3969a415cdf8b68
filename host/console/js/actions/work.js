// Actions on events and work items.

import { post } from "../api.js";
import { h } from "../dom.js";
import { badge, idLink } from "../parts.js";
import { asking, isAt } from "./asking.js";

/** Claims an event's work item before all others. */
export function runEvent(event) {
  return asking("Run next…", "primary", {
    title: `Run event ${event.id} next`,
    says: [
      "Its work item is claimed before all others of its pack. Lanes, delays and leases still apply: if one blocks it, nothing happens and the host names it.",
    ],
    command: `forebay event run ${event.id}`,
    run: async () => {
      const item = await post(`/api/v1/events/${event.id}/run`);
      return isAt(`Work item ${item.id}`, item.state);
    },
  });
}

/** Re-runs the finished work items without effects. */
export function verifyEvent(event) {
  return asking("Verify…", "primary", {
    title: `Verify event ${event.id}`,
    says: [
      "Its finished work items run again on the same generation, with the same reads and without effects, and the outputs are compared. Nothing is sent or changed.",
    ],
    command: `forebay event verify ${event.id}`,
    run: async () => verification(await post(`/api/v1/events/${event.id}/verify`)),
  });
}

function verification({ same, differing, unknown, runs }) {
  const counts = `${same} the same, ${differing} different, ${unknown} not comparable.`;
  const named = runs.map((run) => {
    const now = run.now ? h("pre", { tabindex: "0" }, JSON.stringify(run.now, null, 2)) : null;
    return h("li", null, badge(run.verdict), ` generation ${run.generation}`, run.reason ? `: ${run.reason}` : "", now);
  });
  return h("div", null, h("p", null, counts), named.length ? h("ul", null, named) : null);
}

/** Skips a dead work item, so that its lane continues. */
export function skipWorkItem(item) {
  return asking("Skip…", "danger", {
    title: `Skip work item ${item.id}`,
    says: [
      "It stays dead, and its lane continues without it. This cannot be undone; the work item can still be replayed, at the end of the lane.",
    ],
    command: `forebay work-item skip ${item.id}`,
    run: async () => isAt("The work item", (await post(`/api/v1/work-items/${item.id}/skip`)).state),
  });
}

/** Replays a work item. */
export function replayWorkItem(item) {
  return asking("Replay…", "primary", {
    title: `Replay work item ${item.id}`,
    says: [
      `It runs again as a new work item, on ${item.pack}@${item.generation}, at the end of its source's lane. It emits new messages: receivers get them in addition to the earlier ones.`,
    ],
    command: `forebay work-item replay ${item.id}`,
    run: async () => {
      const { already, work_item: child } = await post(`/api/v1/work-items/${item.id}/replay`);
      return h(
        "p",
        null,
        already ? "It was replayed before, as " : "It is replayed, as ",
        idLink(child.id),
        ", which is ",
        badge(child.state),
        ".",
      );
    },
  });
}
