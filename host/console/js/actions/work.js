// What can be done with events and work items.

import { post } from "../api.js";
import { h } from "../dom.js";
import { badge, idLink } from "../parts.js";
import { asking, isAt } from "./asking.js";

/** Has an event's work item claimed before all others. */
export function runEvent(event) {
  return asking("Run next…", "primary", {
    title: `Run event ${event.id} next`,
    says: [
      "Its work item is claimed before all others of its pack. A lane, a delay or a lease is passed by nobody: if one stands in the way, nothing happens and the host says so.",
    ],
    command: `forebay event run ${event.id}`,
    run: async () => {
      const item = await post(`/api/v1/events/${event.id}/run`);
      return isAt(`Work item ${item.id}`, item.state);
    },
  });
}

/** Runs what is done again, without effects. */
export function verifyEvent(event) {
  return asking("Verify…", "primary", {
    title: `Verify event ${event.id}`,
    says: [
      "What is done of it runs again on the generation that ran it, with the same reads and without effects, and the outputs are compared. Nothing is sent and nothing is changed.",
    ],
    command: `forebay event verify ${event.id}`,
    run: async () => verification(await post(`/api/v1/events/${event.id}/verify`)),
  });
}

function verification({ same, differing, unknown, runs }) {
  const counts = `${same} the same, ${differing} differing, ${unknown} that could not be compared.`;
  const named = runs.map((run) => {
    const now = run.now ? h("pre", { tabindex: "0" }, JSON.stringify(run.now, null, 2)) : null;
    return h("li", null, badge(run.verdict), ` generation ${run.generation}`, run.reason ? `: ${run.reason}` : "", now);
  });
  return h("div", null, h("p", null, counts), named.length ? h("ul", null, named) : null);
}

/** Lets the lane go on that a dead work item holds up. */
export function skipWorkItem(item) {
  return asking("Skip…", "danger", {
    title: `Skip work item ${item.id}`,
    says: [
      "It stays dead, and what waits behind it in its lane goes on without it. That cannot be taken back; the work item can still be replayed, at the end of the lane.",
    ],
    command: `forebay work-item skip ${item.id}`,
    run: async () => isAt("The work item", (await post(`/api/v1/work-items/${item.id}/skip`)).state),
  });
}

/** Runs a work item again, as one child. */
export function replayWorkItem(item) {
  return asking("Replay…", "primary", {
    title: `Replay work item ${item.id}`,
    says: [
      `It runs again as a new work item, on generation ${item.generation} of ${item.pack}, at the end of its source's lane. What it emits is sent as new messages: receivers see them beside those that were sent before.`,
    ],
    command: `forebay work-item replay ${item.id}`,
    run: async () => {
      const { already, work_item: child } = await post(`/api/v1/work-items/${item.id}/replay`);
      return h(
        "p",
        null,
        already ? "It was replayed before, as " : "It runs again, as ",
        idLink(child.id),
        ", which is ",
        badge(child.state),
        ".",
      );
    },
  });
}
