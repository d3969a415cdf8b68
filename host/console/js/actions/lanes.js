// What can be done with lanes. One is named as on the command line: DESTINATION, or NAMESPACE/DESTINATION for one
// tenant's.

import { post } from "../api.js";
import { h } from "../dom.js";
import { plural } from "../format.js";
import { badge } from "../parts.js";
import { asking } from "./asking.js";

const laneName = ({ namespace, destination }) => (namespace ? `${namespace}/${destination}` : destination);
const laneWords = ({ namespace, destination }) =>
  namespace ? `of tenant ${namespace} to ${destination}` : `of every tenant to ${destination}`;

function setGate(target, gate, text, kind, says, verb) {
  const withReason = gate !== "open";
  return asking(text, kind, {
    title: `${verb[0].toUpperCase()}${verb.slice(1)} ${laneName(target)}`,
    says: [`The lanes ${laneWords(target)}: ${says}`],
    fields: withReason ? [{ name: "reason", label: "Reason", hint: "For whoever looks later." }] : [],
    command: ({ reason }) => `forebay lane ${verb} ${laneName(target)}${reason ? ` --reason '${reason}'` : ""}`,
    run: async ({ reason }) => {
      const set = await post("/api/v1/lanes/gate", {
        destination: target.destination,
        ...(target.namespace ? { namespace: target.namespace } : {}),
        gate,
        ...(reason?.trim() ? { reason: reason.trim() } : {}),
      });
      return h("p", null, `The gate of ${laneName(set)} is `, badge(set.gate), ". Every host sees it within a second.");
    },
  });
}

/** Lets nothing more be sent for now. */
export function pauseLane(target) {
  return setGate(
    target,
    "paused",
    "Pause…",
    "primary",
    "nothing more is sent until they are resumed. What waits goes on waiting, can be cancelled, and expires in its time.",
    "pause",
  );
}

/** Shuts it for good. */
export function closeLane(target) {
  return setGate(
    target,
    "closed",
    "Close…",
    "danger",
    "nothing more is sent, and this is meant for good. What waits stays visible; a resume opens them again.",
    "close",
  );
}

/** Lets it send again. */
export function resumeLane(target) {
  return setGate(target, "open", "Resume…", "primary", "what is due is sent again, in its turn.", "resume");
}

/** Opens, pauses or closes a destination that is given by name, of every tenant or of one. */
export function setAnyGate() {
  const target = ({ namespace, destination }) =>
    laneName({ namespace: namespace.trim(), destination: destination.trim() || "DESTINATION" });
  const verbs = { paused: "pause", closed: "close", open: "resume" };
  return asking("Set a gate…", "primary", {
    title: "Set the gate of a destination",
    says: [
      "A gate is kept in the database: it outlives restarts, and every host sees it within a second. What is being sent at that moment is sent to its end.",
    ],
    fields: [
      { name: "destination", label: "Destination" },
      { name: "namespace", label: "Namespace", hint: "Nothing is every tenant." },
      {
        name: "gate",
        label: "Gate",
        value: "paused",
        words: [
          ["paused", "Paused: nothing more is sent for now"],
          ["closed", "Closed: nothing more is sent, for good"],
          ["open", "Open: what is due is sent again"],
        ],
      },
      { name: "reason", label: "Reason", hint: "For whoever looks later." },
    ],
    command: (values) =>
      `forebay lane ${verbs[values.gate]} ${target(values)}${values.reason && values.gate !== "open" ? ` --reason '${values.reason}'` : ""}`,
    run: async ({ destination, namespace, gate, reason }) => {
      const optional = (name, text) => (text.trim() ? { [name]: text.trim() } : {});
      const set = await post("/api/v1/lanes/gate", {
        destination: destination.trim(),
        gate,
        ...optional("namespace", namespace),
        ...optional("reason", reason),
      });
      return h("p", null, `The gate of ${laneName(set)} is `, badge(set.gate), ".");
    },
  });
}

/** Pages of dead messages that one click asks the host for: more are a matter for the command line. */
const REDRIVE_PAGES_MAX = 200;

/** Sends a lane's dead messages again, page by page. */
export function redriveLane(target) {
  return asking("Redrive dead…", "primary", {
    title: `Send the dead messages of ${laneName(target)} again`,
    says: [
      `Every dead message ${laneWords(target)} that is still of use is sent again, with the idempotency key that it always had.`,
    ],
    command: `forebay message redrive --lane ${laneName(target)}`,
    label: "Send them again",
    run: async () => {
      const total = { redriven: 0, expired: 0 };
      let after = null;
      for (let page = 0; page < REDRIVE_PAGES_MAX; page += 1) {
        const wish = { namespace: target.namespace, destination: target.destination, ...(after ? { after } : {}) };
        const answer = await post("/api/v1/lanes/redrive", wish);
        total.redriven += answer.redriven;
        total.expired += answer.expired;
        after = answer.next;
        if (!after) break;
      }
      const rest = after ? " There are more: ask again." : "";
      return `${plural(total.redriven, "message is", "messages are")} sent again; ${plural(total.expired, "is", "are")} of no more use.${rest}`;
    },
  });
}
